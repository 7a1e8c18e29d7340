#include "viewer/side.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "format/format.hpp"
#include "kernels/summarize.hpp"
#include "store/run_folder.hpp"
#include "tenscope/error.hpp"

namespace tenscope::viewer {
namespace fs = std::filesystem;
namespace {

constexpr int kWriterShift = 32;

class RunSide final : public Side {
 public:
  RunSide(Reader reader, std::string shown_path) : reader_(std::move(reader)) {
    shown_path_ = std::move(shown_path);
    for (std::size_t writer = 0; writer < reader_.writers().size(); ++writer) {
      if (reader_.writers()[writer].event_count == 0) continue;
      try {
        const std::int64_t time = reader_.event(reader_.first_event(writer)).time_ns;
        if (first_time_ns_ == 0 || time < first_time_ns_) first_time_ns_ = time;
      } catch (const Error&) {  // damaged: the others tell
      }
    }
  }

  std::shared_ptr<const Side> reopened() const override {
    return std::make_shared<RunSide>(reader_.reopened(), shown_path_);
  }
  std::string path() const override { return reader_.path().string(); }
  const Reader* reader() const noexcept override { return &reader_; }
  std::size_t event_count() const noexcept override { return reader_.event_count(); }
  Event event(EventId id) const override { return reader_.event(id); }
  TensorData tensor(EventId id) const override { return reader_.tensor(id); }
  bool has_bytes(EventId id, const TensorRecord& record) const override { return reader_.has_bytes(id, record); }

  bool is_cut_short(EventId id) const override {
    const Event event = reader_.event(id);
    const auto* record = std::get_if<TensorRecord>(&event.value);
    if (record == nullptr || !record->blob) return false;
    const fs::path folder = reader_.path() / reader_.writers()[reader_.writer_index(id)].folder;
    for (const bool is_open : {false, true}) {
      std::error_code error;
      const std::uintmax_t size = fs::file_size(store::segment_path(folder, record->blob->segment, is_open), error);
      if (!error) return size < record->blob->offset + record->blob->size_bytes;
    }
    return false;
  }

 private:
  Reader reader_;
};

struct NamedTensor {
  std::string name;
  Tensor tensor;
};

std::string key_of(const Value& key, std::size_t place) {
  if (const auto* text = key.get_if<std::string>()) return *text;
  if (const auto* number = key.get_if<std::int64_t>()) return fmt::format("{}", *number);
  return fmt::format("{}", place);
}

void add_tensors(const Value& value, const std::string& name, std::vector<NamedTensor>& tensors) {
  const auto below = [&](const std::string& part) { return name.empty() ? part : name + "." + part; };
  if (const auto* tensor = value.get_if<Tensor>()) {
    tensors.push_back({name, *tensor});
  } else if (const auto* dict = value.get_if<Dict>()) {
    for (std::size_t i = 0; i < dict->entries.size(); ++i)
      add_tensors(dict->entries[i].second, below(key_of(dict->entries[i].first, i)), tensors);
  } else if (const auto* items = value.items()) {
    for (std::size_t i = 0; i < items->size(); ++i) add_tensors((*items)[i], below(fmt::format("{}", i)), tensors);
  }
}

class FileSide final : public Side {
 public:
  FileSide(const fs::path& path, std::string shown_path) : path_(path) {
    shown_path_ = std::move(shown_path);
    if (fs::is_directory(path)) {
      std::vector<fs::path> files;
      for (const auto& entry : fs::recursive_directory_iterator(path))
        if (entry.is_regular_file() && is_loadable(entry.path())) files.push_back(entry.path());
      std::ranges::sort(files);
      for (const fs::path& file : files) {  // named as the comparison of folders names them: "m.pt: layers.0.weight"
        const std::size_t first = tensors_.size();
        add_tensors(load(file), "", tensors_);
        const std::string own = fs::relative(file, path).string();
        for (std::size_t i = first; i < tensors_.size(); ++i)
          tensors_[i].name = tensors_[i].name.empty() ? own : own + ": " + tensors_[i].name;
      }
    } else {
      add_tensors(load(path), "", tensors_);
    }
    if (tensors_.empty())
      throw Error(ErrorCode::NotFound, fmt::format("there is no tensor to look at in {}", path.string()));
    for (NamedTensor& one : tensors_)
      if (one.name.empty()) one.name = path.stem().string();
  }

