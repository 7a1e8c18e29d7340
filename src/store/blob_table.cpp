#include "store/blob_table.hpp"

#include <algorithm>
#include <utility>

namespace tenscope::store {

std::optional<BlobTable::Known> BlobTable::find(const Fingerprint& fingerprint, DType dtype, std::uint64_t size_bytes,
                                                std::int64_t oldest_segment) {
  std::lock_guard guard(mutex_);
  if (buckets_.empty()) return std::nullopt;
  for (const Entry& entry : bucket_of(fingerprint)) {
    if (!entry.holds(fingerprint, dtype, size_bytes)) continue;
    Known known{.stats = entry.summary.stats};
    if (entry.has_sketch) known.sketch = entry.sketch;
    if (entry.segment >= oldest_segment) known.blob = BlobRef{entry.segment, entry.offset, size_bytes};
    return known;
  }
  return std::nullopt;
}

void BlobTable::insert(const Summary& summary, DType dtype, std::uint64_t size_bytes,
                       const std::optional<BlobRef>& blob, const std::optional<SketchAt>& sketch) {
  std::lock_guard guard(mutex_);
  Entry entry{.summary = summary, .size_bytes = size_bytes, .dtype = dtype, .has_sketch = sketch.has_value()};
  if (sketch) entry.sketch = *sketch;
  if (blob) {
    entry.segment = static_cast<std::int32_t>(blob->segment);
    entry.offset = blob->offset;
  }
  entry.age = clock_ = std::max(clock_ + 1, 1u);
  if (buckets_.empty()) buckets_.resize(64);
  const auto has_place = [&] {
    const Bucket& bucket = bucket_of(summary.fingerprint);
    return std::any_of(bucket.begin(), bucket.end(), [&](const Entry& other) {
      return other.age == 0 || other.holds(summary.fingerprint, dtype, size_bytes);
    });
  };
  while (!has_place() && buckets_.size() * kWays < kMaxBlobs) grow();
  place(entry);
}

void BlobTable::place(const Entry& entry) {
  Bucket& bucket = bucket_of(entry.summary.fingerprint);
  Entry* best = &bucket[0];
  for (Entry& other : bucket) {
    if (other.holds(entry.summary.fingerprint, entry.dtype, entry.size_bytes)) {
      best = &other;
      break;
    }
    if (other.age < best->age) best = &other;
  }
  *best = entry;
}

void BlobTable::grow() {
  auto old = std::exchange(buckets_, std::vector<Bucket>(buckets_.size() * 2));
  for (const Bucket& bucket : old) {
    for (const Entry& entry : bucket) {
      if (entry.age != 0) place(entry);
    }
  }
}

}  // namespace tenscope::store
