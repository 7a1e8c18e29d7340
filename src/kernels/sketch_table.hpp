#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "tenscope/dtype.hpp"

namespace tenscope::kernels {

// The kernels of sketch_simd.cpp for one vector unit.
struct SketchTable {
  // Adds the blocks [first, first + blocks) of 64 elements each (of a complex type: components) to the 64 sums.
  using AddBlocks = void (*)(double* sums, std::int64_t first, std::int64_t blocks, const std::byte* bytes);
  std::array<AddBlocks, kDTypeCount> add_finite;  // for blocks without NaN and infinity
  std::array<AddBlocks, kDTypeCount> add_any;     // takes these for zeros
};

const SketchTable& sketch_table();

}  // namespace tenscope::kernels
