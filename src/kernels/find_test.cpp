#include "kernels/find.hpp"

#include <gtest/gtest.h>

#include "kernels/compare.hpp"
#include "kernels/look_fixture.hpp"

namespace tenscope::kernels {
namespace {

std::int64_t reference_next(const std::vector<bool>& wanted, std::optional<std::int64_t> from, bool is_backward) {
  const auto count = static_cast<std::int64_t>(wanted.size());
  std::int64_t at = from.value_or(is_backward ? count : -1);
  for (std::int64_t i = 0; i < count; ++i) {
    at = is_backward ? (at <= 0 ? count - 1 : at - 1) : (at + 1) % count;
    if (wanted[static_cast<std::size_t>(at)]) return at;
  }
  return -1;
}

TEST(Find, NextAndCountAreThoseOfASlowLoop) {
  using Kind = Wanted::Kind;
  for_each_case(8, 3, [&](const LookCase& one, std::mt19937_64& random) {
    const Look look = one.look();
    double largest = -1;
    for (const double x : one.expected) {
      if (std::isfinite(x)) largest = std::max(largest, std::abs(x));
    }
    EXPECT_NEAR(largest_magnitude(look), largest, std::abs(largest) * 1e-15);
    for (const Kind kind : {Kind::Nan, Kind::Inf, Kind::Bad, Kind::Nonzero, Kind::Magnitude, Kind::Mismatch}) {
      if (kind == Kind::Mismatch && one.kind != LookKind::Difference) continue;
      Wanted wanted{.kind = kind, .magnitude = largest_magnitude(look), .tolerance = {0.01, 0.1}};
      std::vector<bool> matches;
      for (std::int64_t i = 0; i < one.a.count(); ++i) {
        const double x = one.expected[static_cast<std::size_t>(i)];
        switch (kind) {
          case Kind::Nan:
            matches.push_back(std::isnan(x));
            break;
          case Kind::Inf:
            matches.push_back(std::isinf(x));
            break;
          case Kind::Bad:
            matches.push_back(!std::isfinite(x));
            break;
          case Kind::Nonzero:
            matches.push_back(!(x == 0));
            break;
          case Kind::Magnitude:
            matches.push_back(std::abs(x) >= largest * (1 - 1e-15) && std::isfinite(x));
            break;
          case Kind::Mismatch: {
            const double bound = 0.01 + 0.1 * std::abs(reference_value(LookKind::Value, one.a, nullptr, i));
            matches.push_back(!(x == 0 || (std::isfinite(x) && std::abs(x) <= bound)));
          }
        }
      }
      ASSERT_EQ(count_wanted(look, wanted), std::count(matches.begin(), matches.end(), true))
          << to_string(one.a.dtype) << " " << static_cast<int>(kind);
      for (int i = 0; i < 6; ++i) {
        std::optional<std::int64_t> from;
        if (i >= 2 && look.count() > 0)
          from = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(look.count()));
        ASSERT_EQ(find_next(look, wanted, from, i % 2 == 1), reference_next(matches, from, i % 2 == 1));
      }
    }
    if (one.kind != LookKind::Difference || largest <= 0) return;
    const Wanted worst{.kind = Kind::Magnitude, .magnitude = largest_magnitude(look)};
    EXPECT_EQ(find_next(look, worst, {}, false), diff(one.b.view(), one.a.view(), {.equal_nan = true}).worst_index)
        << to_string(one.a.dtype) << " and " << to_string(one.b.dtype);
  });
}

TEST(Find, ThreadsDoNotChangeIt) {
  std::vector<float> values(5'000'000, 1.0F);
  for (std::size_t i = 0; i < values.size(); i += 777'777) values[i] = std::numeric_limits<float>::quiet_NaN();
  values[3'333'333] = -9.0F;
  const Look look(view(values.data(), {5000, 1000}));
  for (const int threads : {1, 2}) {
    EXPECT_EQ(count_wanted(look, {.kind = Wanted::Kind::Nan}, threads), 7);
    EXPECT_EQ(largest_magnitude(look, threads), 9);
  }
  EXPECT_EQ(find_next(look, {.kind = Wanted::Kind::Nan}, 1, false), 777'777);
  EXPECT_EQ(find_next(look, {.kind = Wanted::Kind::Magnitude, .magnitude = 9}, 4'000'000, false), 3'333'333);
}

TEST(Find, MismatchesAreThoseOfDiff) {
  for_each_case(9, 2, [&](const LookCase& one, std::mt19937_64&) {
    if (one.kind != LookKind::Difference) return;
    const Tolerance tolerance{0.001, 0.05};
    const ElementDiff found = diff(one.b.view(), one.a.view(), {.tolerance = tolerance, .equal_nan = true});
    const Wanted wanted{.kind = Wanted::Kind::Mismatch, .tolerance = tolerance};
    ASSERT_EQ(count_wanted(one.look(), wanted), found.mismatches)
        << to_string(one.a.dtype) << " and " << to_string(one.b.dtype);
  });
}

}  // namespace
}  // namespace tenscope::kernels
