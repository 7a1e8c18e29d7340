#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string_view>
#include <vector>

#include "tenscope/event.hpp"

namespace tenscope::store {

// Counts the calls of each name within a step. Thread-safe. Names are kept as 64-bit hashes; when the table is full
// (kMaxNames), what belongs to older steps than the newest is forgotten, and when that does not help, everything: the
// calls of names seen before then begin at 0 again.
class CallCounter {
 public:
  static constexpr std::size_t kMaxNames = 1 << 19;

  struct Index {
    std::int64_t step;
    std::int64_t call;
  };

  // The index of the next call of `name` in `step`, or where that is negative in the run's step as it is now. Values
  // and changes of a name are counted together, other kinds each for themselves.
  Index next(std::string_view name, EventKind kind, std::int64_t step, const std::atomic<std::int64_t>& run_step);

 private:
  struct Entry {
    std::uint64_t key = 0;  // 0: free
    std::int64_t step = 0;
    std::int64_t count = 0;
  };

  Entry& find(std::uint64_t key);
  void forget();
  void make_room();
  void rebuild(std::size_t capacity);

  std::mutex mutex_;
  std::vector<Entry> entries_;  // open addressing, a power of two, at most half full
  std::size_t used_ = 0;
  std::int64_t newest_step_ = 0;
  std::int64_t run_step_ = 0;
};

}  // namespace tenscope::store
