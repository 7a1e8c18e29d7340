#include "compare/checkpoint.hpp"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <exception>
#include <list>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>

#include "compare/run_diff.hpp"
#include "format/format.hpp"
#include "format/gguf.hpp"
#include "format/source.hpp"
#include "kernels/parallel.hpp"
#include "kernels/summarize.hpp"
#include "tenscope/error.hpp"

namespace tenscope::compare {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kIndexSuffix = ".index.json";
constexpr std::uint64_t kCacheBytes = std::uint64_t{512} << 20;

std::string lower_extension(const fs::path& path) {
  std::string extension = path.extension().string();
  std::ranges::transform(extension, extension.begin(), [](unsigned char c) { return std::tolower(c); });
  return extension;
}

bool is_index(const fs::path& path) {
  std::error_code ignored;
  return path.filename().string().ends_with(kIndexSuffix) && fs::is_regular_file(path, ignored);
}

// What an index such as model.safetensors.index.json says: the file of each tensor.
std::map<std::string, std::string> read_index(const fs::path& index) {
  std::map<std::string, std::string> files;
  const Source source = open_source(index, kIndexSuffix);
  try {
    simdjson::dom::parser parser;
    const std::string text(source.text(0, source.size(), "index"));
    for (const auto [tensor, file] : simdjson::dom::object(parser.parse(text)["weight_map"]))
      files.emplace(tensor, std::string_view(file));
  } catch (const simdjson::simdjson_error& error) {
    throw Error(ErrorCode::Corrupt, fmt::format("cannot read the index of shards: it has no weight_map from tensors to "
                                                "files ({}): {}",
                                                error.what(), index.string()));
  }
  for (const auto& [tensor, file] : files)
    if (fs::path(file).has_parent_path())
      throw Error(ErrorCode::Corrupt,
                  fmt::format("cannot read the index of shards: '{}' is no file beside it: {}", file, index.string()));
  return files;
}

// The files that an index names, in the order of their names.
std::vector<fs::path> files_of_index(const fs::path& index) {
  std::set<std::string> names;
  for (const auto& [tensor, file] : read_index(index)) names.insert(file);
  std::vector<fs::path> files;
  for (const std::string& name : names) files.push_back(index.parent_path() / name);
  return files;
}

void check_shards(const fs::path& index) {
  std::map<std::string, std::size_t> missing;  // how many tensors are in it
  for (const auto& [tensor, file] : read_index(index))
    if (!fs::exists(index.parent_path() / file)) ++missing[file];
  if (missing.empty()) return;
  const auto& [file, tensors] = *missing.begin();
  throw Error(
      ErrorCode::NotFound,
      fmt::format("cannot compare: the shard {}, which has {} of its tensors,{} is not there: {}", file, tensors,
                  missing.size() > 1 ? fmt::format(" and {} more", missing.size() - 1) : "", index.string()));
}

// The index of a folder of shards: the first that has all its files, else one that has some. Nothing where there is
// none.
std::optional<fs::path> index_of_folder(const std::vector<fs::path>& indices) {
  std::optional<fs::path> in_part;
  for (const fs::path& index : indices) {
    const std::vector<fs::path> files = files_of_index(index);
    const auto found = std::ranges::count_if(files, [](const fs::path& file) { return fs::exists(file); });
    if (found == std::ssize(files)) return index;
    if (found > 0 && !in_part) in_part = index;
  }
  return in_part;
}

// The shards in a folder: those of an index, else all files of the first of these formats that there are.
struct Shards {
  std::optional<fs::path> index;
  std::vector<fs::path> files;
};
Shards shards_of_folder(const fs::path& folder) {
  std::vector<fs::path> indices;
  std::map<std::string, std::vector<fs::path>> by_extension;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    if (is_index(entry.path())) indices.push_back(entry.path());
    if (entry.is_regular_file(ignored)) by_extension[lower_extension(entry.path())].push_back(entry.path());
  }
  std::ranges::sort(indices, std::greater<>());  // model.safetensors before pytorch_model.bin
  if (auto index = index_of_folder(indices)) return {index, files_of_index(*index)};
  for (const std::string extension : {".safetensors", ".gguf", ".bin"})
    if (auto found = by_extension.find(extension); found != by_extension.end()) {
      std::ranges::sort(found->second);
      return {std::nullopt, found->second};
    }
  return {};
}

