#include "compare/measure.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/summarize.hpp"

namespace tenscope::compare {
namespace {

constexpr std::int64_t kBig = std::int64_t{1} << 60;

template <class T>
struct Values {
  explicit Values(std::vector<T> numbers)
      : values(std::move(numbers)), shape{static_cast<std::int64_t>(values.size())} {}
  TensorView view() const { return {.data = values.data(), .dtype = dtype_of<T>::value, .shape = shape}; }
  TensorRecord record() const {
    const Summary summary = kernels::summarize(view());
    return {
        .dtype = dtype_of<T>::value, .shape = {shape[0]}, .fingerprint = summary.fingerprint, .stats = summary.stats};
  }
  std::vector<T> values;
  std::array<std::int64_t, 1> shape;
};

Item integer(std::int64_t value) {
  Item item;
  item.value = ValueKind::Integer;
  item.integer = value;
  return item;
}

Item number(double value) {
  Item item;
  item.value = ValueKind::Float;
  item.number = value;
  return item;
}

Item truth(bool value) {
  Item item;
  item.value = ValueKind::Bool;
  item.integer = value ? 1 : 0;
  return item;
}

TEST(Measure, IntegersBeyondDoubleAreExact) {
  const Values<std::int64_t> a({kBig, 1}), b({kBig + 1, 1});
  const PairError error = measure(a.view(), b.view());
  EXPECT_EQ(error.differing, 1);
  EXPECT_EQ(error.max_abs, 1);
  const DiffMetrics metrics = describe(a.view(), b.view());
  EXPECT_EQ(metrics.differing, 1);
  EXPECT_EQ(metrics.worst_a, "1152921504606846976");
  EXPECT_EQ(metrics.worst_b, "1152921504606846977");
  EXPECT_EQ(metrics.worst_index, std::vector<std::int64_t>{0});

  const Values<double> as_double({static_cast<double>(kBig), 1});
  EXPECT_EQ(measure(a.view(), as_double.view()).differing, 0);
  EXPECT_EQ(measure(b.view(), as_double.view()).differing, 1);
}

TEST(Measure, NumbersAreExactAndOfAType) {
  const Interner interner;
  EXPECT_TRUE(is_same_value(integer(kBig), integer(kBig)));
  EXPECT_FALSE(is_same_value(integer(kBig), integer(kBig + 1)));
  EXPECT_FALSE(is_same_value(truth(true), number(1)));
  EXPECT_FALSE(is_same_value(number(0.0), number(-0.0)));
  EXPECT_TRUE(is_same_value(number(NAN), number(NAN)));
  EXPECT_EQ(measure_values(integer(kBig), integer(kBig + 1), interner).differing, 1);
  EXPECT_EQ(measure_values(integer(kBig + 1), number(static_cast<double>(kBig)), interner).differing, 1);
  EXPECT_EQ(measure_values(truth(true), number(1), interner).differing, 0);  // equal values of another type
  EXPECT_EQ(measure_values(number(0.0), number(-0.0), interner).differing, 0);
  EXPECT_TRUE(measure_values(number(NAN), number(1), interner).has_other_finite);
  Item text;
  text.value = ValueKind::Text;
  EXPECT_FALSE(measure_values(text, number(1), interner).is_comparable);
}

TEST(Measure, IntegersOfAnySizeAreExact) {
  Interner interner;
  const auto big = [&](std::string_view digits) {
    Item item;
    item.value = ValueKind::BigInteger;
    item.text = interner.text(digits);
    return item;
  };
  const auto differ = [&](const Item& a, const Item& b) { return measure_values(a, b, interner).differing != 0; };
  EXPECT_FALSE(differ(big("1180591620717411303424"), number(0x1p70)));
  EXPECT_FALSE(differ(number(-0x1p70), big("-1180591620717411303424")));
  EXPECT_TRUE(differ(big("1180591620717411303425"), number(0x1p70)));
  EXPECT_TRUE(differ(number(INFINITY), big("1180591620717411303424")));
  EXPECT_EQ(measure_values(big("1180591620717411303424"), big("1180591620717411303425"), interner).max_abs, 1);
}

TEST(Measure, SignsOfZerosAndPayloadsOfNanAreNoDifference) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), other = std::nanf("7");
  const Values<float> a({0.0F, nan, 1}), b({-0.0F, other, 1});
  EXPECT_EQ(measure(a.view(), b.view()).differing, 0);
  const Values<float> c({0.0F, 1, nan});
  const PairError error = measure(a.view(), c.view());
  EXPECT_EQ(error.differing, 2);
  EXPECT_TRUE(error.has_other_finite);
  EXPECT_EQ(describe(a.view(), c.view()).worst_index, std::vector<std::int64_t>{1});
}

TEST(Measure, StatisticsGiveALowerBound) {
  const Values<float> a({1, 2, 3, 4}), flipped({4, 3, 2, 1}), other({1, 2, 3, 8});
  const PairError unknown = measure_statistics(a.record(), flipped.record());
  EXPECT_TRUE(unknown.is_lower_bound);
  EXPECT_EQ(unknown.max_abs, 0);
  const PairError proven = measure_statistics(a.record(), other.record());
  EXPECT_EQ(proven.max_abs, 4);
  EXPECT_LE(proven.max_abs, measure(a.view(), other.view()).max_abs);
  // Integers with other bytes differ, whatever their statistics.
  EXPECT_GT(measure_statistics(Values<std::int64_t>({1, 2}).record(), Values<std::int64_t>({2, 1}).record()).differing,
            0);
}

}  // namespace
}  // namespace tenscope::compare
