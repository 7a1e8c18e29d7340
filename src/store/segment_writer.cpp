// Overview. A segment begins with a reserved header; tensors follow in the order in which their slots were reserved. A
// slot is filled outside the lock, by one pwrite (through the page cache or past it, see LargeWrites) or by stores into
// a mapping, then committed or abandoned. Which places are taken is the layout's affair (SegmentLayout). A segment that
// is full (of bytes or of header) is retired; whoever gives back its last slot seals it: makes the header, cuts the
// file behind the last tensor, renames it. A crash in between leaves an .open file that the journal describes.
//
// Writes past the page cache and stores into a mapping must not meet in one file: the kernel may hold neighbouring
// pages of a mapping as one block, and write back old bytes with it. So nothing of a writer that may write directly is
// mapped (Writer has one for each).
#include "store/segment_writer.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <utility>

#include "core/old_wait.hpp"
#include "store/segment_header.hpp"
#include "store/segment_layout.hpp"

namespace tenscope::store {
namespace {

constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kFirstHeader = 64 << 10;
constexpr std::uint64_t kFirstChunk = 1 << 20;
constexpr std::uint64_t kLargestChunk = 64 << 20;
constexpr std::uint64_t kFirstWindow = 256 << 10;
constexpr std::uint64_t kLargestWindow = 4 << 20;
constexpr std::uint64_t kLargeBytes = 4096;  // from here on a tensor is aligned to a cache line
constexpr std::uint64_t kCacheLine = 64;
constexpr std::uint64_t kDirectBytes = 8 << 20;  // from here on a tensor may go past the page cache
constexpr std::uint64_t kLargestItem = 16;

std::uint64_t round_up(std::uint64_t value, std::uint64_t unit) { return (value + unit - 1) / unit * unit; }

std::uint64_t alignment_of(DType dtype, std::uint64_t size_bytes) {
  return size_bytes >= kLargeBytes ? kCacheLine : item_size(dtype);
}

}  // namespace

class Segment {
 public:
  Segment(std::int64_t number_, std::uint64_t header_bytes_)
      : number(number_), layout(header_bytes_, header_bytes_ - kHeaderPrefix), reserved(header_bytes_) {}

