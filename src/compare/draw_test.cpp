#include "compare/draw.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "kernels/summarize.hpp"
#include "tenscope/tensor_view.hpp"

namespace tenscope::compare {
namespace {

DiffDistribution distribution(const std::vector<float>& a, const std::vector<float>& b) {
  const auto size = static_cast<std::int64_t>(a.size());
  const auto record = [&](const std::vector<float>& values) {
    TensorRecord tensor;
    tensor.shape = {size};
    tensor.stats = kernels::statistics(view(values.data(), {size}));
    return tensor;
  };
  return compare_distributions(record(a), record(b), measure(view(a.data(), {size}), view(b.data(), {size})));
}

template <class Distribution>
std::vector<float> draw(std::size_t count, Distribution numbers, unsigned seed) {
  std::mt19937 generator(seed);
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(numbers(generator));
  return values;
}

using Normal = std::normal_distribution<float>;
using Uniform = std::uniform_real_distribution<float>;

TEST(Draw, AnotherDrawOfTheSameDistribution) {
  for (unsigned seed = 0; seed < 500; ++seed)
    for (const std::size_t count : {std::size_t{4}, std::size_t{16}, std::size_t{300}, std::size_t{1024}}) {
      EXPECT_TRUE(distribution(draw(count, Normal(0.1F, 0.02F), seed), draw(count, Normal(0.1F, 0.02F), seed + 1000))
                      .is_another_draw())
          << seed << " " << count;
      EXPECT_TRUE(
          distribution(draw(count, Uniform(-1, 1), seed), draw(count, Uniform(-1, 1), seed + 1000)).is_another_draw())
          << seed << " " << count;
    }
}

TEST(Draw, AnotherDistribution) {
  const std::vector<float> normal = draw(1024, Normal(0, 0.02F), 1);
  const std::vector<std::vector<float>> others = {draw(1024, Normal(0, 0.026F), 2), draw(1024, Normal(0.01F, 0.02F), 2),
                                                  draw(1024, Uniform(-0.0346F, 0.0346F), 2),
                                                  std::vector<float>(1024, 0.0F), std::vector<float>(1024, 1.0F)};
  for (const std::vector<float>& other : others) {
    for (const DiffDistribution& found : {distribution(normal, other), distribution(other, normal)}) {
      EXPECT_TRUE(found.is_independent);
      EXPECT_FALSE(found.is_same) << found.mean_b << " " << found.std_b;
    }
  }
  std::vector<float> sparse = draw(1024, Normal(0, 0.0206F), 3);
  std::fill(sparse.begin(), sparse.begin() + 64, 0.0F);
  EXPECT_FALSE(distribution(normal, sparse).is_same);
}

TEST(Draw, WhatWasChangedWasNotDrawn) {
  const std::vector<float> values = draw(256, Normal(0, 1), 1);
  std::vector<float> reversed(values.rbegin(), values.rend()), shifted = values, partly = values;
  for (float& value : shifted) value += 0.01F;
  const std::vector<float> fresh = draw(256, Normal(0, 1), 2);
  std::copy(fresh.begin(), fresh.begin() + 128, partly.begin());
  for (const std::vector<float>& other : {reversed, shifted, partly})
    EXPECT_FALSE(distribution(values, other).is_independent);
}

TEST(Draw, ConstantsThatDifferAreNoDraw) {
  const DiffDistribution found = distribution(std::vector<float>(8, 1), std::vector<float>(8, 0));
  EXPECT_FALSE(found.is_another_draw());
  EXPECT_FALSE(distribution({2.65F}, {1.0F}).is_another_draw());
}

}  // namespace
}  // namespace tenscope::compare
