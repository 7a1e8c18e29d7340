#include "store/ring.hpp"

#include <algorithm>
#include <system_error>

namespace tenscope::store {

void Ring::add(std::filesystem::path path, std::uint64_t size_bytes, std::int64_t segment) {
  std::lock_guard guard(mutex_);
  items_.push_back({std::move(path), size_bytes, segment});
  total_bytes_ += size_bytes;
  shrink(capacity_bytes_);
}

void Ring::make_room(std::uint64_t bytes) {
  std::lock_guard guard(mutex_);
  shrink(capacity_bytes_ - std::min(bytes, capacity_bytes_));
}

void Ring::shrink(std::uint64_t limit) {
  while (total_bytes_ > limit && !items_.empty()) {
    std::error_code ignored;
    std::filesystem::remove(items_.front().path, ignored);
    total_bytes_ -= items_.front().size_bytes;
    items_.pop_front();
  }
  if (total_bytes_ <= capacity_bytes_ / 2) return;
  std::uint64_t newer = 0;
  for (auto item = items_.rbegin(); item != items_.rend(); ++item) {
    newer += item->size_bytes;
    if (newer > capacity_bytes_ / 2) break;
    if (item->segment >= 0) fresh_from_ = item->segment;
  }
}

}  // namespace tenscope::store
