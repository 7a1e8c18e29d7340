#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <iterator>
#include <limits>
#include <set>
#include <unordered_map>

#include "kernels/parallel.hpp"
#include "kernels/sketch.hpp"
#include "store/event_parser.hpp"
#include "store/fetch.hpp"
#include "store/journal_reader.hpp"
#include "store/read_file.hpp"
#include "store/recorded_part.hpp"
#include "store/run_folder.hpp"
#include "store/shards.hpp"
#include "store/sources.hpp"
#include "store/tensor_storage.hpp"
#include "store/writer_reader.hpp"
#include "tenscope/error.hpp"
#include "tenscope/glob.hpp"
#include "tenscope/reader.hpp"

// Overview: opening reads every journal once (writer_reader.hpp), several writers at a time, and keeps a row per event:
// what queries ask for, and where its line stands. The rest of an event is parsed again from the journal when asked
// for. Nothing changes after the constructor but caches: the mappings of segments (TensorStorage, shared with the views
// given out) and, per thread, the last block of journal read.
namespace tenscope {

using namespace store;

namespace {

constexpr std::size_t kBlockBytes = 256u << 10;

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

// What makes two tensors the same, bit for bit.
struct Content {
  Fingerprint fingerprint;
  DType dtype{};
  std::vector<std::int64_t> shape;

  explicit Content(const TensorRecord& record)
      : fingerprint(record.fingerprint), dtype(record.dtype), shape(record.shape) {}
  friend bool operator==(const Content&, const Content&) = default;
};
struct ContentHash {
  std::size_t operator()(const Content& content) const noexcept { return content.fingerprint.low; }
};

bool is_shown_by_name(EventKind kind) { return kind == EventKind::Value || kind == EventKind::Change; }
bool is_of_a_step(EventKind kind) {
  return kind != EventKind::Step && kind != EventKind::Note && kind != EventKind::Dropped;
}

}  // namespace

struct Reader::Impl {
  fs::path path;
  Fetcher fetcher;
  RunFile run_file;
  std::vector<WriterInfo> writers;
  std::vector<Problem> problems;
  std::vector<Loss> losses;
  std::vector<JournalPart> parts;
  std::vector<std::size_t> writer_of_part;
  std::vector<Row> rows;               // by writer
  std::vector<std::size_t> first_row;  // of each writer
  NameTable names;
  std::vector<JournalPlace> ends;  // of each writer's journal
  ReaderOptions options;
  std::shared_ptr<TensorStorage> storage;
  std::uint64_t id = 0;  // tells the readers of a process apart
  const Reader* lender = nullptr;
  std::unordered_map<Content, EventId, ContentHash> lent;  // tensors of the lender that have bytes

  void read_run_json();
  void open(const Impl* before);
  void read_writers(const std::vector<WriterFolder>& folders, const Impl* before);
  void add(WriterContent content, const Impl* before);
  std::optional<std::size_t> find_writer(std::string_view folder) const;
  void find_missing_ranks(const std::vector<WriterFolder>& folders);
  std::string_view line_of(const Row& row, Block& block) const;
  Event parse(EventId event) const;
  std::optional<EventId> event_with_seq(std::size_t writer, std::uint64_t seq) const;
  std::optional<EventId> lent_for(const TensorRecord& record) const;
};

void Reader::Impl::read_run_json() {
  try {
    run_file = read_run_file(path);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::Version) throw;
    std::string reason = error.what();
    if (const std::string place = ": " + (path / kRunFile).string(); reason.ends_with(place))
      reason.resize(reason.size() - place.size());  // a problem says it itself
    problems.push_back({path / kRunFile, 0, reason});
    try {
      run_file.text = read_text(path / kRunFile, 1u << 20);
    } catch (const Error&) {
      run_file.text.clear();
    }
  }
}

// On several threads; taken over in the order of the folders, so that everything is as if one had read them.
void Reader::Impl::read_writers(const std::vector<WriterFolder>& folders, const Impl* before) {
  if (folders.empty()) return;
  const std::size_t most_files = most_open_files();
  const std::size_t kept_open = most_files / folders.size();
  const int threads = kernels::worker_count(folders.size(), most_files);
  kernels::make_in_order(
      folders.size(), threads,
      [&](std::size_t i) {
        const auto known = before != nullptr ? before->find_writer(folders[i].path.filename().string()) : std::nullopt;
        return read_writer(folders[i], fetcher, run_file.is_ring, kept_open, known ? &before->ends[*known] : nullptr);
      },
      [&](WriterContent content) { add(std::move(content), before); });
}

std::optional<std::size_t> Reader::Impl::find_writer(std::string_view folder) const {
  const auto found = std::ranges::find(writers, folder, &WriterInfo::folder);
  return found == writers.end() ? std::nullopt : std::optional(static_cast<std::size_t>(found - writers.begin()));
}

