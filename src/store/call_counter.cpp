#include "store/call_counter.hpp"

#include <algorithm>
#include <utility>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace tenscope::store {

CallCounter::Index CallCounter::next(std::string_view name, EventKind kind, std::int64_t step,
                                     const std::atomic<std::int64_t>& run_step) {
  std::lock_guard guard(mutex_);
  // Read under the lock: once a thread has counted in a new step, no other counts in the old one.
  const std::int64_t now = run_step.load(std::memory_order_relaxed);
  if (now != run_step_) forget();
  run_step_ = now;
  if (step < 0) step = now;
  newest_step_ = std::max(newest_step_, step);

  const auto group = kind == EventKind::Change ? EventKind::Value : kind;
  const std::uint64_t seed = static_cast<std::uint64_t>(step) * 8 + static_cast<std::uint64_t>(group);
  const std::uint64_t key = std::max<std::uint64_t>(XXH3_64bits_withSeed(name.data(), name.size(), seed), 1);
  if (used_ * 2 >= entries_.size()) make_room();
  Entry& entry = find(key);
  if (entry.key == 0) {
    entry = {key, step, 0};
    ++used_;
  }
  return {step, entry.count++};
}

void CallCounter::forget() {
  newest_step_ = 0;
  if (used_ == 0) return;
  used_ = 0;
  std::fill(entries_.begin(), entries_.end(), Entry{});
}

CallCounter::Entry& CallCounter::find(std::uint64_t key) {
  const std::size_t mask = entries_.size() - 1;
  std::size_t index = key & mask;
  while (entries_[index].key != 0 && entries_[index].key != key) index = (index + 1) & mask;
  return entries_[index];
}

void CallCounter::make_room() {
  if (used_ < kMaxNames) return rebuild(std::max<std::size_t>(256, entries_.size() * 2));
  std::erase_if(entries_, [&](const Entry& entry) { return entry.step != newest_step_; });
  if (entries_.size() * 2 > kMaxNames) entries_.clear();
  rebuild(kMaxNames * 2);
}

void CallCounter::rebuild(std::size_t capacity) {
  auto old = std::exchange(entries_, std::vector<Entry>(capacity));
  used_ = 0;
  for (const Entry& entry : old) {
    if (entry.key == 0) continue;
    find(entry.key) = entry;
    ++used_;
  }
}

}  // namespace tenscope::store
