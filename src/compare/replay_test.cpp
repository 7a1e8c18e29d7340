#include "compare/replay.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>
#include <span>

#include "compare/replay_attention.hpp"

namespace tenscope::compare {
namespace {

constexpr double kUnit = 0x1p-24;  // of float32
constexpr std::int64_t kRows = 24, kCols = 32;

// Normal numbers, and in the second run an error of one in a thousand.
RowSample random_sample(unsigned seed, std::int64_t rows = kRows, std::int64_t cols = kCols) {
  std::mt19937 generator(seed);
  std::normal_distribution<double> normal;
  RowSample sample{.rows = rows, .cols = cols, .a = {}, .b = {}};
  for (std::int64_t i = 0; i < rows * cols; ++i) {
    sample.a.push_back(static_cast<float>(normal(generator)));
    sample.b.push_back(sample.a.back() + 1e-3 * normal(generator));
  }
  return sample;
}

// What a computation makes of both runs' values.
RowSample made_by(const std::function<std::vector<double>(bool of_b)>& compute, std::int64_t cols = kCols) {
  RowSample sample{.rows = 0, .cols = cols, .a = compute(false), .b = compute(true)};
  sample.rows = static_cast<std::int64_t>(sample.a.size()) / cols;
  return sample;
}

const std::vector<double>& values(const RowSample& sample, bool of_b) { return of_b ? sample.b : sample.a; }

std::optional<HandedOn> replayed(const RowSample& result, std::vector<const RowSample*> sources,
                                 std::vector<const RowSample*> constants = {}) {
  return replay({.result = result, .sources = sources, .constants = constants, .unit = kUnit});
}

std::optional<HandedOn> replayed_matrix(const RowSample& result, std::vector<const RowSample*> sources,
                                        const WeightMatrix& weight, std::vector<const RowSample*> constants = {}) {
  return replay_matrix({.result = result, .sources = sources, .constants = constants, .unit = kUnit},
                       std::span(&weight, 1));
}

// All of the result's error is handed on: as a part of it, what is left.
double left_over(const RowSample& result, const HandedOn& handed) {
  double left = 0, all = 0;
  for (std::size_t i = 0; i < result.a.size(); ++i) {
    double sum = 0;
    for (const auto& one : handed) sum += one.empty() ? 0 : one[i];
    const double error = result.b[i] - result.a[i];
    left += (error - sum) * (error - sum);
    all += error * error;
  }
  return std::sqrt(left / all);
}

TEST(Replay, ASumIsKnownByItsTerms) {
  const RowSample x = random_sample(1), y = random_sample(2), other = random_sample(3), constant = random_sample(4);
  const RowSample sum = made_by([&](bool of_b) {
    std::vector<double> result;
    for (std::size_t i = 0; i < x.a.size(); ++i)
      result.push_back(values(x, of_b)[i] + 0.5 * values(y, of_b)[i] + constant.a[i]);
    return result;
  });
  const auto handed = replayed(sum, {&other, &x, &y}, {&constant});
  ASSERT_TRUE(handed);
  EXPECT_TRUE((*handed)[0].empty());
  EXPECT_LT(left_over(sum, *handed), 1e-9);
  EXPECT_NEAR((*handed)[2][5], 0.5 * (y.b[5] - y.a[5]), 1e-12);
  EXPECT_FALSE(replayed(sum, {&other, &x}));
}

TEST(Replay, AProductOfTwo) {
  const RowSample x = random_sample(1), y = random_sample(2);
  const RowSample product = made_by([&](bool of_b) {
    std::vector<double> result;
    for (std::size_t i = 0; i < x.a.size(); ++i) result.push_back(values(x, of_b)[i] * values(y, of_b)[i]);
    return result;
  });
  const auto handed = replayed(product, {&x, &y});
  ASSERT_TRUE(handed);
  EXPECT_LT(left_over(product, *handed), 1e-9);
}

TEST(Replay, AMatrixWithABias) {
  constexpr std::int64_t kOut = 16;
  const RowSample x = random_sample(1), numbers = random_sample(2, kOut, kCols);
  RowSample bias{.rows = kRows, .cols = kOut, .a = {}, .b = {}};
  for (std::int64_t i = 0; i < kRows * kOut; ++i) bias.a.push_back(0.1 * static_cast<double>(i % kOut));
  const RowSample product = made_by(
      [&](bool of_b) {
        std::vector<double> result;
        for (std::size_t r = 0; r < kRows; ++r)
          for (std::size_t o = 0; o < kOut; ++o) {
            double sum = bias.a[o];
            for (std::size_t i = 0; i < kCols; ++i) sum += values(x, of_b)[r * kCols + i] * numbers.a[o * kCols + i];
            result.push_back(sum);
          }
        return result;
      },
      kOut);
  const WeightMatrix weight{.out = kOut, .in = kCols, .values = numbers.a};
  const auto handed = replayed_matrix(product, {&x}, weight, {&bias});
  ASSERT_TRUE(handed);
  EXPECT_LT(left_over(product, *handed), 1e-9);
  EXPECT_FALSE(replayed_matrix(product, {&x}, weight));  // without its bias it is another result
}

TEST(Replay, ANormalisationAndAFunctionOfEachElement) {
  const RowSample x = random_sample(1);
  const RowSample normalised = made_by([&](bool of_b) {
    std::vector<double> result = values(x, of_b);
    for (std::size_t r = 0; r < kRows; ++r) {
      double mean = 0, squares = 0;
      for (std::size_t c = 0; c < kCols; ++c) mean += result[r * kCols + c] / kCols;
      for (std::size_t c = 0; c < kCols; ++c) squares += std::pow(result[r * kCols + c] - mean, 2) / kCols;
      for (std::size_t c = 0; c < kCols; ++c)
        result[r * kCols + c] =
            (result[r * kCols + c] - mean) / std::sqrt(squares + 1e-5) * (1 + 0.1 * static_cast<double>(c)) + 0.3;
    }
    return result;
  });
  const auto of_norm = replayed(normalised, {&x});
  ASSERT_TRUE(of_norm);
  EXPECT_LT(left_over(normalised, *of_norm), 1e-3);
  const RowSample curve = made_by([&](bool of_b) {
    std::vector<double> result;
    for (const double value : values(x, of_b)) result.push_back(value / (1 + std::exp(-value)));
    return result;
  });
  const auto of_curve = replayed(curve, {&x});
  ASSERT_TRUE(of_curve);
  EXPECT_LT(left_over(curve, *of_curve), 0.05);
}

TEST(Replay, WhatHasNothingToDoWithTheSourcesIsNotExplained) {
  const RowSample x = random_sample(1), y = random_sample(2), result = random_sample(3);
  EXPECT_FALSE(replayed(result, {&x, &y}));
  EXPECT_FALSE(replayed_matrix(result, {&x, &y}, {.out = kCols, .in = kCols, .values = random_sample(4, kCols).a}));
}

struct AttentionCase {
  std::int64_t heads, shared;
  bool is_causal, is_fused;
};

class ReplayAttention : public testing::TestWithParam<AttentionCase> {};

TEST_P(ReplayAttention, IsKnownByItsNumbers) {
  const auto [heads, shared, is_causal, is_fused] = GetParam();
  constexpr std::int64_t kLength = 7, kWidth = 4, kSequences = 2;
  const std::int64_t cols = heads * kWidth, others = shared * kWidth;
  const RowSample q = random_sample(1, kSequences * kLength, cols), k = random_sample(2, kSequences * kLength, others),
                  v = random_sample(3, kSequences * kLength, others);
  const RowSample all = made_by(
      [&](bool of_b) {
        std::vector<double> result;
        for (std::int64_t s = 0; s < kSequences; ++s)
          for (std::int64_t t = 0; t < kLength; ++t)
            for (std::int64_t h = 0; h < heads; ++h) {
              const std::int64_t last = is_causal ? t + 1 : kLength, from = h / (heads / shared) * kWidth;
              std::vector<double> weights, head(kWidth);
              double sum = 0;
              for (std::int64_t u = 0; u < last; ++u) {
                double score = 0;
                for (std::int64_t c = 0; c < kWidth; ++c)
                  score += values(q, of_b)[static_cast<std::size_t>((s * kLength + t) * cols + h * kWidth + c)] *
                           values(k, of_b)[static_cast<std::size_t>((s * kLength + u) * others + from + c)];
                sum += weights.emplace_back(std::exp(score / 2));
              }
              for (std::int64_t u = 0; u < last; ++u)
                for (std::int64_t c = 0; c < kWidth; ++c)
                  head[static_cast<std::size_t>(c)] +=
                      weights[static_cast<std::size_t>(u)] / sum *
                      values(v, of_b)[static_cast<std::size_t>((s * kLength + u) * others + from + c)];
              result.insert(result.end(), head.begin(), head.end());
            }
        return result;
      },
      cols);
  SequenceSample of_q{cols, q.a, q.b}, of_k{others, k.a, k.b}, of_v{others, v.a, v.b}, fused{3 * cols, {}, {}};
  if (is_fused)
    for (const bool of_b : {false, true})
      for (std::size_t row = 0; row < kSequences * kLength; ++row)
        for (const RowSample* part : {&q, &k, &v})
          for (std::size_t c = 0; c < static_cast<std::size_t>(cols); ++c)
            (of_b ? fused.b : fused.a).push_back(values(*part, of_b)[row * static_cast<std::size_t>(cols) + c]);
  std::vector<const SequenceSample*> sources = {&of_q, &of_k, &of_v};
  if (is_fused) sources = {&fused};
  std::vector<std::int64_t> queries;
  for (std::int64_t t = 0; t < kLength; ++t) queries.push_back(t);
  const auto handed = replay_attention({.result = all,
                                        .sources = sources,
                                        .tables = {},
                                        .sequences = kSequences,
                                        .length = kLength,
                                        .queries = queries,
                                        .unit = kUnit});
  ASSERT_TRUE(handed);
  EXPECT_LT(left_over(all, *handed), 1e-9);
  RowSample wrong = all;
  wrong.a[3] += 1;
  EXPECT_FALSE(replay_attention({.result = wrong,
                                 .sources = sources,
                                 .tables = {},
                                 .sequences = kSequences,
                                 .length = kLength,
                                 .queries = queries,
                                 .unit = kUnit}));
}

INSTANTIATE_TEST_SUITE_P(Forms, ReplayAttention,
                         testing::Values(AttentionCase{2, 2, true, false}, AttentionCase{4, 2, true, false},
                                         AttentionCase{3, 3, false, true}, AttentionCase{1, 1, true, true}));

}  // namespace
}  // namespace tenscope::compare
