#include "kernels/compare.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "kernels/element.hpp"
#include "kernels/simd_target.hpp"
#include "tenscope/error.hpp"

namespace tenscope::kernels {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// One of the small numbers that every type holds.
template <class T>
T small_number(int value) {
  if constexpr (std::is_arithmetic_v<T> || kIsComplex<T>)
    return static_cast<T>(value);
  else if constexpr (std::is_same_v<T, Bool>)
    return {static_cast<std::uint8_t>(value)};
  else if constexpr (std::is_same_v<T, BFloat16>) {
    return {static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(static_cast<float>(value)) >> 16)};
  } else {
    for (unsigned code = 0;; ++code) {
      T x;
      x.bits = static_cast<decltype(x.bits)>(code);
      if (to_float(x) == static_cast<float>(value)) return x;
    }
  }
}

struct Tensor {
  DType dtype;
  std::vector<std::int64_t> shape;
  std::vector<std::byte> bytes;
  TensorView view() const { return {bytes.data(), dtype, shape, {}}; }
};

// Mostly numbers that agree with the other tensor's, some random bits.
Tensor make_tensor(DType dtype, std::int64_t count, std::uint64_t seed, double noise) {
  std::mt19937_64 values(1);
  std::mt19937_64 random(seed);
  Tensor tensor{dtype, {count}, std::vector<std::byte>(static_cast<std::size_t>(count) * item_size(dtype))};
  visit_dtype(dtype, [&]<class T>(T) {
    const T numbers[] = {small_number<T>(0), small_number<T>(1)};
    for (std::int64_t i = 0; i < count; ++i) {
      T x = numbers[values() % 2];
      if (std::uniform_real_distribution<double>()(random) < noise) {
        std::byte bits[sizeof(T)];
        for (auto& byte : bits) byte = static_cast<std::byte>(random() % 4 == 0 ? 0x80 : random());
        x = load<T>(bits);
      }
      std::memcpy(&tensor.bytes[static_cast<std::size_t>(i) * sizeof(T)], &x, sizeof(T));
    }
  });
  return tensor;
}

struct Number {
  long double real = 0, imag = 0;
  bool is_nan() const { return std::isnan(real) || std::isnan(imag); }
  bool is_finite() const { return std::isfinite(real) && std::isfinite(imag); }
};

Number number_at(const Tensor& tensor, std::int64_t i) {
  return visit_dtype(tensor.dtype, [&]<class T>(T) -> Number {
    const T x = load<T>(&tensor.bytes[static_cast<std::size_t>(i) * sizeof(T)]);
    if constexpr (kIsComplex<T>)
      return {x.real(), x.imag()};
    else if constexpr (std::is_integral_v<T>)
      return {static_cast<long double>(x)};
    else
      return {to_double(x)};
  });
}

bool book_close(Number a, Number b, const CompareOptions& options) {
  if (a.is_nan() || b.is_nan()) return options.equal_nan && a.is_nan() && b.is_nan();
  if (!a.is_finite() || !b.is_finite()) return a.real == b.real && a.imag == b.imag;
  const long double real = a.real - b.real;
  const long double imag = a.imag - b.imag;
  const double error = static_cast<double>(std::sqrt(real * real + imag * imag));
  const double size = static_cast<double>(std::sqrt(b.real * b.real + b.imag * b.imag));
  return error <= options.tolerance.absolute + options.tolerance.relative * size;
}

class OnEveryTarget : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { ASSERT_TRUE(use_simd_target(GetParam())); }
  void TearDown() override { use_simd_target(""); }
};
INSTANTIATE_TEST_SUITE_P(Simd, OnEveryTarget, testing::ValuesIn(simd_targets()),
                         [](const auto& info) { return info.param; });

