#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <system_error>
#include <thread>
#include <vector>

namespace tenscope::kernels {

// How many threads a pass over this many bytes is worth, at most `limit` (0: as many as the machine has).
inline int thread_count(std::int64_t bytes, int limit) noexcept {
  constexpr std::int64_t kBytesPerThread = std::int64_t{8} << 20;
  const int cores = limit > 0 ? limit : static_cast<int>(std::thread::hardware_concurrency());
  return static_cast<int>(std::clamp<std::int64_t>(bytes / kBytesPerThread, 1, std::clamp(cores, 1, 64)));
}

// f(worker, begin, end) for chunks of [0, count) in rising order, each by one of `threads` workers; the caller is
// worker 0. f must not throw. Runs on fewer threads where the system gives no more.
template <class F>
void for_each_chunk(std::int64_t count, std::int64_t chunk, int threads, F&& f) {
  std::atomic<std::int64_t> next{0};
  const auto work = [&](int worker) {
    for (;;) {
      const std::int64_t begin = next.fetch_add(chunk, std::memory_order_relaxed);
      if (begin >= count) return;
      f(worker, begin, std::min(count, begin + chunk));
    }
  };
  std::vector<std::jthread> helpers;
  try {
    for (int i = 1; i < threads; ++i) helpers.emplace_back(work, i);
  } catch (const std::system_error&) {  // with those it has
  }
  work(0);
}

}  // namespace tenscope::kernels
