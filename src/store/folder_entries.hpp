#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <utility>

#include "store/file.hpp"

namespace tenscope::store {

// A folder's entries, which are on the disk only when the folder itself was synced: a file whose bytes are there may
// have no name after a power cut. Thread-safe.
class FolderEntries {
 public:
  explicit FolderEntries(std::filesystem::path folder) : folder_(std::move(folder)) {}

  void change() noexcept { ++changes_; }  // after a file was created or renamed

  void sync() {  // every change told of before is on the disk on return
    std::lock_guard guard(mutex_);
    const std::uint64_t changes = changes_.load();
    if (changes == synced_) return;
    sync_folder(folder_);
    synced_ = changes;
  }

 private:
  const std::filesystem::path folder_;
  std::atomic<std::uint64_t> changes_{0};
  std::mutex mutex_;
  std::uint64_t synced_ = 0;
};

}  // namespace tenscope::store
