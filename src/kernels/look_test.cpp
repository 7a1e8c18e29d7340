#include "kernels/look.hpp"

#include <gtest/gtest.h>

#include "kernels/look_fixture.hpp"
#include "kernels/simd_target.hpp"
#include "tenscope/error.hpp"

namespace tenscope::kernels {
namespace {

// The same number, or both NaN; magnitudes and quotients may be off by a rounding.
bool is_same(double x, double y) {
  if (x == y || (std::isnan(x) && std::isnan(y))) return true;
  return std::isfinite(x) && std::isfinite(y) && std::abs(x - y) <= 1e-15 * std::max(std::abs(x), std::abs(y)) + 1e-320;
}

TEST(Look, ReadsWhatTheElementsAre) {
  for (const auto& target : simd_targets()) {
    ASSERT_TRUE(use_simd_target(target));
    for_each_case(1, 4, [&](const LookCase& one, std::mt19937_64& random) {
      const Look look = one.look();
      ASSERT_EQ(look.count(), static_cast<std::int64_t>(one.expected.size()));
      LookBlock block;
      for (std::int64_t begin = 0; begin < look.count();) {
        const std::int64_t count =
            std::min<std::int64_t>(1 + static_cast<std::int64_t>(random() % kCompareBlock), look.count() - begin);
        look.read(begin, count, block);
        for (std::int64_t i = 0; i < count; ++i) {
          const double expected = one.expected[static_cast<std::size_t>(begin + i)];
          ASSERT_TRUE(is_same(block.values[i], expected))
              << to_string(one.a.dtype) << " " << to_string(one.b.dtype) << " kind " << static_cast<int>(one.kind)
              << " at " << begin + i << ": " << block.values[i] << " and not " << expected << " on " << target;
          ASSERT_EQ(block.values[i] == 0, expected == 0);
        }
        begin += count;
      }
    });
  }
  use_simd_target("");
}

TEST(Look, DifferencesOfLargeIntegersAreExact) {
  const std::int64_t a[] = {(std::int64_t{1} << 62) + 1, std::numeric_limits<std::int64_t>::min(), -5};
  const std::int64_t b[] = {(std::int64_t{1} << 62) + 3, std::numeric_limits<std::int64_t>::max(), -5};
  LookBlock block;
  Look(LookKind::Difference, view(a, {3}), view(b, {3})).read(0, 3, block);
  EXPECT_EQ(block.values[0], 2);
  EXPECT_EQ(block.values[1], 0x1p64);
  EXPECT_EQ(block.values[2], 0);
  const std::uint64_t c[] = {~std::uint64_t{0}, 7, 3};
  const std::uint64_t d[] = {~std::uint64_t{0} - 1, 3, 7};
  Look(LookKind::Difference, view(c, {3}), view(d, {3})).read(0, 3, block);
  EXPECT_EQ(block.values[0], -1);
  EXPECT_EQ(block.values[1], -4);
  EXPECT_EQ(block.values[2], 4);
}

TEST(Look, PairsThatAreNotFinite) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const float a[] = {inf, inf, nan, nan, 1, 0, 0, inf};
  const float b[] = {inf, -inf, nan, 1, nan, 1, -0.0F, 1};
  const double difference[] = {0, -kTestInf, 0, kTestNaN, kTestNaN, 1, 0, -kTestInf};
  const double relative[] = {0, kTestInf, 0, kTestNaN, kTestNaN, kTestInf, 0, kTestInf};
  const double ulps[] = {0, kTestInf, 0, kTestNaN, kTestNaN, 0x3F800000, 0, kTestInf};
  LookBlock block;
  const auto expect = [&](LookKind kind, const double* expected) {
    Look(kind, view(a, {8}), view(b, {8})).read(0, 8, block);
    for (int i = 0; i < 8; ++i)
      EXPECT_TRUE(is_same(block.values[i], expected[i])) << static_cast<int>(kind) << " " << i;
  };
  expect(LookKind::Difference, difference);
  expect(LookKind::Relative, relative);
  expect(LookKind::Ulps, ulps);
}

TEST(Look, RefusesWhatCannotBeCompared) {
  const float a[] = {1, 2};
  const double b[] = {1, 2};
  EXPECT_THROW(Look(LookKind::Ulps, view(a, {2}), view(b, {2})), Error);
  EXPECT_THROW(Look(LookKind::Difference, view(a, {2}), view(b, {1, 2})), Error);
  const std::int32_t c[] = {1, 2};
  EXPECT_THROW(Look(LookKind::Ulps, view(c, {2}), view(c, {2})), Error);
}

}  // namespace
}  // namespace tenscope::kernels
