#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace tenscope::python {

// Overview: time stamps of changes. A stamp is taken at each of them, and reading the clock would be a good part of the
// cost; so where the kernel itself keeps its time by the processor's counter (Linux's clock source "tsc"), a stamp is
// that counter, and is turned into wall time when somebody asks. Elsewhere a stamp is the wall time in ns.

extern const bool stamps_are_ticks;
std::int64_t wall_time_ns();

inline std::int64_t stamp_now() {
#if defined(__x86_64__)
  if (stamps_are_ticks) [[likely]]
    return static_cast<std::int64_t>(__rdtsc());
#endif
  return wall_time_ns();
}

// How stamps and wall time relate, as of the moment it is made. One anchor keeps the order and distances of all stamps.
struct StampAnchor {
  std::int64_t stamp = 0, time_ns = 0;
  double ns_per_tick = 1;

  static StampAnchor make();
  std::int64_t time_of(std::int64_t other) const {
    return time_ns + static_cast<std::int64_t>(static_cast<double>(other - stamp) * ns_per_tick);
  }
};

}  // namespace tenscope::python
