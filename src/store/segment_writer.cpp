// Overview. A segment begins with a reserved header; tensors follow in the order in which their slots were reserved. A
// slot is filled outside the lock, by one pwrite (through the page cache or past it, see LargeWrites) or by stores into
// a mapping, and gets its header entry on commit. A segment that is full (of bytes or of header) is retired; whoever
// gives back its last slot seals it: writes the header, cuts the file behind the last tensor, renames it. A crash in
// between leaves an .open file that the journal describes.
#include "store/segment_writer.hpp"

#include <fcntl.h>
#include <fmt/compile.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <stdexcept>
#include <thread>
#include <utility>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace tenscope::store {
namespace {

constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kFirstHeader = 64 << 10;
constexpr std::uint64_t kFirstChunk = 1 << 20;
constexpr std::uint64_t kLargestChunk = 64 << 20;
constexpr std::uint64_t kFirstWindow = 256 << 10;
constexpr std::uint64_t kLargestWindow = 4 << 20;
constexpr std::uint64_t kPadEntry = 128;     // room for a pad's entry
constexpr std::uint64_t kEntrySuffix = 72;   // room for ~N, two offsets and brackets
constexpr std::uint64_t kLargeBytes = 4096;  // from here on a tensor is aligned to a cache line
constexpr std::uint64_t kCacheLine = 64;
constexpr std::uint64_t kDirectBytes = 8 << 20;  // from here on a tensor may go past the page cache
constexpr std::uint64_t kLargestItem = 16;

std::uint64_t round_up(std::uint64_t value, std::uint64_t unit) { return (value + unit - 1) / unit * unit; }

std::uint64_t alignment_of(DType dtype, std::uint64_t size_bytes) {
  return size_bytes >= kLargeBytes ? kCacheLine : item_size(dtype);
}

// Hashes of the keys of a segment's header.
class KeySet {
 public:
  bool insert(std::uint64_t hash) {  // false: it was there
    if ((used_ + 1) * 2 > slots_.size()) grow();
    std::uint64_t& slot = find(hash == 0 ? 1 : hash);
    if (slot != 0) return false;
    slot = hash == 0 ? 1 : hash;
    ++used_;
    return true;
  }

 private:
  std::uint64_t& find(std::uint64_t hash) {
    std::size_t index = hash & (slots_.size() - 1);
    while (slots_[index] != 0 && slots_[index] != hash) index = (index + 1) & (slots_.size() - 1);
    return slots_[index];
  }
  void grow() {
    const auto old = std::exchange(slots_, std::vector<std::uint64_t>(std::max<std::size_t>(64, slots_.size() * 2)));
    for (const std::uint64_t hash : old) {
      if (hash != 0) find(hash) = hash;
    }
  }

  std::vector<std::uint64_t> slots_;  // open addressing, at most half full
  std::size_t used_ = 0;
};

}  // namespace

class Segment {
 public:
  std::int64_t number = 0;
  File file;
  File direct;                     // the same, opened when it is first written past the page cache
  std::uint64_t header_bytes = 0;  // the 8 bytes of its length included: where the data begins
  std::uint64_t tail = 0;
  std::uint64_t reserved = 0;
  std::uint64_t next_chunk = kFirstChunk;
  std::uint64_t header_used = kPadEntry + 16;  // worst case of all entries so far
  std::string header = "{";
  KeySet keys;
  int tensor_count = 0;
  int pad_count = 0;
  int slot_count = 0;
  int in_use = 0;
  bool is_retired = false;
  Mapping window;
  std::vector<Mapping> old_windows;  // slots may still point into them

  void add_pad(std::uint64_t begin, std::uint64_t end) {
    if (begin == end) return;
    fmt::format_to(std::back_inserter(header),
                   FMT_COMPILE(R"("__pad__{}":{{"dtype":"U8","shape":[{}],"data_offsets":[{},{}]}},)"), pad_count++,
                   end - begin, begin - header_bytes, end - header_bytes);
  }

  void add_tensor(const HeaderEntry& entry, const BlobRef& ref) {
    header += entry.key.view();
    if (!keys.insert(XXH3_64bits(entry.key.view().data(), entry.key.size()))) {
      fmt::format_to(std::back_inserter(header), "~{}", tensor_count);
    }
    header += entry.rest.view();
    const std::uint64_t begin = ref.offset - header_bytes;
    fmt::format_to(std::back_inserter(header), FMT_COMPILE("{},{}]}},"), begin, begin + ref.size_bytes);
    ++tensor_count;
  }
};

