#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "store/event_encoder.hpp"
#include "store/file.hpp"
#include "store/folder_entries.hpp"
#include "store/large_writes.hpp"
#include "tenscope/event.hpp"

namespace tenscope::store {

class Segment;

// A place for one tensor's bytes. Between reserve() and commit() or abandon() its segment is not sealed.
struct Slot {
  BlobRef ref;
  std::byte* memory = nullptr;  // where mapped: size_bytes to be filled; else use SegmentWriter::write
  Segment* segment = nullptr;
  std::size_t place = 0;  // in its segment's layout
  bool is_direct = false;
  Mapping mapping;
};

// Writes segments one after the other (docs/format.md). Thread-safe; bytes are copied outside its lock. What cannot be
// reserved or written throws IoError.
class SegmentWriter {
 public:
  struct Options {
    std::uint64_t segment_bytes = 256u << 20;
    std::uint64_t largest_header = 4u << 20;
    bool is_mapped = false;            // small tensors: keep a window of the segment mapped and give slots out of it
    FolderEntries* entries = nullptr;  // where given, what is sealed is on the disk
    LargeWrites::Policy large_writes = LargeWrites::Policy::Measured;
    std::atomic<std::int64_t>* next_number = nullptr;  // shared by the segment writers of a folder
    std::function<void(std::int64_t number, const std::filesystem::path& path, std::uint64_t size_bytes)> on_sealed;
    std::function<void(const IoError&)> on_seal_failed;  // the segment stays open: repair can seal it
  };

  SegmentWriter(std::filesystem::path folder, Options options);
  ~SegmentWriter();  // leaves segments as they are, as a crash would

  enum class Access { Write, Memory };
  // `source`: the memory that will be written, which decides on the place where it is to go past the page cache.
  Slot reserve(std::uint64_t size_bytes, DType dtype, const HeaderEntry& entry, Access access,
               const void* source = nullptr);
  void write(const Slot& slot, std::span<const std::byte> bytes);
  void commit(Slot slot) noexcept;   // its segment names the tensor from now on
  void abandon(Slot slot) noexcept;  // its place is given out again; behind other slots it becomes padding

  // What was written to any segment before is on the disk on return. Throws, too, where that failed for a segment that
  // was sealed since the last call.
  void sync();
  void close();  // seals what is open, waiting for slots in use; idempotent

  // All bytes that segments opened so far take on the disk, reserved headers included.
  std::uint64_t total_bytes() const noexcept { return total_bytes_.load(std::memory_order_relaxed); }

 private:
  using SegmentPtr = std::shared_ptr<Segment>;

  SegmentPtr open_segment(std::uint64_t least_header);
  bool opens_direct(Segment& segment) noexcept;
  void release(Segment& segment, std::unique_lock<std::mutex>& lock) noexcept;
  void retire(std::unique_lock<std::mutex>& lock);
  void seal(Segment& segment, std::unique_lock<std::mutex>& lock) noexcept;
  void write_sealed(Segment& segment);

  const std::filesystem::path folder_;
  const Options options_;
  LargeWrites large_writes_;
  std::mutex mutex_;
  std::vector<SegmentPtr> unsealed_;  // the current one, full ones with slots in use, those being sealed
  std::condition_variable sealed_;
  Segment* current_ = nullptr;
  std::uint64_t header_bytes_;
  bool is_closed_ = false;
  std::optional<IoError> seal_error_;  // to be thrown by sync()
  std::atomic<std::uint64_t> total_bytes_{0};
};

}  // namespace tenscope::store
