#include "compare/part_summary.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "compare/sketch_estimate.hpp"
#include "kernels/sketch.hpp"
#include "kernels/summarize.hpp"

namespace tenscope::compare {
namespace {

using Numbers = std::vector<double>;

Numbers random_numbers(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal(0.5, 2);
  Numbers values(count);
  for (double& value : values) value = normal(random);
  return values;
}

TensorRecord summary(const Numbers& values) {
  const HostTensor tensor = tensor_of(values, {static_cast<std::int64_t>(values.size())});
  const Summary made = kernels::summarize(tensor.view());
  return {.dtype = DType::F64,
          .shape = tensor.shape,
          .fingerprint = made.fingerprint,
          .stats = made.stats,
          .sketch = std::make_shared<const Sketch>(kernels::sketch(tensor.view()))};
}

void expect_same_statistics(const Stats& actual, const Stats& expected) {
  EXPECT_EQ(actual.count, expected.count);
  EXPECT_EQ(actual.nan, expected.nan);
  EXPECT_EQ(actual.pos_inf, expected.pos_inf);
  EXPECT_EQ(actual.zero, expected.zero);
  EXPECT_EQ(actual.min, expected.min);
  EXPECT_EQ(actual.max, expected.max);
  EXPECT_EQ(actual.abs_max, expected.abs_max);
  EXPECT_NEAR(actual.mean, expected.mean, 1e-12);
  EXPECT_NEAR(actual.std, expected.std, 1e-9);
  EXPECT_NEAR(actual.l2, expected.l2, 1e-9);
}

TEST(PartSummary, StatisticsOfJoinedPartsAreThoseOfTheWhole) {
  Numbers first = random_numbers(100, 1), second = random_numbers(37, 2);
  first[3] = std::numeric_limits<double>::quiet_NaN();
  second[0] = 0;
  second[5] = std::numeric_limits<double>::infinity();
  Numbers both = first;
  both.insert(both.end(), second.begin(), second.end());
  const std::array<TensorRecord, 2> parts = {summary(first), summary(second)};
  const TensorRecord whole = join_summaries(parts, {137});
  expect_same_statistics(whole.stats, summary(both).stats);
  EXPECT_EQ(whole.fingerprint, Fingerprint());
  EXPECT_EQ(whole.sketch, nullptr);
}

TEST(PartSummary, JoinedWithAPartThatHasNoFiniteElement) {
  const Numbers none(4, std::numeric_limits<double>::quiet_NaN()), some = random_numbers(8, 3);
  for (const bool is_first : {true, false}) {
    const std::array<TensorRecord, 2> parts = {summary(is_first ? none : some), summary(is_first ? some : none)};
    const Stats stats = join_summaries(parts, {12}).stats;
    EXPECT_EQ(stats.nan, 4);
    EXPECT_EQ(stats.min, summary(some).stats.min);
    EXPECT_NEAR(stats.l2, summary(some).stats.l2, 1e-12);
  }
}

TEST(PartSummary, JoinedNumbersWhoseSquaresADoubleDoesNotHold) {
  for (const double size : {1e300, 1e-300}) {
    Numbers first = random_numbers(50, 11), second = random_numbers(50, 12);
    for (double& value : first) value *= size;
    for (double& value : second) value *= size;
    Numbers both = first;
    both.insert(both.end(), second.begin(), second.end());
    const std::array<TensorRecord, 2> parts = {summary(first), summary(second)};
    const Stats actual = join_summaries(parts, {100}).stats, expected = summary(both).stats;
    EXPECT_NEAR(actual.l2 / expected.l2, 1, 1e-12);
    EXPECT_NEAR(actual.std / expected.std, 1, 1e-12);
    EXPECT_NEAR(actual.mean / expected.mean, 1, 1e-12);
  }
}

TEST(PartSummary, SumsHaveTheSketchOfTheSumAndNoStatisticsThatDoNotFollow) {
  const Numbers first = random_numbers(1000, 4), second = random_numbers(1000, 5);
  Numbers total = first;
  for (std::size_t i = 0; i < total.size(); ++i) total[i] += second[i];
  const std::array<TensorRecord, 2> parts = {summary(first), summary(second)};
  const auto sum = add_summaries(parts);
  ASSERT_TRUE(sum);
  const TensorRecord expected = summary(total);
  for (std::size_t i = 0; i < Sketch::kSums; ++i) EXPECT_NEAR(sum->sketch->sums[i], expected.sketch->sums[i], 1e-9);
  EXPECT_NEAR(sum->stats.mean, expected.stats.mean, 1e-12);
  EXPECT_TRUE(std::isnan(sum->stats.l2) && std::isnan(sum->stats.max));

  TensorRecord a = expected, b = *sum;
  complete_summaries(a, b);
  EXPECT_LT(estimate(a, b, *a.sketch, *b.sketch).rel_l2, 1e-9);
  TensorRecord half = scale_summary(*sum, 0.5);
  complete_summaries(a, half);
  EXPECT_NEAR(estimate(a, half, *a.sketch, *half.sketch).rel_l2, 0.5, 0.2);
}

TEST(PartSummary, SumsOfWhatIsNotFiniteAreNotKnown) {
  Numbers odd = random_numbers(10, 6);
  odd[2] = std::numeric_limits<double>::quiet_NaN();
  const std::array<TensorRecord, 2> parts = {summary(odd), summary(random_numbers(10, 7))};
  EXPECT_FALSE(add_summaries(parts));
  std::array<TensorRecord, 2> without = {summary(random_numbers(10, 8)), summary(random_numbers(10, 9))};
  without[1].sketch = nullptr;
  EXPECT_FALSE(add_summaries(without));
}

TEST(PartSummary, ScaledByANegativeFactor) {
  const Numbers values = random_numbers(50, 10);
  Numbers scaled = values;
  for (double& value : scaled) value *= -3;
  const TensorRecord actual = scale_summary(summary(values), -3), expected = summary(scaled);
  EXPECT_DOUBLE_EQ(actual.stats.min, expected.stats.min);
  EXPECT_DOUBLE_EQ(actual.stats.max, expected.stats.max);
  EXPECT_NEAR(actual.stats.l2, expected.stats.l2, 1e-9);
  EXPECT_NEAR(actual.sketch->sums[7], expected.sketch->sums[7], 1e-9);
}

// Integers that were put together have no fingerprint: that they are not known to be the same is no difference.
TEST(PartSummary, IntegersWithoutAFingerprint) {
  const auto integers = [](Numbers values) {
    TensorRecord record = summary(values);
    record.dtype = DType::I64;
    return record;
  };
  Numbers values(200);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i * 37 % 101);
  TensorRecord whole = integers(values), made = whole;
  made.fingerprint = {};
  const PairError same = estimate(whole, made, *whole.sketch, *made.sketch);
  EXPECT_TRUE(same.is_lower_bound);
  EXPECT_EQ(same.differing, 0);
  std::swap(values[3], values[150]);  // the statistics are the same
  TensorRecord other = integers(values);
  other.fingerprint = {};
  EXPECT_GT(estimate(whole, other, *whole.sketch, *other.sketch).differing, 0);
  EXPECT_EQ(measure_statistics(whole, other).differing, 0);
}

}  // namespace
}  // namespace tenscope::compare
