#include "kernels/tile.hpp"

#include <gtest/gtest.h>

#include "kernels/look_fixture.hpp"
#include "kernels/simd_target.hpp"

namespace tenscope::kernels {
namespace {

float to_float(double x) {
  constexpr double kMost = std::numeric_limits<float>::max();
  return std::isfinite(x) ? static_cast<float>(std::clamp(x, -kMost, kMost)) : static_cast<float>(x);
}

bool is_near(float x, float y, double size) {
  if (x == y || (std::isnan(x) && std::isnan(y))) return true;
  return std::abs(static_cast<double>(x) - static_cast<double>(y)) <= 1e-6 * size + 1e-44;
}

std::uint8_t flags_of(const std::vector<double>& values, bool is_pair) {
  std::uint8_t flags = 0;
  for (const double x : values) {
    if (std::isnan(x)) flags |= kHasNan;
    if (x == kTestInf) flags |= kHasPositiveInf;
    if (x == -kTestInf) flags |= kHasNegativeInf;
    if (is_pair && !(x == 0)) flags |= kHasDifference;
  }
  return flags;
}

void expect_cell(const Tile& tile, std::size_t cell, const std::vector<double>& values, bool is_pair) {
  ASSERT_EQ(tile.flags[cell], flags_of(values, is_pair));
  if (tile.is_exact) {
    ASSERT_EQ(values.size(), 1u);
    ASSERT_TRUE(is_near(tile.value[cell], to_float(values[0]), std::abs(values[0])));
    return;
  }
  double min = kTestInf, max = -kTestInf, sum = 0, size = 0, finite = 0;
  for (const double x : values) {
    if (!std::isfinite(x)) continue;
    min = std::min(min, x);
    max = std::max(max, x);
    sum += x;
    size = std::max(size, std::abs(x));
    ++finite;
  }
  if (finite == 0) min = max = sum = kTestNaN;
  ASSERT_TRUE(is_near(tile.min[cell], to_float(min), std::abs(min))) << tile.min[cell] << " " << min;
  ASSERT_TRUE(is_near(tile.max[cell], to_float(max), std::abs(max))) << tile.max[cell] << " " << max;
  if (!std::isfinite(sum) && finite > 0) return;
  ASSERT_TRUE(is_near(tile.mean[cell], to_float(sum / std::max(finite, 1.0)), size))
      << tile.mean[cell] << " " << sum / finite;
}

void expect_tile(const LookCase& one, const TileOptions& options, const Tile& tile) {
  const std::int64_t rows = options.row_end - options.row_begin, cols = options.col_end - options.col_begin;
  ASSERT_EQ(tile.height, std::min(rows, options.height));
  ASSERT_EQ(tile.width, std::min(cols, options.width));
  if (rows * cols == 0) {
    ASSERT_TRUE(tile.flags.empty() && tile.value.empty() && tile.min.empty());
    return;
  }
  ASSERT_EQ(tile.is_exact, tile.height == rows && tile.width == cols);
  for (std::int64_t i = 0; i < tile.height; ++i) {
    for (std::int64_t j = 0; j < tile.width; ++j) {
      std::vector<double> values;
      for (std::int64_t r = options.row_begin + i * rows / tile.height;
           r < options.row_begin + (i + 1) * rows / tile.height; ++r) {
        for (std::int64_t c = options.col_begin + j * cols / tile.width;
             c < options.col_begin + (j + 1) * cols / tile.width; ++c)
          values.push_back(one.expected[static_cast<std::size_t>(r * options.cols + c)]);
      }
      expect_cell(tile, static_cast<std::size_t>(i * tile.width + j), values, one.kind != LookKind::Value);
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
}

void expect_scale(const std::vector<double>& values, const ValueScale& scale, double tolerance) {
  ValueScale expected;
  std::vector<double> sizes;
  for (const double x : values) {
    expected.nan += std::isnan(x);
    expected.pos_inf += x == kTestInf;
    expected.neg_inf += x == -kTestInf;
    expected.zero += x == 0;
    if (!std::isfinite(x)) continue;
    expected.min = sizes.empty() ? x : std::min(expected.min, x);
    expected.max = sizes.empty() ? x : std::max(expected.max, x);
    sizes.push_back(std::abs(x));
  }
  EXPECT_EQ(scale.nan, expected.nan);
  EXPECT_EQ(scale.pos_inf, expected.pos_inf);
  EXPECT_EQ(scale.neg_inf, expected.neg_inf);
  EXPECT_EQ(scale.zero, expected.zero);
  if (sizes.empty()) {
    EXPECT_TRUE(std::isnan(scale.min) && std::isnan(scale.max) && std::isnan(scale.abs) && std::isnan(scale.p999));
    return;
  }
  std::sort(sizes.begin(), sizes.end());
  EXPECT_NEAR(scale.min, expected.min, std::abs(expected.min) * 1e-15);
  EXPECT_NEAR(scale.max, expected.max, std::abs(expected.max) * 1e-15);
  EXPECT_NEAR(scale.abs, sizes.back(), sizes.back() * 1e-15);
  const auto rank = static_cast<std::size_t>((999 * sizes.size() + 999) / 1000) - 1;
  EXPECT_NEAR(scale.p999, sizes[rank], sizes[rank] * tolerance);
}

TEST(Tile, EveryCellIsWhatItsElementsAre) {
  for (const auto& target : simd_targets()) {
    ASSERT_TRUE(use_simd_target(target));
    for_each_case(2, 3, [&](const LookCase& one, std::mt19937_64& random) {
      const std::int64_t count = one.a.count();
      // As a matrix: the last axis, or all as one row or one column.
      const auto choice = random() % 4;
      TileOptions options;
      options.cols = choice == 0 ? count : choice == 1 ? 1 : one.a.shape.empty() ? 1 : one.a.shape.back();
      const std::int64_t rows = options.cols == 0 ? 3 : count / options.cols;
      options.row_end = rows;
      options.col_end = options.cols;
      const auto cut = [&](std::int64_t& begin, std::int64_t& end) {
        if (random() % 2 == 0) return;
        begin = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(end + 1));
        end -= static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(end - begin + 1));
      };
      cut(options.row_begin, options.row_end);
      cut(options.col_begin, options.col_end);
      options.height = 1 + static_cast<std::int64_t>(random() % 40);
      options.width = 1 + static_cast<std::int64_t>(random() % 40);
      options.threads = 1 + static_cast<int>(random() % 3);
      ValueScale scale;
      const Tile tile = make_tile(one.look(), options, &scale);
      ASSERT_NO_FATAL_FAILURE(expect_tile(one, options, tile))
          << to_string(one.a.dtype) << " kind " << static_cast<int>(one.kind) << " on " << target;
      expect_scale(one.expected, scale, 1e-15);
      ASSERT_FALSE(::testing::Test::HasFailure());
    });
  }
  use_simd_target("");
}

TEST(Tile, WideCellsAndManyThreads) {
  std::mt19937_64 random(3);
  LookCase one = random_case(DType::F32, LookKind::Value, {40, 5000}, random);
  one.a = strided_tensor(DType::F32, {1000, 5000}, random, true);
  fill(one.a, random, 0.001);
  one.expected = reference_values(LookKind::Value, one.a);
  TileOptions options{.cols = 5000, .row_begin = 3, .row_end = 1000, .col_begin = 1, .col_end = 4990};
  for (const auto& [height, width] : {std::pair{1, 1}, {7, 2}, {300, 512}, {997, 100}, {1, 4000}}) {
    options.height = height;
    options.width = width;
    ASSERT_NO_FATAL_FAILURE(expect_tile(one, options, make_tile(one.look(), options)));
  }
}

TEST(ValueScale, QuantileOfManyElements) {
  std::mt19937_64 random(4);
  // The largest lie in one place, where a sample may miss them or see nothing else; or all are alike.
  for (const int kind : {0, 1, 2, 3, 4}) {
    std::vector<float> values(5'000'000);
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<float>(std::normal_distribution<double>()(random));
      if (kind == 1 && i > 2'000'000 && i < 2'010'000) values[i] *= 1000;
      if (kind == 2) values[i] = i % 2000 == 0 ? 5.0F : 1.0F;
      if (kind == 3) values[i] = i % 5000 == 0 ? -3.0F : 0.0F;
      if (kind == 4 && i % 3 == 0) values[i] = std::numeric_limits<float>::quiet_NaN();
    }
    const std::int64_t count = static_cast<std::int64_t>(values.size());
    expect_scale({values.begin(), values.end()}, measure_scale(Look(view(values.data(), {count}))), 1.0 / 100);
    // Fewer, which are exact.
    expect_scale({values.begin(), values.begin() + 900'000}, measure_scale(Look(view(values.data(), {900, 1000}))),
                 1e-15);
  }
}

TEST(ValueScale, MisledSampleIsNotBelieved) {
  // One block is larger than all others, too small a part to matter. Of every fifteen blocks one is in the sample, so
  // that some of these are, and are more of it than one in two hundred.
  std::vector<float> usual(1'000'000, 1.0F);
  for (std::size_t i = 0; i < 2000; ++i) usual[i * 500] = 3.0F;
  for (std::ptrdiff_t block = 0; block < 32; ++block) {
    std::vector<float> values = usual;
    std::fill_n(values.begin() + block * 512, 512, 7.0F);
    EXPECT_EQ(measure_scale(Look(view(values.data(), {1'000'000}))).p999, 3.0) << block;
  }
}

}  // namespace
}  // namespace tenscope::kernels
