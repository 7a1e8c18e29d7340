// Overview. A trainer computes a padded batch, [sequences, tokens, ...]; an inference engine the same tokens packed
// behind each other, requests in another order, or a few in each of many steps. Nothing but the rows is the same. Key
// columns that both recorded say which row is which. Both runs are written anew with the rows that both have, in one
// order, and these are compared like any two runs: by names, modules or content.
#include "compare/rows.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <optional>
#include <set>
#include <tuple>

#include "compare/double_reader.hpp"
#include "compare/shape.hpp"
#include "tenscope/error.hpp"

namespace tenscope::compare {
namespace {

namespace fs = std::filesystem;

bool is_integer(DType dtype) {
  return kind_of(dtype) == DTypeKind::SignedInt || kind_of(dtype) == DTypeKind::UnsignedInt;
}

template <class T>
void append(const TensorView& view, std::vector<std::int64_t>& numbers) {
  const auto* values = static_cast<const T*>(view.data);
  for (std::int64_t i = 0; i < element_count(view.shape); ++i) numbers.push_back(static_cast<std::int64_t>(values[i]));
}

std::vector<std::int64_t> integers_of(const TensorView& view) {
  std::vector<std::int64_t> numbers;
  switch (view.dtype) {
    case DType::I8:
      append<std::int8_t>(view, numbers);
      break;
    case DType::I16:
      append<std::int16_t>(view, numbers);
      break;
    case DType::I32:
      append<std::int32_t>(view, numbers);
      break;
    case DType::U8:
      append<std::uint8_t>(view, numbers);
      break;
    case DType::U16:
      append<std::uint16_t>(view, numbers);
      break;
    case DType::U32:
      append<std::uint32_t>(view, numbers);
      break;
    default:
      append<std::int64_t>(view, numbers);
  }
  return numbers;
}

std::vector<double> doubles_of(const TensorView& view) {
  const DoubleReader reader(view);
  std::vector<double> numbers(static_cast<std::size_t>(reader.count()));
  for (std::int64_t begin = 0; begin < reader.count(); begin += DoubleReader::kBlock)
    reader.read(begin, std::min(DoubleReader::kBlock, reader.count() - begin), numbers.data() + begin);
  return numbers;
}

// Which axes of a tensor are those of the rows: the key columns' axes in their order, or one axis with all rows. The
// leading ones are preferred. Axes of size 1 of the columns need none.
std::optional<std::vector<std::size_t>> row_axes(const Shape& shape, const Shape& columns) {
  const auto axes_of = [&](const Shape& wanted) -> std::optional<std::vector<std::size_t>> {
    std::vector<std::size_t> axes;
    std::size_t axis = 0;
    for (const std::int64_t size : wanted) {
      while (axis < shape.size() && shape[axis] != size) ++axis;
      if (axis == shape.size()) return std::nullopt;
      axes.push_back(axis++);
    }
    return axes;
  };
  const Shape wanted = without_ones(columns);
  const std::int64_t rows = std::accumulate(columns.begin(), columns.end(), std::int64_t{1}, std::multiplies<>());
  const auto as_columns = axes_of(wanted);
  const auto as_one = axes_of({rows});
  if (!as_columns || (as_one && as_one->front() == 0)) return as_one ? as_one : as_columns;
  return as_columns;
}

// Copies one row of a tensor in C order to `out`, and returns the end of it.
std::byte* copy_row(const TensorView& view, const std::vector<std::size_t>& axes, std::int64_t row, std::byte* out) {
  const std::size_t width = item_size(view.dtype);
  Shape strides = c_strides(Shape(view.shape.begin(), view.shape.end()));
  for (std::int64_t& stride : strides) stride *= static_cast<std::int64_t>(width);
  const auto* from = static_cast<const std::byte*>(view.data);
  for (std::size_t k = axes.size(); k-- > 0;) {
    from += row % view.shape[axes[k]] * strides[axes[k]];
    row /= view.shape[axes[k]];
  }
  std::vector<std::size_t> rest;
  for (std::size_t axis = 0; axis < view.shape.size(); ++axis)
    if (std::ranges::find(axes, axis) == axes.end()) rest.push_back(axis);
  std::size_t run = width;  // bytes that lie together
  while (!rest.empty() && strides[rest.back()] == static_cast<std::int64_t>(run)) {
    run *= static_cast<std::size_t>(view.shape[rest.back()]);
    rest.pop_back();
  }
  Shape index(rest.size(), 0);
  while (true) {
    std::memcpy(out, from, run);
    out += run;
    std::size_t k = rest.size();
    while (k > 0) {
      from += strides[rest[k - 1]];
      if (++index[k - 1] < view.shape[rest[k - 1]]) break;
      from -= strides[rest[k - 1]] * view.shape[rest[k - 1]];
      index[--k] = 0;
    }
    if (k == 0) return out;
  }
}

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

// A prefix of tokens, as a number that stands for it.
class TokenPrefixes {
 public:
  // The prefix that is `token` longer; nothing where it is not known and `may_add` is false.
  std::optional<std::int64_t> longer(std::int64_t prefix, std::int64_t token, bool may_add) {
    if (!may_add) {
      const auto found = next_.find({prefix, token});
      return found == next_.end() ? std::nullopt : std::optional(found->second);
    }
    return next_.try_emplace({prefix, token}, static_cast<std::int64_t>(next_.size()) + 1).first->second;
  }

