#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <mutex>

namespace tenscope::store {

// The finished files of a writer, oldest first, held below a number of bytes by deleting the oldest. Thread-safe.
class Ring {
 public:
  explicit Ring(std::uint64_t capacity_bytes) : capacity_bytes_(capacity_bytes) {}

  void add(std::filesystem::path path, std::uint64_t size_bytes, std::int64_t segment = -1);
  void make_room(std::uint64_t bytes);  // deletes until that much is free

  // Segments before this one are in the older half: what they hold will go soon and is better stored again.
  std::int64_t fresh_from() const noexcept { return fresh_from_.load(std::memory_order_relaxed); }

 private:
  struct Item {
    std::filesystem::path path;
    std::uint64_t size_bytes;
    std::int64_t segment;
  };
  void shrink(std::uint64_t limit);

  const std::uint64_t capacity_bytes_;
  std::mutex mutex_;
  std::deque<Item> items_;
  std::uint64_t total_bytes_ = 0;
  std::atomic<std::int64_t> fresh_from_{0};
};

}  // namespace tenscope::store