TEST_P(OnEveryTarget, EveryPairOfTypesAsTheBookSays) {
  int agreeing = 0;
  for (int da = 0; da < kDTypeCount; ++da) {
    for (int db = 0; db < kDTypeCount; ++db) {
      for (const double noise : {0.0, 0.002, 0.3}) {
        for (const bool equal_nan : {false, true}) {
          const auto a = make_tensor(static_cast<DType>(da), 700, 2, noise);
          const auto b = make_tensor(static_cast<DType>(db), 700, noise == 0.3 ? 3 : 2, noise);
          CompareOptions options;
          options.equal_nan = equal_nan;
          options.tolerance = noise == 0.3 ? Tolerance{0.5, 0.1} : Tolerance{};
          std::int64_t mismatches = 0;
          std::int64_t first = -1;
          for (std::int64_t i = 0; i < 700; ++i) {
            if (book_close(number_at(a, i), number_at(b, i), options)) continue;
            ++mismatches;
            if (first < 0) first = i;
          }
          SCOPED_TRACE(testing::Message()
                       << to_string(a.dtype) << " against " << to_string(b.dtype) << " noise " << noise);
          EXPECT_EQ(all_close(a.view(), b.view(), options), mismatches == 0);
          const ElementDiff found = diff(a.view(), b.view(), options);
          EXPECT_EQ(found.mismatches, mismatches);
          EXPECT_EQ(found.first_index, first);
          EXPECT_EQ(found.bit_equal, a.dtype == b.dtype && a.bytes == b.bytes);
          agreeing += mismatches == 0;
          if (HasFailure()) return;
        }
      }
    }
  }
  EXPECT_GT(agreeing, 700);
}

TEST_P(OnEveryTarget, MeasuresByTheBook) {
  std::mt19937_64 random(5);
  std::normal_distribution<float> normal;
  std::vector<float> a(30 * 50);
  std::vector<float> b(a.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    a[i] = normal(random);
    b[i] = a[i] + 1e-3F * normal(random);
  }
  b[77] = 9.0F;
  const auto found = diff(view(a.data(), {30, 50}), view(b.data(), {30, 50}), {.tolerance = {0, 0}});
  long double sum = 0, relative = 0, aa = 0, bb = 0, ab = 0, squared = 0;
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double error = std::abs(static_cast<double>(a[i]) - b[i]);
    largest = std::max(largest, error);
    sum += error;
    relative += error / std::abs(b[i]);
    aa += static_cast<long double>(a[i]) * a[i];
    bb += static_cast<long double>(b[i]) * b[i];
    ab += static_cast<long double>(a[i]) * b[i];
    squared += static_cast<long double>(error) * error;
  }
  EXPECT_EQ(found.worst_index, 77);
  EXPECT_EQ(found.max_abs, largest);
  EXPECT_NEAR(found.mean_abs, static_cast<double>(sum / a.size()), 1e-15);
  EXPECT_NEAR(found.mean_rel, static_cast<double>(relative / a.size()), 1e-12);
  EXPECT_NEAR(found.cosine, static_cast<double>(ab / std::sqrt(aa * bb)), 1e-14);
  EXPECT_NEAR(found.relative_l2, static_cast<double>(std::sqrt(squared / bb)), 1e-14);
  std::int64_t in_histogram = found.zero_error;
  for (auto n : found.error_histogram) in_histogram += n;
  EXPECT_EQ(in_histogram, 1500);
}

TEST(Compare, IntegersAreExact) {
  const std::int64_t big = (std::int64_t{1} << 53) + 1;
  const double rounded = 0x1p53;
  const CompareOptions exact{.tolerance = {0, 0}};
  EXPECT_FALSE(all_close(view(&big, {}), view(&rounded, {}), exact));
  EXPECT_TRUE(all_close(view(&big, {}), view(&rounded, {}), {.tolerance = {1, 0}}));
  const std::int64_t minus_one = -1;
  const std::uint64_t largest = ~std::uint64_t{0};
  EXPECT_FALSE(all_close(view(&minus_one, {}), view(&largest, {}), exact));
  EXPECT_FALSE(all_close(view(&largest, {}), view(&minus_one, {}), {.tolerance = {1e18, 0}}));
  const double two_to_64 = 0x1p64;
  EXPECT_FALSE(all_close(view(&largest, {}), view(&two_to_64, {}), exact));
  const std::int8_t low = -128;
  const std::int8_t high = 127;
  EXPECT_EQ(diff(view(&low, {}), view(&high, {})).max_abs, 255);
}

TEST(Compare, NonFinitePairs) {
  const std::vector<double> a{kInf, -kInf, kNaN, 1, kInf, kNaN, 1e308};
  const std::vector<double> b{kInf, kInf, kNaN, kNaN, 5, 2, -1e308};
  const auto found = diff(view(a.data(), {7}), view(b.data(), {7}), {.tolerance = {0, 0.1}});
  EXPECT_EQ(found.mismatches, 6);
  EXPECT_EQ(found.first_index, 1);
  EXPECT_EQ(found.nan_both, 1);
  EXPECT_EQ(found.nan_only_value, 1);
  EXPECT_EQ(found.nan_only_reference, 1);
  EXPECT_EQ(found.inf_only_value, 2);
  EXPECT_EQ(found.inf_only_reference, 1);
  EXPECT_EQ(diff(view(a.data(), {3}), view(b.data(), {3}), {.equal_nan = true}).mismatches, 1);
}

