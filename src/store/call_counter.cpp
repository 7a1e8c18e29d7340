#include "store/call_counter.hpp"

#include <algorithm>
#include <utility>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace tenscope::store {
namespace {

constexpr std::size_t kFirstCapacity = 256;
constexpr std::size_t kExactCapacity = 8192;  // nothing is folded below

std::uint64_t pair_hash(std::uint64_t name, std::int64_t step) {
  const std::uint64_t mixed = (name ^ (static_cast<std::uint64_t>(step) * 0x9E3779B97F4A7C15)) * 0xBF58476D1CE4E5B9;
  return mixed ^ (mixed >> 32);
}

}  // namespace

CallCounter::Index CallCounter::next(std::string_view name, EventKind kind, std::int64_t step, std::int64_t call,
                                     const std::atomic<std::int64_t>& run_step) {
  const auto group = kind == EventKind::Change ? EventKind::Value : kind;
  const std::uint64_t hash = XXH3_64bits_withSeed(name.data(), name.size(), static_cast<std::uint64_t>(group));
  const std::uint64_t key = std::max<std::uint64_t>(hash, 1);

  std::lock_guard guard(mutex_);
  // Read under the lock: once a thread has counted in a new step, no other counts in the old one.
  run_step_ = run_step.load(std::memory_order_relaxed);
  if (step < 0) step = run_step_;
  newest_step_ = std::max(newest_step_, step);

  if (used_ * 2 >= entries_.size()) make_room();
  Entry& entry = find(key, step);
  if (entry.name == 0) {
    entry.name = key;
    entry.step = step;
    entry.count = folded_.count_of(key, step);
    ++used_;
  }
  if (call < 0) call = static_cast<std::int64_t>(entry.count);
  const auto last_number = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  entry.count = std::max<std::uint64_t>(entry.count, std::min(static_cast<std::uint64_t>(call) + 1, last_number));
  entry.is_recent = 1;
  return {step, call};
}

CallCounter::Entry& CallCounter::find(std::uint64_t name, std::int64_t step) {
  const std::size_t mask = entries_.size() - 1;
  std::size_t index = pair_hash(name, step) & mask;
  while (entries_[index].name != 0 && (entries_[index].name != name || entries_[index].step != step)) {
    index = (index + 1) & mask;
  }
  return entries_[index];
}

bool CallCounter::is_kept(const Entry& entry, Kept kept) const noexcept {
  if (kept != Kept::Live) return kept == Kept::All;
  return entry.is_recent == 1 || entry.step == run_step_ || entry.step == newest_step_;
}

void CallCounter::make_room() {
  const std::size_t capacity = entries_.size();
  if (capacity < kExactCapacity) return rebuild(std::max(kFirstCapacity, capacity * 2), Kept::All);
  const auto live = static_cast<std::size_t>(std::count_if(entries_.begin(), entries_.end(), [&](const Entry& entry) {
    return entry.name != 0 && is_kept(entry, Kept::Live);
  }));
  if (live > capacity / 4 && capacity < 2 * kMaxPairs) return rebuild(capacity * 2, Kept::Live);
  rebuild(capacity, live > capacity * 3 / 8 ? Kept::None : Kept::Live);
}

void CallCounter::rebuild(std::size_t capacity, Kept kept) {
  if (kept != Kept::All && folded_.counts.empty()) {
    folded_.highest_steps.resize(Folded::kNames, std::numeric_limits<std::int64_t>::min());
    folded_.was_there.resize(Folded::kBits);
    folded_.counts.resize(Folded::kNames);
  }
  const auto old = std::exchange(entries_, std::vector<Entry>(capacity));
  used_ = 0;
  for (const Entry& entry : old) {
    if (entry.name == 0) continue;
    if (is_kept(entry, kept)) {
      Entry& place = find(entry.name, entry.step);
      place = entry;
      place.is_recent = 0;
      ++used_;
    } else {
      folded_.add(entry);
    }
  }
}

void CallCounter::Folded::add(const Entry& entry) {
  const std::uint64_t hash = pair_hash(entry.name, entry.step), name = entry.name % kNames;
  highest_steps[name] = std::max(highest_steps[name], entry.step);
  counts[name] = std::max<std::uint64_t>(counts[name], entry.count);
  was_there[hash % kBits] = was_there[(hash >> 40) % kBits] = true;
}

std::uint64_t CallCounter::Folded::count_of(std::uint64_t name, std::int64_t step) const {
  if (counts.empty() || step > highest_steps[name % kNames]) return 0;
  const std::uint64_t hash = pair_hash(name, step);
  return was_there[hash % kBits] && was_there[(hash >> 40) % kBits] ? counts[name % kNames] : 0;
}

}  // namespace tenscope::store