  const std::int64_t number;
  File file;
  File direct;  // the same, opened when it is first written past the page cache
  SegmentLayout layout;
  std::uint64_t reserved;
  std::uint64_t next_chunk = kFirstChunk;
  bool is_retired = false;
  Mapping window;
  std::vector<Mapping> old_windows;  // slots may still point into them
};

SegmentWriter::SegmentWriter(std::filesystem::path folder, Options options)
    : folder_(std::move(folder)),
      options_(std::move(options)),
      large_writes_(options_.large_writes),
      header_bytes_(std::min(kFirstHeader, options_.largest_header)) {}

SegmentWriter::~SegmentWriter() = default;

SegmentWriter::SegmentPtr SegmentWriter::open_segment(std::uint64_t least_header) {
  const std::uint64_t header_bytes = round_up(kHeaderPrefix + std::max(header_bytes_, least_header), kPage);
  auto segment = std::make_shared<Segment>(options_.next_number->fetch_add(1), header_bytes);
  const auto path = folder_ / fmt::format("{:06}.safetensors.open", segment->number);
  try {
    unsealed_.reserve(unsealed_.size() + 1);
    segment->file = File(path, O_RDWR | O_CREAT | O_EXCL);
    if (options_.entries != nullptr) options_.entries->change();
    segment->file.reserve(0, header_bytes);
    const std::uint64_t length = header_bytes - kHeaderPrefix;
    std::array<std::byte, kHeaderPrefix> prefix;
    for (std::size_t i = 0; i < prefix.size(); ++i) prefix[i] = static_cast<std::byte>(length >> (8 * i));
    segment->file.write_at(prefix, 0);
  } catch (...) {
    if (segment->file.is_open()) ::unlink(path.c_str());
    std::int64_t after = segment->number + 1;
    options_.next_number->compare_exchange_strong(after, segment->number);
    throw;
  }
  if (options_.is_mapped) segment->next_chunk = kFirstWindow;
  total_bytes_ += header_bytes;
  unsealed_.push_back(segment);
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
  const std::uint64_t alignment = alignment_of(dtype, size_bytes);
  const auto address = reinterpret_cast<std::uintptr_t>(source);
  bool is_direct = source != nullptr && address % kLargestItem == 0 && size_bytes >= kDirectBytes &&
                   large_writes_.choose() == LargeWrites::Way::Direct;
  const auto begin_in = [&](const SegmentLayout& layout) {
    const std::uint64_t tail = layout.tail();
    return is_direct ? tail + (address - tail) % kDirectAlignment : round_up(tail, alignment);
  };

  while (current_ != nullptr) {
    const SegmentLayout& layout = current_->layout;
    const bool header_is_full = !layout.has_header_room(entry);
    const bool data_is_full =
        layout.tail() > layout.begin() && begin_in(layout) + size_bytes > layout.begin() + options_.segment_bytes;
    if (header_is_full) header_bytes_ = std::min(header_bytes_ * 4, options_.largest_header);
    if (!header_is_full && !data_is_full) break;
    retire(lock);
    if (is_closed_) throw Error(ErrorCode::Io, "cannot store tensor: the run is closed");
  }
  if (current_ == nullptr) current_ = open_segment(SegmentLayout::least_header(entry)).get();

  Segment& segment = *current_;
  SegmentLayout& layout = segment.layout;
  is_direct = is_direct && opens_direct(segment);
  const std::uint64_t begin = begin_in(layout), end = begin + size_bytes;
  if (end > segment.reserved) {
    const std::uint64_t limit = layout.begin() + options_.segment_bytes;
    const std::uint64_t ahead = std::min(segment.reserved + segment.next_chunk, std::max(limit, segment.reserved));
    const std::uint64_t size = round_up(std::max(end, ahead), kPage) - segment.reserved;
    if (!segment.file.is_linked()) throw_io("cannot store tensor", ENOENT, segment.file.path());
    options_.is_mapped ? segment.file.reserve_cached(segment.reserved, size)
                       : segment.file.reserve(segment.reserved, size);
    segment.reserved += size;
    segment.next_chunk = std::min(segment.next_chunk * 4, options_.is_mapped ? kLargestWindow : kLargestChunk);
  }
  Slot slot{.ref = {segment.number, begin, size_bytes}, .segment = &segment, .is_direct = is_direct};
  if (access == Access::Memory && size_bytes > 0) {
    if (options_.is_mapped) {
      if (!segment.window.covers(begin, size_bytes)) {
        Mapping window(segment.file, begin, segment.reserved - begin);
        if (layout.in_use() > 0) segment.old_windows.push_back(std::move(segment.window));
        segment.window = std::move(window);
      }
      slot.memory = segment.window.at(begin);
    } else {
      slot.mapping = Mapping(segment.file, begin, size_bytes);
      slot.memory = slot.mapping.at(begin);
    }
  }
  const std::uint64_t tail = layout.tail();
  slot.place = layout.add(begin, size_bytes, entry);
  total_bytes_ += end - tail;
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

void SegmentWriter::commit(Slot slot) noexcept {
  slot.mapping.unmap();
  std::unique_lock lock(mutex_);
  slot.segment->layout.keep(slot.place);
  release(*slot.segment, lock);
}

void SegmentWriter::abandon(Slot slot) noexcept {
  slot.mapping.unmap();
  std::unique_lock lock(mutex_);
  SegmentLayout& layout = slot.segment->layout;
  const std::uint64_t tail = layout.tail();
  layout.give_back(slot.place);
  total_bytes_ -= tail - layout.tail();
  release(*slot.segment, lock);
}

void SegmentWriter::release(Segment& segment, std::unique_lock<std::mutex>& lock) noexcept {
  if (segment.layout.in_use() > 0) return;
  segment.old_windows.clear();
  if (segment.is_retired) seal(segment, lock);
}

void SegmentWriter::retire(std::unique_lock<std::mutex>& lock) {
  Segment& segment = *std::exchange(current_, nullptr);
  segment.is_retired = true;
  if (segment.layout.in_use() == 0) seal(segment, lock);
}

// Works without the lock, and takes it again. The segment stays listed until it is sealed, so that sync() sees it.
void SegmentWriter::seal(Segment& segment, std::unique_lock<std::mutex>& lock) noexcept {
  lock.unlock();
  std::optional<IoError> failure;
  try {
    write_sealed(segment);
  } catch (const IoError& error) {
    failure = error;
  } catch (const std::exception& error) {
    failure = IoError(Trouble::OtherIo, error.what());
  }
  if (failure && options_.on_seal_failed) options_.on_seal_failed(*failure);
  lock.lock();
  if (failure && options_.entries != nullptr) seal_error_ = failure;
  std::erase_if(unsealed_, [&](const SegmentPtr& other) { return other.get() == &segment; });
  sealed_.notify_all();
}

void SegmentWriter::write_sealed(Segment& segment) {
  segment.window.unmap();
  const auto open_path = segment.file.path();
  const std::uint64_t size = segment.layout.tail();
  if (segment.layout.is_empty()) {
    ::unlink(open_path.c_str());
    total_bytes_ -= size;
    return;
  }
  auto sealed_path = open_path;
  sealed_path.replace_extension();
  const std::string header = segment.layout.header();
  segment.file.write_at(std::as_bytes(std::span(header)), kHeaderPrefix);
  segment.file.truncate(size);
  if (options_.entries != nullptr) segment.file.sync();
  rename_file(open_path, sealed_path);
  if (options_.entries != nullptr) {
    options_.entries->change();
    options_.entries->sync();
  }
  if (options_.on_sealed) options_.on_sealed(segment.number, sealed_path, size);
}

void SegmentWriter::sync() {
  std::unique_lock lock(mutex_);
  const std::vector<SegmentPtr> segments = unsealed_;
  const std::optional<IoError> failure = std::exchange(seal_error_, std::nullopt);
  lock.unlock();
  for (const SegmentPtr& segment : segments) segment->file.sync();
  if (failure) throw IoError(*failure);
}

void SegmentWriter::close() {
  std::unique_lock lock(mutex_);
  is_closed_ = true;
  if (current_ != nullptr) retire(lock);
  sealed_.wait(lock, [&] { return unsealed_.empty(); });
}

}  // namespace tenscope::store