TEST_P(OnEveryTarget, NaNEqualsNaNWhenAsked) {
  const std::vector<double> nan(33, kNaN);
  EXPECT_TRUE(all_close(view(nan.data(), {33}), view(nan.data(), {33}), {.equal_nan = true}));
  EXPECT_FALSE(all_close(view(nan.data(), {33}), view(nan.data(), {33})));
  EXPECT_EQ(diff(view(nan.data(), {33}), view(nan.data(), {33}), {.equal_nan = true}).mismatches, 0);
}

TEST_P(OnEveryTarget, HistogramsByTheBook) {
  std::mt19937_64 random(9);
  std::vector<float> a(1003);
  std::vector<float> b(a.size());
  std::array<std::int64_t, kErrorBins> decades{};
  std::vector<std::uint64_t> distances;
  std::int64_t zero = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    a[i] = std::ldexp(static_cast<float>(random() % 1000) - 500.0F, static_cast<int>(random() % 40) - 20);
    b[i] = random() % 4 == 0 ? a[i] : a[i] + std::ldexp(1.0F, static_cast<int>(random() % 60) - 40);
    const double error = std::abs(static_cast<double>(a[i]) - b[i]);
    if (error == 0)
      ++zero;
    else
      ++decades[static_cast<std::size_t>(std::floor(std::log10(error)) - kErrorBinBase)];
    const auto ordered = [](float x) {
      const auto bits = std::bit_cast<std::uint32_t>(x);
      const auto size = static_cast<std::int64_t>(bits & 0x7FFFFFFFU);
      return bits >> 31 != 0 ? -size : size;
    };
    distances.push_back(static_cast<std::uint64_t>(std::abs(ordered(a[i]) - ordered(b[i]))));
  }
  std::ranges::sort(distances);
  const auto found = diff(view(a.data(), {1003}), view(b.data(), {1003}));
  EXPECT_EQ(found.zero_error, zero);
  EXPECT_EQ(found.error_histogram, decades);
  EXPECT_EQ(found.max_ulps, distances.back());
  const double median = static_cast<double>(distances[501]);
  EXPECT_GE(static_cast<double>(found.ulp_quantile(0.5)) * (1 + 1e-6), median);
  EXPECT_LE(static_cast<double>(found.ulp_quantile(0.5)), median * 9 / 8);
}

TEST(Compare, ShapesMustMatch) {
  const std::vector<float> x(6);
  EXPECT_FALSE(all_close(view(x.data(), {6}), view(x.data(), {1, 6})));
  EXPECT_FALSE(all_close(view(x.data(), {2, 3}), view(x.data(), {3, 2})));
  EXPECT_TRUE(all_close(view(x.data(), {0, 3}), view(x.data(), {0, 3})));
  EXPECT_THROW(diff(view(x.data(), {6}), view(x.data(), {5})), Error);
}

TEST(Compare, StridesAreFollowed) {
  const std::vector<float> rows{1, 2, 3, 4, 5, 6};
  const std::vector<float> columns{1, 4, 2, 5, 3, 6};
  const std::vector<std::int64_t> shape{2, 3};
  const std::vector<std::int64_t> strides{1, 2};
  const TensorView transposed{columns.data(), DType::F32, shape, strides};
  EXPECT_TRUE(all_close(view(rows.data(), {2, 3}), transposed));
  EXPECT_TRUE(diff(view(rows.data(), {2, 3}), transposed).bit_equal);
}

