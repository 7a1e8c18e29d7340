#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "compare/measure.hpp"
#include "compare/relation_search.hpp"

namespace tenscope::compare {
namespace {

using Shape = std::vector<std::int64_t>;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

std::int64_t size_of(const Shape& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

std::vector<float> normal(std::int64_t count, unsigned seed = 0, double scale = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<double> draw(0, scale);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& x : values) x = static_cast<float>(draw(random));
  return values;
}

template <class T, class U>
std::string relation(const std::vector<T>& a, const std::vector<U>& b, const Shape& shape) {
  return find_relation(TensorView{a.data(), dtype_of<T>::value, shape},
                       TensorView{b.data(), dtype_of<U>::value, shape});
}

std::string relation_of(const std::vector<float>& a, const std::vector<float>& b, const Shape& shape) {
  return relation(a, b, shape);
}

std::vector<float> changed(std::vector<float> values, const std::function<float(float, std::int64_t)>& change) {
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = change(values[i], static_cast<std::int64_t>(i));
  return values;
}

// b at i is a at from(i).
template <class T>
std::vector<T> moved(const std::vector<T>& a, const std::function<std::int64_t(std::int64_t)>& from) {
  std::vector<T> b(a.size());
  for (std::size_t i = 0; i < b.size(); ++i) b[i] = a[static_cast<std::size_t>(from(static_cast<std::int64_t>(i)))];
  return b;
}

TEST(Relation, LinesThroughAllElements) {
  const auto a = normal(200);
  const Shape shape{20, 10};
  EXPECT_EQ(relation(a, changed(a, [](float x, auto) { return 4 * x; }), shape), "b = 4 a");
  EXPECT_EQ(relation(a, changed(a, [](float x, auto) { return -0.5F * x; }), shape), "b = -0.5 a");
  EXPECT_EQ(relation(a, changed(a, [](float x, auto) { return x - 0.006F; }), shape), "b = a - 0.006");
  EXPECT_EQ(relation(a, changed(a, [](float x, auto) { return 4 * x - 2; }), shape), "b = 4 a - 2");
  EXPECT_EQ(relation(a, changed(a, [](float x, auto) { return x * 1.000004F; }), shape), "b = 1.000004 a");
  EXPECT_EQ(relation(a, std::vector<float>(200), shape), "b is all zero");
  EXPECT_EQ(relation(std::vector<float>(200), a, shape), "a is all zero");
}

TEST(Relation, NearlyEqualTensorsHaveNone) {
  const auto a = normal(200);
  const auto noise = normal(200, 1, 1e-7);
  EXPECT_EQ(relation(a, changed(a, [&](float x, auto i) { return x + noise[static_cast<std::size_t>(i)]; }), {200}),
            "");
  EXPECT_EQ(relation(a, a, {200}), "");
}

TEST(Relation, OtherPositions) {
  const Shape shape{4, 6, 5};
  const auto a = normal(120);
  EXPECT_EQ(relation(a, moved(a, [](auto i) { return i + (5 - 2 * (i / 5 % 6)) * 5; }), shape),
            "b is a, flipped along axis 1");
  EXPECT_EQ(relation(a, moved(a, [](auto i) { return i + ((i / 5 % 6 + 6 - 2) % 6 - i / 5 % 6) * 5; }), shape),
            "b is a, rolled by 2 along axis 1");
  EXPECT_EQ(relation(a, moved(a, [](auto i) { return i - i % 5 + 4; }), shape),
            "each slice of b along axis 2 is a's last");
  const std::int64_t order[] = {2, 0, 3, 1};
  EXPECT_EQ(relation(a, moved(a, [&](auto i) { return order[i / 30] * 30 + i % 30; }), shape),
            "b is a, permuted along axis 0");
  const auto square = normal(49);
  EXPECT_EQ(relation(square, moved(square, [](auto i) { return i % 7 * 7 + i / 7; }), {7, 7}),
            "b is a, with axes 0 and 1 exchanged");
}

TEST(Relation, OtherPositionsOfIntegers) {
  std::vector<std::int64_t> ids(60);
  std::mt19937 random(0);
  for (auto& id : ids) id = static_cast<std::int64_t>(random() % 1000);
  EXPECT_EQ(relation(ids, moved(ids, [](auto i) { return (i + 59) % 60; }), {60}), "b is a, rolled by 1 along axis 0");
  auto shifted = ids;
  for (auto& id : shifted) ++id;
  EXPECT_EQ(relation(ids, shifted, {60}), "b = a + 1");
}

TEST(Relation, ViewsOfAnyStrides) {
  const auto a = normal(80);
  const auto b = changed(a, [](float x, auto) { return 3 * x; });
  const Shape shape{8, 10}, strides{1, 8};
  EXPECT_EQ(
      find_relation(TensorView{a.data(), DType::F32, shape, strides}, TensorView{b.data(), DType::F32, shape, strides}),
      "b = 3 a");
  const Shape square{8, 8}, plain{8, 1}, turned{1, 8};
  EXPECT_EQ(
      find_relation(TensorView{a.data(), DType::F32, square, plain}, TensorView{a.data(), DType::F32, square, turned}),
      "b is a, with axes 0 and 1 exchanged");
}

TEST(Relation, LinesOfEachGroup) {
  const Shape shape{6, 5, 16};
  const auto a = normal(480);
  const auto number = [](std::int64_t k) { return 0.5F + 0.03F * static_cast<float>(k); };
  EXPECT_EQ(relation(a, changed(a, [&](float x, auto i) { return x * number(i / 16 % 5); }), shape),
            "b is a, each slice along axis 1 scaled by its own factor (0.5 to 0.62)");
  EXPECT_EQ(relation(a, changed(a, [&](float x, auto i) { return x + number(i / 16 % 5); }), shape),
            "b is a, each slice along axis 1 shifted by its own offset (0.5 to 0.62)");
  EXPECT_EQ(
      relation(a, changed(a, [&](float x, auto i) { return x * number(i / 16 % 5) + number(-(i / 16 % 5)); }), shape),
      "b is a, each slice along axis 1 by its own factor and offset");
  EXPECT_EQ(relation(a, changed(a, [&](float x, auto i) { return x * number(i / 16); }), shape),
            "b is a, each row of the last axis scaled by its own factor (0.5 to 1.37)");
}

float through(const char* name, float x) {
  for (const FloatFormat& format : kFloatFormats)
    if (std::string(format.name) == name) return static_cast<float>(round_to(format, x));
  return kNan;
}

TEST(Relation, Rounding) {
  const auto a = normal(300);
  for (const FloatFormat& format : kFloatFormats) {
    if (format.precision == 24) continue;
    const auto b = changed(a, [&](float x, auto) { return through(format.name, x); });
    EXPECT_EQ(relation(a, b, {300}), fmt::format("b is a, rounded to {}", format.name));
  }
  std::vector<double> wide(a.begin(), a.end());
  for (double& x : wide) x *= 1.000000001;
  EXPECT_EQ(relation(wide, std::vector<float>(wide.begin(), wide.end()), {300}), "b is a, rounded to float32");
  // Small numbers are rounded to multiples of float16's smallest, 2^-24.
  const auto small = normal(300, 0, 1e-6);
  EXPECT_EQ(relation(small, changed(small, [](float x, auto) { return through("float16", x); }), {300}),
            "b is a, rounded to float16");
}

// The independent judge: the conversion that the compiler has.
TEST(Relation, RoundsAsTheHardwareDoes) {
  std::mt19937 random(0);
  for (int i = 0; i < 100000; ++i) {
    const double x =
        std::ldexp(static_cast<double>(static_cast<std::int32_t>(random())), static_cast<int>(random() % 300) - 180);
    EXPECT_EQ(round_to(kFloatFormats[4], x), static_cast<double>(static_cast<float>(x))) << x;
    const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(x));
    const std::uint32_t nearest = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000U;  // bfloat16, to even
    if (std::isfinite(static_cast<float>(x))) {
      EXPECT_EQ(round_to(kFloatFormats[2], static_cast<double>(static_cast<float>(x))),
                static_cast<double>(std::bit_cast<float>(nearest)))
          << x;
    }
  }
}

TEST(Relation, Dropout) {
  const auto a = normal(1000);
  std::mt19937 random(1);
  const auto b = changed(a, [&](float x, auto) { return random() % 5 == 0 ? 0 : x / 0.8F; });
  const std::string words = relation(a, b, {10, 100});
  EXPECT_TRUE(words.starts_with("b is a under dropout: 1.25 a, or 0 for ")) << words;
}

TEST(Relation, Wrapped) {
  std::mt19937 random(1);
  std::vector<std::int64_t> a(200), b(200);
  for (std::size_t i = 0; i < a.size(); ++i) {
    a[i] = static_cast<std::int64_t>(random() % 1000);
    b[i] = a[i] % 256;
  }
  EXPECT_EQ(relation(a, b, {200}), "b is a, wrapped at 256");
  EXPECT_EQ(relation(b, a, {200}), "a is b, wrapped at 256");
}

TEST(Relation, NanAndInfinity) {
  auto a = normal(100);
  a[3] = kNan;
  a[7] = kInf;
  auto b = changed(a, [](float x, auto) { return 2 * x; });
  EXPECT_EQ(relation(a, b, {100}), "b = 2 a");
  b[9] = kNan;
  EXPECT_EQ(relation(a, b, {100}), "");
  EXPECT_EQ(relation(a, moved(a, [](auto i) { return 99 - i; }), {100}), "b is a, flipped along axis 0");
}

TEST(Relation, OneElementRefutes) {
  const auto a = normal(100000);
  auto b = changed(a, [](float x, auto) { return 2 * x; });
  EXPECT_EQ(relation(a, b, {100, 1000}), "b = 2 a");
  b[77777] += 1;
  EXPECT_EQ(relation(a, b, {100, 1000}), "");
  b = moved(a, [](auto i) { return i / 1000 * 1000 + (i % 1000 + 1000 - 17) % 1000; });
  EXPECT_EQ(relation(a, b, {100, 1000}), "b is a, rolled by 17 along axis 1");
  std::swap(b[5], b[77777]);
  EXPECT_EQ(relation(a, b, {100, 1000}), "");
}

TEST(Relation, FewValuesSayNothing) {
  EXPECT_EQ(relation_of({1, 2}, {5, 9}, {2}), "");
  EXPECT_EQ(relation_of({1, 2, 3}, {3, 2, 1}, {3}), "");
  EXPECT_EQ(relation_of({1.5F}, {3}, {}), "");
  EXPECT_EQ(relation(std::vector<float>(100, 1), std::vector<float>(100, 2), {100}), "");
  auto sparse = std::vector<float>(1000), other = sparse;
  sparse[10] = 1, other[20] = 1;
  EXPECT_EQ(relation(sparse, other, {1000}), "");
  std::vector<float> mask(1000), inverse(1000);
  for (std::size_t i = 0; i < mask.size(); ++i) mask[i] = static_cast<float>(i * i % 7 < 3), inverse[i] = 1 - mask[i];
  EXPECT_EQ(relation(mask, inverse, {1000}), "");
  // One large value that both share does not make the others agree.
  auto a = normal(100, 0, 1e-7), b = normal(100, 1, 1e-7);
  a[0] = b[0] = 1e3F;
  EXPECT_EQ(relation(a, b, {100}), "");
}

TEST(Relation, IndependentTensorsHaveNone) {
  unsigned seed = 0;
  for (const Shape& shape :
       {Shape{1}, Shape{2}, Shape{3}, Shape{4}, Shape{5}, Shape{8}, Shape{17}, Shape{64}, Shape{2, 2}, Shape{3, 3},
        Shape{4, 4, 4}, Shape{30, 30}, Shape{2, 8, 16}, Shape{7, 1, 5}, Shape{600, 3}})
    for (const double scale : {1e-30, 1e-12, 1e-6, 1.0, 1e6, 1e30})
      for (int round = 0; round < 20; ++round) {
        const auto a = normal(size_of(shape), seed++, scale), b = normal(size_of(shape), seed++, scale);
        EXPECT_EQ(relation(a, b, shape), "");
        for (const FloatFormat& format : kFloatFormats) {
          const auto coarse_a = changed(a, [&](float x, auto) { return through(format.name, x); });
          const auto coarse_b = changed(b, [&](float x, auto) { return through(format.name, x); });
          const std::string words = relation(coarse_a, coarse_b, shape);
          EXPECT_TRUE(words.empty() || words.ends_with("all zero")) << words << " " << format.name << " " << scale;
        }
        std::vector<std::int64_t> ids_a, ids_b;
        std::vector<std::uint8_t> small_a, small_b;
        for (std::size_t i = 0; i < a.size(); ++i) {
          ids_a.push_back(std::lround(3 * a[i] / scale)), ids_b.push_back(std::lround(3 * b[i] / scale));
          small_a.push_back(a[i] > 0), small_b.push_back(b[i] > 0);
        }
        for (const std::string& words : {relation(ids_a, ids_b, shape), relation(small_a, small_b, shape)})
          EXPECT_TRUE(words.empty() || words.ends_with("all zero")) << words;
      }
}

// Values that are far from normally distributed, and pairs that are alike without a relation.
TEST(Relation, UnlikelyButIndependent) {
  std::mt19937 random(7);
  std::cauchy_distribution<double> wild;
  std::uniform_real_distribution<double> even;
  const std::vector<std::function<double()>> draws = {
      [&] { return wild(random); },
      [&] { return std::exp(10 * even(random)); },
      [&] { return even(random) < 0.9 ? 0 : even(random); },
      [&] { return std::floor(3 * even(random)); },
      [&] { return even(random) < 0.5 ? 1.0 : 1 + 1e-6 * even(random); },
      [&] { return 1e6 + even(random); },
  };
  for (const auto& draw : draws)
    for (const std::int64_t count : {4, 7, 12, 40, 500, 3000})
      for (int round = 0; round < 20; ++round) {
        std::vector<float> a(static_cast<std::size_t>(count)), b = a, sorted;
        for (float& x : a) x = static_cast<float>(draw());
        for (float& x : b) x = static_cast<float>(draw());
        const auto expect_none = [&](const std::vector<float>& other) {
          for (const Shape& shape : {Shape{count}, Shape{count / 4, 4}, Shape{2, count / 2}}) {
            if (size_of(shape) != count) continue;
            const std::string words = relation(a, other, shape);
            EXPECT_TRUE(words.empty() || words.ends_with("all zero")) << words << ", " << count;
          }
        };
        expect_none(b);
        auto noisy = a;
        for (float& x : noisy) x *= static_cast<float>(1 + 1e-3 * even(random));
        if (weigh({a.begin(), a.end()}, 0).distinct > 3) expect_none(noisy);
        std::sort(a.begin(), a.end());
        std::sort(b.begin(), b.end());
        if (weigh({b.begin(), b.end()}, 1e-3).distinct > 8) expect_none(b);
      }
}

// What is moved is not computed with: it is compared exactly, however coarse the format.
TEST(Relation, CoarseFormatsAtOtherPositions) {
  const Shape shape{20, 20};
  const auto turned = [](std::int64_t i) { return i / 20 * 20 + 19 - i % 20; };
  std::vector<std::uint16_t> halves;
  std::vector<std::uint8_t> bytes;
  for (const float x : normal(400)) {
    halves.push_back(static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(x) >> 16));
    bytes.push_back(static_cast<std::uint8_t>(std::bit_cast<std::uint32_t>(x) >> 8) & 0xBFU);
  }
  const auto other_halves = moved(halves, turned);
  EXPECT_EQ(
      find_relation(TensorView{halves.data(), DType::BF16, shape}, TensorView{other_halves.data(), DType::BF16, shape}),
      "b is a, flipped along axis 1");
  const auto other_bytes = moved(bytes, turned);
  EXPECT_EQ(find_relation(TensorView{bytes.data(), DType::F8E4M3, shape},
                          TensorView{other_bytes.data(), DType::F8E4M3, shape}),
            "b is a, flipped along axis 1");
}

TEST(Relation, LargeTensors) {
  const std::int64_t count = 5'000'000;
  const auto a = normal(count);
  EXPECT_EQ(relation(a, changed(a, [](float x, auto) { return 2 * x; }), {count}), "b = 2 a");
  EXPECT_EQ(relation(a, moved(a, [&](auto i) { return (i + count - 123456) % count; }), {count}),
            "b is a, rolled by 123456 along axis 0");
}

}  // namespace
}  // namespace tenscope::compare
