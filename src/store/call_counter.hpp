#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <mutex>
#include <string_view>
#include <vector>

#include "tenscope/event.hpp"

namespace tenscope::store {

// Counts the calls of each name within each step, whatever the order of the steps: a number is never given twice for
// one name and step. Thread-safe. Memory is bounded: counts are kept exactly for some thousand pairs of name and step
// at the least, for all names of the current step, and for what was used lately (kMaxPairs at most). Older ones are
// folded: of a name's folded steps the highest count is remembered, and of each pair two bits in a set of 1 MB that say
// that it was there. A pair that was not begins at 0; one that was, or shares its bits with others, goes on from its
// name's highest count, which may leave a gap but repeats nothing. Names are kept as hashes, and names that share one
// are counted together.
class CallCounter {
 public:
  static constexpr std::size_t kMaxPairs = 1 << 19;

  struct Index {
    std::int64_t step;
    std::int64_t call;
  };

  // The next call of `name` in `step`, or where that is negative in the run's step as it is now. Values and changes of
  // a name are counted together, other kinds each for themselves. A `call` that is not negative is the caller's own
  // number: it is taken as it is, and what is counted later comes behind it.
  Index next(std::string_view name, EventKind kind, std::int64_t step, std::int64_t call,
             const std::atomic<std::int64_t>& run_step);

 private:
  struct Entry {
    std::uint64_t name = 0;  // a hash; 0: free
    std::int64_t step = 0;
    std::uint64_t count : 63 = 0;
    std::uint64_t is_recent : 1 = 0;  // used since room was made last
  };
  // Of the folded pairs.
  struct Folded {
    static constexpr std::uint64_t kNames = 1 << 13, kBits = 1 << 23;

    std::vector<std::int64_t> highest_steps;  // by the name's hash; names that share a place share what it says
    std::vector<std::uint64_t> counts;
    std::vector<bool> was_there;  // by hashes of the pair

    void add(const Entry& entry);
    std::uint64_t count_of(std::uint64_t name, std::int64_t step) const;
  };

  Entry& find(std::uint64_t name, std::int64_t step);
  enum class Kept { All, Live, None };
  bool is_kept(const Entry& entry, Kept kept) const noexcept;
  void make_room();
  void rebuild(std::size_t capacity, Kept kept);

  std::mutex mutex_;
  std::vector<Entry> entries_;  // open addressing, a power of two, at most half full
  Folded folded_;
  std::size_t used_ = 0;
  std::int64_t run_step_ = 0;
  std::int64_t newest_step_ = std::numeric_limits<std::int64_t>::min();
};

}  // namespace tenscope::store
