#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/element_reader.hpp"

namespace tenscope::kernels {

inline constexpr std::int64_t kBlockBytes = 4096;

inline void prefetch_block(const std::byte* bytes) {
  for (std::int64_t i = 0; i < kBlockBytes; i += 64) __builtin_prefetch(bytes + kBlockBytes + i);
}

// f(begin, count, bytes) over the tensor's blocks, in order. The first block has `first` elements where that is not 0.
template <class F>
void for_each_block(const ElementReader& reader, std::int64_t first, F&& f) {
  alignas(64) std::byte scratch[kBlockBytes];
  const std::int64_t block = kBlockBytes / static_cast<std::int64_t>(reader.item_size());
  for (std::int64_t begin = 0; begin < reader.count();) {
    const std::int64_t count = std::min(begin == 0 && first != 0 ? first : block, reader.count() - begin);
    const std::byte* bytes = reader.read(begin, count, scratch);
    if (reader.is_contiguous()) prefetch_block(bytes);
    f(begin, count, bytes);
    begin += count;
  }
}

}  // namespace tenscope::kernels