 private:
  std::map<std::pair<std::int64_t, std::int64_t>, std::int64_t> next_;  // 0 is the empty prefix
};

}  // namespace

struct RowTable::Logical {
  EventId first = 0;
  std::int64_t call = 0;
  std::map<Batch, EventId> events;
};

RowTable::RowTable(const Reader& reader, const std::vector<std::string>& columns) : reader_(reader), columns_(columns) {
  batch_of_ = batches_of_events();
  for (std::size_t k = 0; k < columns.size(); ++k) {
    for (const EventId id : reader.find({.name = columns[k]})) {
      const Event event = reader.event(id);
      if (event.kind != EventKind::Value || event.name != columns[k]) continue;
      Shape shape;
      std::vector<std::int64_t> values;
      if (const auto* number = std::get_if<std::int64_t>(&event.value)) {
        values = {*number};
      } else if (const auto* record = std::get_if<TensorRecord>(&event.value); record && is_integer(record->dtype)) {
        const TensorData data = reader.tensor(id);
        shape = record->shape;
        values = integers_of(data.view);
      } else {
        throw Error(ErrorCode::InvalidArgument,
                    fmt::format("the rows' key {} holds no integers in {}", columns[k], reader.path().string()));
      }
      std::vector<std::vector<std::int64_t>>& of_batch = numbers_[batch_of_[id]];
      const auto [known, is_new] = shapes_.try_emplace(batch_of_[id], shape);
      if (!is_new && known->second != shape)
        throw Error(
            ErrorCode::InvalidArgument,
            fmt::format("the rows' keys {} have different shapes in {}: [{}] and [{}]", fmt::join(columns, ", "),
                        reader.path().string(), fmt::join(known->second, ", "), fmt::join(shape, ", ")));
      if (of_batch.size() == k) of_batch.push_back(std::move(values));
    }
  }
  place_rows();
  if (places_.empty())
    throw Error(ErrorCode::NotFound, fmt::format("{} has no integers called {}: record them with each batch",
                                                 reader.path().string(), fmt::join(columns, ", ")));
}

// The n-th row of a key goes with the n-th of the other run.
void RowTable::place_rows() {
  std::map<RowKey, std::int64_t> seen;
  for (const auto& [batch, of_columns] : numbers_) {
    if (of_columns.size() != columns_.size())
      throw Error(ErrorCode::NotFound, fmt::format("{} has no integers called {} beside the other keys",
                                                   reader_.path().string(), columns_[of_columns.size()]));
    for (std::size_t row = 0; row < of_columns.front().size(); ++row) {
      RowKey key;
      for (const std::vector<std::int64_t>& column : of_columns) key.push_back(column[row]);
      if (std::ranges::any_of(key, [](std::int64_t number) { return number < 0; })) continue;
      key.push_back(seen[key]++);
      places_.emplace(std::move(key), Place{batch, static_cast<std::int64_t>(row)});
    }
  }
}

bool RowTable::has_sequences() const {
  return columns_.size() == 1 && std::ranges::any_of(shapes_, [](const auto& entry) {
           return std::ranges::count_if(entry.second, [](std::int64_t size) { return size != 1; }) > 1;
         });
}

void RowTable::take_tokens_for_keys(RowTable& other) {
  TokenPrefixes prefixes;
  std::map<std::int64_t, RowKey> keys;  // by prefix: sequence and position
  places_.clear();
  std::int64_t sequence = 0;
  for (const auto& [batch, of_columns] : numbers_) {
    const std::vector<std::int64_t>& tokens = of_columns.front();
    const std::int64_t length = shapes_.at(batch).empty() ? 1 : shapes_.at(batch).back();
    for (std::int64_t row = 0, prefix = 0; row < std::ssize(tokens); ++row) {
      if (row % length == 0) prefix = 0, sequence += row > 0 ? 1 : 0;
      prefix = *prefixes.longer(prefix, tokens[static_cast<std::size_t>(row)], true);
      const auto [key, is_new] = keys.try_emplace(prefix, RowKey{sequence, row % length, 0});
      is_new ? static_cast<void>(places_.emplace(key->second, Place{batch, row})) : static_cast<void>(++unplaced_);
    }
    ++sequence;
  }
  other.places_.clear();
  for (const auto& [batch, of_columns] : other.numbers_) {
    const std::vector<std::int64_t>& tokens = of_columns.front();
    const Shape& shape = other.shapes_.at(batch);
    const std::int64_t length = other.has_sequences() && !shape.empty() ? shape.back() : std::ssize(tokens);
    for (std::int64_t row = 0, prefix = 0; row < std::ssize(tokens); ++row) {
      const std::int64_t token = tokens[static_cast<std::size_t>(row)];
      if (row % length == 0) prefix = 0;
      auto next = prefixes.longer(prefix, token, false);
      if (!next) next = prefixes.longer(0, token, false);  // another sequence begins
      prefix = next.value_or(0);
      const bool is_placed = next && other.places_.try_emplace(keys.at(*next), Place{batch, row}).second;
      other.unplaced_ += is_placed ? 0 : 1;
    }
  }
}

// A batch is a step, or, where columns are recorded several times in one, what follows each recording of the first.
std::vector<RowTable::Batch> RowTable::batches_of_events() const {
  std::set<std::pair<std::size_t, std::int64_t>> steps;
  bool is_by_step = true;
  const auto is_column = [&](EventId id) {
    return reader_.kind(id) == EventKind::Value && reader_.name(id) == columns_.front();
  };
  for (EventId id = 0; id < reader_.event_count(); ++id)
    if (is_column(id)) is_by_step &= steps.emplace(reader_.writer_index(id), reader_.step(id)).second;
  std::vector<Batch> batches;
  std::map<std::size_t, std::int64_t> recorded;  // by writer
  for (EventId id = 0; id < reader_.event_count(); ++id) {
    const std::size_t writer = reader_.writer_index(id);
    if (is_column(id)) ++recorded[writer];
    batches.emplace_back(writer, is_by_step ? reader_.step(id) : recorded[writer]);
  }
  return batches;
}

std::vector<RowKey> RowTable::keys_in(const RowTable& other) const {
  std::vector<RowKey> keys;
  for (const auto& [key, place] : places_)
    if (other.places_.contains(key)) keys.push_back(key);
  return keys;
}

std::size_t RowTable::repeated_beyond(const RowTable& other) const {
  return static_cast<std::size_t>(std::ranges::count_if(places_, [&](const auto& entry) {
    RowKey first = entry.first;
    first.back() = 0;
    return entry.first.back() > 0 && !other.places_.contains(entry.first) && other.places_.contains(first);
  }));
}

std::vector<RowTable::Logical> RowTable::logical_events() const {
  using Name = std::tuple<std::string, EventKind, Io, Phase, std::string>;
  std::map<std::pair<Batch, Name>, std::int64_t> seen;  // in its batch
  std::map<std::pair<Name, std::int64_t>, std::size_t> known;
  std::vector<Logical> logical;
  for (EventId id = 0; id < reader_.event_count(); ++id) {
    const EventKind kind = reader_.kind(id);
    if (kind != EventKind::Value && kind != EventKind::Enter && kind != EventKind::Exit) continue;
    const Event event = reader_.event(id);
    const Name name{event.name, kind, event.io, event.phase, event.root};
    const std::int64_t call = seen[{batch_of_[id], name}]++;
    const auto [place, is_new] = known.try_emplace({name, call}, logical.size());
    if (is_new) logical.push_back({.first = id, .call = call, .events = {}});
    logical[place->second].events.emplace(batch_of_[id], id);
  }
  return logical;
}

RowTable::Written RowTable::write(const std::vector<RowKey>& keys, Run& run) const {
  Written written;
  for (const Logical& logical : logical_events()) {
    const Event event = reader_.event(logical.first);
    if (event.kind != EventKind::Value) {
      run.record(info_of(event, logical.call), EventValue());
      continue;
    }
    const auto* tensor = std::get_if<TensorRecord>(&event.value);
    const bool is_key = std::ranges::find(columns_, event.name) != columns_.end();
    const bool is_number = tensor == nullptr || (tensor->stats.count == 1 && reader_.has_bytes(logical.first, *tensor));
    if (is_number && !is_key && logical.events.size() == 1) {  // a loss: no row's, and there is no other
      tensor == nullptr ? run.record(info_of(event, logical.call), event.value)
                        : run.record(info_of(event, logical.call), reader_.tensor(logical.first).view);
      continue;
    }
    if (tensor == nullptr) {
      if (!is_key) written.left_out.push_back(event.name);
      continue;
    }
    written.origin.try_emplace(event.name, DiffEvent{event.name, event.step, event.call});
    if (event.io == Io::Param || event.io == Io::Buffer) {
      if (reader_.has_bytes(logical.first, std::get<TensorRecord>(event.value)))
        run.record(info_of(event, logical.call), reader_.tensor(logical.first).view);
    } else if (!write_rows(logical, keys, run, written)) {
      written.left_out.push_back(event.name);
    }
  }
  return written;
}

bool RowTable::write_rows(const Logical& logical, const std::vector<RowKey>& keys, Run& run, Written& written) const {
  struct Source {
    TensorData data;
    std::vector<std::size_t> axes;
  };
  std::map<Batch, Source> sources;
  Shape shape;
  std::optional<DType> dtype;
  for (const RowKey& key : keys) {
    const Batch& batch = places_.at(key).batch;
    if (sources.contains(batch)) continue;
    const auto found = logical.events.find(batch);
    if (found == logical.events.end()) return false;
    const Event event = reader_.event(found->second);
    const auto* record = std::get_if<TensorRecord>(&event.value);
    if (record == nullptr || !reader_.has_bytes(found->second, *record)) return false;
    const auto axes = row_axes(record->shape, shapes_.at(batch));
    TensorData data = reader_.tensor(found->second);
    if (!axes || !is_c_order(data.view)) return false;
    Shape own = {static_cast<std::int64_t>(keys.size())};
    for (std::size_t axis = 0; axis < record->shape.size(); ++axis)
      if (std::ranges::find(*axes, axis) == axes->end() && record->shape[axis] != 1) own.push_back(record->shape[axis]);
    if (dtype && (own != shape || record->dtype != *dtype)) return false;
    shape = std::move(own);
    dtype = record->dtype;
    sources.emplace(batch, Source{std::move(data), *axes});
  }
  if (element_count(shape) == 0) return false;
  std::vector<std::byte> bytes(static_cast<std::size_t>(element_count(shape)) * item_size(*dtype));
  std::byte* out = bytes.data();
  for (const RowKey& key : keys) {
    const Place& place = places_.at(key);
    const Source& source = sources.at(place.batch);
    out = copy_row(source.data.view, source.axes, place.row, out);
  }
  const Event event = reader_.event(logical.first);
  const TensorView view{.data = bytes.data(), .dtype = *dtype, .shape = shape};
  run.record(info_of(event, logical.call), view);
  if (shape.size() == 1 && kind_of(*dtype) == DTypeKind::Float && logical.call == 0)
    written.numbers[event.name] = doubles_of(view);
  return true;
}

namespace {

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
    if (name.empty()) throw Error(ErrorCode::InvalidArgument, "a key of rows has no name");
    columns.push_back(name);
  }
  return columns;
}

