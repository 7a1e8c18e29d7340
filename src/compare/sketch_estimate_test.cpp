#include "compare/sketch_estimate.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "compare/noise.hpp"
#include "kernels/summarize.hpp"

namespace tenscope::compare {
namespace {

template <class T>
struct Summarized {
  explicit Summarized(const std::vector<T>& values) {
    const std::int64_t shape[] = {static_cast<std::int64_t>(values.size())};
    const Summary summary = kernels::summarize({values.data(), dtype_of<T>::value, shape, {}}, nullptr, &sketch);
    record = {.dtype = dtype_of<T>::value, .shape = {shape[0]}};
    record.fingerprint = summary.fingerprint;
    record.stats = summary.stats;
  }
  TensorRecord record;
  Sketch sketch;
};

template <class T>
PairError estimated(const std::vector<T>& a, const std::vector<T>& b) {
  const Summarized<T> x(a), y(b);
  return estimate(x.record, y.record, x.sketch, y.sketch);
}

std::vector<float> normal_floats(std::size_t count, std::uint64_t seed = 1) {
  std::mt19937_64 random(seed);
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(std::normal_distribution<double>()(random));
  return values;
}

PairError measured(const std::vector<float>& a, const std::vector<float>& b) {
  const auto count = static_cast<std::int64_t>(a.size());
  return measure(view(a.data(), {count}), view(b.data(), {count}));
}

bool is_noise(const PairError& error) { return NoiseJudge({}).is_noise(error, {}, {}); }

TEST(SketchEstimate, IsNearTheTruth) {
  for (const std::size_t count : {100, 5000, 200000}) {
    const auto a = normal_floats(count);
    for (const float size : {1e-6F, 1e-3F, 0.1F}) {
      auto b = a;
      const auto noise = normal_floats(count, 7);
      for (std::size_t i = 0; i < count; ++i) b[i] += size * noise[i];
      const PairError error = estimated(a, b), truth = measured(a, b);
      EXPECT_TRUE(error.is_estimate);
      EXPECT_FALSE(error.is_lower_bound);
      EXPECT_NEAR(error.rel_l2, truth.rel_l2, 4 * error.uncertainty * truth.rel_l2);
      EXPECT_NEAR(error.correlation, truth.correlation, 0.5);
      EXPECT_GT(error.max_abs, truth.max_abs / 2);
      EXPECT_LT(error.max_abs, truth.max_abs * 2);
    }
  }
}

TEST(SketchEstimate, AFactorIsToldFromNoise) {
  const auto a = normal_floats(100000);
  auto scaled = a, noisy = a;
  for (float& x : scaled) x *= 1 + 3e-6F;
  for (float& x : noisy) x = std::nextafter(x, 9.0F);
  EXPECT_GT(estimated(a, scaled).correlation, 0.99);
  EXPECT_FALSE(is_noise(estimated(a, scaled).at_least()));
  EXPECT_TRUE(is_noise(estimated(a, noisy).at_most()));
}

TEST(SketchEstimate, OneElementStandsOut) {
  const auto a = normal_floats(1000000);
  auto b = a;
  for (float& x : b) x = std::nextafter(x, 9.0F);
  EXPECT_TRUE(is_noise(estimated(a, b).at_most()));
  b[777777] += 0.001F;
  EXPECT_NEAR(estimated(a, b).max_abs, 0.001, 0.0005);
  EXPECT_FALSE(is_noise(estimated(a, b).at_least()));
}

TEST(SketchEstimate, OfAFewElementsIsExact) {
  const auto a = normal_floats(50);
  auto b = a;
  b[7] += 0.5F;
  const PairError error = estimated(a, b), truth = measured(a, b);
  EXPECT_EQ(error.uncertainty, 0);
  EXPECT_NEAR(error.max_abs, truth.max_abs, 1e-7);
  EXPECT_NEAR(error.rel_l2, truth.rel_l2, 1e-6);
  EXPECT_NEAR(error.correlation, truth.correlation, 1e-6);
  auto zeros = a, other_zeros = a;
  zeros[3] = 0.0F;
  other_zeros[3] = -0.0F;
  EXPECT_EQ(estimated(zeros, other_zeros).differing, 0);
}

TEST(SketchEstimate, CountsBools) {
  static_assert(sizeof(bool) == 1);
  std::mt19937_64 random(1);
  std::vector<std::uint8_t> a(100000);
  for (auto& x : a) x = random() % 2;
  auto b = a;
  for (std::size_t i = 0; i < a.size(); i += 100) b[i] ^= 1;
  Summarized<std::uint8_t> x(a), y(b);
  x.record.dtype = y.record.dtype = DType::Bool;
  const PairError error = estimate(x.record, y.record, x.sketch, y.sketch);
  EXPECT_NEAR(static_cast<double>(error.differing), 1000, 700);
  EXPECT_GE(error.at_most().differing, error.differing);
}

TEST(SketchEstimate, OtherNaNAreProvenWithoutIt) {
  auto a = normal_floats(1000);
  auto b = a;
  b[5] = std::nanf("");
  EXPECT_TRUE(estimated(a, b).has_other_finite);
  EXPECT_TRUE(estimated(a, b).is_lower_bound);
}

TEST(SketchEstimate, NonfiniteValuesThatChangedPlacesAreNotTakenForNoise) {
  constexpr float kInf = INFINITY, kNan = NAN;
  const std::vector<std::pair<std::vector<float>, std::vector<float>>> pairs = {
      {{0, -kInf, 0, 0}, {0, 0, -kInf, 0}}, {{kInf, kNan, 1, 1}, {kNan, kInf, 1, 1}}, {{-kInf, kInf}, {kInf, -kInf}}};
  for (const auto& [a, b] : pairs) {
    const PairError error = estimated(a, b);
    EXPECT_TRUE(is_noise(error.at_least()));
    EXPECT_FALSE(is_noise(error.at_most()));
  }
  // Scores without a zero, of which the same are masked.
  EXPECT_TRUE(is_noise(estimated<float>({1, -kInf, 2}, {1, -kInf, std::nextafter(2.0F, 3.0F)}).at_most()));
}

TEST(SketchEstimate, NumbersThatHaveNoSquaresAreUnknown) {
  for (const double size : {1e-200, 1e200, 1e308}) {
    std::vector<double> a;
    for (const float x : normal_floats(500)) a.push_back(size * std::clamp(x, -1.0F, 1.0F));
    const PairError error = estimated(a, {a.rbegin(), a.rend()});
    EXPECT_TRUE(error.is_lower_bound);
    EXPECT_FALSE(error.is_estimate);
  }
}

TEST(SketchEstimate, IntegersOfAnotherTypeMayBeTheSame) {
  const std::vector<std::int32_t> narrow = {1, 5, 7};
  EXPECT_EQ(estimated(narrow, {1, 5, 8}).differing, 1);
  const Summarized<std::int32_t> x(narrow);
  for (const bool is_same : {true, false}) {
    const Summarized<std::int64_t> wide({1, 5, is_same ? 7 : 8});
    const Summarized<float> real({1, 5, is_same ? 7.0F : 8.0F});
    for (const PairError& error : {estimate(x.record, wide.record, x.sketch, wide.sketch),
                                   estimate(x.record, real.record, x.sketch, real.sketch)}) {
      EXPECT_EQ(error.differing > 0, !is_same);
      EXPECT_EQ(error.is_lower_bound, is_same);
    }
  }
}

TEST(SketchEstimate, WithoutElementsThereIsNoDifference) {
  const Summarized<float> x({});
  const Summarized<double> y({});
  const PairError error = estimate(x.record, y.record, x.sketch, y.sketch);
  EXPECT_EQ(error.differing, 0);
  EXPECT_FALSE(error.is_lower_bound);
}

TEST(SketchEstimate, AnotherLearningRateIsAFactorOfTheUpdate) {
  const auto before = normal_floats(5000), gradient = normal_floats(5000, 2);
  const auto step = [&](float rate, float noise) {
    auto after = before, gradients = gradient;
    const auto more = normal_floats(5000, 3);
    for (std::size_t i = 0; i < after.size(); ++i) {
      gradients[i] += noise * more[i];
      after[i] -= rate * gradients[i];
    }
    return UpdateSketches{Summarized<float>(before).sketch, Summarized<float>(after).sketch,
                          Summarized<float>(gradients).sketch};
  };
  const UpdateSketches a = step(1e-2F, 0);
  EXPECT_TRUE(estimate_update(a, step(1.1e-2F, 0), DType::F32).is_mistake());
  EXPECT_TRUE(estimate_update(a, step(0.9e-2F, 1e-6F), DType::F32).is_mistake());
  EXPECT_FALSE(estimate_update(a, step(1e-2F, 1e-6F), DType::F32).is_mistake());
  EXPECT_FALSE(estimate_update(a, step(1.1e-2F, 0.1F), DType::F32).is_mistake());
}

}  // namespace
}  // namespace tenscope::compare
