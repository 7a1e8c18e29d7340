#include "tenscope/quantised.hpp"

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "tenscope/error.hpp"

namespace tenscope {
namespace {

// tests/test_gguf.py has the gguf package judge every type.
TEST(Quantised, NamesAreParsedInAnyCase) {
  for (int i = 0; i < kBlockTypeCount; ++i) {
    const auto type = static_cast<BlockType>(i);
    EXPECT_EQ(parse_block_type(to_string(type)), type);
  }
  EXPECT_EQ(parse_block_type("Q4_k"), BlockType::Q4_K);
  EXPECT_EQ(parse_block_type("q4"), std::nullopt);
  EXPECT_EQ(parse_block_type(""), std::nullopt);
}

TEST(Quantised, ABlockAtAnyAddress) {
  std::array<unsigned char, 1 + 2 * 34> bytes{};
  for (std::size_t block = 0; block < 2; ++block) {
    unsigned char* at = bytes.data() + 1 + block * 34;
    at[1] = 0x38;  // 0.5 as a half
    for (int i = 0; i < 32; ++i) at[2 + i] = static_cast<unsigned char>(i - 16);
  }
  std::vector<float> out(64);
  dequantise(BlockType::Q8_0, bytes.data() + 1, 64, out.data());
  for (int i = 0; i < 64; ++i) EXPECT_EQ(out[static_cast<std::size_t>(i)], 0.5F * static_cast<float>(i % 32 - 16));
}

TEST(Quantised, OnlyWholeBlocks) {
  std::array<unsigned char, 144> bytes{};
  std::array<float, 256> out{};
  dequantise(BlockType::Q4_K, bytes.data(), 0, out.data());
  dequantise(BlockType::Q4_K, bytes.data(), 256, out.data());
  EXPECT_THROW(dequantise(BlockType::Q4_K, bytes.data(), 128, out.data()), Error);
  EXPECT_THROW(dequantise(BlockType::Q4_K, bytes.data(), -256, out.data()), Error);
}

}  // namespace
}  // namespace tenscope
