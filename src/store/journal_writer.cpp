// Overview. The file is longer than its content: space is reserved in chunks ahead and mapped, so that appending is a
// copy into the page cache and needs no system call. A line's bytes are stored first and its line break last: whoever
// looks (another process, or repair after a SIGKILL) sees whole lines, and behind them at most one torn one without a
// break, then NUL bytes. The lock is held by a descriptor of its own, because a mapping keeps the lock of the
// descriptor it was made with.
#include "store/journal_writer.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <exception>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace tenscope::store {
namespace {

constexpr std::uint64_t kFirstChunk = 64 << 10;
constexpr std::uint64_t kLargestChunk = 4 << 20;
constexpr std::uint64_t kSpare = 8 << 10;  // kept back for reports (dropped) and the last word (closed)
constexpr std::size_t kFrame = 96;         // all of a line but its body

std::int64_t now_ns() noexcept {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return now.tv_sec * 1'000'000'000 + now.tv_nsec;
}

char* put(char* to, std::string_view text) noexcept {
  std::memcpy(to, text.data(), text.size());
  return to + text.size();
}

char* put_hex(char* to, std::uint64_t value) noexcept {
  for (int digit = 15; digit >= 0; --digit, value >>= 4) to[digit] = "0123456789abcdef"[value & 15];
  return to + 16;
}

}  // namespace

JournalWriter::JournalWriter(const std::filesystem::path& folder, Options options)
    : folder_(folder), options_(std::move(options)), next_chunk_(kFirstChunk) {
  const auto path = folder_ / "journal.jsonl";
  part_ = create(path);
  if (options_.entries != nullptr) options_.entries->change();
  try {
    extend(part_, 0, kFirstChunk);
  } catch (...) {
    std::error_code ignored;
    std::filesystem::remove(path, ignored);  // so that it can be tried again
    throw;
  }
}

JournalWriter::~JournalWriter() = default;

JournalWriter::Part JournalWriter::create(const std::filesystem::path& path) {
  Part part{.file = File(path, O_RDWR | O_CREAT | O_EXCL), .lock = File(path, O_RDONLY)};
  // A file system without locks (some network ones) is no reason not to record.
  if (::flock(part.lock.fd(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    throw_io("cannot lock journal", errno, path);
  }
  return part;
}

void JournalWriter::extend(Part& part, std::uint64_t tail, std::uint64_t bytes) {
  const std::uint64_t chunk = (std::max(next_chunk_, bytes + kSpare) + 4095) / 4096 * 4096;
  part.file.reserve_cached(part.reserved, chunk);
  part.reserved += chunk;
  part.window = Mapping(part.file, tail, part.reserved - tail);
  next_chunk_ = std::min(next_chunk_ * 4, kLargestChunk);
}

void JournalWriter::make_room(std::uint64_t bytes, Urgency urgency) {
  if (!part_.file.is_open()) throw Error(ErrorCode::Io, "cannot append to journal: it is closed");
  const std::uint64_t kept_back = urgency == Urgency::Report ? kSpare / 4 : 0;
  if (urgency != Urgency::Normal && tail_ + bytes + kept_back <= part_.window.end()) return;
  if (options_.part_bytes > 0 && tail_ > 0 && tail_ + bytes > options_.part_bytes) return rotate(bytes);
  if (tail_ + bytes + kSpare <= part_.window.end()) return;
  if (!part_.file.is_linked()) throw_io("cannot append to journal", ENOENT, part_.file.path());
  extend(part_, tail_, bytes);
}

void JournalWriter::rotate(std::uint64_t bytes) {
  const auto current = folder_ / "journal.jsonl";
  const auto next = folder_ / "journal.jsonl.next";
  const auto finished = folder_ / fmt::format("journal-{:06}.jsonl", next_part_);
  std::error_code ignored;
  std::filesystem::remove(next, ignored);
  next_chunk_ = kFirstChunk;
  Part part = create(next);
  extend(part, 0, bytes);
  if (options_.entries != nullptr) part_.file.sync();
  rename_file(current, finished);
  try {
    rename_file(next, current);
  } catch (...) {
    std::filesystem::rename(finished, current, ignored);
    throw;
  }
  if (options_.entries != nullptr) options_.entries->change();
  part.file.set_path(current);
  std::swap(part_, part);
  const std::uint64_t size = std::exchange(tail_, 0);
  ++next_part_;
  first_seq_.store(next_seq_, std::memory_order_relaxed);
  part.window.unmap();
  part.file.truncate(size);
  if (options_.on_part) options_.on_part(finished, size);
}

std::uint64_t JournalWriter::append(std::string_view body, Urgency urgency) {
  std::lock_guard guard(mutex_);
  return append_locked(body, urgency);
}

std::uint64_t JournalWriter::append_locked(std::string_view body, Urgency urgency) {
  const std::uint64_t bound = body.size() + kFrame;
  const bool has_room = tail_ + bound + kSpare <= part_.window.end() &&
                        (options_.part_bytes == 0 || tail_ + bound <= options_.part_bytes);
  if (!has_room || !part_.file.is_open()) make_room(bound, urgency);

  char* const line = reinterpret_cast<char*>(part_.window.at(tail_));
  char* to = put(line, R"({"seq":)");
  to = std::to_chars(to, to + 20, next_seq_).ptr;
  to = put(to, R"(,"t":)");
  to = std::to_chars(to, to + 20, now_ns()).ptr;
  to = put(to, body);
  const std::uint64_t sum = XXH3_64bits(line, static_cast<std::size_t>(to - line));
  to = put(to, R"(,"sum":")");
  to = put_hex(to, sum);
  to = put(to, R"("})");
  std::atomic_ref(*to).store('\n', std::memory_order_release);
  tail_ += static_cast<std::uint64_t>(to + 1 - line);
  return next_seq_++;
}

void JournalWriter::sync() {
  std::lock_guard guard(mutex_);
  if (part_.file.is_open()) part_.file.sync();
}

void JournalWriter::close(std::string_view last_word) {
  std::lock_guard guard(mutex_);
  if (!part_.file.is_open()) return;
  std::exception_ptr failure;
  try {
    if (!last_word.empty()) append_locked(last_word, Urgency::LastWord);
  } catch (...) {
    failure = std::current_exception();
  }
  Part part = std::move(part_);
  part_ = {};
  part.window.unmap();
  part.file.truncate(tail_);
  if (options_.entries != nullptr) part.file.sync();
  ::flock(part.lock.fd(), LOCK_UN);  // a child that was just forked may hold the descriptor for a moment longer
  if (failure) std::rethrow_exception(failure);
}

std::uint64_t JournalWriter::size_bytes() const noexcept {
  std::lock_guard guard(mutex_);
  return tail_;
}

bool JournalWriter::is_closed() const noexcept {
  std::lock_guard guard(mutex_);
  return !part_.file.is_open();
}

}  // namespace tenscope::store
