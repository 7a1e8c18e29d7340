#pragma once

#include <cstdint>
#include <vector>

#include "kernels/look.hpp"
#include "kernels/value_scale.hpp"

namespace tenscope::kernels {

// What is among the elements of a cell.
inline constexpr std::uint8_t kHasNan = 1;
inline constexpr std::uint8_t kHasPositiveInf = 2;
inline constexpr std::uint8_t kHasNegativeInf = 4;
inline constexpr std::uint8_t kHasDifference = 8;  // of pairs only

// A part of a look that is taken for a matrix of `cols` columns.
struct TileOptions {
  std::int64_t cols = 0;  // of the whole matrix
  std::int64_t row_begin = 0;
  std::int64_t row_end = 0;
  std::int64_t col_begin = 0;
  std::int64_t col_end = 0;
  std::int64_t height = 512;  // at most so many cells
  std::int64_t width = 512;
  int threads = 0;
};

// The part in at most height x width cells, row by row. Row i of n rows that become h covers the rows from
// row_begin + i * n / h to row_begin + (i + 1) * n / h, and columns likewise. min, max and mean are over a cell's
// finite elements, and NaN where there is none; numbers too large for a float32 become its largest.
struct Tile {
  std::int64_t height = 0;
  std::int64_t width = 0;
  bool is_exact = false;  // a cell is an element: `value` has it, and min, max and mean are empty
  std::vector<float> value;
  std::vector<float> min;
  std::vector<float> max;
  std::vector<float> mean;
  std::vector<std::uint8_t> flags;
};

// Where `i` of `parts` nearly equal parts of [begin, end) starts.
constexpr std::int64_t part_begin(std::int64_t begin, std::int64_t end, std::int64_t i, std::int64_t parts) {
  const std::int64_t size = end - begin;
  return begin + size / parts * i + size % parts * i / parts;
}

// The part must lie in the matrix, height and width be above 0. `scale`, if given, becomes that of the whole look;
// where the tile is all of it, in the same pass.
Tile make_tile(const Look& look, const TileOptions& options, ValueScale* scale = nullptr);

}  // namespace tenscope::kernels
