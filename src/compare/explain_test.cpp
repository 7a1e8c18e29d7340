#include "tenscope/explain.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <numeric>
#include <random>

#include "compare/move_search.hpp"
#include "compare/relation_values.hpp"

namespace tenscope::compare {
namespace {

std::int64_t size_of(const Shape& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

std::vector<float> normal(std::int64_t count, unsigned seed = 0) {
  std::mt19937 random(seed);
  std::normal_distribution<float> draw;
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& x : values) x = draw(random);
  return values;
}

std::vector<float> taken(const std::vector<float>& a, std::int64_t count,
                         const std::function<std::int64_t(std::int64_t)>& from) {
  std::vector<float> b;
  for (std::int64_t i = 0; i < count; ++i) b.push_back(a[static_cast<std::size_t>(from(i))]);
  return b;
}

Explanation explained(const std::vector<float>& a, const Shape& shape_a, const std::vector<float>& b,
                      const Shape& shape_b) {
  EXPECT_EQ(size_of(shape_a), static_cast<std::int64_t>(a.size()));
  EXPECT_EQ(size_of(shape_b), static_cast<std::int64_t>(b.size()));
  return explain({a.data(), DType::F32, shape_a}, {b.data(), DType::F32, shape_b});
}

TEST(Explain, EqualAndNothing) {
  const auto a = normal(60), b = normal(60, 1);
  EXPECT_EQ(explained(a, {6, 10}, a, {6, 10}).numpy, "b = a");
  EXPECT_EQ(explained(a, {6, 10}, a, {60}).numpy, "b = a.reshape(60)");
  EXPECT_EQ(explained(a, {6, 10}, b, {6, 10}).relation, "nothing");
  EXPECT_EQ(explained(a, {6, 10}, b, {10, 6}).words, "no simple relation of [6, 10] and [10, 6] was found");
  EXPECT_FALSE(explained(a, {6, 10}, {1.0F}, {}).found());
  EXPECT_FALSE(explained({}, {0}, a, {60}).found());
}

TEST(Explain, Layouts) {
  const auto a = normal(8 * 12);
  EXPECT_EQ(explained(a, {8, 12}, taken(a, 96, [](auto i) { return i % 8 * 12 + i / 8; }), {12, 8}).numpy, "b = a.T");
  // [8, 12] as [2, 4, 12], the first two exchanged.
  const auto b = taken(a, 96, [](auto i) { return (i / 12 % 2 * 4 + i / 24) * 12 + i % 12; });
  EXPECT_EQ(explained(a, {8, 12}, b, {8, 12}).words, "b is a, with the halves of axis 0 interleaved");
  EXPECT_EQ(explained(a, {8, 12}, b, {4, 2, 12}).numpy, "b = a.reshape(2, 4, 12).transpose(1, 0, 2)");
  // Shapes none of which is a refinement of the other: [6, 16] transposed.
  const auto c = taken(a, 96, [](auto i) { return i % 6 * 16 + i / 6; });
  EXPECT_EQ(explained(a, {8, 12}, c, {16, 6}).numpy, "b = a.reshape(6, 16).T");
}

TEST(Explain, PartsOfAnyShape) {
  const auto a = normal(6 * 8 * 10);
  const auto b = taken(a, 80, [](auto i) { return i / 10 * 10 + i % 10 + 160; });
  EXPECT_EQ(explained(a, {6, 8, 10}, b, {8, 10}).numpy, "b = a[2]");
  EXPECT_EQ(explained(a, {48, 10}, b, {2, 4, 10}).numpy, "b = a[16:24].reshape(2, 4, 10)");
  EXPECT_EQ(explained(b, {8, 10}, a, {6, 8, 10}).numpy, "a = b[2]");
  const auto crop = taken(a, 5 * 10, [](auto i) { return (i / 10 + 3) * 10 + i % 10; });
  EXPECT_EQ(explained(a, {48, 10}, crop, {5, 10}).words, "b is a slice of a: a[3:8]");
}

TEST(Explain, OrdersOfSlices) {
  const auto said = [](const Shape& order, std::int64_t n) { return say_order(order, n, 1, "a"); };
  EXPECT_EQ(said({3, 2, 1, 0}, 4).expression, "np.flip(a, 1)");
  EXPECT_EQ(said({2, 3, 0, 1}, 4).expression, "np.roll(a, 2, axis=1)");
  EXPECT_EQ(said({5, 3, 1}, 6).expression, "a[:, 5::-2]");
  EXPECT_EQ(said({0, 2, 4}, 7).expression, "a[:, :5:2]");
  EXPECT_EQ(said({0, 0, 1, 1}, 2).expression, "np.repeat(a, 2, axis=1)");
  EXPECT_EQ(said({0, 1, 0, 1}, 2).expression, "np.concatenate([a] * 2, axis=1)");
  EXPECT_EQ(said({2, 2, 2}, 3).words, "each slice of b along axis 1 is a's last");
  EXPECT_EQ(said({0, 3, 2, 1, 4}, 5).words, "b is a, with slices 1 and 3 of axis 1 exchanged");
  EXPECT_EQ(said({4, 5, 2, 3, 0, 1}, 6).words, "b is a, with the blocks 0:2 and 4:6 of axis 1 exchanged");
  EXPECT_EQ(said({4, 5, 0, 1, 6, 7, 2, 3}, 8).words, "b is a, with the blocks of 2 along axis 1 in another order");
  EXPECT_EQ(said({2, 0, 3, 1}, 4).expression, "np.take(a, [2, 0, 3, 1], axis=1)");
  EXPECT_EQ(said({2, 0, 2, 1}, 4).words, "each slice of b along axis 1 is one of a's");
}

TEST(Explain, FewValuesSayNothing) {
  std::mt19937 random(0);
  for (int round = 0; round < 50; ++round)
    for (const Shape& shape : {Shape{4}, Shape{64}, Shape{8, 8}, Shape{4, 4, 4}, Shape{2, 3, 4, 5}})
      for (const unsigned values : {2U, 3U, 5U}) {
        std::vector<float> a(static_cast<std::size_t>(size_of(shape))), b(a.size());
        for (float& x : a) x = static_cast<float>(random() % values);
        for (float& x : b) x = static_cast<float>(random() % values);
        const std::string found = explained(a, shape, b, shape).relation;
        EXPECT_TRUE(found == "nothing" || found == "zero" || found == "equal" || found == "constant") << found;
        const Shape flat{size_of(shape)};
        const std::string other = explained(a, shape, b, flat).relation;
        EXPECT_TRUE(other == "nothing" || other == "zero" || other == "reshaped" || other == "constant" ||
                    other == "equal")
            << other;
      }
}

// One element that does not agree refutes every one of them.
TEST(Explain, OneElementRefutes) {
  const Shape shape{40, 50, 60};
  const std::int64_t count = size_of(shape);
  const auto a = normal(count);
  const std::vector<std::function<std::int64_t(std::int64_t)>> moves = {
      [](auto i) { return i / 3000 * 3000 + i % 50 * 60 + i % 3000 / 50; },
      [](auto i) { return 119999 - i; },
      [](auto i) { return (i + 3000) % 120000; },
      [](auto i) { return (i / 60 ^ 1) * 60 + i % 60; },
  };
  for (const auto& move : moves) {
    auto b = taken(a, count, move);
    EXPECT_TRUE(explained(a, shape, b, shape).found());
    b[77777] += 1;
    EXPECT_FALSE(explained(a, shape, b, shape).found()) << explained(a, shape, b, shape).words;
  }
}

}  // namespace
}  // namespace tenscope::compare
