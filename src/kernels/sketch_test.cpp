#include "kernels/sketch.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "kernels/element.hpp"
#include "kernels/simd_target.hpp"
#include "kernels/sketch_scalar.hpp"
#include "kernels/summarize.hpp"

namespace tenscope::kernels {
namespace {

using Shape = std::vector<std::int64_t>;

// By the book: each element by itself.
Sketch reference(const std::vector<double>& elements) {
  Sketch sketch;
  for (std::size_t i = 0; i < elements.size(); ++i) {
    const BlockDraw draw(static_cast<std::int64_t>(i / 64));
    const std::uint64_t place = i % 64 ^ draw.swap;
    if (std::isfinite(elements[i])) sketch.sums[place] += (draw.signs >> place & 1) != 0 ? -elements[i] : elements[i];
  }
  return sketch;
}

std::vector<double> components(DType dtype, const std::vector<std::byte>& bytes) {
  std::vector<double> result;
  visit_dtype(dtype, [&]<class T>(T) {
    for (std::size_t i = 0; i < bytes.size(); i += sizeof(T)) {
      const T x = load<T>(&bytes[i]);
      if constexpr (kIsComplex<T>) {
        result.push_back(x.real());
        result.push_back(x.imag());
      } else {
        result.push_back(to_double(x));
      }
    }
  });
  return result;
}

std::vector<std::byte> random_bytes(std::size_t size, std::mt19937_64& random) {
  std::vector<std::byte> bytes(size);
  for (auto& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

std::vector<double> normal_numbers(std::int64_t count, std::uint64_t seed = 1) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  std::vector<double> values(static_cast<std::size_t>(count));
  for (double& value : values) value = normal(random);
  return values;
}

double norm(const Sketch& sketch) {
  return std::sqrt(std::inner_product(sketch.sums.begin(), sketch.sums.end(), sketch.sums.begin(), 0.0));
}

double norm(const std::vector<double>& values) {
  return std::sqrt(std::inner_product(values.begin(), values.end(), values.begin(), 0.0));
}

Sketch sketch_of(const std::vector<double>& values) {
  const Shape shape{static_cast<std::int64_t>(values.size())};
  return sketch({values.data(), DType::F64, shape, {}});
}

// Random ones have infinities and NaN in every few KB: without the upper bit of the exponent they are finite.
void make_finite(std::vector<std::byte>& bytes) {
  for (auto& byte : bytes) byte &= std::byte{0xBF};
}

TEST(Sketch, IsTheSameBitForBitForEveryVectorUnitAndDType) {
  for (const auto& target : simd_targets()) {
    ASSERT_TRUE(use_simd_target(target));
    SCOPED_TRACE(target);
    std::mt19937_64 random(1);
    for (int d = 0; d < kDTypeCount; ++d) {
      const auto dtype = static_cast<DType>(d);
      for (const std::int64_t count : {0, 1, 63, 64, 65, 1000, 5000, 8192}) {
        for (const bool are_finite : {false, true}) {
          SCOPED_TRACE(testing::Message() << to_string(dtype) << " " << count << " finite " << are_finite);
          auto bytes = random_bytes(static_cast<std::size_t>(count) * item_size(dtype), random);
          if (are_finite) make_finite(bytes);
          const Shape shape{count};
          const TensorView view{bytes.data(), dtype, shape, {}};
          const Sketch expected = reference(components(dtype, bytes));
          EXPECT_EQ(sketch(view), expected);
          Sketch beside;
          summarize(view, nullptr, &beside);
          EXPECT_EQ(beside, expected);
        }
      }
    }
  }
  use_simd_target("");
}

// In the pass that takes the statistics, whether the part begins with a whole block of the sketch or not; one NaN is in
// one of the blocks that are read at a time.
TEST(Sketch, BesideTheStatisticsIsThatOfThePartAndChangesNoStatistics) {
  for (const auto& target : simd_targets()) {
    ASSERT_TRUE(use_simd_target(target));
    SCOPED_TRACE(target);
    std::mt19937_64 random(2);
    for (int d = 0; d < kDTypeCount; ++d) {
      const auto dtype = static_cast<DType>(d);
      for (const std::int64_t offset : {std::int64_t{0}, std::int64_t{64}, std::int64_t{100}}) {
        SCOPED_TRACE(testing::Message() << to_string(dtype) << " " << offset);
        auto bytes = random_bytes(9000 * item_size(dtype), random);
        make_finite(bytes);
        std::fill_n(&bytes[6000 * item_size(dtype)], item_size(dtype), std::byte{0xFF});  // NaN, or -1
        const Shape shape{9000}, whole{9100}, at{offset};
        const TensorView view{bytes.data(), dtype, shape, {}};
        std::vector<double> elements(static_cast<std::size_t>(offset) * (kind_of(dtype) == DTypeKind::Complex ? 2 : 1));
        for (const double x : components(dtype, bytes)) elements.push_back(x);
        Sketch beside;
        const Summary summary = summarize(view, nullptr, &beside, {whole, at});
        EXPECT_EQ(beside, reference(elements));
        const Stats alone = statistics(view);
        for (const auto field : {&Stats::min, &Stats::max, &Stats::mean, &Stats::std, &Stats::l2})
          EXPECT_EQ(summary.stats.*field, alone.*field);
        for (const auto field : {&Stats::nan, &Stats::zero, &Stats::subnormal, &Stats::exact_max})
          EXPECT_EQ(summary.stats.*field, alone.*field);
      }
    }
  }
  use_simd_target("");
}

TEST(Sketch, IsExactOfTheLargestIntegers) {
  for (const auto& target : simd_targets()) {
    ASSERT_TRUE(use_simd_target(target));
    SCOPED_TRACE(target);
    for (const DType dtype : {DType::U8, DType::I8, DType::U16, DType::I16, DType::I64, DType::U64}) {
      SCOPED_TRACE(to_string(dtype));
      visit_dtype(dtype, [&]<class T>(T) {
        if constexpr (!kIsComplex<T> && kIsInteger<T> && !std::is_same_v<T, Bool>)
          for (const T x : {std::numeric_limits<T>::max(), std::numeric_limits<T>::min()}) {
            const std::vector<T> values(100'003, x);
            const std::vector<double> doubles(values.size(), static_cast<double>(x));
            const Shape shape{static_cast<std::int64_t>(values.size())};
            EXPECT_EQ(sketch({values.data(), dtype, shape, {}}), reference(doubles));
          }
      });
    }
  }
  use_simd_target("");
}

TEST(Sketch, IsTheSameForAnyPiecesAndStrides) {
  const auto values = normal_numbers(24 * 36);
  const Shape shape{24, 36}, transposed_strides{1, 24};
  std::vector<double> transposed(values.size());
  for (std::size_t i = 0; i < 24; ++i)
    for (std::size_t k = 0; k < 36; ++k) transposed[k * 24 + i] = values[i * 36 + k];
  const Sketch expected = reference(values);
  EXPECT_EQ(sketch({transposed.data(), DType::F64, shape, transposed_strides}), expected);
  std::mt19937_64 random(3);
  for (int round = 0; round < 50; ++round) {
    SketchBuilder builder(DType::F64, shape);
    for (std::int64_t begin = 0; begin < 24 * 36;) {
      const std::int64_t count = std::min<std::int64_t>(1 + static_cast<std::int64_t>(random() % 200), 24 * 36 - begin);
      builder.add(begin, count, reinterpret_cast<const std::byte*>(values.data() + begin), round % 2 == 0);
      begin += count;
    }
    EXPECT_EQ(builder.finish(), expected);
  }
}

// The part of `values` from `offset` on with this shape.
std::vector<double> cut(const std::vector<double>& values, const Shape& whole, const Shape& offset,
                        const Shape& shape) {
  std::vector<double> part;
  for (std::int64_t i = 0; i < element_count(shape); ++i) {
    std::int64_t rest = i, stride = 1, place = 0;
    for (std::size_t axis = shape.size(); axis-- > 0;) {
      place += (rest % shape[axis] + offset[axis]) * stride;
      rest /= shape[axis];
      stride *= whole[axis];
    }
    part.push_back(values[static_cast<std::size_t>(place)]);
  }
  return part;
}

TEST(Sketch, PartsAddUpToTheWhole) {
  std::mt19937_64 random(4);
  for (int round = 0; round < 200; ++round) {
    Shape whole(1 + random() % 4);
    for (auto& size : whole) size = 1 + static_cast<std::int64_t>(random() % 17);
    const auto values = normal_numbers(element_count(whole), random());
    const std::size_t axis = random() % whole.size();
    Sketch sum;
    for (std::int64_t begin = 0; begin < whole[axis];) {
      Shape shape = whole, offset(whole.size(), 0);
      offset[axis] = begin;
      shape[axis] = std::min(1 + static_cast<std::int64_t>(random() % 9), whole[axis] - begin);
      begin += shape[axis];
      const auto part = cut(values, whole, offset, shape);
      sum.add(sketch({part.data(), DType::F64, shape, {}}, {whole, offset}));
    }
    const Sketch expected = reference(values);
    for (std::size_t i = 0; i < Sketch::kSums; ++i) EXPECT_NEAR(sum.sums[i], expected.sums[i], 1e-12 * norm(expected));
  }
}

TEST(Sketch, PartialSumsAddUpToTheSum) {
  const auto x = normal_numbers(3000, 1), y = normal_numbers(3000, 2);
  std::vector<double> sum(x.size());
  std::transform(x.begin(), x.end(), y.begin(), sum.begin(), std::plus<>());
  EXPECT_LT(norm(sketch_of(x).add(sketch_of(y)).add(sketch_of(sum), -1)), 1e-12 * norm(sum));
}

TEST(Sketch, APartMustLieInItsWhole) {
  const Shape whole{4, 6}, offset{2, 0}, rank{2}, before{-1, 0}, huge{std::int64_t{1} << 40, std::int64_t{1} << 40};
  EXPECT_TRUE((PartOf{whole, offset}.fits(Shape{2, 6})));
  EXPECT_FALSE((PartOf{whole, offset}.fits(Shape{3, 6})));
  EXPECT_FALSE((PartOf{whole, rank}.fits(Shape{2, 6})));
  EXPECT_FALSE((PartOf{whole, before}.fits(Shape{2, 6})));
  EXPECT_FALSE((PartOf{huge, offset}.fits(Shape{2, 6})));
  EXPECT_TRUE((PartOf{}.fits(Shape{2, 6})));
}

TEST(Sketch, OfAFewElementsHasTheElements) {
  const auto values = normal_numbers(64);
  const Sketch sketch = sketch_of(values);
  EXPECT_TRUE(std::equal(values.begin(), values.end(), sketch.sums.begin()));
}

TEST(Sketch, TakesNaNAndInfinityForZero) {
  std::vector<float> values(1000, 1.5F), zeros = values;
  values[7] = std::numeric_limits<float>::quiet_NaN();
  values[700] = -std::numeric_limits<float>::infinity();
  zeros[7] = zeros[700] = 0;
  EXPECT_EQ(sketch(view(values.data(), {1000})), sketch(view(zeros.data(), {1000})));
}

// The estimate of a norm has a standard error of 9 %; over many tensors of one structure its mean square is right.
TEST(Sketch, EstimatesTheNormOfAnyStructure) {
  constexpr std::int64_t kRows = 128, kColumns = 256;
  std::mt19937_64 random(5);
  const auto check = [&](const char* what, auto&& value) {
    double squares = 0, worst = 0;
    constexpr int kRounds = 40;
    for (int round = 0; round < kRounds; ++round) {
      const auto column = static_cast<std::int64_t>(random() % kColumns),
                 row = static_cast<std::int64_t>(random() % kRows);
      std::vector<double> difference;
      for (std::int64_t i = 0; i < kRows * kColumns; ++i)
        difference.push_back(value(i / kColumns, i % kColumns, row, column));
      // Each in other blocks.
      const Shape shape{1, kRows * kColumns}, whole{kRounds, kRows * kColumns}, offset{round, 0};
      const double ratio = norm(sketch({difference.data(), DType::F64, shape, {}}, {whole, offset})) / norm(difference);
      squares += ratio * ratio / kRounds;
      worst = std::max(worst, std::abs(ratio - 1));
    }
    EXPECT_NEAR(squares, 1, 4 * 0.177 / std::sqrt(kRounds)) << what;
    EXPECT_LT(worst, 5 * 0.0884) << what;
  };
  check("constant", [](auto, auto, auto, auto) { return 1.0; });
  check("one column", [](auto, auto k, auto, auto column) { return k == column ? 1.0 : 0.0; });
  check("every 64th", [](auto, auto k, auto, auto column) { return k % 64 == column % 64 ? 1.0 : 0.0; });
  check("one row", [](auto i, auto, auto row, auto) { return i == row ? 1.0 : 0.0; });
  check("alternating", [](auto i, auto k, auto, auto) { return (i + k) % 2 == 0 ? 1.0 : -1.0; });
  check("a ramp", [](auto i, auto k, auto, auto) { return static_cast<double>(i * kColumns + k); });
  check("a square", [](auto i, auto k, auto row, auto column) {
    return std::abs(i - row) < 8 && std::abs(k - column) < 8 ? 1.0 : 0.0;
  });
}

}  // namespace
}  // namespace tenscope::kernels
