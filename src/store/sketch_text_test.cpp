#include "store/sketch_text.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>

namespace tenscope::store {
namespace {

Sketch random_sketch(std::size_t count) {
  std::mt19937_64 random(count);
  Sketch sketch;
  for (std::size_t i = 0; i < count; ++i) sketch.sums[i] = std::normal_distribution<double>()(random);
  return sketch;
}

std::string text_of(DType dtype, const Sketch& sketch) {
  TextBuffer out;
  put_sketch(out, dtype, sketch);
  return std::string(out.view());
}

TEST(SketchText, ReadsBackAsFarAsTheDTypeAsksFor) {
  for (int d = 0; d < kDTypeCount; ++d) {
    const auto dtype = static_cast<DType>(d);
    for (std::size_t count = 0; count <= Sketch::kSums; ++count) {
      const Sketch sketch = random_sketch(count);
      const auto read = parse_sketch(text_of(dtype, sketch), dtype);
      ASSERT_TRUE(read);
      for (std::size_t i = 0; i < Sketch::kSums; ++i)
        EXPECT_NEAR(read->sums[i], sketch.sums[i], sketch_rounding(dtype) * std::abs(sketch.sums[i]));
      EXPECT_EQ(text_of(dtype, *read), text_of(dtype, sketch));
    }
  }
  EXPECT_EQ(text_of(DType::F32, {}), "");
  EXPECT_EQ(text_of(DType::F64, random_sketch(64)).size(), 684U);
  EXPECT_EQ(text_of(DType::F32, random_sketch(64)).size(), 428U);
  EXPECT_EQ(text_of(DType::BF16, random_sketch(64)).size(), 344U);
}

TEST(SketchText, HoldsEveryFloatOfItsOwnType) {
  std::mt19937_64 random(1);
  Sketch sketch;
  for (double& sum : sketch.sums) sum = static_cast<float>(std::normal_distribution<double>()(random));
  EXPECT_EQ(*parse_sketch(text_of(DType::F32, sketch), DType::F32), sketch);
}

TEST(SketchText, OthersAreRefused) {
  const std::string text = text_of(DType::F32, random_sketch(64));
  EXPECT_TRUE(parse_sketch(text, DType::F32));
  EXPECT_FALSE(parse_sketch(text.substr(1), DType::F32));
  EXPECT_FALSE(parse_sketch(text.substr(4), DType::F32));
  EXPECT_FALSE(parse_sketch(text + text, DType::F32));
  EXPECT_FALSE(parse_sketch(text, DType::BF16));
  EXPECT_FALSE(parse_sketch("====", DType::F32));
  EXPECT_FALSE(parse_sketch("!" + text.substr(1), DType::F32));
  EXPECT_FALSE(parse_sketch("AAAAAPB/", DType::F32));      // half a sum too many
  EXPECT_FALSE(parse_sketch("AAAAAAAA8H8=", DType::F64));  // infinity
}

}  // namespace
}  // namespace tenscope::store