TEST(Compare, Ulps) {
  const std::vector<float> a{1.0F, -0.0F, 1.0F, 1.0F};
  const std::vector<float> b{std::nextafter(1.0F, 2.0F), 0.0F, 1.0F, 2.0F};
  const auto found = diff(view(a.data(), {4}), view(b.data(), {4}), {.tolerance = {0, 0}, .ulps = 1});
  EXPECT_TRUE(found.has_ulps);
  EXPECT_EQ(found.max_ulps, 1U << 23);
  EXPECT_EQ(found.mismatches, 1);
  EXPECT_EQ(found.ulp_quantile(0.5), 0U);
  EXPECT_EQ(found.ulp_quantile(0.75), 1U);
  EXPECT_EQ(found.ulp_quantile(1.0), 1U << 23);
  EXPECT_TRUE(all_close(view(a.data(), {3}), view(b.data(), {3}), {.tolerance = {0, 0}, .ulps = 1}));
  EXPECT_FALSE(all_close(view(a.data(), {3}), view(b.data(), {3}), {.tolerance = {0, 0}}));
  EXPECT_FALSE(diff(view(a.data(), {4}), view(std::vector<double>(4).data(), {4})).has_ulps);
}

TEST(Compare, AxesCountMismatches) {
  std::vector<float> a(6 * 100);
  auto b = a;
  for (std::size_t row : {2U, 5U}) {
    for (std::size_t column = 64; column < 80; ++column) b[row * 100 + column] = 1;
  }
  const auto found = diff(view(a.data(), {6, 100}), view(b.data(), {6, 100}));
  EXPECT_EQ(found.mismatches, 32);
  EXPECT_EQ(found.axes[0].count, (std::vector<std::int64_t>{0, 0, 16, 0, 0, 16}));
  for (std::size_t i = 0; i < 100; ++i) EXPECT_EQ(found.axes[1].count[i], i >= 64 && i < 80 ? 2 : 0);
}

TEST(Compare, DifferencesThatNoDoubleHoldsAreTheLargest) {
  std::vector<double> a(2000, 1), b(2000, 1);
  b[3] = 2;
  a[700] = a[1999] = 1e308;
  b[700] = b[1999] = -1e308;
  const auto found = diff(view(a.data(), {2000}), view(b.data(), {2000}), {.tolerance = {0, 0}});
  EXPECT_EQ(found.mismatches, 3);
  EXPECT_EQ(found.overflows, 2);
  EXPECT_EQ(found.worst_index, 700);
  EXPECT_TRUE(std::isinf(found.max_abs) && std::isinf(found.mean_abs));
  EXPECT_EQ(found.max_rel, 2);
  EXPECT_TRUE(std::isnan(found.cosine) && std::isnan(found.relative_l2));
  const auto far = distance(view(a.data(), {2000}), view(b.data(), {2000}));
  EXPECT_EQ(far.differing, 3);
  EXPECT_EQ(far.other_nonfinite, 0);
  EXPECT_TRUE(std::isinf(far.max_difference));
  EXPECT_EQ(far.max_reference, 1e308);
}

TEST(Compare, LongAxesAreBinnedAndThreadsAgree) {
  const std::int64_t count = 3 << 20;
  std::vector<float> a(static_cast<std::size_t>(count), 0.25F);
  auto b = a;
  for (std::int64_t i = 1000; i < 500000; ++i) b[static_cast<std::size_t>(i)] += static_cast<float>(i) * 1e-6F;
  b[2000000] = 7;
  const auto one = diff(view(a.data(), {count}), view(b.data(), {count}), {.tolerance = {0, 0}, .threads = 1});
  const auto four = diff(view(a.data(), {count}), view(b.data(), {count}), {.tolerance = {0, 0}, .threads = 4});
  EXPECT_EQ(one.mismatches, 499001);
  EXPECT_EQ(one.axes[0].bin_width, 768);
  EXPECT_EQ(one.axes[0].low[1], 1000);
  EXPECT_EQ(one.axes[0].low[2000000 / 768], 2000000);
  EXPECT_EQ(one.axes[0].high[2000000 / 768], 2000000);
  EXPECT_EQ(one.mismatches, four.mismatches);
  EXPECT_EQ(one.worst_index, 2000000);
  EXPECT_EQ(four.worst_index, 2000000);
  EXPECT_EQ(one.first_index, four.first_index);
  EXPECT_EQ(one.mean_abs, four.mean_abs);
  EXPECT_EQ(one.cosine, four.cosine);
  EXPECT_EQ(one.axes[0].count, four.axes[0].count);
  EXPECT_EQ(one.ulp_histogram, four.ulp_histogram);
  EXPECT_FALSE(all_close(view(a.data(), {count}), view(b.data(), {count}), {.threads = 4}));
  EXPECT_TRUE(all_close(view(a.data(), {count}), view(a.data(), {count}), {.threads = 4}));
}

}  // namespace
}  // namespace tenscope::kernels
