#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/element.hpp"

namespace tenscope::kernels {

inline constexpr std::int64_t kSketchBlock = 64;

// What becomes of a block of 64 elements: element i goes to sum i ^ swap, and is subtracted where that bit of `signs`
// is set. Those of block 0 are 0.
struct BlockDraw {
  std::uint64_t signs;
  std::uint64_t swap;

  explicit BlockDraw(std::int64_t block) noexcept {
    auto x = static_cast<std::uint64_t>(block);
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
    signs = x ^ (x >> 31);
    swap = (signs * 0x9E3779B97F4A7C15ULL) >> 58;
  }
};

// The plain version: what every vector version agrees with bit for bit, since each sum gets one element of every block.
template <class T>
void add_blocks_scalar(double* sums, std::int64_t first, std::int64_t blocks, const std::byte* bytes) noexcept {
  for (std::int64_t block = first; block < first + blocks; ++block) {
    const BlockDraw draw(block);
    for (std::uint64_t i = 0; i < kSketchBlock; ++i, bytes += sizeof(T)) {
      const double x = to_double(load<T>(bytes));
      const std::uint64_t place = i ^ draw.swap;
      if (std::isfinite(x)) sums[place] += (draw.signs >> place & 1) != 0 ? -x : x;
    }
  }
}

}  // namespace tenscope::kernels
