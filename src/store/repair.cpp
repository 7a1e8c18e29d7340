// Overview: what a crash leaves is a journal with zeros or a torn line at its end, and open segments whose header is
// empty. The journal's events say what lies where in a segment, so its header can be written. Order: segments first,
// then the journal is trimmed, and last it gets a note that it was repaired; a repair that is itself interrupted is
// simply begun anew.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <map>
#include <utility>

#include "core/json_writer.hpp"
#include "store/journal_reader.hpp"
#include "store/read_file.hpp"
#include "store/run_folder.hpp"
#include "store/segment_header.hpp"
#include "tenscope/error.hpp"
#include "tenscope/reader.hpp"

namespace tenscope::store {
namespace {

[[noreturn]] void fail(std::string_view what, const fs::path& path) {
  throw Error(ErrorCode::Io, fmt::format("cannot repair: {}: {}: {}", what, std::strerror(errno), path.string()));
}

class Descriptor {
 public:
  Descriptor(const fs::path& path, int flags) : fd_(::open(path.c_str(), flags | O_CLOEXEC, 0644)), path_(path) {
    if (fd_ < 0) fail("a file cannot be opened", path);
  }
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)), path_(std::move(other.path_)) {}

  int fd() const { return fd_; }
  void write(std::uint64_t offset, std::string_view bytes) const {
    while (!bytes.empty()) {
      const ssize_t done = ::pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
      if (done < 0 && errno == EINTR) continue;
      if (done <= 0) fail("a file cannot be written", path_);
      bytes.remove_prefix(static_cast<std::size_t>(done));
      offset += static_cast<std::uint64_t>(done);
    }
  }
  void resize(std::uint64_t size) const {
    if (::ftruncate(fd_, static_cast<off_t>(size)) != 0) fail("a file cannot be cut", path_);
  }
  void sync() const {
    if (::fsync(fd_) != 0) fail("a file cannot be synced", path_);
  }

 private:
  int fd_;
  fs::path path_;
};

// The lock that a living writer would hold; held until the repair is done.
Descriptor lock_journal(const fs::path& folder) {
  Descriptor journal(folder / kJournalFile, O_RDWR | O_CREAT);
  if (::flock(journal.fd(), LOCK_EX | LOCK_NB) == 0) return journal;
  if (errno != EWOULDBLOCK) fail("a journal cannot be locked", folder / kJournalFile);
  throw Error(ErrorCode::InvalidArgument,
              fmt::format("cannot repair a run that is being written: end its process first: {}", folder.string()));
}

using TensorsBySegment = std::map<std::int64_t, std::vector<SegmentTensor>>;

class WriterRepair {
 public:
  WriterRepair(const Reader& reader, std::size_t writer, fs::path folder, const Descriptor& journal,
               std::vector<std::string>& actions)
      : reader_(reader), writer_(writer), folder_(std::move(folder)), journal_(journal), actions_(actions) {}

  void run() {
    const auto segments = segment_files(folder_);
    const bool has_open =
        std::any_of(segments.begin(), segments.end(), [](auto& entry) { return entry.second.is_open; });
    if (has_open) {
      TensorsBySegment tensors = collect_tensors();
      for (const auto& [number, segment] : segments) {
        if (segment.is_open) seal(number, segment.path, tensors[number]);
      }
    }
    for (const fs::path& part : journal_parts(folder_)) trim(part, Descriptor(part, O_RDWR));
    const std::uint64_t end = trim(folder_ / kJournalFile, journal_);
    remove_unfinished_part();
    if (!reader_.writers()[writer_].closed && !reader_.writers()[writer_].repaired) add_note(end);
  }

 private:
  void tell(const std::string& what, const fs::path& path) {
    actions_.push_back(fmt::format("{}: {}", what, path.lexically_relative(reader_.path()).string()));
  }

  bool is_damaged() const {
    return std::any_of(reader_.problems().begin(), reader_.problems().end(), [&](const Problem& problem) {
      return problem.kind == ProblemKind::Damage && problem.file.parent_path() == folder_;
    });
  }

