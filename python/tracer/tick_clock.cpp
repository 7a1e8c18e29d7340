#include "tracer/tick_clock.hpp"

#include <ctime>
#include <fstream>
#include <string>

namespace tenscope::python {
namespace {

std::int64_t read_clock(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return now.tv_sec * 1'000'000'000LL + now.tv_nsec;
}

bool kernel_trusts_counter() {
#if defined(__x86_64__)
  std::ifstream file("/sys/devices/system/clocksource/clocksource0/current_clocksource");
  std::string source;
  return file >> source && source == "tsc";
#else
  return false;
#endif
}

struct Reading {
  std::int64_t stamp = 0, time_ns = 0;
};

// Both at the same moment: of some attempts the one that was interrupted least.
Reading read_both(clockid_t clock) {
  Reading best;
  std::int64_t best_gap = 0;
  for (int attempt = 0; attempt < 4; ++attempt) {
    const std::int64_t before = stamp_now();
    const std::int64_t time_ns = read_clock(clock);
    const std::int64_t gap = stamp_now() - before;
    if (attempt == 0 || gap < best_gap) best = {before + gap / 2, time_ns}, best_gap = gap;
  }
  return best;
}

}  // namespace

const bool stamps_are_ticks = kernel_trusts_counter();
static const Reading first_reading = read_both(CLOCK_MONOTONIC);  // after stamps_are_ticks; the longer ago the better

std::int64_t wall_time_ns() { return read_clock(CLOCK_REALTIME); }

StampAnchor StampAnchor::make() {
  const Reading wall = read_both(CLOCK_REALTIME);
  if (!stamps_are_ticks) return {wall.stamp, wall.stamp, 1};
  const Reading now = read_both(CLOCK_MONOTONIC);
  const auto ticks = static_cast<double>(now.stamp - first_reading.stamp);
  const auto elapsed_ns = static_cast<double>(now.time_ns - first_reading.time_ns);
  return {wall.stamp, wall.time_ns, ticks > 0 ? elapsed_ns / ticks : 0};
}

}  // namespace tenscope::python