StoredTensor stored_in_tree(std::string name, Tensor tensor) {
  StoredTensor stored{.name = std::move(name),
                      .type = std::string(to_string(tensor.dtype)),
                      .shape = tensor.shape,
                      .dtype = tensor.dtype};
  auto shared = std::make_shared<const Tensor>(std::move(tensor));
  stored.read = [shared] { return TensorData{shared->view(), shared}; };
  return stored;
}

// "float16" of ggml's "f16"; blocks have no other name.
std::string type_in_words(const GgufTensor& tensor) {
  return std::string(tensor.dtype ? to_string(*tensor.dtype) : tensor.type);
}

}  // namespace

// What was dequantised last, the newest first.
struct Checkpoint::Cache {
  struct Entry {
    std::size_t tensor;
    TensorData data;
  };
  std::mutex mutex;
  std::list<Entry> entries;
  std::uint64_t bytes = 0;
};

void list_tensors(const Value& value, const std::string& path, std::vector<std::pair<std::string, Tensor>>& tensors) {
  const auto name = [&](const std::string& part) { return path.empty() ? part : path + "." + part; };
  if (const auto* tensor = value.get_if<Tensor>()) {
    tensors.emplace_back(path, *tensor);
  } else if (const auto* dict = value.get_if<Dict>()) {
    for (const auto& [key, member] : dict->entries) {
      if (const auto* text = key.get_if<std::string>()) list_tensors(member, name(*text), tensors);
      if (const auto* number = key.get_if<std::int64_t>()) list_tensors(member, name(std::to_string(*number)), tensors);
    }
  } else if (const auto* items = value.items()) {
    for (std::size_t i = 0; i < items->size(); ++i) list_tensors((*items)[i], name(std::to_string(i)), tensors);
  }
}

bool is_checkpoint(const fs::path& path) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) return is_run_folder(path) || !shards_of_folder(path).files.empty();
  return fs::is_regular_file(path, ignored) && (is_index(path) || is_loadable(path));
}

Checkpoint::Checkpoint(const fs::path& path) : path_(path), cache_(std::make_shared<Cache>()) {
  std::error_code ignored;
  if (!fs::exists(path))
    throw Error(ErrorCode::NotFound, fmt::format("cannot compare: no such file or folder: {}", path.string()));
  if (is_run_folder(path)) {
    add_run(path);
  } else if (fs::is_directory(path, ignored) || is_index(path)) {
    const Shards shards = is_index(path) ? Shards{path, files_of_index(path)} : shards_of_folder(path);
    if (shards.index) check_shards(*shards.index);
    for (const fs::path& file : shards.files) {
      add_file(file);
      shards_.insert(file.filename().string());
    }
    if (shards.index) check_index(*shards.index);
  } else {
    add_file(path);
  }
  if (tensors_.empty()) throw Error(ErrorCode::NotFound, fmt::format("there is no tensor in {}", path.string()));
  check_names();
}

void Checkpoint::add_file(const fs::path& path) {
  if (lower_extension(path) != ".gguf") {
    std::vector<std::pair<std::string, Tensor>> tensors;
    list_tensors(load(path), "", tensors);
    for (auto& [name, tensor] : tensors) tensors_.push_back(stored_in_tree(std::move(name), std::move(tensor)));
    return;
  }
  const auto file = std::make_shared<const GgufFile>(open_source(path, ".gguf"), LoadOptions{});
  if (const Value* value = file->metadata().find("general.architecture"))
    if (const auto* text = value->get_if<std::string>()) gguf_architecture_ = *text;
  for (const GgufTensor& tensor : file->tensors()) {
    const auto read = [file, &tensor] {
      auto elements = std::make_shared<const Tensor>(file->read(tensor));
      return TensorData{elements->view(), elements};
    };
    tensors_.push_back({.name = tensor.name,
                        .type = type_in_words(tensor),
                        .shape = tensor.shape,
                        .dtype = tensor.dtype.value_or(tensor.blocks ? DType::F32 : DType::U8),
                        .is_quantised = tensor.blocks.has_value(),
                        .is_readable = tensor.dtype || tensor.blocks,
                        .read = read});
  }
}