SegmentWriter::SegmentWriter(std::filesystem::path folder, Options options)
    : folder_(std::move(folder)),
      options_(std::move(options)),
      large_writes_(options_.large_writes),
      header_bytes_(std::min(kFirstHeader, options_.largest_header)) {}

SegmentWriter::~SegmentWriter() = default;

std::unique_ptr<Segment> SegmentWriter::open_segment(std::uint64_t entry_bytes) {
  auto segment = std::make_unique<Segment>();
  segment->header_bytes = round_up(8 + std::max(header_bytes_, entry_bytes + segment->header_used), kPage);
  segment->number = options_.next_number->fetch_add(1);
  const auto path = folder_ / fmt::format("{:06}.safetensors.open", segment->number);
  try {
    segment->file = File(path, O_RDWR | O_CREAT | O_EXCL);
    segment->file.reserve(0, segment->header_bytes);
    const std::uint64_t length = segment->header_bytes - 8;
    std::array<std::byte, 8> prefix;
    for (int i = 0; i < 8; ++i) prefix[i] = static_cast<std::byte>(length >> (8 * i));
    segment->file.write_at(prefix, 0);
  } catch (...) {
    if (segment->file.is_open()) ::unlink(path.c_str());
    std::int64_t after = segment->number + 1;
    options_.next_number->compare_exchange_strong(after, segment->number);
    throw;
  }
  segment->tail = segment->reserved = segment->header_bytes;
  if (options_.is_mapped) segment->next_chunk = kFirstWindow;
  total_bytes_ += segment->header_bytes;
  ++unsealed_;
  return segment;
}

bool SegmentWriter::opens_direct(Segment& segment) noexcept {
  if (segment.direct.is_open()) return true;
  try {
    segment.direct = File(segment.file.path(), O_WRONLY | O_DIRECT);
    return true;
  } catch (const std::exception&) {  // a file system without it; no descriptor left
    large_writes_.give_up_direct();
    return false;
  }
}

Slot SegmentWriter::reserve(std::uint64_t size_bytes, DType dtype, const HeaderEntry& entry, Access access,
                            const void* source) {
  std::unique_lock lock(mutex_);
  if (is_closed_) throw Error(ErrorCode::Io, "cannot store tensor: the run is closed");
  const std::uint64_t entry_bytes = entry.key.size() + entry.rest.size() + kEntrySuffix + kPadEntry;
  const std::uint64_t alignment = alignment_of(dtype, size_bytes);
  const auto address = reinterpret_cast<std::uintptr_t>(source);
  bool is_direct = source != nullptr && address % kLargestItem == 0 && size_bytes >= kDirectBytes &&
                   large_writes_.choose() == LargeWrites::Way::Direct;
  const auto begin_in = [&](const Segment& segment) {
    return is_direct ? segment.tail + (address - segment.tail) % kDirectAlignment : round_up(segment.tail, alignment);
  };

  while (current_) {
    const bool header_is_full = current_->header_used + entry_bytes > current_->header_bytes - 8;
    const bool data_is_full = current_->tail > current_->header_bytes &&
                              begin_in(*current_) + size_bytes > current_->header_bytes + options_.segment_bytes;
    if (header_is_full) header_bytes_ = std::min(header_bytes_ * 4, options_.largest_header);
    if (!header_is_full && !data_is_full) break;
    retire(lock);
    if (is_closed_) throw Error(ErrorCode::Io, "cannot store tensor: the run is closed");
  }
  if (!current_) current_ = open_segment(entry_bytes);

  Segment& segment = *current_;
  is_direct = is_direct && opens_direct(segment);
  const std::uint64_t begin = begin_in(segment), end = begin + size_bytes;
  if (end > segment.reserved) {
    const std::uint64_t limit = segment.header_bytes + options_.segment_bytes;
    const std::uint64_t ahead = std::min(segment.reserved + segment.next_chunk, std::max(limit, segment.reserved));
    const std::uint64_t size = round_up(std::max(end, ahead), kPage) - segment.reserved;
    if (!segment.file.is_linked()) throw_io("cannot store tensor", ENOENT, segment.file.path());
    options_.is_mapped ? segment.file.reserve_cached(segment.reserved, size)
                       : segment.file.reserve(segment.reserved, size);
    segment.reserved += size;
    segment.next_chunk = std::min(segment.next_chunk * 4, options_.is_mapped ? kLargestWindow : kLargestChunk);
  }
  Slot slot{.ref = {segment.number, begin, size_bytes},
            .segment = &segment,
            .index = segment.slot_count + 1,
            .is_direct = is_direct};
  if (access == Access::Memory && size_bytes > 0) {
    if (options_.is_mapped) {
      if (!segment.window.covers(begin, size_bytes)) {
        Mapping window(segment.file, begin, segment.reserved - begin);
        if (segment.in_use > 0) segment.old_windows.push_back(std::move(segment.window));
        segment.window = std::move(window);
      }
      slot.memory = segment.window.at(begin);
    } else {
      slot.mapping = Mapping(segment.file, begin, size_bytes);
      slot.memory = slot.mapping.at(begin);
    }
  }
  segment.add_pad(segment.tail, begin);
  segment.header_used += entry_bytes;
  total_bytes_ += end - segment.tail;
  segment.tail = end;
  ++segment.slot_count;
  ++segment.in_use;
  return slot;
}

