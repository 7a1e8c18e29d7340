#include "store/writer_reader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "store/event_parser.hpp"
#include "store/journal_reader.hpp"
#include "tenscope/error.hpp"

namespace tenscope::store {
namespace {

class WriterReader {
 public:
  WriterReader(const WriterFolder& folder, const Fetcher& fetcher, bool is_ring, std::size_t kept_open,
               const JournalPlace* before)
      : folder_(folder), fetcher_(fetcher), is_ring_(is_ring), kept_open_(kept_open), before_(before) {
    if (!is_ring) next_seq_ = 0;
  }

  // A ring's writer renames its journal when it goes on to the next part. The current file is opened before the parts
  // are listed, so that none is missed; it may then be among them.
  WriterContent read() {
    const fs::path current_path = folder_.path / kJournalFile;
    fetcher_.whole(current_path);
    ReadFile current = open_current(current_path);
    content_.info = {
        .folder = folder_.path.filename().string(), .rank = folder_.rank, .running = is_being_written(folder_.path)};
    if (before_ != nullptr && before_->can_go_on && current.is_open() && current.inode() == before_->inode) {
      content_.goes_on = true;
      account_ = before_->account;
      next_seq_ = before_->next_seq;
      read_part(current_path, std::move(current), before_->offset);
      return finished();
    }
    for (const fs::path& path : journal_parts(folder_.path)) {
      fetcher_.whole(path);
      try {
        ReadFile file(path);
        if (current.is_open() && file.inode() == current.inode()) continue;
        read_part(path, std::move(file));
      } catch (const Error& error) {
        if (error.code() != ErrorCode::NotFound) tell(path, 0, error.what());  // else the ring has dropped it
      }
    }
    if (current.is_open()) read_part(current_path, std::move(current));
    return finished();
  }

 private:
  WriterContent finished() {
    content_.info.event_count = content_.rows.size();
    if (!content_.parts.empty())
      content_.end = {.can_go_on = !is_ring_ && content_.parts.size() == 1 && content_.problems.empty(),
                      .inode = content_.parts.front().inode,
                      .offset = content_end_,
                      .next_seq = next_seq_,
                      .account = account_};
    account_.finish(folder_.path, is_ring_, content_.info, content_.losses, content_.problems);
    return std::move(content_);
  }

  ReadFile open_current(const fs::path& path) {
    for (int attempt = 0;; ++attempt) {
      try {
        return ReadFile(path);
      } catch (const Error& error) {
        if (attempt == 3) {
          tell(path, 0, error.what());
          return {};
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    }
  }

  void read_part(const fs::path& path, ReadFile file, std::uint64_t from = 0) {
    const std::uint64_t inode = file.inode();
    JournalPart& part = content_.parts.emplace_back(path, inode, std::move(file));
    first_row_ = content_.rows.size();
    try {
      JournalReader journal(part.file, part.path, content_.problems, from);
      for (LineBatch batch; journal.next(batch);)
        for (const LineRef& line : batch.lines)
          add_line(batch.text.substr(line.begin, line.size), batch.offset + line.begin);
      content_end_ = journal.content_end();
    } catch (const Error& error) {
      tell(path, 0, error.what());
    }
    if (content_.parts.size() > kept_open_) part.file = ReadFile();
  }

  void add_line(std::string_view line, std::uint64_t offset) {
    EventHead head;
    try {
      parser_.parse_head(line, head);
    } catch (const Error& error) {
      tell(content_.parts.back().path, offset, fmt::format("a line that is no event: {}", error.what()));
      return;
    }
    if (next_seq_ && head.seq != *next_seq_ && !is_explained(offset))
      tell(content_.parts.back().path, offset, fmt::format("a gap: event {} where {} was due", head.seq, *next_seq_));
    next_seq_ = head.seq + 1;
    content_.rows.push_back({.offset = offset,
                             .step = head.step,
                             .call = head.call,
                             .size = static_cast<std::uint32_t>(line.size()),
                             .name = content_.names.intern(head.name),
                             .part = static_cast<std::uint32_t>(content_.parts.size() - 1),
                             .kind = head.kind,
                             .is_tensor = head.is_tensor,
                             .has_nonfinite = head.has_nonfinite});
    account_.add(head, content_.names[content_.rows.back().name], line, offset, parser_);
  }

  // Whether damage stands between the last line of this file and the one at `offset`.
  bool is_explained(std::uint64_t offset) const {
    const std::uint64_t before = content_.rows.size() == first_row_ ? 0 : content_.rows.back().offset;
    const fs::path& file = content_.parts.back().path;
    return std::any_of(content_.problems.rbegin(), content_.problems.rend(), [&](const Problem& problem) {
      return problem.file == file && problem.offset >= before && problem.offset < offset;
    });
  }

  void tell(const fs::path& file, std::uint64_t offset, std::string reason) {
    content_.problems.push_back({file, offset, std::move(reason)});
  }

  const WriterFolder& folder_;
  const Fetcher& fetcher_;
  const bool is_ring_;
  const std::size_t kept_open_;
  const JournalPlace* const before_;
  WriterContent content_;
  WriterAccount account_;
  EventParser parser_;
  std::optional<std::uint64_t> next_seq_;
  std::size_t first_row_ = 0;  // of the part that is being read
  std::uint64_t content_end_ = 0;
};

}  // namespace

std::size_t JournalPart::read(std::uint64_t offset, std::span<char> buffer) const {
  if (file.is_open()) return file.read(offset, buffer);
  const auto is_it = [this](const ReadFile& other) { return other.inode() == inode; };
  std::optional<ReadFile> there;
  try {
    there.emplace(path);
    if (is_it(*there)) return there->read(offset, buffer);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::NotFound) throw;
  }
  for (const fs::path& moved : journal_parts(path.parent_path())) {
    try {
      if (const ReadFile other(moved); is_it(other)) return other.read(offset, buffer);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::NotFound) throw;
    }
  }
  // A copy in its place will do: every line has a checksum.
  return there ? there->read(offset, buffer) : ReadFile(path).read(offset, buffer);
}

WriterContent read_writer(const WriterFolder& folder, const Fetcher& fetcher, bool is_ring, std::size_t kept_open,
                          const JournalPlace* before) {
  return WriterReader(folder, fetcher, is_ring, kept_open, before).read();
}

}  // namespace tenscope::store
