// Overview. A tensor's way: fingerprint → is it stored already? → if not, its bytes into a segment → a line in the
// journal. Small tensors are hashed first (they are in the cache for what follows) and copied into a mapped segment in
// the same pass that takes the statistics. Large ones are read once for fingerprint and statistics, and if they are new
// written by one big write. What the last tensors of that name were decides the order: was the last stored already, the
// fingerprint alone is taken first, so an unchanged tensor costs its hash; were two in a row new, this one is likely to
// be, and a very large one is written while a second thread takes its summary (if it was known after all, its place is
// given back). The line is appended after the bytes are in the page cache, so a line never promises more than is there.
#include "store/writer.hpp"

#include <fmt/format.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <future>
#include <system_error>
#include <thread>

#include "kernels/summarize.hpp"
#include "store/event_encoder.hpp"
#include "store/fork_guard.hpp"
#include "store/signals_blocked.hpp"

namespace tenscope::store {
namespace {

constexpr std::uint64_t kSmallBytes = 64 << 10;
constexpr std::uint64_t kTwoThreadBytes = 8 << 20;
constexpr std::int64_t kRetryNs = 1'000'000'000;
constexpr std::int64_t kSyncNs = 1'000'000'000;
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

// In a ring an eighth of the budget a segment, of which two are open, and a sixteenth a part of the journal: what is
// open fits beside what is finished.
Writer::Options with_ring_sizes(Writer::Options options) {
  if (options.max_bytes > 0 && options.keep == Keep::Last) {
    options.segment_bytes = std::min(options.segment_bytes, std::max(options.max_bytes / 8, kSmallestRingSegment));
  }
  options.segment_bytes = std::max<std::uint64_t>(options.segment_bytes, 4096);
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

// The summary, taken by another thread while this one does `work`; where the system gives none, after it.
template <class Work>
Summary summarize_beside(const TensorView& tensor, Work&& work) {
  std::future<Summary> summary;
  try {
    const SignalsBlocked guard;
    summary = std::async(std::launch::async, [&tensor] { return kernels::summarize(tensor); });
  } catch (const std::system_error&) {
    summary = std::async(std::launch::deferred, [&tensor] { return kernels::summarize(tensor); });
  }
  work();
  return summary.get();
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
      ring_(part_bytes(options_) == 0
                ? std::optional<Ring>()
                : std::optional<Ring>(
                      std::in_place, options_.max_bytes - std::min(options_.max_bytes,
                                                                   2 * options_.segment_bytes + part_bytes(options_)))),
      small_(folder_, segment_options(true)),
      large_(folder_, segment_options(false)),
      journal_(folder_, {.part_bytes = part_bytes(options_),
                         .is_durable = options_.durability == Durability::Disk,
                         .on_part = [this](const auto& part, std::uint64_t size) { ring_->add(part, size); }}) {
  if (options_.durability == Durability::Disk) sync_folder(folder_);
  synced_ns_ = monotonic_ns();
}

SegmentWriter::Options Writer::segment_options(bool is_mapped) {
  SegmentWriter::Options options{.segment_bytes = options_.segment_bytes,
                                 .is_mapped = is_mapped,
                                 .is_durable = options_.durability == Durability::Disk,
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

Recorded Writer::record(EventInfo info, const EventValue& value) {
  journal_backoff_.check();
  resolve(info);
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

Recorded Writer::record(EventInfo info, const TensorView& tensor, Values values) {
  validate(tensor);
  journal_backoff_.check();
  resolve(info);
  const std::uint64_t size = size_bytes(tensor);
  const bool is_small = size <= kSmallBytes;
  auto& last = last_[std::hash<std::string_view>()(info.name) % last_.size()];

  std::optional<Summary> summary;
  std::optional<BlobRef> blob;
  const auto look_up = [&](const Fingerprint& fingerprint) {
    const auto known = find(fingerprint, tensor, size);
    if (!known) return;
    summary = {fingerprint, known->stats};
    blob = known->blob;
  };
  const Last before = last.load(std::memory_order_relaxed);
  if (is_small || before == Last::Duplicate) look_up(kernels::fingerprint(tensor));
  const bool is_worth_a_guess =
      before == Last::NewTwice && values == Values::Full && has_no_fixed_budget() && is_worth_two_threads(tensor, size);
  if (!summary && !is_small && !is_worth_a_guess) {
    summary = kernels::summarize(tensor);
    look_up(summary->fingerprint);
  }
  bool is_duplicate = blob.has_value();

  if (values == Values::Stats) {
    blob.reset();
    if (!summary) {
      summary = kernels::summarize(tensor);
      blobs_.insert(*summary, tensor.dtype, size, std::nullopt);
    }
  } else if (!blob) {
    if (may_store(size)) {
      const Stored stored = store(info, tensor, size, summary);
      blob = stored.blob;
      is_duplicate = stored.is_duplicate;
      if (!is_duplicate) blobs_.insert(*summary, tensor.dtype, size, blob);
    } else if (!summary) {
      summary = kernels::summarize(tensor);
    }
  }
  if (!is_small) {
    const bool is_in_a_row = before == Last::New || before == Last::NewTwice;
    last.store(is_duplicate ? Last::Duplicate : is_in_a_row ? Last::NewTwice : Last::New, std::memory_order_relaxed);
  }

  TextBuffer& line = line_buffer();
  encode_event(line, info, thread_id(), tensor, *summary, blob, values == Values::Full && size > 0);
  const std::uint64_t seq = append(line.view());
  sync_when_due();
  return {.kept = true,
          .duplicate = is_duplicate && values == Values::Full,
          .seq = seq,
          .step = info.step,
          .call = info.call,
          .summary = *summary};
}

Writer::Stored Writer::store(const EventInfo& info, const TensorView& tensor, std::uint64_t size_bytes,
                             std::optional<Summary>& summary) {
  segments_backoff_.check();
  thread_local HeaderEntry entry;
  encode_header_entry(entry, info.name, info.step, info.call, tensor.dtype, tensor.shape);
  const bool is_small = size_bytes <= kSmallBytes;
  SegmentWriter& segments = is_small ? small_ : large_;
  const bool is_contiguous = is_c_order(tensor);
  const auto write = [&](const Slot& slot) {
    segments.write(slot, {static_cast<const std::byte*>(tensor.data), size_bytes});
  };
  try {
    Slot slot = segments.reserve(
        size_bytes, tensor.dtype, entry,
        is_small || !is_contiguous ? SegmentWriter::Access::Memory : SegmentWriter::Access::Write, tensor.data);
    const BlobRef ref = slot.ref;
    std::optional<BlobTable::Known> known;
    try {
      if (summary && slot.memory != nullptr) {
        kernels::copy_c_order(tensor, slot.memory);
      } else if (summary) {
        write(slot);
      } else if (is_small || !is_contiguous) {
        summary = kernels::summarize(tensor, slot.memory);
      } else {
        summary = summarize_beside(tensor, [&] { write(slot); });
        known = find(summary->fingerprint, tensor, size_bytes);
      }
    } catch (...) {
      segments.abandon(std::move(slot));
      throw;
    }
    if (known && known->blob) {
      segments.abandon(std::move(slot));
      return {*known->blob, true};
    }
    segments.commit(std::move(slot), entry);
    return {ref, false};
  } catch (const IoError& error) {
    segments_backoff_.set(error);
    throw;
  }
}

bool Writer::has_no_fixed_budget() const noexcept { return options_.max_bytes == 0 || ring_; }

bool Writer::may_store(std::uint64_t size_bytes) {
  if (options_.max_bytes == 0) return true;
  if (ring_ && size_bytes <= options_.max_bytes / 2) {
    if (size_bytes > options_.segment_bytes) ring_->make_room(size_bytes);
    return true;
  }
  if (!ring_) {
    if (budget_is_used_up_.load(std::memory_order_relaxed)) return false;
    if (small_.total_bytes() + large_.total_bytes() + journal_.size_bytes() + size_bytes <= options_.max_bytes)
      return true;
  }
  if (budget_is_used_up_.exchange(true)) return false;
  const auto message = ring_ ? fmt::format(
                                   "a tensor of {} bytes is too large for a ring of {} bytes: of such only the "
                                   "statistics are kept",
                                   size_bytes, options_.max_bytes)
                             : fmt::format("the budget of {} bytes is used up: from here on only statistics are kept",
                                           options_.max_bytes);
  TextBuffer& line = line_buffer();
  encode_event(line, {.kind = EventKind::Note, .name = kBudgetNote, .step = run_step_.load()}, thread_id(),
               EventValue(message));
  append(line.view());
  if (options_.on_trouble) options_.on_trouble(Trouble::Budget, fmt::format("{}: {}", message, folder_.string()));
  return false;
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

void Writer::sync() {
  synced_ns_ = monotonic_ns();
  small_.sync();
  large_.sync();
  journal_.sync();
}

void Writer::close() {
  std::lock_guard guard(close_mutex_);
  if (is_closed_.exchange(true)) return;
  small_.close();
  large_.close();
  write_dropped(JournalWriter::Urgency::LastWord);
  TextBuffer line;
  encode_event(line, {.kind = EventKind::Note, .name = kClosedNote, .step = run_step_.load()}, thread_id(),
               EventValue());
  try {
    journal_.append(line.view(), JournalWriter::Urgency::LastWord);
    if (options_.durability == Durability::Disk) journal_.sync();
  } catch (...) {
    journal_.close();
    throw;
  }
  journal_.close();
}

}  // namespace tenscope::store
