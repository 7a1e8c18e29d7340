#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace tenscope::kernels {

// Asked for once: the C library opens a file of the system for every answer, which takes longer than a small
// comparison.
inline int core_count() noexcept {
  static const int count = static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1u, 64u));
  return count;
}

// How many threads a pass over this many bytes is worth, at most `limit` (0: as many as the machine has).
inline int thread_count(std::int64_t bytes, int limit) noexcept {
  constexpr std::int64_t kBytesPerThread = std::int64_t{8} << 20;
  const int most = limit > 0 ? std::min(limit, 64) : core_count();
  return static_cast<int>(std::clamp<std::int64_t>(bytes / kBytesPerThread, 1, most));
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

// How many threads `jobs` that do not depend on each other are worth, at most `limit`.
inline int worker_count(std::size_t jobs, std::size_t limit) noexcept {
  return static_cast<int>(std::max<std::size_t>(1, std::min({static_cast<std::size_t>(core_count()), jobs, limit})));
}

// make(i) for each i of [0, count) by one of `threads` workers, and take(what it made) in rising order of i, one at a
// time. What they throw for the lowest i is thrown in the end, and nothing behind it is taken.
template <class Make, class Take>
void make_in_order(std::size_t count, int threads, Make&& make, Take&& take) {
  struct Made {
    std::optional<std::invoke_result_t<Make&, std::size_t>> result;
    std::exception_ptr error;
  };
  std::mutex mutex;
  std::map<std::size_t, Made> waiting;
  std::size_t next = 0;
  std::exception_ptr failure;
  const auto take_those_in_turn = [&] {
    for (auto first = waiting.begin(); first != waiting.end() && first->first == next; ++next) {
      try {
        if (first->second.error) std::rethrow_exception(first->second.error);
        if (!failure) take(std::move(*first->second.result));
      } catch (...) {
        if (!failure) failure = std::current_exception();
      }
      first = waiting.erase(first);
    }
  };
  for_each_chunk(static_cast<std::int64_t>(count), 1, threads, [&](int, std::int64_t begin, std::int64_t) {
    Made made;
    try {
      made.result.emplace(make(static_cast<std::size_t>(begin)));
    } catch (...) {
      made.error = std::current_exception();
    }
    const std::lock_guard lock(mutex);
    waiting.emplace(static_cast<std::size_t>(begin), std::move(made));
    take_those_in_turn();
  });
  if (failure) std::rethrow_exception(failure);
}

}  // namespace tenscope::kernels
