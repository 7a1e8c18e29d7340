#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "store/read_file.hpp"
#include "tenscope/reader.hpp"

namespace tenscope::store {

inline constexpr std::string_view kSumKey = ",\"sum\":\"";
inline constexpr std::size_t kSumSize = kSumKey.size() + 16 + 2;  // ,"sum":"0123456789abcdef"}

// Whether `line` (without its line break) ends with the right checksum of what stands before it.
bool has_right_sum(std::string_view line) noexcept;

// `text` with its checksum and line break: a line as it stands in a journal. `text` is an object without its last
// bracket.
std::string sealed_line(std::string_view text);

// A line of a batch: where it begins in the batch, and its length without the line break.
struct LineRef {
  std::uint32_t begin = 0;
  std::uint32_t size = 0;
};

// Whole lines with right checksums. SIMDJSON_PADDING bytes behind the text may be read. Valid until the next call to
// JournalReader::next.
struct LineBatch {
  std::uint64_t offset = 0;  // of text in the file
  std::string_view text;
  std::span<const LineRef> lines;
};

// Overview: reads one journal file to its end, batch by batch, checking each line's sum.
//
// The file may be growing: its writer has mapped it larger than its content, so the content ends where zeros begin. But
// zeros may also be damage (a lost page), so they are skipped, and become damage when something stands behind them.
// Likewise a bad line is damage only when something stands behind it: the last one is merely torn. Before damage is
// reported it is read once more from the file: what was being written at the first look has been written by then.
class JournalReader {
 public:
  // `file` must outlive the reader. Damage is appended to `problems`, neighbouring bad lines as one. `from` is the
  // offset of a line: what stands before it is not read.
  JournalReader(const ReadFile& file, std::filesystem::path path, std::vector<Problem>& problems,
                std::uint64_t from = 0);

  bool next(LineBatch& batch);  // false at the end

  // Once at the end: the offset behind the last good line or reported damage, and the size of the torn line that
  // follows.
  std::uint64_t content_end() const noexcept { return content_end_; }
  std::uint64_t torn_bytes() const noexcept { return bad_end_ - bad_begin_; }

 private:
  bool fill();
  void take_lines();
  void pass_zeros();
  void pass_line(std::size_t size, bool has_break);
  void add_bad(std::uint64_t begin, std::uint64_t end, int line_breaks);
  bool settle_bad();
  void report_bad();
  std::uint64_t position() const noexcept { return base_ + begin_; }

  const ReadFile& file_;
  std::filesystem::path path_;
  std::vector<Problem>& problems_;
  std::vector<char> buffer_;
  std::vector<LineRef> lines_;
  std::uint64_t base_ = 0;  // file offset of buffer_[0]
  std::size_t begin_ = 0;   // of what has not been taken yet
  std::size_t end_ = 0;     // of what has been read
  bool at_end_ = false;     // the file ends at end_
  std::uint64_t content_end_ = 0;

  bool in_zeros_ = false;
  std::uint64_t zeros_begin_ = 0;

  // A stretch of bad lines that has not been reported yet.
  std::uint64_t bad_begin_ = 0;
  std::uint64_t bad_end_ = 0;
  std::uint64_t bad_line_breaks_ = 0;
  std::optional<std::uint64_t> rewind_to_;    // read this stretch again before the next batch
  std::optional<std::uint64_t> reread_from_;  // the stretch that has been read again
};

}  // namespace tenscope::store