void Reader::Impl::add(WriterContent content, const Impl* before) {
  constexpr std::size_t kMostRows = std::numeric_limits<EventId>::max();
  std::move(content.problems.begin(), content.problems.end(), std::back_inserter(problems));
  std::move(content.losses.begin(), content.losses.end(), std::back_inserter(losses));
  if (content.rows.size() > kMostRows - rows.size()) {
    problems.push_back({path / content.info.folder, 0, fmt::format("a run has more than {} events", kMostRows)});
    content.rows.resize(kMostRows - rows.size());
    content.info.event_count = content.rows.size();
  }
  std::vector<std::uint32_t> ids(content.names.size());
  for (std::uint32_t i = 0; i < ids.size(); ++i) ids[i] = names.intern(content.names[i]);
  const auto first_part = static_cast<std::uint32_t>(parts.size());
  std::move(content.parts.begin(), content.parts.end(), std::back_inserter(parts));
  writer_of_part.resize(parts.size(), writers.size());
  first_row.push_back(rows.size());
  if (content.goes_on) {  // behind what was read before, whose names have the same numbers here
    const std::size_t writer = *before->find_writer(content.info.folder);
    const auto first = before->rows.begin() + static_cast<std::ptrdiff_t>(before->first_row[writer]);
    const auto count = static_cast<std::ptrdiff_t>(before->writers[writer].event_count);
    content.info.event_count += static_cast<std::uint64_t>(count);
    rows.reserve(rows.size() + content.info.event_count);
    std::transform(first, first + count, std::back_inserter(rows), [&](Row row) {
      row.part = first_part;
      return row;
    });
  }
  for (Row& row : content.rows) {
    row.name = ids[row.name];
    row.part += first_part;
  }
  if (rows.empty())
    rows = std::move(content.rows);  // most runs have one writer
  else
    rows.insert(rows.end(), content.rows.begin(), content.rows.end());
  writers.push_back(std::move(content.info));
  ends.push_back(std::move(content.end));
}

// A rank that should have taken part and has no folder: it never opened its run, or its folder was lost.
void Reader::Impl::find_missing_ranks(const std::vector<WriterFolder>& folders) {
  constexpr std::size_t kMostTold = 16;
  std::set<int> ranks;
  for (const WriterFolder& folder : folders) ranks.insert(folder.rank);
  if (ranks.empty()) return;
  std::vector<int> missing;
  for (int rank = 0; rank < run_file.world_size && missing.size() < kMostTold; ++rank)
    if (!ranks.contains(rank)) missing.push_back(rank);
  const auto is_running = [](const WriterFolder& folder) { return is_being_written(folder.path); };
  if (missing.empty() || std::ranges::any_of(folders, is_running)) return;  // they may come yet
  for (const int rank : missing) {
    const std::string folder = fmt::format("rank-{}", rank);
    losses.push_back({.writer = folder,
                      .reason = fmt::format("there is no such folder, but {} ranks took part", run_file.world_size)});
    problems.push_back({path / folder, 0, to_string(losses.back()), ProblemKind::Loss});
  }
}

