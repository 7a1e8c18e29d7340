#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <mutex>
#include <optional>
#include <string>

#include "store/blob_table.hpp"
#include "store/call_counter.hpp"
#include "store/folder_entries.hpp"
#include "store/journal_writer.hpp"
#include "store/ring.hpp"
#include "store/segment_writer.hpp"
#include "tenscope/run.hpp"

namespace tenscope::store {

class Summarizer;

// One process' folder of a run: its journal, its segments, what it has stored already. Thread-safe. Trouble is thrown
// (IoError, InvalidArgument); whoever catches it says so with count_dropped().
class Writer {
 public:
  struct Options {
    Durability durability = Durability::Process;
    std::uint64_t max_bytes = 0;
    Keep keep = Keep::First;
    std::uint64_t segment_bytes = 256u << 20;
    std::function<void(Trouble, const std::string&)> on_trouble;  // what does not fail the call that met it
  };

  // The folder is there and empty. `run_step`, the run's current step, outlives the writer.
  Writer(std::filesystem::path folder, const Options& options, const std::atomic<std::int64_t>& run_step);

  // The watcher, where there is one, is asked before anything is written.
  Recorded record(EventInfo info, const TensorView& tensor, Values values, RunWatcher* watcher = nullptr);
  Recorded record(EventInfo info, const EventValue& value, RunWatcher* watcher = nullptr);
  void step(std::int64_t number);

  void count_dropped(Trouble trouble) noexcept;

  void sync();
  void close();  // idempotent
  bool is_closed() const noexcept { return is_closed_.load(std::memory_order_acquire); }
  const std::filesystem::path& folder() const noexcept { return folder_; }

 private:
  // Refuses for a second after a failure, so that a full disk does not cost a system call per event.
  class Backoff {
   public:
    void check() const;  // throws the IoError that was met
    void set(const IoError& error);

   private:
    std::atomic<std::int64_t> until_ns_{0};
    mutable std::mutex mutex_;
    std::optional<IoError> error_;
  };

  struct Stored;

  // Where a tensor goes: small ones to a mapped file, large ones by a write, which needs them in C order.
  enum class Route : std::uint8_t { Small, Large, Strided };
  static constexpr int kRoutes = 3;
  SegmentWriter::Options segment_options(Route route);
  SegmentWriter& segments(Route route) noexcept;
  FolderEntries* durable_entries() noexcept;
  void resolve(EventInfo& info);
  std::uint64_t append(std::string_view body);
  // Takes the summary, too, where there is none yet.
  Stored store(const EventInfo& info, const TensorView& tensor, std::uint64_t size_bytes, Summarizer& summarizer);
  std::optional<Slot> reserve(const EventInfo& info, const TensorView& tensor, std::uint64_t size_bytes, Route route);
  std::optional<BlobTable::Known> find(const Fingerprint& fingerprint, const TensorView& tensor,
                                       std::uint64_t size_bytes);
  bool has_fixed_budget() const noexcept;
  bool fits(std::uint64_t size_bytes);
  void tell_of_budget(std::uint64_t size_bytes);
  void write_dropped_when_due() noexcept;
  void write_dropped(JournalWriter::Urgency urgency) noexcept;
  void sync_when_due();

  const std::filesystem::path folder_;
  const Options options_;
  const std::atomic<std::int64_t>& run_step_;
  FolderEntries entries_;
  std::optional<Ring> ring_;
  std::atomic<std::int64_t> next_segment_{0};
  SegmentWriter small_;
  SegmentWriter large_;
  SegmentWriter strided_;
  JournalWriter journal_;
  BlobTable blobs_;
  CallCounter calls_;
  std::array<Backoff, kRoutes> segments_backoff_;  // what is too large for the disk does not hold up the small
  Backoff journal_backoff_;

  // Of a large tensor, by the hash of its name: was the last one new, the two last ones, or was it stored already?
  enum class Last : std::uint8_t { Unknown, New, NewTwice, Duplicate };
  std::array<std::atomic<Last>, 4096> last_{};
  std::array<std::atomic<std::uint64_t>, kTroubleCount> pending_dropped_{};
  std::atomic<bool> has_pending_dropped_{false};
  std::atomic<std::uint64_t> said_dropped_{0};    // as far as the journal had room for it
  std::atomic<std::uint64_t> unsaid_dropped_{0};  // since
  std::atomic<std::int64_t> dropped_written_ns_{0};
  std::atomic<std::int64_t> synced_ns_{0};
  // What fits is reserved before another thread looks. Recursive, because a warning may be given under it.
  std::recursive_mutex budget_mutex_;
  std::atomic<bool> has_told_of_budget_{false};
  std::mutex close_mutex_;  // also of sync(): what is being closed is on the disk when sync() returns
  std::atomic<bool> is_closed_{false};
};

}  // namespace tenscope::store
