#include "kernels/summarize.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "kernels/element.hpp"
#include "kernels/hash.hpp"
#include "kernels/simd_target.hpp"

namespace tenscope::kernels {
namespace {

// A tensor in memory that it owns, of random bytes, and its elements in C order found by plain index arithmetic.
struct Sample {
  DType dtype;
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides;
  std::vector<std::byte> memory;
  std::int64_t offset = 0;

  TensorView view() const {
    return {memory.data() + offset * static_cast<std::int64_t>(item_size(dtype)), dtype, shape, strides};
  }

  std::vector<std::byte> c_order() const {
    const auto item = static_cast<std::int64_t>(item_size(dtype));
    std::vector<std::byte> out;
    const std::int64_t count = element_count(shape);
    for (std::int64_t i = 0; i < count; ++i) {
      std::int64_t rest = i;
      std::int64_t position = offset;
      for (std::size_t axis = shape.size(); axis-- > 0;) {
        position += rest % shape[axis] * strides[axis];
        rest /= shape[axis];
      }
      out.insert(out.end(), memory.begin() + position * item, memory.begin() + (position + 1) * item);
    }
    return out;
  }
};

Sample make_sample(DType dtype, std::vector<std::int64_t> shape, std::mt19937_64& random, bool plain_values) {
  Sample sample{dtype, std::move(shape), {}, {}};
  std::int64_t stride = 1;
  sample.strides.resize(sample.shape.size());
  std::vector<std::size_t> order(sample.shape.size());
  std::iota(order.begin(), order.end(), 0U);
  std::shuffle(order.begin(), order.end(), random);
  for (auto axis : order) {
    const auto kind = random() % 6;
    if (kind == 0) {
      sample.strides[axis] = 0;
      continue;
    }
    const std::int64_t step = stride * (kind == 1 ? 2 : 1);
    sample.strides[axis] = kind == 2 ? -step : step;
    if (kind == 2) sample.offset += step * std::max<std::int64_t>(0, sample.shape[axis] - 1);
    stride = step * std::max<std::int64_t>(1, sample.shape[axis]);
  }
  sample.memory.resize(static_cast<std::size_t>(stride) * item_size(dtype));
  for (auto& byte : sample.memory) byte = static_cast<std::byte>(random());
  if (plain_values) {
    visit_dtype(dtype, [&](auto tag) {
      using T = decltype(tag);
      for (std::size_t i = 0; i + sizeof(T) <= sample.memory.size(); i += sizeof(T)) {
        if constexpr (std::is_floating_point_v<T>) {
          const T x = static_cast<T>(1e6 + std::normal_distribution<double>()(random));
          std::memcpy(&sample.memory[i], &x, sizeof x);
        }
      }
    });
  }
  return sample;
}

// The statistics by the book, two passes in long double.
Stats reference(DType dtype, const std::vector<std::byte>& bytes) {
  std::vector<long double> finite;
  Stats stats;
  visit_dtype(dtype, [&](auto tag) {
    using T = decltype(tag);
    const auto add = [&](double x, double min_normal) {
      ++stats.count;
      stats.nan += std::isnan(x);
      stats.pos_inf += std::isinf(x) && x > 0;
      stats.neg_inf += std::isinf(x) && x < 0;
      stats.zero += x == 0;
      stats.subnormal += x != 0 && std::abs(x) < min_normal;
      if (std::isfinite(x)) finite.push_back(x);
    };
    for (std::size_t i = 0; i < bytes.size(); i += sizeof(T)) {
      const T x = load<T>(&bytes[i]);
      if constexpr (kIsComplex<T>) {
        add(x.real(), kMinNormal<typename T::value_type>);
        add(x.imag(), kMinNormal<typename T::value_type>);
      } else {
        add(to_double(x), kMinNormal<T>);
      }
      if constexpr (sizeof(T) == 8 && std::is_integral_v<T>) {
        if (i == 0 || x < static_cast<T>(stats.exact_min)) stats.exact_min = static_cast<std::int64_t>(x);
        if (i == 0 || x > static_cast<T>(stats.exact_max)) stats.exact_max = static_cast<std::int64_t>(x);
      }
    }
  });
  if (finite.empty()) return stats;
  long double sum = 0;
  long double squares = 0;
  long double deviations = 0;
  for (auto x : finite) sum += x, squares += x * x;
  const long double n = static_cast<long double>(finite.size());
  for (auto x : finite) deviations += (x - sum / n) * (x - sum / n);
  const auto [low, high] = std::minmax_element(finite.begin(), finite.end());
  stats.min = static_cast<double>(*low);
  stats.max = static_cast<double>(*high);
  stats.abs_max = std::max(std::abs(stats.min), std::abs(stats.max));
  stats.mean = static_cast<double>(sum / n);
  stats.std = static_cast<double>(std::sqrt(deviations / n));
  stats.l2 = static_cast<double>(std::sqrt(squares));
  return stats;
}

void expect_same(double actual, double expected, double tolerance, const char* what) {
  if (std::isnan(expected)) {
    EXPECT_TRUE(std::isnan(actual)) << what;
  } else if (std::isinf(expected)) {
    EXPECT_EQ(actual, expected) << what;
  } else {
    EXPECT_NEAR(actual, expected, tolerance) << what;
  }
}

void expect_stats(const Stats& actual, const Stats& expected, double relative = 1e-12) {
  EXPECT_EQ(actual.count, expected.count);
  EXPECT_EQ(actual.nan, expected.nan);
  EXPECT_EQ(actual.pos_inf, expected.pos_inf);
  EXPECT_EQ(actual.neg_inf, expected.neg_inf);
  EXPECT_EQ(actual.zero, expected.zero);
  EXPECT_EQ(actual.subnormal, expected.subnormal);
  EXPECT_EQ(actual.exact_min, expected.exact_min);
  EXPECT_EQ(actual.exact_max, expected.exact_max);
  expect_same(actual.min, expected.min, 0, "min");
  expect_same(actual.max, expected.max, 0, "max");
  expect_same(actual.abs_max, expected.abs_max, 0, "abs_max");
  expect_same(actual.mean, expected.mean, relative * expected.abs_max, "mean");
  expect_same(actual.std, expected.std, relative * expected.std + 1e-15 * expected.abs_max, "std");
  expect_same(actual.l2, expected.l2, relative * expected.l2, "l2");
}

const std::vector<std::vector<std::int64_t>> kShapes{
    {}, {0}, {1}, {7}, {64}, {5, 3}, {3, 0, 2}, {33, 65}, {2, 3, 4, 5}, {1000}, {40, 1, 129}, {4099}, {9, 700}};

TEST(Summarize, AgreesWithTheBookForEveryDTypeShapeAndStride) {
  for (const auto& target : simd_targets()) {
    ASSERT_TRUE(use_simd_target(target));
    SCOPED_TRACE(target);
    std::mt19937_64 random(1);
    for (int d = 0; d < kDTypeCount; ++d) {
      for (const auto& shape : kShapes) {
        for (const bool plain_values : {false, true}) {
          const Sample sample = make_sample(static_cast<DType>(d), shape, random, plain_values);
          SCOPED_TRACE(testing::Message()
                       << to_string(sample.dtype) << " rank " << shape.size() << " plain " << plain_values);
          const auto bytes = sample.c_order();
          std::vector<std::byte> copy(bytes.size());
          const Summary summary = summarize(sample.view(), copy.data());
          EXPECT_EQ(copy, bytes);
          EXPECT_EQ(summary.fingerprint, kHashBaseline.hash(bytes.data(), bytes.size()));
          EXPECT_EQ(fingerprint(sample.view()), summary.fingerprint);
          expect_stats(summary.stats, reference(sample.dtype, bytes));
          expect_stats(statistics(sample.view()), summary.stats, 0);
          std::vector<std::byte> second(bytes.size());
          copy_c_order(sample.view(), second.data());
          EXPECT_EQ(second, bytes);
          if (testing::Test::HasFailure()) return;
        }
      }
    }
  }
  use_simd_target("");
}

TEST(Summarize, LargeTensorsOf8BitFloats) {
  std::mt19937_64 random(3);
  for (const DType dtype : {DType::F8E4M3, DType::F8E5M2, DType::F8E4M3Fnuz, DType::F8E5M2Fnuz}) {
    for (const bool is_constant : {false, true}) {
      Sample sample = make_sample(dtype, {7, 3001}, random, false);
      if (is_constant) std::fill(sample.memory.begin(), sample.memory.end(), std::byte{0x31});
      SCOPED_TRACE(testing::Message() << to_string(dtype) << " constant " << is_constant);
      const auto bytes = sample.c_order();
      expect_stats(summarize(sample.view()).stats, reference(dtype, bytes));
      expect_stats(statistics(sample.view()), reference(dtype, bytes));
    }
  }
}

TEST(Summarize, FingerprintIsXxh128OfTheBytes) {
  const float x = 1.0F;
  EXPECT_EQ(fingerprint(view(&x, {})).hex(), kHashBaseline.hash(reinterpret_cast<const std::byte*>(&x), 4).hex());
  EXPECT_EQ(fingerprint(view(&x, {0})).hex(), "99aa06d3014798d86001c324468d497f");
}

TEST(Summarize, StdDoesNotCancel) {
  std::mt19937_64 random(2);
  std::vector<double> values(100000);
  for (auto& x : values) x = 1e9 + std::normal_distribution<double>(0, 1e-3)(random);
  std::vector<std::byte> bytes(values.size() * 8);
  std::memcpy(bytes.data(), values.data(), bytes.size());
  const Stats expected = reference(DType::F64, bytes);
  EXPECT_NEAR(statistics(view(values.data(), {100000})).std / expected.std, 1.0, 1e-9);
}

TEST(Summarize, SmallUint64) {
  std::vector<std::uint64_t> values(100);
  std::iota(values.begin(), values.end(), 0U);
  const std::int64_t shape[] = {100};
  const Stats stats = summarize({values.data(), DType::U64, shape, {}}).stats;
  EXPECT_DOUBLE_EQ(stats.mean, 49.5);
  EXPECT_NEAR(stats.std, 28.86607004772212, 1e-12);
  EXPECT_NEAR(stats.l2, std::sqrt(328350.0), 1e-9);
}

TEST(Summarize, SquaresOutsideTheRangeOfDouble) {
  const std::vector<double> large{3e200, -3e200};
  const Stats stats = statistics(view(large.data(), {2}));
  EXPECT_EQ(stats.mean, 0);
  EXPECT_DOUBLE_EQ(stats.std, 3e200);
  const std::vector<double> tiny{3e-200, -3e-200};
  EXPECT_DOUBLE_EQ(statistics(view(tiny.data(), {2})).std, 3e-200);
}

}  // namespace
}  // namespace tenscope::kernels