void Checkpoint::add_run(const fs::path& path) {
  const auto reader = std::make_shared<const Reader>(path);
  std::vector<EventId> events;  // the last of each name
  std::map<std::string_view, std::size_t> places;
  const auto collect = [&](bool is_of_parameters) {
    for (EventId id = 0; id < reader->event_count(); ++id) {
      if (!reader->is_tensor(id)) continue;
      const Event event = reader->event(id);
      if ((is_of_parameters && event.io != Io::Param) || !reader->has_bytes(id, std::get<TensorRecord>(event.value)))
        continue;
      const auto [place, is_new] = places.emplace(reader->name(id), events.size());
      is_new ? events.push_back(id) : void(events[place->second] = id);
    }
  };
  collect(true);
  if (events.empty()) collect(false);
  for (const EventId id : events) {
    const auto record = std::get<TensorRecord>(reader->event(id).value);
    const auto read = [reader, id] {
      TensorData data = reader->tensor(id);
      data.owner = reader;
      return data;
    };
    tensors_.push_back({.name = std::string(reader->name(id)),
                        .type = std::string(to_string(record.dtype)),
                        .shape = record.shape,
                        .dtype = record.dtype,
                        .read = read});
  }
}

void Checkpoint::check_names() const {
  std::set<std::string_view> names;
  for (const StoredTensor& tensor : tensors_)
    if (!names.insert(tensor.name).second)
      throw Error(ErrorCode::Corrupt,
                  fmt::format("the tensor '{}' is in several of its files: {}", tensor.name, path_.string()));
}

void Checkpoint::check_index(const fs::path& index) const {
  std::set<std::string_view> names;
  for (const StoredTensor& tensor : tensors_) names.insert(tensor.name);
  for (const auto& [tensor, file] : read_index(index))
    if (!names.contains(tensor))
      throw Error(ErrorCode::Corrupt,
                  fmt::format("cannot compare: the index of shards says that '{}' is in {}, where it "
                              "is not: {}",
                              tensor, file, index.string()));
}

TensorData Checkpoint::data(std::size_t tensor) const {
  const StoredTensor& stored = tensors_[tensor];
  if (!stored.is_quantised) return stored.read();
  const std::scoped_lock lock(cache_->mutex);
  auto& entries = cache_->entries;
  const auto found = std::ranges::find(entries, tensor, &Cache::Entry::tensor);
  if (found != entries.end()) {
    entries.splice(entries.begin(), entries, found);
    return found->data;
  }
  entries.push_front({tensor, stored.read()});
  cache_->bytes += tenscope::size_bytes(entries.front().data.view);
  while (cache_->bytes > kCacheBytes && entries.size() > 1) {
    cache_->bytes -= tenscope::size_bytes(entries.back().data.view);
    entries.pop_back();
  }
  return entries.front().data;
}

std::uint64_t Checkpoint::size_bytes() const {
  std::uint64_t bytes = 0;
  for (const StoredTensor& tensor : tensors_)
    bytes += static_cast<std::uint64_t>(element_count(tensor.shape)) * item_size(tensor.dtype);
  return bytes;
}

Lane Checkpoint::lane(Interner& interner, std::vector<TensorRecord>& records,
                      const std::function<void(std::uint64_t)>& on_progress) const {
  records.assign(tensors_.size(), {});
  std::mutex mutex;
  std::exception_ptr trouble;
  std::uint64_t done = 0;
  const auto threads = kernels::thread_count(static_cast<std::int64_t>(size_bytes()), 0);
  kernels::for_each_chunk(static_cast<std::int64_t>(tensors_.size()), 1, threads, [&](int, std::int64_t i, auto) {
    try {
      const StoredTensor& stored = tensors_[static_cast<std::size_t>(i)];
      const TensorData data = stored.read();
      const Summary summary = kernels::summarize(data.view);
      records[static_cast<std::size_t>(i)] = {.dtype = stored.dtype,
                                              .shape = {data.view.shape.begin(), data.view.shape.end()},
                                              .device = "cpu",
                                              .fingerprint = summary.fingerprint,
                                              .stats = summary.stats};
      const std::scoped_lock lock(mutex);
      done += tenscope::size_bytes(data.view);
      if (on_progress) on_progress(done);
    } catch (...) {
      const std::scoped_lock lock(mutex);
      trouble = std::current_exception();
    }
  });
  if (trouble) std::rethrow_exception(trouble);
  Lane lane;
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    Item item;
    item.event = static_cast<EventId>(i);
    item.io = Io::Param;
    item.value = ValueKind::Tensor;
    item.dtype = tensors_[i].dtype;
    item.has_bytes = tensors_[i].is_readable;
    item.name = item.tail = item.parameter = interner.text(tensors_[i].name);
    item.fingerprint = records[i].fingerprint;
    item.abs_max = records[i].stats.abs_max;
    item.shape = interner.text(fmt::format("{}", fmt::join(tensors_[i].shape, "x")));
    lane.items.push_back(item);
  }
  return lane;
}

}  // namespace tenscope::compare
