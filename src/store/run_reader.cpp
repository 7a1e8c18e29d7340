#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <unordered_map>
#include <unordered_set>

#include "store/event_parser.hpp"
#include "store/journal_reader.hpp"
#include "store/read_file.hpp"
#include "store/run_folder.hpp"
#include "store/tensor_storage.hpp"
#include "store/writer_account.hpp"
#include "tenscope/error.hpp"
#include "tenscope/glob.hpp"
#include "tenscope/reader.hpp"

// Overview: opening reads every journal once and keeps a row per event: what queries ask for, and where its line
// stands. The rest of an event is parsed again from the journal when asked for. Nothing changes after the constructor
// but caches: the mappings of segments (TensorStorage, shared with the views given out) and, per thread, the last block
// of journal read.
namespace tenscope {

using namespace store;

namespace {

constexpr std::size_t kMostOpenFiles = 256;
constexpr std::size_t kBlockBytes = 256u << 10;

struct Row {
  std::uint64_t offset = 0;
  std::int64_t step = 0;
  std::int64_t call = 0;
  std::uint32_t size = 0;
  std::uint32_t name = 0;
  std::uint32_t part = 0;
  EventKind kind = EventKind::Value;
  bool is_tensor = false;
  bool has_nonfinite = false;
};

// A journal file, kept open where there are not too many.
struct Part {
  fs::path path;
  std::size_t writer = 0;
  ReadFile file;
};

class NameTable {
 public:
  std::uint32_t intern(std::string_view name) {
    const auto found = ids_.find(name);
    if (found != ids_.end()) return found->second;
    names_.emplace_back(name);
    const auto id = static_cast<std::uint32_t>(names_.size() - 1);
    ids_.emplace(names_.back(), id);
    return id;
  }
  std::optional<std::uint32_t> find(std::string_view name) const {
    const auto found = ids_.find(name);
    return found == ids_.end() ? std::nullopt : std::optional(found->second);
  }
  const std::string& operator[](std::uint32_t id) const { return names_[id]; }
  std::size_t size() const { return names_.size(); }

 private:
  std::deque<std::string> names_;
  std::unordered_map<std::string_view, std::uint32_t> ids_;
};

// The last block of a journal that this thread has read, so that events read in order cost one read per block.
struct Block {
  std::uint64_t reader = 0;
  std::uint32_t part = 0;
  std::uint64_t offset = 0;
  std::size_t size = 0;
  std::vector<char> bytes;

  bool covers(std::uint64_t of_reader, const Row& row) const {
    return reader == of_reader && part == row.part && row.offset >= offset && row.offset + row.size <= offset + size;
  }
};

bool is_shown_by_name(EventKind kind) { return kind == EventKind::Value || kind == EventKind::Change; }
bool is_of_a_step(EventKind kind) {
  return kind != EventKind::Step && kind != EventKind::Note && kind != EventKind::Dropped;
}

}  // namespace

struct Reader::Impl {
  fs::path path;
  RunFile run_file;
  std::vector<WriterInfo> writers;
  std::vector<Problem> problems;
  std::vector<Loss> losses;
  std::vector<Part> parts;
  std::vector<Row> rows;
  NameTable names;
  std::shared_ptr<TensorStorage> storage;
  std::uint64_t id = 0;  // tells the readers of a process apart

  void read_run_json();
  void read_writer(const WriterFolder& folder);
  void read_part(Part& part, std::optional<std::uint64_t>& next_seq, WriterAccount& account);
  void add_line(std::string_view line, std::uint64_t offset, EventParser& parser,
                std::optional<std::uint64_t>& next_seq, WriterAccount& account);
  void find_missing_ranks();
  std::string_view line_of(const Row& row, Block& block) const;
  Event parse(EventId event) const;
};

void Reader::Impl::read_run_json() {
  try {
    run_file = read_run_file(path);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::Version) throw;
    problems.push_back({path / kRunFile, 0, error.what()});
    try {
      run_file.text = read_text(path / kRunFile, 1u << 20);
    } catch (const Error&) {
      run_file.text.clear();
    }
  }
}

