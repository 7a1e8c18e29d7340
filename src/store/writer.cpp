// Overview. A tensor's way: fingerprint → is it stored already? → if not, its bytes into a segment → a line in the
// journal. Small tensors are hashed first (they are in the cache for what follows) and copied into a mapped segment in
// the same pass that takes the statistics. Large ones are read once for fingerprint and statistics, and if they are new
// written by one big write. What the last tensors of that name were decides the order: was the last stored already, the
// fingerprint alone is taken first, so an unchanged tensor costs its hash; were two in a row new, this one is likely to
// be, and a very large one is written while a second thread takes its summary (if it was known after all, its place is
// given back). A watcher is asked by the fingerprint, too, and may say that the bytes need not be kept. The line is
// appended after the bytes are in the page cache, so a line never promises more than is there; the tensor's place in
// the segment is kept after the line, so a sealed segment names nothing of which no line tells.
#include "store/writer.hpp"

#include <fmt/format.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <thread>
#include <utility>

#include "kernels/summarize.hpp"
#include "store/event_encoder.hpp"
#include "store/fork_guard.hpp"
#include "store/summarizer.hpp"

namespace tenscope::store {
namespace {

constexpr std::uint64_t kSmallBytes = 64 << 10;
constexpr std::uint64_t kTwoThreadBytes = 8 << 20;
constexpr std::int64_t kRetryNs = 1'000'000'000;
constexpr std::int64_t kSyncNs = 1'000'000'000;
constexpr std::uint64_t kSmallestSegment = 4 << 10;
constexpr std::uint64_t kLargestSegment = std::uint64_t{1} << 50;  // sums of sizes stay far from overflowing
constexpr std::uint64_t kSmallestRingSegment = 256 << 10;
constexpr std::uint64_t kSmallestPart = 64 << 10;
constexpr std::uint64_t kLargestPart = 64 << 20;

std::int64_t monotonic_ns() noexcept {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1'000'000'000 + now.tv_nsec;
}

std::uint64_t thread_id() noexcept {
  thread_local std::uint64_t id = 0;
  thread_local std::uint32_t generation = 0;
  if (id == 0 || generation != ForkGuard::generation()) {
    id = static_cast<std::uint64_t>(::syscall(SYS_gettid));
    generation = ForkGuard::generation();
  }
  return id;
}

TextBuffer& line_buffer() {
  thread_local TextBuffer buffer;
  buffer.clear();
  return buffer;
}

std::string_view reason_of(Trouble trouble) noexcept {
  switch (trouble) {
    case Trouble::NoSpace:
      return "no space";
    case Trouble::TooManyFiles:
      return "too many open files";
    case Trouble::ReadOnly:
      return "not permitted";
    case Trouble::Vanished:
      return "the folder is gone";
    case Trouble::OtherIo:
      return "input/output error";
    case Trouble::BadTensor:
      return "bad tensor";
    case Trouble::Budget:
      return "budget";
  }
  return "";
}

// In a ring a twelfth of the budget a segment, of which three may be open, and a sixteenth a part of the journal:
// what is open fits beside what is finished.
Writer::Options with_ring_sizes(Writer::Options options) {
  if (options.max_bytes > 0 && options.keep == Keep::Last) {
    options.segment_bytes = std::min(options.segment_bytes, std::max(options.max_bytes / 12, kSmallestRingSegment));
  }
  options.segment_bytes = std::clamp(options.segment_bytes, kSmallestSegment, kLargestSegment);
  return options;
}

std::uint64_t part_bytes(const Writer::Options& options) {
  if (options.max_bytes == 0 || options.keep != Keep::Last) return 0;
  return std::clamp(options.max_bytes / 16, kSmallestPart, kLargestPart);
}

bool is_worth_two_threads(const TensorView& tensor, std::uint64_t size_bytes) {
  static const bool has_cores = std::thread::hardware_concurrency() > 1;
  return size_bytes >= kTwoThreadBytes && has_cores && is_c_order(tensor);
}

}  // namespace

void Writer::Backoff::check() const {
  const auto until = until_ns_.load(std::memory_order_relaxed);
  if (until == 0 || monotonic_ns() >= until) return;
  std::lock_guard guard(mutex_);
  throw IoError(*error_);
}

void Writer::Backoff::set(const IoError& error) {
  std::lock_guard guard(mutex_);
  error_ = error;
  until_ns_ = monotonic_ns() + kRetryNs;
}

Writer::Writer(std::filesystem::path folder, const Options& options, const std::atomic<std::int64_t>& run_step)
    : folder_(std::move(folder)),
      options_(with_ring_sizes(options)),
      run_step_(run_step),
      entries_(folder_),
      ring_(part_bytes(options_) == 0
                ? std::optional<Ring>()
                : std::optional<Ring>(std::in_place, options_.max_bytes -
                                                         std::min(options_.max_bytes, kRoutes * options_.segment_bytes +
                                                                                          part_bytes(options_)))),
      small_(folder_, segment_options(Route::Small)),
      large_(folder_, segment_options(Route::Large)),
      strided_(folder_, segment_options(Route::Strided)),
      journal_(folder_, {.part_bytes = part_bytes(options_),
                         .entries = durable_entries(),
                         .on_part = [this](const auto& part, std::uint64_t size) { ring_->add(part, size); }}) {
  entries_.sync();
  synced_ns_ = monotonic_ns();
}

FolderEntries* Writer::durable_entries() noexcept {
  return options_.durability == Durability::Disk ? &entries_ : nullptr;
}

SegmentWriter& Writer::segments(Route route) noexcept {
  return route == Route::Small ? small_ : route == Route::Large ? large_ : strided_;
}

SegmentWriter::Options Writer::segment_options(Route route) {
  const auto large_writes = route == Route::Large ? LargeWrites::Policy::Measured : LargeWrites::Policy::Cached;
  SegmentWriter::Options options{.segment_bytes = options_.segment_bytes,
                                 .is_mapped = route == Route::Small,
                                 .entries = durable_entries(),
                                 .large_writes = large_writes,
                                 .next_number = &next_segment_,
                                 .on_seal_failed = [this](const IoError& error) {
                                   if (options_.on_trouble) options_.on_trouble(error.trouble(), error.what());
                                 }};
  if (options_.max_bytes > 0) {
    options.largest_header = std::clamp<std::uint64_t>(options_.segment_bytes / 16, 4096, options.largest_header);
  }
  if (ring_) {
    options.on_sealed = [this](std::int64_t number, const auto& path, std::uint64_t size) {
      ring_->add(path, size, number);
    };
  }
  return options;
}

std::uint64_t Writer::append(std::string_view body) {
  try {
    const std::uint64_t seq = journal_.append(body);
    if (has_pending_dropped_.load(std::memory_order_relaxed)) [[unlikely]]
      write_dropped_when_due();
    return seq;
  } catch (const IoError& error) {
    journal_backoff_.set(error);
    throw;
  }
}

void Writer::resolve(EventInfo& info) {
  const auto [step, call] = calls_.next(info.name, info.kind, info.step, info.call, run_step_);
  info.step = step;
  info.call = call;
}

Recorded Writer::record(EventInfo info, const EventValue& value, RunWatcher* watcher) {
  journal_backoff_.check();
  resolve(info);
  if (watcher != nullptr) watcher->saw(info, value);
  TextBuffer& line = line_buffer();
  encode_event(line, info, thread_id(), value);
  const std::uint64_t seq = append(line.view());
  sync_when_due();
  return {.kept = true, .seq = seq, .step = info.step, .call = info.call};
}

std::optional<BlobTable::Known> Writer::find(const Fingerprint& fingerprint, const TensorView& tensor,
                                             std::uint64_t size_bytes) {
  return blobs_.find(fingerprint, tensor.dtype, size_bytes, ring_ ? ring_->fresh_from() : 0);
}

namespace {

// A tensor's place in a segment, filled; given back unless it is kept.
class Place {
 public:
  Place(SegmentWriter& segments, Slot slot) : segments_(&segments), slot_(std::move(slot)) {}
  Place(Place&& other) noexcept : segments_(std::exchange(other.segments_, nullptr)), slot_(std::move(other.slot_)) {}
  Place& operator=(Place&& other) noexcept {
    std::swap(segments_, other.segments_);
    std::swap(slot_, other.slot_);
    return *this;
  }
  ~Place() {
    if (segments_ != nullptr) segments_->abandon(std::move(slot_));
  }