RowTable::Written write_run(const RowTable& table, const std::vector<RowKey>& keys, const fs::path& folder,
                            const std::string& name) {
  Run run(folder, {.name = name, .strict = true, .on_warning = {}});
  RowTable::Written written = table.write(keys, run);
  run.close();
  return written;
}

DiffRowTable compare_numbers(const std::string& name_a, const std::string& name_b, const std::vector<RowKey>& keys,
                             const std::vector<double>& a, const std::vector<double>& b) {
  DiffRowTable table{.a = name_a, .b = name_b, .rows = {}};
  for (std::size_t i = 0; i < keys.size(); ++i)
    table.rows.push_back({RowKey(keys[i].begin(), keys[i].end() - 1), a[i], b[i]});
  return table;
}

}  // namespace

RunDiff diff_by_rows(const fs::path& a, const fs::path& b, const RunDiffOptions& options) {
  const Reader reader_a(a), reader_b(b);
  const std::vector<std::string> columns_a = columns_of(options.rows, 0), columns_b = columns_of(options.rows, 1);
  RowTable table_a(reader_a, columns_a), table_b(reader_b, columns_b);
  std::vector<std::string> names = columns_a;
  if (table_a.has_sequences() || table_b.has_sequences()) {
    names = {"sequence", "position"};
    table_a.has_sequences() ? table_a.take_tokens_for_keys(table_b) : table_b.take_tokens_for_keys(table_a);
  }
  const std::vector<RowKey> keys = table_a.keys_in(table_b);
  if (keys.empty())
    throw Error(ErrorCode::InvalidArgument,
                fmt::format("the runs have no row in common by {}: {} rows in the first, {} in the second",
                            fmt::join(columns_a, ", "), table_a.row_count(), table_b.row_count()));
  const TemporaryFolder folder;
  const RowTable::Written written_a = write_run(table_a, keys, folder.path(), "a"),
                          written_b = write_run(table_b, keys, folder.path(), "b");
  RunDiffOptions others = options;
  others.rows.clear();
  RunDiff diff = diff_runs(folder.path() / "a", folder.path() / "b", others);
  diff.a = reader_a.path().string();
  diff.b = reader_b.path().string();
  const auto tell_origin = [](const RowTable::Written& written, std::optional<DiffEvent>& event) {
    if (!event) return;
    if (const auto found = written.origin.find(event->name); found != written.origin.end()) *event = found->second;
  };
  const auto tell = [&](DiffOrigin& origin) {
    tell_origin(written_a, origin.event_a);
    tell_origin(written_b, origin.event_b);
    const std::vector<std::int64_t>& worst = origin.metrics.worst_index;
    const bool is_of_rows = origin.place.io != to_string(Io::Param) && origin.place.io != to_string(Io::Buffer);
    if (worst.empty() || !is_of_rows || static_cast<std::size_t>(worst[0]) >= keys.size()) return;
    const RowKey& key = keys[static_cast<std::size_t>(worst[0])];
    for (std::size_t k = 0; k + 1 < key.size(); ++k)
      origin.metrics.row += fmt::format("{}{} {}", k > 0 ? ", " : "", names[k], key[k]);
  };
  for (DiffOrigin& origin : diff.origins) tell(origin);
  if (diff.first_divergence) tell(*diff.first_divergence);
  if (diff.first_bit_difference) tell(*diff.first_bit_difference);
  DiffRows rows{.keys = names,
                .first = table_a.row_count(),
                .second = table_b.row_count(),
                .common = keys.size(),
                .duplicates = table_a.repeated_beyond(table_b) + table_b.repeated_beyond(table_a) + table_a.unplaced() +
                              table_b.unplaced(),
                .left_out_a = written_a.left_out,
                .left_out_b = written_b.left_out,
                .tables = {}};
  std::map<std::string, std::string> partner;
  for (const DiffContentPair& pair : diff.content_pairs) partner.emplace(pair.a, pair.b);
  for (const auto& [name, numbers] : written_a.numbers) {
    const auto found = partner.find(name);
    const std::string& other = found == partner.end() ? name : found->second;
    if (const auto in_b = written_b.numbers.find(other); in_b != written_b.numbers.end())
      rows.tables.push_back(compare_numbers(name, other, keys, numbers, in_b->second));
  }
  const bool is_left_out = std::ranges::any_of(rows.left_out_a, [&](const std::string& name) {
    return std::ranges::find(rows.left_out_b, name) != rows.left_out_b.end();
  });
  if (diff.within_tolerance() && (is_left_out || table_a.unplaced() + table_b.unplaced() > 0))
    diff.verdict = DiffVerdict::Unknown;
  diff.rows = std::move(rows);
  return diff;
}

}  // namespace tenscope::compare