// A ring's writer renames its journal when it goes on to the next part. The current file is opened before the parts are
// listed, so that none is missed; it may then be among them.
void Reader::Impl::read_writer(const WriterFolder& folder) {
  const fs::path current_path = folder.path / kJournalFile;
  ReadFile current;
  for (int attempt = 0; !current.is_open(); ++attempt) {
    try {
      current = ReadFile(current_path);
    } catch (const Error& error) {
      if (attempt == 3) {
        problems.push_back({current_path, 0, error.what()});
        break;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  writers.push_back(
      {.folder = folder.path.filename().string(), .rank = folder.rank, .running = is_being_written(folder.path)});
  const std::size_t writer = writers.size() - 1;
  const std::size_t first_row = rows.size();
  std::optional<std::uint64_t> next_seq = run_file.is_ring ? std::nullopt : std::optional<std::uint64_t>(0);
  WriterAccount account;
  for (const fs::path& part_path : journal_parts(folder.path)) {
    try {
      ReadFile file(part_path);
      if (current.is_open() && file.inode() == current.inode()) continue;
      parts.push_back({part_path, writer, std::move(file)});
    } catch (const Error& error) {
      if (error.code() != ErrorCode::NotFound) problems.push_back({part_path, 0, error.what()});
      continue;  // the ring has dropped it
    }
    read_part(parts.back(), next_seq, account);
  }
  if (current.is_open()) {
    parts.push_back({current_path, writer, std::move(current)});
    read_part(parts.back(), next_seq, account);
  }
  WriterInfo& info = writers.back();
  info.event_count = rows.size() - first_row;
  account.finish(folder.path, run_file.is_ring, info, losses, problems);
}

// A rank that should have taken part and has no folder: it never opened its run, or its folder was lost.
void Reader::Impl::find_missing_ranks() {
  std::set<int> ranks;
  for (const WriterInfo& writer : writers) ranks.insert(writer.rank);
  if (ranks.empty() || run_state(writers) == RunState::Running) return;
  constexpr int kMostTold = 16;
  int missing = 0;
  for (int rank = 0; rank < run_file.world_size && missing < kMostTold; ++rank) {
    if (ranks.contains(rank)) continue;
    ++missing;
    const std::string folder = fmt::format("rank-{}", rank);
    losses.push_back({.writer = folder,
                      .reason = fmt::format("there is no such folder, but {} ranks took part", run_file.world_size)});
    problems.push_back({path / folder, 0, to_string(losses.back()), ProblemKind::Loss});
  }
}

void Reader::Impl::read_part(Part& part, std::optional<std::uint64_t>& next_seq, WriterAccount& account) {
  constexpr std::uint64_t kShortLine = 200;  // a guess that keeps the rows from being copied often
  try {
    rows.reserve(rows.size() + part.file.size() / kShortLine);
    JournalReader journal(part.file, part.path, problems);
    EventParser parser;
    for (LineBatch batch; journal.next(batch);) {
      for (const LineRef& line : batch.lines) {
        add_line(batch.text.substr(line.begin, line.size), batch.offset + line.begin, parser, next_seq, account);
      }
    }
  } catch (const Error& error) {
    problems.push_back({part.path, 0, error.what()});
  }
  if (parts.size() > kMostOpenFiles) part.file = ReadFile();
}

void Reader::Impl::add_line(std::string_view line, std::uint64_t offset, EventParser& parser,
                            std::optional<std::uint64_t>& next_seq, WriterAccount& account) {
  const fs::path& file = parts.back().path;
  EventHead head;
  try {
    parser.parse_head(line, head);
  } catch (const Error& error) {
    problems.push_back({file, offset, fmt::format("a line that is no event: {}", error.what())});
    return;
  }
  if (next_seq && head.seq != *next_seq) {
    const std::uint64_t line_before = rows.empty() ? 0 : rows.back().offset;
    const bool is_explained = std::any_of(problems.rbegin(), problems.rend(), [&](const Problem& problem) {
      return problem.file == file && problem.offset >= line_before && problem.offset < offset;
    });
    if (!is_explained) {
      problems.push_back({file, offset, fmt::format("a gap: event {} where {} was due", head.seq, *next_seq)});
    }
  }
  next_seq = head.seq + 1;
  if (rows.size() == std::numeric_limits<EventId>::max()) {
    throw Error(ErrorCode::Unsupported, fmt::format("a run has more than {} events", rows.size()));
  }
  rows.push_back({.offset = offset,
                  .step = head.step,
                  .call = head.call,
                  .size = static_cast<std::uint32_t>(line.size()),
                  .name = names.intern(head.name),
                  .part = static_cast<std::uint32_t>(parts.size() - 1),
                  .kind = head.kind,
                  .is_tensor = head.is_tensor,
                  .has_nonfinite = head.has_nonfinite});
  account.add(head, names[rows.back().name], line, offset, parser);
}

// The text of a row's line, with room behind it for the parser; valid until the block's next use.
std::string_view Reader::Impl::line_of(const Row& row, Block& block) const {
  if (!block.covers(id, row)) {
    const Part& part = parts[row.part];
    const std::size_t size = std::max<std::size_t>(kBlockBytes, row.size);
    block.bytes.resize(size + simdjson::SIMDJSON_PADDING);
    block.reader = 0;
    block.size = part.file.is_open() ? part.file.read(row.offset, {block.bytes.data(), size})
                                     : ReadFile(part.path).read(row.offset, {block.bytes.data(), size});
    block.reader = id;
    block.part = row.part;
    block.offset = row.offset;
  }
  const std::size_t begin = row.offset - block.offset;
  const std::string_view line(block.bytes.data() + begin, std::min<std::size_t>(row.size, block.size - begin));
  if (line.size() != row.size || !has_right_sum(line)) {
    throw Error(ErrorCode::Corrupt, fmt::format("cannot read an event: the journal was changed at offset {}: {}",
                                                row.offset, parts[row.part].path.string()));
  }
  return line;
}

Event Reader::Impl::parse(EventId event) const {
  if (event >= rows.size()) {
    throw Error(ErrorCode::InvalidArgument, fmt::format("there is no event {}: the run has {}", event, rows.size()));
  }
  thread_local Block block;
  thread_local EventParser parser;
  const Row& row = rows[event];
  try {
    return parser.parse(line_of(row, block));
  } catch (const Error& error) {
    if (error.code() != ErrorCode::Corrupt) throw;
    throw Error(ErrorCode::Corrupt, fmt::format("cannot read an event at offset {}: {}: {}", row.offset, error.what(),
                                                parts[row.part].path.string()));
  }
}

Reader::Reader(const std::filesystem::path& path, ReaderOptions options) : impl_(std::make_unique<Impl>()) {
  static std::atomic<std::uint64_t> next_id{1};
  impl_->id = next_id++;
  impl_->path = resolve_run(path);
  impl_->read_run_json();
  const std::vector<WriterFolder> folders = writer_folders(impl_->path);
  for (const WriterFolder& folder : folders) impl_->read_writer(folder);
  impl_->find_missing_ranks();
  impl_->storage = std::make_shared<TensorStorage>(folders, impl_->run_file.is_ring, options.check_fingerprints);
}

Reader::~Reader() = default;
Reader::Reader(Reader&&) noexcept = default;
Reader& Reader::operator=(Reader&&) noexcept = default;

const std::filesystem::path& Reader::path() const noexcept { return impl_->path; }
std::string_view Reader::run_json() const noexcept { return impl_->run_file.text; }
Span<const WriterInfo> Reader::writers() const noexcept { return impl_->writers; }
Span<const Problem> Reader::problems() const noexcept { return impl_->problems; }
const std::vector<Loss>& Reader::losses() const noexcept { return impl_->losses; }
std::size_t Reader::event_count() const noexcept { return impl_->rows.size(); }
Event Reader::event(EventId id) const { return impl_->parse(id); }
EventKind Reader::kind(EventId id) const noexcept { return impl_->rows[id].kind; }
std::string_view Reader::name(EventId id) const noexcept { return impl_->names[impl_->rows[id].name]; }
std::int64_t Reader::step(EventId id) const noexcept { return impl_->rows[id].step; }
std::int64_t Reader::call(EventId id) const noexcept { return impl_->rows[id].call; }
std::size_t Reader::writer_index(EventId id) const noexcept { return impl_->parts[impl_->rows[id].part].writer; }
bool Reader::is_tensor(EventId id) const noexcept { return impl_->rows[id].is_tensor; }
bool Reader::has_nonfinite(EventId id) const noexcept { return impl_->rows[id].has_nonfinite; }

std::vector<EventId> Reader::find(const Query& query) const {
  std::vector<char> is_wanted(impl_->names.size(), query.name.empty());
  if (!query.name.empty()) {
    for (std::uint32_t i = 0; i < impl_->names.size(); ++i) is_wanted[i] = matches_glob(impl_->names[i], query.name);
  }
  std::vector<EventId> result;
  for (EventId id = 0; id < impl_->rows.size(); ++id) {
    const Row& row = impl_->rows[id];
    if (!is_wanted[row.name] || (query.step && row.step != *query.step) || (query.call && row.call != *query.call))
      continue;
    if (query.kind && row.kind != *query.kind) continue;
    if (query.rank && impl_->writers[impl_->parts[row.part].writer].rank != *query.rank) continue;
    result.push_back(id);
  }
  return result;
}

std::vector<std::string> Reader::names() const {
  std::vector<char> is_seen(impl_->names.size(), false);
  std::vector<std::string> result;
  for (const Row& row : impl_->rows) {
    if (is_seen[row.name] || !is_shown_by_name(row.kind)) continue;
    is_seen[row.name] = true;
    result.push_back(impl_->names[row.name]);
  }
  return result;
}

std::vector<std::int64_t> Reader::steps(std::string_view name) const {
  const auto wanted = impl_->names.find(name);
  if (!name.empty() && !wanted) return {};
  std::vector<std::int64_t> result;
  for (const Row& row : impl_->rows) {
    if (!is_of_a_step(row.kind) || (!name.empty() && row.name != *wanted)) continue;
    if (result.empty() || result.back() != row.step) result.push_back(row.step);
  }
  std::sort(result.begin(), result.end());
  result.erase(std::unique(result.begin(), result.end()), result.end());
  return result;
}

bool Reader::has_bytes(EventId id, const TensorRecord& record) const {
  return impl_->storage->has_bytes(writer_index(id), record);
}

TensorData Reader::tensor(EventId id) const {
  const Event event = impl_->parse(id);
  const TensorRecord* record = std::get_if<TensorRecord>(&event.value);
  if (record == nullptr) {
    throw Error(ErrorCode::InvalidArgument, fmt::format("'{}' at step {} is not a tensor", event.name, event.step));
  }
  return {impl_->storage->view(writer_index(id), *record, event), impl_->storage};
}

}  // namespace tenscope
