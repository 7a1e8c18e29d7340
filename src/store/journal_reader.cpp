#include "store/journal_reader.hpp"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <utility>

#include "tenscope/error.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace tenscope::store {
namespace {

constexpr std::size_t kBatchBytes = 1u << 20;
constexpr std::size_t kLongestLine = 1u << 30;

constexpr std::string_view kLineStart = R"({"seq":)";

bool is_hex(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); }

const char* find_nonzero(const char* begin, const char* end) {
  while (end - begin >= 64) {
    std::uint64_t words[8], any = 0;
    std::memcpy(words, begin, 64);
    for (std::uint64_t word : words) any |= word;
    if (any != 0) break;
    begin += 64;
  }
  return std::find_if(begin, end, [](char c) { return c != '\0'; });
}

}  // namespace

bool has_right_sum(std::string_view line) noexcept {
  if (line.size() <= kSumSize) return false;
  const std::string_view tail = line.substr(line.size() - kSumSize);
  if (!tail.starts_with(kSumKey) || !tail.ends_with("\"}")) return false;
  const std::string_view digits = tail.substr(kSumKey.size(), 16);
  std::uint64_t sum = 0;
  if (!std::all_of(digits.begin(), digits.end(), is_hex)) return false;
  std::from_chars(digits.data(), digits.data() + digits.size(), sum, 16);
  return sum == XXH3_64bits(line.data(), line.size() - kSumSize);
}

std::string sealed_line(std::string_view text) {
  return fmt::format("{}{}{:016x}\"}}\n", text, kSumKey, XXH3_64bits(text.data(), text.size()));
}

JournalReader::JournalReader(const ReadFile& file, std::filesystem::path path, std::vector<Problem>& problems,
                             std::uint64_t from)
    : file_(file),
      path_(std::move(path)),
      problems_(problems),
      buffer_(kBatchBytes + simdjson::SIMDJSON_PADDING),
      base_(from),
      content_end_(from) {}

bool JournalReader::next(LineBatch& batch) {
  do {
    if (!fill()) {
      if (bad_line_breaks_ > 1) report_bad();  // more than a torn line
      return false;
    }
    take_lines();
  } while (lines_.empty());
  batch = {base_, {buffer_.data(), begin_}, lines_};
  return true;
}

// Moves what is left to the front and reads behind it. A line longer than the buffer makes the buffer grow.
bool JournalReader::fill() {
  if (rewind_to_) {
    base_ = *rewind_to_;
    begin_ = end_ = 0;
    reread_from_ = std::exchange(rewind_to_, std::nullopt);
  } else if (at_end_) {
    return false;
  }
  std::copy(buffer_.begin() + begin_, buffer_.begin() + end_, buffer_.begin());
  base_ += begin_;
  end_ -= begin_;
  begin_ = 0;
  std::size_t capacity = buffer_.size() - simdjson::SIMDJSON_PADDING;
  if (end_ == capacity) {
    if (capacity >= kLongestLine) {
      problems_.push_back(
          {path_, base_, fmt::format("a line of more than {} bytes; nothing behind it was read", kLongestLine)});
      return false;
    }
    capacity *= 2;
    buffer_.resize(capacity + simdjson::SIMDJSON_PADDING);
  }
  try {
    const std::size_t got = file_.read(base_ + end_, {buffer_.data() + end_, capacity - end_});
    at_end_ = got < capacity - end_;
    end_ += got;
  } catch (const Error& error) {
    problems_.push_back({path_, base_ + end_, fmt::format("{}; nothing behind it was read", error.what())});
    at_end_ = true;
  }
  return true;
}

void JournalReader::take_lines() {
  lines_.clear();
  while (begin_ < end_ && !rewind_to_) {
    const char* const start = buffer_.data() + begin_;
    const std::size_t left = end_ - begin_;
    const auto* const stop = static_cast<const char*>(std::memchr(start, '\n', left));
    if (in_zeros_ || start[0] == '\0' || (stop == nullptr && std::memchr(start, '\0', left) != nullptr)) {
      pass_zeros();
    } else if (stop != nullptr) {
      pass_line(static_cast<std::size_t>(stop - start), true);
    } else if (at_end_) {
      pass_line(left, false);
    } else {
      return;  // the line goes on behind the buffer
    }
  }
}

void JournalReader::pass_zeros() {
  const char* const start = buffer_.data() + begin_;
  const char* const stop = buffer_.data() + end_;
  const char* const zeros = in_zeros_ ? start : std::find(start, stop, '\0');
  if (zeros != start) add_bad(position(), position() + static_cast<std::size_t>(zeros - start), 0);
  if (!std::exchange(in_zeros_, true)) zeros_begin_ = position() + static_cast<std::size_t>(zeros - start);
  const char* const rest = find_nonzero(zeros, stop);
  begin_ = static_cast<std::size_t>(rest - buffer_.data());
  if (rest == stop) return;
  add_bad(zeros_begin_, position(), 0);
  in_zeros_ = false;
}

void JournalReader::pass_line(std::size_t size, bool has_break) {
  char* const start = buffer_.data() + begin_;
  const std::uint64_t line_end = position() + size + has_break;
  if (has_break && has_right_sum({start, size})) {
    if (!settle_bad()) return;
    lines_.push_back({static_cast<std::uint32_t>(begin_), static_cast<std::uint32_t>(size)});
    content_end_ = line_end;
    begin_ += size + has_break;
    return;
  }
  // A damaged line break joins two lines: the second may be whole.
  const std::size_t inner = std::string_view(start, size).find(kLineStart, 1);
  const std::size_t bad = inner != std::string_view::npos ? inner : size + has_break;
  add_bad(position(), position() + bad, inner != std::string_view::npos || has_break);
  begin_ += bad;
}

void JournalReader::add_bad(std::uint64_t begin, std::uint64_t end, int line_breaks) {
  if (bad_end_ == bad_begin_) bad_begin_ = begin;
  bad_end_ = end;
  bad_line_breaks_ += line_breaks;
}

// Before a good line: true where reading may go on, false where the stretch before it is to be read again.
bool JournalReader::settle_bad() {
  if (bad_end_ == bad_begin_) return true;
  if (reread_from_ == bad_begin_) {
    report_bad();
    return true;
  }
  rewind_to_ = bad_begin_;
  bad_begin_ = bad_end_ = bad_line_breaks_ = 0;
  return false;
}

void JournalReader::report_bad() {
  problems_.push_back(
      {path_, bad_begin_, fmt::format("{} damaged bytes: no line with a right checksum", bad_end_ - bad_begin_)});
  content_end_ = bad_end_;
  bad_begin_ = bad_end_ = bad_line_breaks_ = 0;
}

}  // namespace tenscope::store
