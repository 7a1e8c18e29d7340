#include "kernels/profile.hpp"

#include <gtest/gtest.h>

#include "kernels/look_fixture.hpp"
#include "kernels/simd_target.hpp"

namespace tenscope::kernels {
namespace {

bool is_near(double x, double y, double size) {
  return x == y || (std::isnan(x) && std::isnan(y)) || std::abs(x - y) <= 1e-12 * size + 1e-320;
}

void expect_profile(const LookCase& one, std::size_t axis, const Profile& profile) {
  const std::int64_t size = one.a.shape[axis], width = std::max<std::int64_t>(1, (size + 4095) / 4096);
  ASSERT_EQ(profile.size, size);
  ASSERT_EQ(profile.bin_width, width);
  const auto bins = static_cast<std::size_t>((size + width - 1) / width);
  ASSERT_EQ(profile.min.size(), bins);
  std::vector<double> min(bins, kTestInf), max(bins, -kTestInf), sum(bins), largest(bins);
  std::vector<long double> squares(bins);
  std::vector<std::int64_t> finite(bins), bad(bins), nonzero(bins);
  std::int64_t inner = 1;
  for (std::size_t i = axis + 1; i < one.a.shape.size(); ++i) inner *= one.a.shape[i];
  for (std::int64_t i = 0; i < one.a.count(); ++i) {
    const auto bin = static_cast<std::size_t>(i / inner % size / width);
    const double x = one.expected[static_cast<std::size_t>(i)];
    nonzero[bin] += !(x == 0);
    if (!std::isfinite(x)) {
      ++bad[bin];
      continue;
    }
    ++finite[bin];
    min[bin] = std::min(min[bin], x);
    max[bin] = std::max(max[bin], x);
    sum[bin] += x;
    squares[bin] += static_cast<long double>(x) * x;
    largest[bin] = std::max(largest[bin], std::abs(x));
  }
  for (std::size_t bin = 0; bin < bins; ++bin) {
    ASSERT_EQ(profile.bad[bin], bad[bin]);
    ASSERT_EQ(profile.nonzero[bin], nonzero[bin]);
    if (finite[bin] == 0) {
      ASSERT_TRUE(std::isnan(profile.min[bin]) && std::isnan(profile.max[bin]) && std::isnan(profile.mean[bin]) &&
                  std::isnan(profile.l2[bin]));
      continue;
    }
    ASSERT_TRUE(is_near(profile.min[bin], min[bin], largest[bin]));
    ASSERT_TRUE(is_near(profile.max[bin], max[bin], largest[bin]));
    if (largest[bin] > 1e150) continue;  // sums and squares may overflow
    ASSERT_TRUE(is_near(profile.mean[bin], sum[bin] / static_cast<double>(finite[bin]), largest[bin]));
    if (largest[bin] < 1e-150) continue;  // or vanish
    const double l2 = static_cast<double>(std::sqrt(squares[bin]));
    ASSERT_TRUE(is_near(profile.l2[bin], l2, l2));
  }
}

TEST(Profile, EveryAxisIsWhatItsElementsAre) {
  for (const auto& target : simd_targets()) {
    ASSERT_TRUE(use_simd_target(target));
    for_each_case(5, 3, [&](const LookCase& one, std::mt19937_64& random) {
      for (std::size_t axis = 0; axis < one.a.shape.size(); ++axis) {
        ASSERT_NO_FATAL_FAILURE(
            expect_profile(one, axis, make_profile(one.look(), one.a.shape, axis, 1 + static_cast<int>(random() % 3))))
            << to_string(one.a.dtype) << " axis " << axis << " on " << target;
      }
    });
  }
  use_simd_target("");
}

TEST(Profile, LongAxesAreBinned) {
  std::mt19937_64 random(6);
  for (const std::vector<std::int64_t>& shape :
       {std::vector<std::int64_t>{10'000}, {3, 5000}, {5000, 3}, {2, 9000, 7}, {4097}, {60'000, 2}, {2, 100'000}}) {
    LookCase one;
    one.a = strided_tensor(DType::F32, shape, random, true);
    fill(one.a, random, 0.001);
    one.expected = reference_values(LookKind::Value, one.a);
    for (std::size_t axis = 0; axis < shape.size(); ++axis)
      ASSERT_NO_FATAL_FAILURE(expect_profile(one, axis, make_profile(one.look(), shape, axis)));
  }
}

TEST(Profile, ThreadsDoNotChangeIt) {
  std::mt19937_64 random(7);
  LookCase one;
  one.a = strided_tensor(DType::F32, {5000, 1024}, random, true);
  fill(one.a, random, 0);
  for (std::size_t axis = 0; axis < 2; ++axis) {
    const Profile alone = make_profile(one.look(), one.a.shape, axis, 1),
                  both = make_profile(one.look(), one.a.shape, axis, 2);
    EXPECT_EQ(alone.mean, both.mean);
    EXPECT_EQ(alone.l2, both.l2);
  }
}

}  // namespace
}  // namespace tenscope::kernels
