#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <mutex>
#include <string_view>

#include "store/file.hpp"
#include "store/folder_entries.hpp"

namespace tenscope::store {

// Appends lines to a writer's journal (docs/format.md). Thread-safe. Holds the journal's lock while it lives. What it
// cannot write throws IoError and leaves the journal as it was.
class JournalWriter {
 public:
  struct Options {
    std::uint64_t part_bytes = 0;      // above 0: the journal is rotated when it would grow beyond
    FolderEntries* entries = nullptr;  // where given, a part is synced when it is finished
    // Called when a part is finished, under the journal's lock.
    std::function<void(const std::filesystem::path& part, std::uint64_t size_bytes)> on_part;
  };

  JournalWriter(const std::filesystem::path& folder, Options options);
  ~JournalWriter();  // leaves the journal as it is, as a crash would

  // Appends `{"seq":N,"t":T` + body + checksum and returns N. `body` is what encode_event made. When the disk is full,
  // a report of that may use space kept back for it, and a last word the rest.
  enum class Urgency { Normal, Report, LastWord };
  std::uint64_t append(std::string_view body, Urgency urgency = Urgency::Normal);

  void sync();  // what was appended before is on the disk on return
  // Appends a last line where `last_word` is not empty, trims the file and lets the lock go; append() throws from then
  // on. Idempotent. What was appended stays where it throws.
  void close(std::string_view last_word = {});

  std::uint64_t size_bytes() const noexcept;  // of the current part
  // The first seq of the current part; without a lock, so another thread may have begun the next one.
  std::uint64_t first_seq() const noexcept { return first_seq_.load(std::memory_order_relaxed); }
  bool is_closed() const noexcept;

 private:
  struct Part {
    File file;
    File lock;
    Mapping window;
    std::uint64_t reserved = 0;
  };

  std::uint64_t append_locked(std::string_view body, Urgency urgency);
  void make_room(std::uint64_t bytes, Urgency urgency);
  void extend(Part& part, std::uint64_t tail, std::uint64_t bytes);
  Part create(const std::filesystem::path& path);
  void rotate(std::uint64_t bytes);

  const std::filesystem::path folder_;
  const Options options_;
  mutable std::mutex mutex_;
  Part part_;
  std::uint64_t tail_ = 0;
  std::uint64_t next_seq_ = 0;
  std::atomic<std::uint64_t> first_seq_{0};
  std::uint64_t next_part_ = 0;
  std::uint64_t next_chunk_;
};

}  // namespace tenscope::store