void SegmentWriter::write(const Slot& slot, std::span<const std::byte> bytes) {
  Segment& segment = *slot.segment;
  const auto began = std::chrono::steady_clock::now();
  if (!slot.is_direct || !segment.file.write_direct_at(segment.direct, bytes, slot.ref.offset)) {
    if (slot.is_direct) large_writes_.give_up_direct();
    segment.file.write_at(bytes, slot.ref.offset);
  }
  if (bytes.size() < kDirectBytes) return;
  const auto elapsed = std::chrono::nanoseconds(std::chrono::steady_clock::now() - began);
  large_writes_.learn(slot.is_direct ? LargeWrites::Way::Direct : LargeWrites::Way::Cached, bytes.size(),
                      elapsed.count());
}

void SegmentWriter::commit(Slot slot, const HeaderEntry& entry) {
  slot.mapping.unmap();
  std::unique_lock lock(mutex_);
  slot.segment->add_tensor(entry, slot.ref);
  release(slot, lock);
}

void SegmentWriter::abandon(Slot slot) noexcept {
  slot.mapping.unmap();
  std::unique_lock lock(mutex_);
  Segment& segment = *slot.segment;
  const std::uint64_t end = slot.ref.offset + slot.ref.size_bytes;
  if (slot.index == segment.slot_count) {
    segment.tail = slot.ref.offset;
    --segment.slot_count;
    total_bytes_ -= slot.ref.size_bytes;
  } else {
    segment.add_pad(slot.ref.offset, end);
  }
  release(slot, lock);
}

void SegmentWriter::release(Slot& slot, std::unique_lock<std::mutex>& lock) {
  Segment* segment = slot.segment;
  if (--segment->in_use > 0) return;
  segment->old_windows.clear();
  if (!segment->is_retired) return;
  const auto place = std::find_if(retired_.begin(), retired_.end(), [&](const auto& s) { return s.get() == segment; });
  auto owned = std::move(*place);
  retired_.erase(place);
  lock.unlock();
  seal(std::move(owned));
}

void SegmentWriter::retire(std::unique_lock<std::mutex>& lock) {
  auto segment = std::move(current_);
  if (segment->in_use > 0) {
    segment->is_retired = true;
    retired_.push_back(std::move(segment));
    return;
  }
  lock.unlock();
  seal(std::move(segment));
  lock.lock();
}

void SegmentWriter::seal(std::unique_ptr<Segment> segment) noexcept {
  segment->window.unmap();
  const auto open_path = segment->file.path();
  auto sealed_path = open_path;
  sealed_path.replace_extension();
  try {
    if (segment->tensor_count == 0) {
      ::unlink(open_path.c_str());
    } else {
      segment->header.back() = '}';  // the last comma
      if (segment->header.size() > segment->header_bytes - 8) throw std::length_error("header outgrew its space");
      segment->header.resize(segment->header_bytes - 8, ' ');
      segment->file.write_at(std::as_bytes(std::span(segment->header)), 8);
      segment->file.truncate(segment->tail);
      if (options_.is_durable) segment->file.sync();
      rename_file(open_path, sealed_path);
      if (options_.is_durable) sync_folder(folder_);
      if (options_.on_sealed) options_.on_sealed(segment->number, sealed_path, segment->tail);
    }
  } catch (const IoError& error) {
    if (options_.on_seal_failed) options_.on_seal_failed(error);
  } catch (const std::exception& error) {
    if (options_.on_seal_failed) options_.on_seal_failed(IoError(Trouble::OtherIo, error.what()));
  }
  segment.reset();
  --unsealed_;
}

void SegmentWriter::sync() {
  std::lock_guard lock(mutex_);
  for (const auto& segment : retired_) segment->file.sync();
  if (current_) current_->file.sync();
}

void SegmentWriter::close() {
  std::unique_lock lock(mutex_);
  is_closed_ = true;
  if (current_) retire(lock);
  lock.unlock();
  while (unsealed_.load() > 0) std::this_thread::yield();
}

}  // namespace tenscope::store
