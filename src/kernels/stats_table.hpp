#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "kernels/moments.hpp"
#include "tenscope/dtype.hpp"

namespace tenscope::kernels {

// The kernels of stats_simd.cpp for one vector unit.
struct StatsTable {
  // Statistics of a block of `count` elements by dtype; of a complex type, `count` components.
  std::array<BlockStats (*)(const std::byte* bytes, std::int64_t count), kDTypeCount> block_stats;
  // The same of whole blocks of a sketch (docs/format.md), the first of them number `first`, which are added to its 64
  // sums where all elements are finite; else the sums stay as they are. Null where this is no faster than two passes.
  using SketchedStats = BlockStats (*)(double* sums, std::int64_t first, const std::byte* bytes, std::int64_t count);
  std::array<SketchedStats, kDTypeCount> sketched_stats;
  // memcpy past the caches. `destination` must be aligned to 64 bytes; flush_stream() makes it visible to other
  // threads.
  void (*stream_copy)(std::byte* destination, const std::byte* source, std::size_t size);
  void (*flush_stream)();
};

const StatsTable& stats_table();

}  // namespace tenscope::kernels
