#pragma once

#include <cstddef>

#include "kernels/element.hpp"
#include "kernels/moments.hpp"

namespace tenscope::kernels {

// The plain version of the statistics of a block: what every vector version must agree with. The block may be
// unaligned.
template <class T>
BlockStats block_stats_scalar(const std::byte* bytes, std::int64_t count) noexcept {
  BlockStats stats;
  for (std::int64_t i = 0; i < count; ++i) {
    const T element = load<T>(bytes + i * static_cast<std::int64_t>(sizeof(T)));
    const double x = to_double(element);
    if (!std::isfinite(x)) {
      stats.nan += std::isnan(x);
      stats.pos_inf += x > 0;
      stats.neg_inf += x < 0;
      continue;
    }
    if (stats.count++ == 0) stats.pivot = x;
    const double d = x - stats.pivot;
    stats.sum += d;
    stats.sum_squares += d * d;
    stats.min = x < stats.min ? x : stats.min;
    stats.max = x > stats.max ? x : stats.max;
    stats.zero += x == 0;
    if constexpr (!kIsInteger<T>) stats.subnormal += x != 0 && std::abs(x) < kMinNormal<T>;
    if constexpr (std::is_integral_v<T> && sizeof(T) == 8) {
      constexpr std::uint64_t kFlip = std::is_unsigned_v<T> ? 1ULL << 63 : 0;
      const auto ordered = static_cast<std::int64_t>(static_cast<std::uint64_t>(element) ^ kFlip);
      stats.ordered_min = ordered < stats.ordered_min ? ordered : stats.ordered_min;
      stats.ordered_max = ordered > stats.ordered_max ? ordered : stats.ordered_max;
    }
  }
  return stats;
}

}  // namespace tenscope::kernels