  TensorsBySegment collect_tensors() const {
    TensorsBySegment result;
    for (EventId id = 0; id < reader_.event_count(); ++id) {
      if (reader_.writer_index(id) != writer_ || !reader_.is_tensor(id)) continue;
      try {
        const Event event = reader_.event(id);
        const auto& record = std::get<TensorRecord>(event.value);
        if (!record.blob) continue;
        result[record.blob->segment].push_back({segment_key(event), record.dtype, record.shape, record.blob->offset,
                                                record.blob->offset + record.blob->size_bytes});
      } catch (const Error&) {
        // verify() tells of an event that cannot be read; it has no place in a segment.
      }
    }
    for (auto& [number, tensors] : result) {
      std::stable_sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) {
        return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
      });
    }
    return result;
  }

  // Of equal bytes the first event names the tensor. What overlaps or lies outside cannot be real.
  static std::vector<SegmentTensor> keep_possible(std::vector<SegmentTensor> tensors, std::uint64_t begin,
                                                  std::uint64_t end) {
    std::vector<SegmentTensor> kept;
    for (SegmentTensor& tensor : tensors) {
      if (tensor.begin < begin || tensor.end < tensor.begin || tensor.end > end) continue;
      if (!kept.empty() && kept.back().begin == tensor.begin && kept.back().end == tensor.end) continue;
      begin = tensor.end;
      kept.push_back(std::move(tensor));
    }
    return kept;
  }

  void seal(std::int64_t number, const fs::path& path, const std::vector<SegmentTensor>& all) {
    const fs::path sealed_path = segment_path(folder_, number, false);
    if (fs::exists(sealed_path)) return tell("left alone, a sealed segment of that number is there", path);
    if (all.empty()) {
      if (is_damaged()) return tell("left open, its events are lost", path);
      if (::unlink(path.c_str()) != 0) fail("an empty segment cannot be removed", path);
      return tell("removed a segment without tensors", path);
    }
    const Descriptor file(path, O_RDWR);
    const std::uint64_t file_size = fs::file_size(path);
    const std::uint64_t data_begin = reserved_begin(path, file_size, all);
    const std::vector<SegmentTensor> tensors = keep_possible(all, data_begin, file_size);
    if (data_begin < kHeaderPrefix || tensors.empty()) return tell("left open, its tensors are cut off", path);
    const std::uint64_t data_end = is_damaged() ? file_size : tensors.back().end;
    std::size_t unnamed = 0;
    std::string header;
    try {
      header = make_segment_header(tensors, data_begin, data_end, unnamed);
    } catch (const Error& error) {
      return tell(fmt::format("left open, {}", error.what()), path);
    }
    const std::uint64_t length = header.size();
    char prefix[kHeaderPrefix];
    std::memcpy(prefix, &length, sizeof prefix);
    file.write(0, {prefix, sizeof prefix});
    file.write(kHeaderPrefix, header);
    file.resize(data_end);
    file.sync();
    fs::rename(path, sealed_path);
    tell(fmt::format("sealed a segment of {} tensors", tensors.size()), sealed_path);
    if (unnamed > 0)
      tell(fmt::format("its header has no room for the last {} names, which the journal has", unnamed), sealed_path);
  }

  // Where a segment's data begins: as its first bytes say, unless they contradict the journal.
  static std::uint64_t reserved_begin(const fs::path& path, std::uint64_t file_size,
                                      const std::vector<SegmentTensor>& tensors) {
    std::uint64_t length = 0;
    char prefix[kHeaderPrefix];
    if (ReadFile(path).read(0, prefix) == sizeof prefix) std::memcpy(&length, prefix, sizeof length);
    const std::uint64_t first = tensors.front().begin;
    const bool is_possible = length > 0 && length < file_size && kHeaderPrefix + length <= first;
    return is_possible ? kHeaderPrefix + length : first;
  }

  std::uint64_t trim(const fs::path& path, const Descriptor& file) {
    std::vector<Problem> problems;
    const ReadFile reading(path);
    JournalReader journal(reading, path, problems);
    for (LineBatch batch; journal.next(batch);) continue;
    const std::uint64_t size = reading.size();
    if (size > journal.content_end()) {
      file.resize(journal.content_end());
      tell(journal.torn_bytes() > 0 ? fmt::format("cut a torn line of {} bytes", journal.torn_bytes())
                                    : fmt::format("cut {} unused bytes", size - journal.content_end()),
           path);
    }
    return journal.content_end();
  }

  // A ring's writer prepares the next part under this name.
  void remove_unfinished_part() {
    const fs::path path = folder_ / "journal.jsonl.next";
    if (::unlink(path.c_str()) == 0) tell("removed a part that was not begun", path);
  }

  void add_note(std::uint64_t end) {
    std::uint64_t seq = 0;
    std::int64_t step = 0;
    for (EventId id = static_cast<EventId>(reader_.event_count()); id-- > 0;) {
      if (reader_.writer_index(id) != writer_) continue;
      seq = reader_.event(id).seq + 1;
      step = reader_.step(id);
      break;
    }
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    const std::string line =
        sealed_line(fmt::format(R"({{"seq":{},"t":{},"th":{},"kind":"note","name":"{}","step":{})", seq,
                                std::chrono::nanoseconds(now).count(), ::getpid(), kRepairedNote, step));
    char last = '\n';
    if (end > 0) ReadFile(folder_ / kJournalFile).read(end - 1, {&last, 1});
    journal_.write(end, last == '\n' ? line : "\n" + line);
    journal_.sync();
    tell("closed the journal", folder_ / kJournalFile);
  }

  const Reader& reader_;
  const std::size_t writer_;
  const fs::path folder_;
  const Descriptor& journal_;
  std::vector<std::string>& actions_;
};

}  // namespace
}  // namespace tenscope::store

namespace tenscope {

std::vector<std::string> repair(const std::filesystem::path& run) {
  using namespace store;
  const fs::path path = resolve_run(run);
  std::map<std::string, Descriptor> journals;
  for (const WriterFolder& folder : writer_folders(path)) {
    journals.emplace(folder.path.filename().string(), lock_journal(folder.path));
  }
  const Reader reader(path);
  std::vector<std::string> actions;
  for (std::size_t i = 0; i < reader.writers().size(); ++i) {
    const auto journal = journals.find(reader.writers()[i].folder);
    if (journal != journals.end()) WriterRepair(reader, i, path / journal->first, journal->second, actions).run();
  }
  return actions;
}

}  // namespace tenscope