  const Slot& slot() const noexcept { return slot_; }
  void keep() noexcept { std::exchange(segments_, nullptr)->commit(std::move(slot_)); }

 private:
  SegmentWriter* segments_;
  Slot slot_;
};

}  // namespace

// Neither: the budget did not allow it.
struct Writer::Stored {
  std::optional<Place> place;
  std::optional<BlobRef> duplicate;  // it was there after all
};

Recorded Writer::record(EventInfo info, const TensorView& tensor, Values values, RunWatcher* watcher) {
  validate(tensor);
  journal_backoff_.check();
  resolve(info);
  const std::uint64_t size = size_bytes(tensor);
  const bool is_small = size <= kSmallBytes;
  auto& last = last_[std::hash<std::string_view>()(info.name) % last_.size()];

  Summarizer summarizer(info, tensor);
  std::optional<BlobRef> blob;
  bool is_known = false;
  const auto look_up = [&](const Fingerprint& fingerprint) {
    const auto known = find(fingerprint, tensor, size);
    if (!known) return;
    summarizer.set_known(fingerprint, *known, journal_.first_seq());
    blob = known->blob;
    is_known = true;
  };
  const Last before = last.load(std::memory_order_relaxed);
  if (watcher != nullptr) {
    const Fingerprint fingerprint = kernels::fingerprint(tensor);
    look_up(fingerprint);
    const WatchedTensor watched = watcher->saw(info, tensor, fingerprint);
    if (!watched.keep_bytes) values = Values::Stats;
    if (!is_known && watched.stats) summarizer.set_known(fingerprint, *watched.stats, watched.sketch.get());
  } else if (is_small || before == Last::Duplicate) {
    look_up(kernels::fingerprint(tensor));
  }
  const bool is_worth_a_guess = before == Last::NewTwice && values == Values::Full && !has_fixed_budget() &&
                                watcher == nullptr && is_worth_two_threads(tensor, size);
  if (!summarizer.has_summary() && !is_small && !is_worth_a_guess) {
    summarizer.take();
    look_up(summarizer.summary().fingerprint);
  }
  bool is_duplicate = values == Values::Stats ? is_known : blob.has_value();

  Stored stored;
  if (values == Values::Full && !blob) {
    stored = store(info, tensor, size, summarizer);
    blob = stored.duplicate;
    is_duplicate = blob.has_value();
  }
  if (stored.place) blob = stored.place->slot().ref;
  summarizer.finish();
  if (!is_small) {
    const bool is_in_a_row = before == Last::New || before == Last::NewTwice;
    last.store(is_duplicate ? Last::Duplicate : is_in_a_row ? Last::NewTwice : Last::New, std::memory_order_relaxed);
  }

  TextBuffer& line = line_buffer();
  TensorContent& content = summarizer.content();
  if (values == Values::Full) content.blob = blob;
  content.is_cut = values == Values::Full && size > 0;
  encode_event(line, info, thread_id(), tensor, content);
  const std::uint64_t seq = append(line.view());
  if (stored.place) stored.place->keep();
  const bool is_new = stored.place || (values == Values::Stats && !is_known);
  if (is_new || (is_known && content.sketch))
    blobs_.insert(content.summary, tensor.dtype, size, blob, summarizer.sketch_at(seq));
  sync_when_due();
  return {.kept = true,
          .duplicate = is_duplicate && values == Values::Full,
          .seq = seq,
          .step = info.step,
          .call = info.call,
          .summary = content.summary};
}

Writer::Stored Writer::store(const EventInfo& info, const TensorView& tensor, std::uint64_t size_bytes,
                             Summarizer& summarizer) {
  const Route route = size_bytes <= kSmallBytes ? Route::Small : is_c_order(tensor) ? Route::Large : Route::Strided;
  Backoff& backoff = segments_backoff_[static_cast<std::size_t>(route)];
  backoff.check();
  try {
    std::optional<Slot> reserved = reserve(info, tensor, size_bytes, route);
    if (!reserved) {
      tell_of_budget(size_bytes);
      return {};
    }
    Place place(segments(route), std::move(*reserved));
    const Slot& slot = place.slot();
    const auto write = [&] { segments(route).write(slot, {static_cast<const std::byte*>(tensor.data), size_bytes}); };
    if (route != Route::Large) {
      if (!summarizer.has_summary()) {
        summarizer.take(slot.memory);
      } else if (slot.memory != nullptr) {
        kernels::copy_c_order(tensor, slot.memory);
      }
    } else if (summarizer.has_summary()) {
      write();
    } else {
      summarizer.take_beside(write);
      const auto known = find(summarizer.summary().fingerprint, tensor, size_bytes);
      if (known && known->blob) return {.place = {}, .duplicate = known->blob};
    }
    return {.place = std::move(place), .duplicate = {}};
  } catch (const IoError& error) {
    backoff.set(error);
    throw;
  }
}

std::optional<Slot> Writer::reserve(const EventInfo& info, const TensorView& tensor, std::uint64_t size_bytes,
                                    Route route) {
  thread_local HeaderEntry entry;
  encode_header_entry(entry, info.name, info.step, info.call, tensor.dtype, tensor.shape);
  std::unique_lock budget(budget_mutex_, std::defer_lock);
  if (has_fixed_budget()) budget.lock();
  if (!fits(size_bytes)) return std::nullopt;
  const bool is_large = route == Route::Large;
  return segments(route).reserve(size_bytes, tensor.dtype, entry,
                                 is_large ? SegmentWriter::Access::Write : SegmentWriter::Access::Memory,
                                 is_large ? tensor.data : nullptr);
}

bool Writer::has_fixed_budget() const noexcept { return options_.max_bytes > 0 && !ring_; }

bool Writer::fits(std::uint64_t size_bytes) {
  if (options_.max_bytes == 0) return true;
  if (ring_) {
    if (size_bytes > options_.max_bytes / 2) return false;
    if (size_bytes > options_.segment_bytes) ring_->make_room(size_bytes);
    return true;
  }
  const std::uint64_t used =
      small_.total_bytes() + large_.total_bytes() + strided_.total_bytes() + journal_.size_bytes();
  return used + size_bytes <= options_.max_bytes;
}

void Writer::tell_of_budget(std::uint64_t size_bytes) {
  if (has_told_of_budget_.exchange(true)) return;
  const auto message = ring_ ? fmt::format(
                                   "a tensor of {} bytes is too large for a ring of {} bytes: of such only the "
                                   "statistics are kept",
                                   size_bytes, options_.max_bytes)
                             : fmt::format(
                                   "a tensor of {} bytes does not fit into what is left of the budget of {} bytes: of "
                                   "such only the statistics are kept",
                                   size_bytes, options_.max_bytes);
  TextBuffer line;
  encode_event(line, {.kind = EventKind::Note, .name = kBudgetNote, .step = run_step_.load()}, thread_id(),
               EventValue(message));
  append(line.view());
  if (options_.on_trouble) options_.on_trouble(Trouble::Budget, fmt::format("{}: {}", message, folder_.string()));
}

void Writer::step(std::int64_t number) {
  journal_backoff_.check();
  TextBuffer& line = line_buffer();
  encode_event(line, {.kind = EventKind::Step, .step = number}, thread_id(), EventValue());
  append(line.view());
  if (options_.durability == Durability::Disk) sync();
}

void Writer::count_dropped(Trouble trouble) noexcept {
  ++pending_dropped_[static_cast<std::size_t>(trouble)];
  ++unsaid_dropped_;
  has_pending_dropped_ = true;
  write_dropped_when_due();
}

// Once a second, and whenever the count has doubled: a crash leaves at least half of it said.

void Writer::write_dropped_when_due() noexcept {
  const auto now = monotonic_ns();
  auto written = dropped_written_ns_.load();
  const bool has_doubled = unsaid_dropped_.load() > said_dropped_.load();
  if (written != 0 && now - written < kRetryNs && !has_doubled) return;
  if (dropped_written_ns_.compare_exchange_strong(written, now)) write_dropped(JournalWriter::Urgency::Report);
}

void Writer::write_dropped(JournalWriter::Urgency urgency) noexcept {
  has_pending_dropped_ = false;
  said_dropped_ += unsaid_dropped_.exchange(0);
  for (int i = 0; i < kTroubleCount; ++i) {
    const auto count = pending_dropped_[i].exchange(0);
    if (count == 0) continue;
    try {
      TextBuffer line;
      encode_event(line,
                   {.kind = EventKind::Dropped, .name = reason_of(static_cast<Trouble>(i)), .step = run_step_.load()},
                   thread_id(), EventValue(static_cast<std::int64_t>(count)));
      journal_.append(line.view(), urgency);
    } catch (const std::exception&) {
      pending_dropped_[i] += count;
      has_pending_dropped_ = true;
    }
  }
}

void Writer::sync_when_due() {
  if (options_.durability != Durability::Disk) return;
  if (monotonic_ns() - synced_ns_.load(std::memory_order_relaxed) >= kSyncNs) sync();
}

// Nothing that is reserved may be held here: close() waits for it under the same lock.
void Writer::sync() {
  std::lock_guard guard(close_mutex_);
  if (is_closed_) return;
  synced_ns_ = monotonic_ns();
  small_.sync();
  large_.sync();
  strided_.sync();
  entries_.sync();  // before the journal, so that a line's segment has its name when the line is there
  journal_.sync();
  entries_.sync();  // the journal may have been rotated meanwhile
}

void Writer::close() {
  std::lock_guard guard(close_mutex_);
  if (is_closed_.exchange(true)) return;
  small_.close();
  large_.close();
  strided_.close();
  write_dropped(JournalWriter::Urgency::LastWord);
  TextBuffer line;
  encode_event(line, {.kind = EventKind::Note, .name = kClosedNote, .step = run_step_.load()}, thread_id(),
               EventValue());
  journal_.close(line.view());
  entries_.sync();
}

}  // namespace tenscope::store
