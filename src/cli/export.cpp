#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <set>

#include "cli/commands.hpp"
#include "cli/export_hdf5.hpp"
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
  const StepRange steps = options.steps.empty() ? StepRange{} : parse_step_range(options.steps);
  Selection selection;
  std::vector<Selected>& result = selection.items;
  std::set<std::string_view> names;
  std::set<std::size_t> writers;
  for (const EventId id : reader.find({.name = options.name, .call = options.call, .rank = options.rank})) {
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
        fmt::format("cannot export to '{}': .npy, .npz, .safetensors, .h5 or a folder is needed", out.string()));
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

}  // namespace

Action prepare_export(CLI::App& app) {
  auto options = std::make_shared<ExportOptions>();
  app.add_option("run", options->run, "A run, or a folder of runs: then the newest")->required();
  app.add_option("out", options->out, "A file (.npy, .npz, .safetensors, .h5), or a folder for .npy files")->required();
  app.add_option("--name", options->name, "Only names that match this pattern");
  app.add_option("--step", options->steps, "A step, or a range of steps like 2:5");
  app.add_option("--call", options->call, "Only this call of each step");
  app.add_option("--rank", options->rank, "Only this rank");
  app.add_option("--gzip", options->hdf5.gzip_level, "Compression of a .h5 file, 1 to 9")->check(CLI::Range(0, 9));
  app.add_flag("--shuffle", options->hdf5.shuffle, "Reorder the bytes of a .h5 file, so that they compress better");
  return [options](const Output& output) {
    const Reader reader = open_run(options->run);
    warn_of_problems(reader);
    const Selection selection = select(reader, *options);
    const std::vector<Selected>& selected = selection.items;
    std::optional<Progress> progress(std::in_place, output.progress, "writing");
    const std::vector<fs::path> files = write_files(reader, selected, options->out, options->hdf5);
    progress.reset();
    if (output.json) {
      std::string text;
      JsonWriter json(text);
      json.begin_object().key("files").begin_array();
      for (const fs::path& file : files) json.text(file.string());
      json.end_array().key("keys").begin_array();
      for (const Selected& item : selected) json.text(item.key);
      json.end_array().key("left_out").begin_object();
      for (const auto& [why, count] : selection.left_out) json.key(why).number(static_cast<std::uint64_t>(count));
      json.end_object().end_object();
      print_json(text);
    } else {
      const std::string_view what = is_hdf5_format(options->out) ? "value" : "tensor";
      print("{} {}{} to {}\n", selected.size(), what, selected.size() == 1 ? "" : "s", options->out);
    }
    return kFine;
  };
}

}  // namespace tenscope::cli
