// Overview. A trainer computes a padded batch, [sequences, tokens, ...]; an inference engine the same tokens packed
// behind each other, requests in another order, or a few in each of many steps. Nothing but the rows is the same. Key
// columns that both recorded say which row is which (RowTable), the shapes and values which axes of a tensor are its
// rows (RowMatch). Both runs are written anew with the rows that both have, in one order, and these are compared like
// any two runs: by names, modules or content. What is found is then told as the runs themselves have it.
#include "compare/rows.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <optional>

#include "compare/double_reader.hpp"
#include "compare/row_match.hpp"
#include "compare/row_words.hpp"
#include "store/sources.hpp"
#include "tenscope/error.hpp"
#include "tenscope/run.hpp"

namespace tenscope::compare {
namespace {

namespace fs = std::filesystem;

EventInfo info_of(const Event& event, std::int64_t call) {
  return {.kind = event.kind,
          .name = event.name,
          .step = 0,
          .call = call,
          .site = event.site,
          .scope = event.scope,
          .io = event.io_word(),
          .phase = event.phase_word(),
          .root = event.root,
          .cls = event.cls,
          .task = {},
          .meta = event.meta,
          .file = {}};
}

// A folder that is deleted with what it holds.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (fs::temp_directory_path() / "tenscope-rows-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr)
      throw Error(ErrorCode::Io, fmt::format("cannot make a folder for the rows: {}", pattern));
    path_ = pattern;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

// "request" is the same in both runs, "request=req_id" has another name in the second.
std::vector<std::string> columns_of(const std::vector<std::string>& rows, int side) {
  std::vector<std::string> columns;
  for (const std::string& row : rows) {
    const auto equals = row.find('=');
    const std::string name = equals == std::string::npos ? row
                             : side == 0                 ? row.substr(0, equals)
                                                         : row.substr(equals + 1);
    if (name.empty())
      throw Error(ErrorCode::InvalidArgument,
                  "the rows' keys are names of recorded integers with commas between them, 'request,position', but one "
                  "of them is empty");
    columns.push_back(name);
  }
  return columns;
}

// What the calls of modules refer to stands before them.
void keep_sources(const Reader& reader, Run& run, const fs::path& folder) {
  for (EventId id = 0; id < reader.event_count(); ++id) {
    if (reader.kind(id) != EventKind::Note || reader.name(id) != kSourceNote) continue;
    const Event note = reader.event(id);
    const auto source = store::parse_source(note.meta);
    if (!source) continue;
    run.record(info_of(note, -1), note.value);
    if (source->fingerprint.empty()) continue;
    const fs::path path = folder / store::kSourcesFolder / (source->fingerprint + ".py");
    std::error_code ignored;
    fs::create_directories(path.parent_path(), ignored);
    if (fs::exists(path, ignored)) continue;
    try {
      std::ofstream(path, std::ios::binary) << reader.source_text(source->fingerprint);
    } catch (const Error&) {  // its text is missing or damaged: that is said where somebody asks for it
    }
  }
}

// Attributes that were changed on the way have no place in a run in which everything is one step.
void leave_changes_out(RunDiff& diff) {
  const auto is_later = [](const DiffAttribute& one) { return one.step >= 0; };
  diff.attribute_count -= std::erase_if(diff.attributes, is_later);
  for (DiffOrigin& origin : diff.origins)
    if (origin.code) std::erase_if(origin.code->attributes, is_later);
  if (diff.first_divergence && diff.first_divergence->code)
    std::erase_if(diff.first_divergence->code->attributes, is_later);
}

// Writes a run anew: each tensor and call once, at step 0; tensors of rows as [rows, ...].
void write_run(const RowMatch& match, int side, const fs::path& folder, const std::string& name) {
  Run run(folder, {.name = name, .strict = true, .on_warning = {}});
  const Reader& reader = match.table(side).reader();
  keep_sources(reader, run, folder / name);
  for (std::size_t i = 0; i < match.tensors(side).size(); ++i) {
    const RowTensor& tensor = match.tensors(side)[i];
    const RowPlan& plan = match.plan(side, i);
    const EventInfo info = info_of(tensor.event, tensor.call);
    const auto* record = std::get_if<TensorRecord>(&tensor.event.value);
    if (tensor.event.kind != EventKind::Value) {
      run.record(info, EventValue());
    } else if (plan.use == RowPlan::Use::Whole) {
      if (record == nullptr) {
        run.record(info, tensor.event.value);
      } else if (reader.has_bytes(tensor.first, *record)) {
        run.record(info, reader.tensor(tensor.first).view);
      } else if (const auto partner = match.partner(side, i)) {  // by its fingerprint it is equal to this one
        const Reader& other = match.table(1 - side).reader();
        const RowTensor& equal = match.tensors(1 - side)[*partner];
        if (other.has_bytes(equal.first, std::get<TensorRecord>(equal.event.value)))
          run.record(info, other.tensor(equal.first).view);
      }
    } else if (plan.use == RowPlan::Use::Rows) {
      const RowAxes& way = tensor.ways[plan.way];
      const std::vector<RowPlace>& places = plan.pairs->places[static_cast<std::size_t>(side)];
      const std::vector<std::byte> bytes = gather_rows(match.table(side), tensor, way, places);
      const Shape shape = written_shape(match, {side, i});
      run.record(info, TensorView{.data = bytes.data(), .dtype = dtype_of_rows(tensor, way), .shape = shape});
    }
  }
  for (EventId id = 0; id < reader.event_count(); ++id) {  // settings, and what was not seen
    if (reader.kind(id) != EventKind::Note) continue;
    const Event note = reader.event(id);
    if (note.phase == Phase::Init || note.name == kNotSeenNote) run.record(info_of(note, -1), note.value);
  }
  run.close();
}

void note_failures(const Reader& reader, int side, RunDiff& diff) {
  for (const WriterInfo& writer : reader.writers()) {
    if (!writer.failed()) continue;
    const std::string message = writer.exception_message.empty() ? "" : ": " + writer.exception_message;
    diff.notes.push_back({.kind = DiffNote::Kind::Failed, .side = side, .a = writer.exception + message});
  }
}

std::vector<double> numbers_of(const RowMatch& match, RowTensorId id) {
  const RowTensor& tensor = match.tensors(id.side)[id.index];
  const RowPlan& plan = match.plan(id.side, id.index);
  const RowAxes& way = tensor.ways[plan.way];
  const std::vector<std::byte> bytes =
      gather_rows(match.table(id.side), tensor, way, plan.pairs->places[static_cast<std::size_t>(id.side)]);
  const Shape shape = written_shape(match, id);
  const DoubleReader reader({.data = bytes.data(), .dtype = dtype_of_rows(tensor, way), .shape = shape});
  std::vector<double> numbers(static_cast<std::size_t>(reader.count()));
  for (std::int64_t begin = 0; begin < reader.count(); begin += DoubleReader::kBlock)
    reader.read(begin, std::min(DoubleReader::kBlock, reader.count() - begin), numbers.data() + begin);
  return numbers;
}

// Tensors that have one float in each row, in both runs.
std::vector<DiffRowTable> tables_of(const RowMatch& match, const RowNames& names, const RunDiff& diff) {
  std::map<std::string, std::string> renamed;
  for (const DiffContentPair& pair : diff.content_pairs) renamed.emplace(pair.a, pair.b);
  const auto has_numbers = [&](RowTensorId id) {
    const RowTensor& tensor = match.tensors(id.side)[id.index];
    const RowPlan& plan = match.plan(id.side, id.index);
    if (plan.use != RowPlan::Use::Rows) return false;
    const RowAxes& way = tensor.ways[plan.way];
    return way.rest.empty() && kind_of(dtype_of_rows(tensor, way)) == DTypeKind::Float;
  };
  std::vector<DiffRowTable> tables;
  for (std::size_t i = 0; i < match.tensors(0).size(); ++i) {
    const RowTensor& tensor = match.tensors(0)[i];
    if (tensor.event.kind != EventKind::Value || !has_numbers({0, i})) continue;
    const auto other_name = renamed.find(tensor.event.name);
    const auto other = names.find(1, other_name == renamed.end() ? tensor.event.name : other_name->second, tensor.call);
    if (!other || !has_numbers(*other)) continue;
    const RowPairs &rows = *match.plan(0, i).pairs, &other_rows = *match.plan(1, other->index).pairs;
    if (rows.keys != other_rows.keys) continue;
    const std::vector<double> a = numbers_of(match, {0, i}), b = numbers_of(match, *other);
    const std::string call = tensor.call == 0 ? "" : fmt::format(" (call {})", tensor.call);
    DiffRowTable table{
        .a = tensor.event.name + call, .b = match.tensors(1)[other->index].event.name + call, .rows = {}};
    for (std::size_t row = 0; row < a.size(); ++row) table.rows.push_back({*rows.keys[row], a[row], b[row]});
    tables.push_back(std::move(table));
  }
  return tables;
}

DiffRows describe_rows(const RowMatch& match, std::vector<std::string> keys) {
  DiffRows rows{.keys = std::move(keys),
                .first = match.row_count(0),
                .second = match.row_count(1),
                .common = match.common_rows(),
                .padding_first = match.table(0).padding(),
                .padding_second = match.table(1).padding(),
                .duplicates = match.uneven_rows(),
                .takes_first = match.takes_first(),
                .unplaced = match.table(0).unplaced() + match.table(1).unplaced(),
                .left_out_a = {},
                .left_out_b = {},
                .ambiguous_a = {},
                .ambiguous_b = {},
                .partial = match.partial(),
                .as_they_are = match.equal_as_they_are(),
                .are_keys_doubtful = match.are_keys_doubtful(),
                .tables = {}};
  for (const int side : {0, 1}) {
    for (std::size_t i = 0; i < match.tensors(side).size(); ++i) {
      const RowTensor& tensor = match.tensors(side)[i];
      const RowPlan& plan = match.plan(side, i);
      if (tensor.event.kind != EventKind::Value) continue;
      if (plan.use == RowPlan::Use::LeftOut)
        (side == 0 ? rows.left_out_a : rows.left_out_b).push_back(tensor.event.name);
      if (plan.use == RowPlan::Use::Ambiguous)
        (side == 0 ? rows.ambiguous_a : rows.ambiguous_b).push_back(tensor.event.name);
    }
  }
  return rows;
}

// Was something left out that both runs have, or may have under other names?
bool is_something_left_out(const RowMatch& match) {
  bool is_in[2] = {false, false};
  for (const int side : {0, 1}) {
    for (std::size_t i = 0; i < match.tensors(side).size(); ++i) {
      const RowPlan::Use use = match.plan(side, i).use;
      if (match.tensors(side)[i].event.kind != EventKind::Value) continue;
      if (use == RowPlan::Use::Rows || use == RowPlan::Use::Whole) continue;
      if (match.partner(side, i)) return true;
      is_in[side] = true;
    }
  }
  return is_in[0] && is_in[1];
}

}  // namespace

RunDiff diff_by_rows(const Reader& reader_a, const Reader& reader_b, const RunDiffOptions& options) {
  const std::vector<std::string> columns_a = columns_of(options.rows, 0), columns_b = columns_of(options.rows, 1);
  RowTable table_a(reader_a, columns_a), table_b(reader_b, columns_b);
  std::vector<std::string> keys = columns_a;
  const bool is_by_tokens =
      (table_a.has_sequences() || table_b.has_sequences()) && !(table_a.has_unique_keys() && table_b.has_unique_keys());
  if (is_by_tokens) {
    keys = {"sequence", "place"};
    table_a.has_sequences() ? table_a.take_tokens_for_keys(table_b) : table_b.take_tokens_for_keys(table_a);
  }
  const RowMatch match(table_a, table_b, options.map);
  if (match.common_rows() == 0)
    throw Error(ErrorCode::InvalidArgument,
                fmt::format("the runs have no row in common by {}: {} rows in the first, {} in the second",
                            fmt::join(columns_a, ", "), match.row_count(0), match.row_count(1)));
  const TemporaryFolder folder;
  write_run(match, 0, folder.path(), "a");
  write_run(match, 1, folder.path(), "b");
  RunDiffOptions others = options;
  others.rows.clear();
  others.on_pair = {};  // its events are those of the rows
  RunDiff diff = diff_runs(folder.path() / "a", folder.path() / "b", others);
  diff.a = reader_a.path().string();
  diff.b = reader_b.path().string();
  leave_changes_out(diff);
  note_failures(reader_a, 0, diff);
  note_failures(reader_b, 1, diff);
  const RowNames names(match, keys);
  names.tell(diff);
  DiffRows rows = describe_rows(match, keys);
  rows.tables = tables_of(match, names, diff);
  if (diff.within_tolerance() && (is_something_left_out(match) || rows.unplaced > 0))
    diff.verdict = DiffVerdict::Unknown;
  else if (diff.equal() && !rows.is_complete())
    diff.verdict = DiffVerdict::Noise;
  diff.rows = std::move(rows);
  return diff;
}

}  // namespace tenscope::compare
