#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <set>

#include "arrow/events.hpp"
#include "cli/commands.hpp"
#include "cli/export_hdf5.hpp"
#include "cli/export_table.hpp"
#include "cli/export_tensorboard.hpp"
#include "cli/open_run.hpp"
#include "cli/print.hpp"
#include "cli/progress.hpp"
#include "core/json_writer.hpp"
#include "format/format.hpp"
#include "kernels/element.hpp"
#include "tenscope/error.hpp"
#include "tenscope/glob.hpp"

namespace tenscope::cli {
namespace {

namespace fs = std::filesystem;

struct ExportOptions {
  std::string run, out, name, steps;
  std::optional<std::int64_t> call;
  std::optional<int> rank;
  Hdf5Options hdf5;
  TensorBoardOptions tensorboard;

  Query query() const { return {.name = name, .call = call, .rank = rank}; }
  StepRange step_range() const { return steps.empty() ? StepRange{} : parse_step_range(steps); }
};

struct Selected {
  EventId id = 0;
  std::string key;
};

bool is_hdf5_format(const fs::path& path) { return path.extension() == ".h5" || path.extension() == ".hdf5"; }

// HDF5 has room for numbers and text as well.
bool is_wanted(const Reader& reader, EventId id, bool is_hdf5) {
  const EventKind kind = reader.kind(id);
  return reader.is_tensor(id) || (is_hdf5 && (kind == EventKind::Value || kind == EventKind::Change));
}

// Why a value cannot be exported; empty where it can.
std::string why_left_out(const Reader& reader, EventId id) {
  if (!reader.is_tensor(id)) {
    const EventValue value = reader.event(id).value;
    const bool is_nothing =
        std::holds_alternative<std::monostate>(value) || std::holds_alternative<std::nullptr_t>(value);
    return is_nothing ? "it is None or empty, for which the format has no room" : "";
  }
  try {
    reader.tensor(id);
    return "";
  } catch (const Error& error) {
    if (error.code() != ErrorCode::NotFound) throw;
  }
  const auto record = std::get<TensorRecord>(reader.event(id).value);
  if (record.is_cut) return "the budget was used up, and only statistics were kept";
  return record.has_bytes() ? "the file with its bytes is no longer there" : "only statistics were kept, not its bytes";
}

struct Selection {
  std::vector<Selected> items;
  std::map<std::string, std::size_t> left_out;  // by reason
};

// Keys are names where each name comes once, else name@step#call, with the writer in front where there are several.
Selection select(const Reader& reader, const ExportOptions& options) {
  const StepRange steps = options.step_range();
  Selection selection;
  std::vector<Selected>& result = selection.items;
  std::set<std::string_view> names;
  std::set<std::size_t> writers;
  for (const EventId id : reader.find(options.query())) {
    if (!is_wanted(reader, id, is_hdf5_format(options.out)) || !steps.contains(reader.step(id))) continue;
    if (const std::string why = why_left_out(reader, id); !why.empty()) {
      ++selection.left_out[why];
      continue;
    }
    result.push_back({id, ""});
    names.insert(reader.name(id));
    writers.insert(reader.writer_index(id));
  }
  for (const auto& [why, count] : selection.left_out)
    warn("{} value{} left out: {}", count, count == 1 ? "" : "s", why);
  if (result.empty()) {
    if (!options.name.empty()) find_name(reader, options.name);
    throw Error(ErrorCode::NotFound, fmt::format("no tensor matches: {}", reader.path().string()));
  }
  std::map<std::string, int> repeated;
  for (Selected& selected : result) {
    const EventId id = selected.id;
    selected.key = names.size() == result.size()
                       ? std::string(reader.name(id))
                       : fmt::format("{}@{}#{}", reader.name(id), reader.step(id), reader.call(id));
    if (writers.size() > 1) selected.key = reader.writers()[reader.writer_index(id)].folder + "/" + selected.key;
    if (const int count = repeated[selected.key]++; count > 0) selected.key += fmt::format("~{}", count);
  }
  return selection;
}

bool is_numpy_format(const fs::path& path) { return path.extension() == ".npy" || path.extension() == ".npz"; }

// NumPy lacks bfloat16 and float8: they become float32, which holds each of their values. safetensors lacks complex128:
// it gets one more axis, as in a segment.
Tensor make_tensor(const TensorData& data, const fs::path& out) {
  const TensorView& view = data.view;
  Tensor tensor;
  tensor.dtype = view.dtype;
  tensor.shape.assign(view.shape.begin(), view.shape.end());
  const auto* bytes = static_cast<const std::byte*>(view.data);
  const bool is_narrow = kind_of(view.dtype) == DTypeKind::Float && view.dtype != DType::F64 &&
                         view.dtype != DType::F32 && view.dtype != DType::F16;
  if (is_narrow && is_numpy_format(out)) {
    const std::int64_t count = element_count(view.shape);
    std::byte* wide = nullptr;
    tensor.dtype = DType::F32;
    tensor.storage = allocate_storage(static_cast<std::size_t>(count) * sizeof(float), &wide);
    kernels::visit_dtype(view.dtype, [&](auto tag) {
      using T = decltype(tag);
      if constexpr (!kernels::kIsComplex<T>) {
        for (std::int64_t i = 0; i < count; ++i) {
          const auto value = static_cast<float>(kernels::to_double(kernels::load<T>(bytes + i * sizeof(T))));
          std::memcpy(wide + i * sizeof value, &value, sizeof value);
        }
      }
    });
    tensor.data = tensor.storage->data;
    return tensor;
  }
  if (view.dtype == DType::C128 && out.extension() == ".safetensors") {
    tensor.dtype = DType::F64;
    tensor.shape.push_back(2);
  }
  tensor.storage = std::make_shared<const Storage>(Storage{bytes, size_bytes(view), data.owner});
  tensor.data = bytes;
  return tensor;
}

std::string file_name(std::string key) {
  std::replace_if(key.begin(), key.end(), [](char c) { return c == '/' || c == '\0'; }, '_');
  constexpr std::size_t kLongest = 200;
  return key.substr(0, kLongest);
}

std::vector<fs::path> write_files(const Reader& reader, const std::vector<Selected>& selected, const fs::path& out,
                                  Hdf5Options hdf5) {
  const std::string extension = out.extension().string();
  if (extension == ".npy") {
    if (selected.size() > 1) {
      throw Error(
          ErrorCode::InvalidArgument,
          fmt::format("a .npy file holds one tensor, but {} match: narrow it by --name, --step, --call or --rank",
                      selected.size()));
    }
    save(out, make_tensor(reader.tensor(selected.front().id), out));
    return {out};
  }
  if (extension == ".npz" || extension == ".safetensors") {
    Dict dict;
    for (const Selected& item : selected)
      dict.entries.emplace_back(Value(item.key), make_tensor(reader.tensor(item.id), out));
    save(out, dict);
    return {out};
  }
  if (is_hdf5_format(out)) {
    std::vector<EventId> events;
    for (const Selected& item : selected) events.push_back(item.id);
    export_hdf5(reader, events, out, hdf5);
    return {out};
  }
  if (!extension.empty() && !fs::is_directory(out)) {
    throw Error(
        ErrorCode::InvalidArgument,
        fmt::format(
            "cannot export to '{}': .npy, .npz, .safetensors, .h5, .parquet, .arrow, .feather, .csv or a folder "
            "is needed",
            out.string()));
  }
  fs::create_directories(out);
  std::vector<fs::path> files;
  std::map<std::string, int> repeated;  // a long name is cut, and a slash is replaced: two may become one
  for (const Selected& item : selected) {
    std::string name = file_name(item.key);
    const int count = repeated[name]++;
    files.push_back(out / (count == 0 ? name + ".npy" : fmt::format("{}~{}.npy", name, count)));
    save(files.back(), make_tensor(reader.tensor(item.id), files.back()));
  }
  return files;
}

void write_left_out(JsonWriter& json, const std::map<std::string, std::size_t>& left_out) {
  json.key("left_out").begin_object();
  for (const auto& [why, count] : left_out) json.key(why).number(static_cast<std::uint64_t>(count));
  json.end_object();
}

void write_texts(JsonWriter& json, std::string_view key, const std::vector<std::string>& texts) {
  json.key(key).begin_array();
  for (const std::string& text : texts) json.text(text);
  json.end_array();
}

void export_tensors(const ExportOptions& options, const Reader& reader, const Output& output) {
  const Selection selection = select(reader, options);
  const std::vector<Selected>& selected = selection.items;
  std::optional<Progress> progress(std::in_place, output.progress, "writing");
  const std::vector<fs::path> files = write_files(reader, selected, options.out, options.hdf5);
  progress.reset();
  if (output.json) {
    std::string text;
    JsonWriter json(text);
    std::vector<std::string> names, keys;
    for (const fs::path& file : files) names.push_back(file.string());
    for (const Selected& item : selected) keys.push_back(item.key);
    json.begin_object();
    write_texts(json, "files", names);
    write_texts(json, "keys", keys);
    write_left_out(json, selection.left_out);
    json.end_object();
    print_json(text);
  } else {
    const std::string_view what = is_hdf5_format(options.out) ? "value" : "tensor";
    print("{} {}{} to {}\n", selected.size(), what, selected.size() == 1 ? "" : "s", options.out);
  }
}

// A pattern that nothing fits is a mistake; that a run has no events at all is not.
void check_that_any(const ExportOptions& options, const Reader& reader, const std::vector<EventId>& events) {
  if (!events.empty() || reader.event_count() == 0) return;
  if (!options.name.empty() && reader.find({.name = options.name}).empty()) find_name(reader, options.name);
  throw Error(ErrorCode::NotFound, fmt::format("no event matches: {}", reader.path().string()));
}

// As Python has it, which opens the run, warns of its problems, and writes nothing where nothing matches.
std::size_t write_by_python(const ExportOptions& options, StepRange steps, const Output& output) {
  if (!output.url_of(options.run).empty()) open_run(options.run);  // which brings its journals into the mirror
  std::vector<std::string> words = {find_run(options.run).string(), options.out};
  if (!options.name.empty()) words.push_back("--name=" + options.name);
  if (steps.begin != INT64_MIN) words.push_back(fmt::format("--begin={}", steps.begin));
  if (steps.end != INT64_MAX) words.push_back(fmt::format("--end={}", steps.end));
  if (options.call) words.push_back(fmt::format("--call={}", *options.call));
  if (options.rank) words.push_back(fmt::format("--rank={}", *options.rank));
  const std::size_t rows = export_by_python(words);
  if (rows == 0) check_that_any(options, open_run(options.run), {});
  return rows;
}

std::size_t write_csv(const ExportOptions& options, StepRange steps) {
  const auto reader = std::make_shared<const Reader>(open_run(options.run));
  warn_of_problems(*reader);
  std::vector<EventId> events = arrow::find_events(*reader, options.query(), steps.begin, steps.end);
  check_that_any(options, *reader, events);
  const std::size_t rows = events.size();
  export_csv(reader, std::move(events), options.out);
  return rows;
}

void export_events(const ExportOptions& options, const Output& output) {
  std::optional<Progress> progress(std::in_place, output.progress, "writing");
  const bool is_csv = fs::path(options.out).extension() == ".csv";
  const StepRange steps = options.step_range();
  const std::size_t rows = is_csv ? write_csv(options, steps) : write_by_python(options, steps, output);
  progress.reset();
  if (output.json) {
    std::string text;
    JsonWriter json(text);
    json.begin_object();
    write_texts(json, "files", {options.out});
    json.key("rows").number(static_cast<std::uint64_t>(rows)).end_object();
    print_json(text);
  } else {
    print("{} event{} to {}\n", rows, rows == 1 ? "" : "s", options.out);
  }
}

void export_charts(const ExportOptions& options, const Reader& reader, const Output& output) {
  const StepRange steps = options.step_range();
  const std::vector<EventId> events = arrow::find_events(reader, options.query(), steps.begin, steps.end);
  check_that_any(options, reader, events);
  const TensorBoardExport told = export_tensorboard(reader, events, options.tensorboard, output);
  for (const auto& [why, count] : told.left_out) warn("{} value{} left out: {}", count, count == 1 ? "" : "s", why);
  if (output.json) {
    std::string text;
    JsonWriter json(text);
    json.begin_object();
    write_texts(json, "files", told.files);
    write_texts(json, "scalars", told.scalars);
    write_texts(json, "histograms", told.histograms);
    json.key("points").number(static_cast<std::uint64_t>(told.points));
    write_left_out(json, told.left_out);
    json.end_object();
    print_json(text);
  } else {
    print("{} scalar{} and {} histogram{} to {}\nnext: tensorboard --logdir {}\n", told.scalars.size(),
          told.scalars.size() == 1 ? "" : "s", told.histograms.size(), told.histograms.size() == 1 ? "" : "s",
          options.tensorboard.folder, options.tensorboard.folder);
  }
}

}  // namespace

Action prepare_export(CLI::App& app) {
  auto options = std::make_shared<ExportOptions>();
  app.add_option("run", options->run, "A run, or a folder of runs: then the newest")->required();
  app.add_option("out", options->out,
                 "Tensors: a file (.npy, .npz, .safetensors, .h5), or a folder for .npy files. Events, a row each: "
                 ".parquet, .arrow, .feather (by Python's pyarrow) or .csv");
  app.add_option("--tensorboard", options->tensorboard.folder,
                 "Scalars and histograms into this folder, for TensorBoard");
  app.add_option("--name", options->name, "Only names that match this pattern");
  app.add_option("--step", options->steps, "A step, or a range of steps like 2:5");
  app.add_option("--call", options->call, "Only this call of each step");
  app.add_option("--rank", options->rank, "Only this rank");
  app.add_option("--stat", options->tensorboard.statistics, "With --tensorboard: these numbers of tensors")
      ->check(CLI::IsMember({"mean", "std", "min", "max", "l2", "absmax"}))
      ->delimiter(',')
      ->default_str("mean,std,l2");
  app.add_flag("!--no-histograms", options->tensorboard.has_histograms, "With --tensorboard: scalars only");
  app.add_option("--gzip", options->hdf5.gzip_level, "Compression of a .h5 file, 1 to 9")->check(CLI::Range(0, 9));
  app.add_flag("--shuffle", options->hdf5.shuffle, "Reorder the bytes of a .h5 file, so that they compress better");
  return [options](const Output& output) {
    const bool is_tensorboard = !options->tensorboard.folder.empty();
    if (options->out.empty() != is_tensorboard)
      throw Error(ErrorCode::InvalidArgument, is_tensorboard ? "export writes either to a file or for --tensorboard"
                                                             : "export needs a file to write to, or --tensorboard");
    if (!is_tensorboard && is_table_format(options->out)) {
      export_events(*options, output);
      return kFine;
    }
    const Reader reader = open_run(options->run);
    warn_of_problems(reader);
    is_tensorboard ? export_charts(*options, reader, output) : export_tensors(*options, reader, output);
    return kFine;
  };
}

}  // namespace tenscope::cli
