#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "tenscope/event.hpp"

namespace tenscope::store {

// What a writer has stored already, by content: fingerprint, dtype and size. A hit also gives the statistics and
// where the sketch is, so that an unchanged tensor is only hashed. Thread-safe. Memory is bounded by kMaxBlobs entries
// (about 24 MB): the table grows to that, then a new entry takes the place of the oldest of the few that share its
// bucket. What was forgotten is stored again when it comes back.
class BlobTable {
 public:
  static constexpr std::size_t kMaxBlobs = 1 << 17;

  // Which event has the content's sketch, and as which part of which whole it was sketched (0: as the whole).
  struct SketchAt {
    std::uint64_t seq = 0;
    std::uint64_t part = 0;
  };

  struct Known {
    Stats stats;
    std::optional<BlobRef> blob;     // absent where only the statistics are known
    std::optional<SketchAt> sketch;  // absent where there is none
  };

  // Blobs in segments before `oldest_segment` count as not stored.
  std::optional<Known> find(const Fingerprint& fingerprint, DType dtype, std::uint64_t size_bytes,
                            std::int64_t oldest_segment = 0);
  void insert(const Summary& summary, DType dtype, std::uint64_t size_bytes, const std::optional<BlobRef>& blob,
              const std::optional<SketchAt>& sketch = {});

 private:
  static constexpr std::size_t kWays = 4;

  struct Entry {
    Summary summary;
    std::uint64_t offset = 0;
    std::uint64_t size_bytes = 0;
    std::int32_t segment = -1;
    std::uint32_t age = 0;  // 0: free
    DType dtype = DType::F32;
    bool has_sketch = false;
    SketchAt sketch;

    bool holds(const Fingerprint& fingerprint, DType type, std::uint64_t size) const noexcept {
      return age != 0 && summary.fingerprint == fingerprint && size_bytes == size && dtype == type;
    }
  };
  using Bucket = std::array<Entry, kWays>;

  Bucket& bucket_of(const Fingerprint& fingerprint) noexcept {
    return buckets_[fingerprint.low & (buckets_.size() - 1)];
  }
  void place(const Entry& entry);
  void grow();

  std::mutex mutex_;
  std::vector<Bucket> buckets_;  // a power of two
  std::uint32_t clock_ = 0;
};

}  // namespace tenscope::store