// The text of a row's line, with room behind it for the parser; valid until the block's next use.
std::string_view Reader::Impl::line_of(const Row& row, Block& block) const {
  if (!block.covers(id, row)) {
    const std::size_t size = std::max<std::size_t>(kBlockBytes, row.size);
    block.bytes.resize(size + simdjson::SIMDJSON_PADDING);
    block.reader = 0;
    block.size = parts[row.part].read(row.offset, {block.bytes.data(), size});
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

void Reader::Impl::open(const Impl* before) {
  static std::atomic<std::uint64_t> next_id{1};
  id = next_id++;
  fetcher = Fetcher(path);
  read_run_json();
  const std::vector<WriterFolder> all = writer_folders(path);
  const std::set<int> wanted(options.ranks.begin(), options.ranks.end());
  std::vector<WriterFolder> folders;
  std::ranges::copy_if(all, std::back_inserter(folders),
                       [&](const WriterFolder& folder) { return wanted.empty() || wanted.contains(folder.rank); });
  read_writers(folders, before);
  find_missing_ranks(all);
  storage = std::make_shared<TensorStorage>(folders, fetcher, run_file.is_ring, options.check_fingerprints);
}

Reader::Reader(const std::filesystem::path& path, ReaderOptions options) : impl_(std::make_unique<Impl>()) {
  impl_->path = resolve_run(path);
  impl_->options = std::move(options);
  impl_->open(nullptr);
}

Reader::Reader(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Reader Reader::reopened() const {
  auto impl = std::make_unique<Impl>(Impl{.path = impl_->path, .names = impl_->names, .options = impl_->options});
  impl->open(impl_.get());
  return Reader(std::move(impl));
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
std::size_t Reader::writer_index(EventId id) const noexcept { return impl_->writer_of_part[impl_->rows[id].part]; }
EventId Reader::first_event(std::size_t writer) const noexcept {
  return static_cast<EventId>(impl_->first_row[writer]);
}
bool Reader::is_tensor(EventId id) const noexcept { return impl_->rows[id].is_tensor; }
bool Reader::has_nonfinite(EventId id) const noexcept { return impl_->rows[id].has_nonfinite; }

std::vector<EventId> Reader::find(const Query& query) const {
  std::vector<char> is_wanted(impl_->names.size(), query.name.empty());
  if (!query.name.empty()) {
    for (std::uint32_t i = 0; i < impl_->names.size(); ++i) is_wanted[i] = matches_glob(impl_->names[i], query.name);
  }
  std::vector<EventId> result;
  for (std::size_t writer = 0; writer < impl_->writers.size(); ++writer) {
    if (query.rank && impl_->writers[writer].rank != *query.rank) continue;
    const std::size_t end = impl_->first_row[writer] + impl_->writers[writer].event_count;
    for (std::size_t id = impl_->first_row[writer]; id < end; ++id) {
      const Row& row = impl_->rows[id];
      if (!is_wanted[row.name] || (query.step && row.step != *query.step) || (query.call && row.call != *query.call))
        continue;
      if (!query.kind || row.kind == *query.kind) result.push_back(static_cast<EventId>(id));
    }
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

void Reader::borrow_from(const Reader& lender) {
  impl_->lender = &lender;
  for (EventId id = 0; id < lender.event_count(); ++id) {
    if (!lender.is_tensor(id)) continue;
    const Event event = lender.event(id);
    const auto& record = std::get<TensorRecord>(event.value);
    if (lender.has_bytes(id, record)) impl_->lent.try_emplace(Content(record), id);
  }
}

std::optional<EventId> Reader::Impl::lent_for(const TensorRecord& record) const {
  if (lent.empty()) return std::nullopt;
  const auto found = lent.find(Content(record));
  return found == lent.end() ? std::nullopt : std::optional(found->second);
}

bool Reader::has_bytes(EventId id, const TensorRecord& record) const {
  return impl_->storage->has_bytes(writer_index(id), record) || impl_->lent_for(record).has_value();
}

std::optional<EventId> Reader::Impl::event_with_seq(std::size_t writer, std::uint64_t seq) const {
  auto low = static_cast<EventId>(first_row[writer]);
  auto high = static_cast<EventId>(low + writers[writer].event_count);
  const std::uint64_t first = low < high ? parse(low).seq : seq;
  if (seq < first) return std::nullopt;
  // The first guess is right where no line is missing.
  for (auto middle = static_cast<EventId>(std::min<std::uint64_t>(low + (seq - first), high - 1)); low < high;
       middle = low + (high - low) / 2) {
    const std::uint64_t found = parse(middle).seq;
    if (found == seq) return middle;
    if (found < seq)
      low = middle + 1;
    else
      high = middle;
  }
  return std::nullopt;
}

std::optional<Sketch> Reader::sketch(EventId id) const {
  const Event event = impl_->parse(id);
  const TensorRecord* record = std::get_if<TensorRecord>(&event.value);
  if (record == nullptr) return std::nullopt;
  if (record->sketch) return *record->sketch;
  if (record->sketch_of) {
    const auto other = impl_->event_with_seq(writer_index(id), *record->sketch_of);
    const Event first = other ? impl_->parse(*other) : Event();
    const TensorRecord* told = std::get_if<TensorRecord>(&first.value);
    if (told != nullptr && told->sketch && told->fingerprint == record->fingerprint) return *told->sketch;
  }
  const std::optional<Shard> shard = parse_shard(event.meta);
  if (!shard && record->stats.count == 1) {
    Sketch only;
    only.sums[0] = std::isfinite(record->stats.min) ? record->stats.min : 0;
    return only;
  }
  if (!has_bytes(id, *record)) return std::nullopt;
  const TensorData data = tensor(id);
  const RecordedPart part(shard, data.view);
  return part.is_sketched() ? std::optional(kernels::sketch(data.view, part.part())) : std::nullopt;
}

std::vector<SourceFile> Reader::sources() const {
  std::vector<SourceFile> result;
  std::set<std::pair<std::string, std::string>> known;
  for (const EventId id : find({.name = std::string(kSourceNote), .kind = EventKind::Note})) {
    auto source = parse_source(impl_->parse(id).meta);
    if (!source || !known.emplace(source->file, source->fingerprint).second) continue;
    source->event = id;
    result.push_back(std::move(*source));
  }
  return result;
}

std::string Reader::source_text(std::string_view fingerprint) const {
  return read_source(impl_->path, impl_->fetcher, fingerprint);
}

void Reader::release(std::size_t writer) const noexcept { impl_->storage->release(writer); }

TensorData Reader::tensor(EventId id) const {
  const Event event = impl_->parse(id);
  const TensorRecord* record = std::get_if<TensorRecord>(&event.value);
  if (record == nullptr) {
    throw Error(ErrorCode::InvalidArgument, fmt::format("'{}' at step {} is not a tensor", event.name, event.step));
  }
  if (!record->has_bytes())
    if (const auto lent = impl_->lent_for(*record)) return impl_->lender->tensor(*lent);
  return {impl_->storage->view(writer_index(id), *record, event), impl_->storage};
}

}  // namespace tenscope
