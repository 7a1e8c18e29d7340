#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace tenscope {

// The block-quantised types of ggml and GGUF: small groups of elements that share a scale.
enum class BlockType : std::uint8_t {
  Q4_0,
  Q4_1,
  Q5_0,
  Q5_1,
  Q8_0,
  Q2_K,
  Q3_K,
  Q4_K,
  Q5_K,
  Q6_K,
  IQ4_NL,
  IQ4_XS,
  TQ1_0,
  TQ2_0,
  MXFP4,
};

inline constexpr int kBlockTypeCount = 15;

// The name that ggml has for it, which may be parsed in any case: "q4_K", "iq4_nl", "mxfp4".
std::string_view to_string(BlockType type) noexcept;
std::optional<BlockType> parse_block_type(std::string_view name) noexcept;

std::int64_t block_elements(BlockType type) noexcept;  // elements of one block
std::size_t block_bytes(BlockType type) noexcept;      // bytes of one block

// The elements of `count / block_elements(type)` blocks as float32, bit for bit as ggml has them. `bytes` may lie at
// any address. A row of a tensor is a whole number of blocks. Throws InvalidArgument for a count that is not.
void dequantise(BlockType type, const void* bytes, std::int64_t count, float* out);

}  // namespace tenscope