  std::string path() const override { return path_.string(); }
  std::size_t event_count() const noexcept override { return tensors_.size(); }
  TensorData tensor(EventId id) const override {
    const Tensor& tensor = at(id).tensor;
    return {tensor.view(), tensor.storage};
  }
  bool has_bytes(EventId, const TensorRecord&) const override { return true; }

  Event event(EventId id) const override {
    const NamedTensor& one = at(id);
    Event event;
    event.seq = id;
    event.name = one.name;
    const std::size_t dot = one.name.rfind('.');
    if (dot != std::string::npos) event.scope = one.name.substr(0, dot);
    const Summary summary = kernels::summarize(one.tensor.view());
    event.value = TensorRecord{.dtype = one.tensor.dtype,
                               .shape = one.tensor.shape,
                               .device = one.tensor.device,
                               .fingerprint = summary.fingerprint,
                               .stats = summary.stats};
    return event;
  }

 private:
  const NamedTensor& at(EventId id) const {
    if (id >= tensors_.size()) throw Error(ErrorCode::NotFound, fmt::format("there is no tensor {}", id));
    return tensors_[id];
  }

  fs::path path_;
  std::vector<NamedTensor> tensors_;
};

}  // namespace

std::string Side::label() const {
  const fs::path all = shown_path();
  const fs::path last = all.filename().empty() ? all.parent_path().filename() : all.filename();
  return last.empty() ? all.string() : last.string();
}

std::size_t Side::writer_count() const noexcept { return reader() != nullptr ? reader()->writers().size() : 1; }

std::size_t Side::writer_of(EventId id) const noexcept { return reader() != nullptr ? reader()->writer_index(id) : 0; }

EventId Side::first_event(std::size_t writer) const noexcept {
  return reader() != nullptr ? reader()->first_event(writer) : 0;
}

std::size_t Side::event_count(std::size_t writer) const noexcept {
  return reader() != nullptr ? reader()->writers()[writer].event_count : event_count();
}

int Side::rank_of(EventId id) const noexcept {
  return reader() != nullptr ? reader()->writers()[reader()->writer_index(id)].rank : 0;
}

bool Side::is_running() const noexcept {
  return reader() != nullptr && std::ranges::any_of(reader()->writers(), &WriterInfo::running);
}

EventNumber Side::number_of(EventId id) const noexcept {
  const std::size_t writer = writer_of(id);
  return (static_cast<EventNumber>(writer) << kWriterShift) | (id - first_event(writer));
}

EventId Side::id_of(EventNumber number) const {
  const EventNumber writer = number >> kWriterShift, place = number & ((EventNumber{1} << kWriterShift) - 1);
  if (writer >= writer_count() || place >= event_count(writer))
    throw Error(ErrorCode::NotFound, fmt::format("there is no event {}", number));
  return static_cast<EventId>(first_event(writer) + place);
}

std::shared_ptr<const Side> open_run_side(const fs::path& run, std::string shown_path) {
  Reader reader(run);
  // A folder of runs stands for the newest of them.
  const fs::path below = reader.path().lexically_relative(run);
  if (!shown_path.empty() && !below.empty() && below != ".") shown_path = (fs::path(shown_path) / below).string();
  return std::make_shared<RunSide>(std::move(reader), std::move(shown_path));
}

std::shared_ptr<const Side> open_file_side(const fs::path& path, std::string shown_path) {
  return std::make_shared<FileSide>(path, std::move(shown_path));
}

}  // namespace tenscope::viewer
