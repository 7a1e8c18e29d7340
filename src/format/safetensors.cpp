#include "format/safetensors.hpp"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <unordered_set>

#include "core/json_writer.hpp"

namespace tenscope {
namespace {

constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;  // as the reference implementation has it

struct Entry {
  std::string name;
  Layout layout;
  std::uint64_t begin = 0, end = 0;  // in the data
};

class HeaderReader {
 public:
  explicit HeaderReader(const Source& source) : source_(source) {
    const auto header_bytes = source.little<std::uint64_t>(0, "header length");
    if (header_bytes > kMaxHeaderBytes) source.corrupt(0, fmt::format("a header of {} bytes", header_bytes));
    text_ = source.text(8, header_bytes, "header");
    data_at_ = 8 + header_bytes;
  }

  std::uint64_t data_at() const noexcept { return data_at_; }

  std::vector<Entry> read(Metadata* metadata) {
    std::vector<Entry> entries;
    try {
      simdjson::ondemand::parser parser;
      const simdjson::padded_string padded(text_);
      auto document = parser.iterate(padded);
      std::unordered_set<std::string> names;
      for (auto field : document.get_object()) {
        std::string name(std::string_view(field.unescaped_key()));
        if (!names.insert(name).second) source_.corrupt(8, fmt::format("header with '{}' twice", name));
        if (name == "__metadata__") {
          read_metadata(field.value(), metadata);
        } else {
          entries.push_back(read_entry(std::move(name), field.value()));
        }
      }
      if (!document.current_location().error()) source_.corrupt(8, "text after the header");
    } catch (const simdjson::simdjson_error& error) {
      source_.corrupt(8, fmt::format("header that is not as it should be ({})", error.what()));
    }
    check_cover(entries);
    return entries;
  }

 private:
  static void read_metadata(simdjson::ondemand::value value, Metadata* metadata) {
    for (auto field : value.get_object()) {
      std::string key(std::string_view(field.unescaped_key()));
      std::string text(std::string_view(field.value()));
      if (metadata) metadata->emplace_back(std::move(key), std::move(text));
    }
  }

  Entry read_entry(std::string name, simdjson::ondemand::value value) {
    Entry entry{.name = std::move(name)};
    bool has_dtype = false, has_shape = false, has_offsets = false;
    for (auto field : value.get_object()) {
      const std::string_view key = field.unescaped_key();
      if (key == "dtype") {
        const std::string_view code = field.value();
        const auto dtype = parse_safetensors_dtype(code);
        if (!dtype) source_.unsupported(8, fmt::format("dtype '{}' of '{}'", code, entry.name));
        entry.layout.dtype = *dtype;
        has_dtype = true;
      } else if (key == "shape") {
        entry.layout.shape.clear();
        for (auto size : field.value().get_array()) {
          entry.layout.shape.push_back(std::int64_t(size));
          if (entry.layout.shape.size() > kMaxRank)
            source_.corrupt(8, fmt::format("rank of '{}' is above {}", entry.name, kMaxRank));
        }
        has_shape = true;
      } else if (key == "data_offsets") {
        std::vector<std::uint64_t> offsets;
        for (auto offset : field.value().get_array()) {
          if (offsets.size() == 2) source_.corrupt(8, fmt::format("'{}' with more than two offsets", entry.name));
          offsets.push_back(std::uint64_t(offset));
        }
        if (offsets.size() != 2) source_.corrupt(8, fmt::format("'{}' without two offsets", entry.name));
        entry.begin = offsets[0];
        entry.end = offsets[1];
        has_offsets = true;
      } else {
        source_.corrupt(8, fmt::format("'{}' with the unknown member '{}'", entry.name, key));
      }
    }
    if (!has_dtype || !has_shape || !has_offsets) {
      source_.corrupt(8, fmt::format("'{}' without dtype, shape or data_offsets", entry.name));
    }
    return entry;
  }

  void check_cover(const std::vector<Entry>& entries) const {
    std::vector<const Entry*> by_place;
    for (auto& entry : entries) {
      by_place.push_back(&entry);
      const std::uint64_t size = checked_size_bytes(source_, 8, entry.layout.dtype, entry.layout.shape);
      if (entry.end < entry.begin || entry.end - entry.begin != size) {
        source_.corrupt(
            8, fmt::format("'{}' has offsets [{}, {}), but takes {} bytes", entry.name, entry.begin, entry.end, size));
      }
    }
    std::ranges::sort(by_place, [](const Entry* a, const Entry* b) {
      return std::pair(a->begin, a->end) < std::pair(b->begin, b->end);
    });
    std::uint64_t covered = 0;
    for (auto* entry : by_place) {
      if (entry->begin != covered) {
        source_.corrupt(
            8, fmt::format("'{}' begins at {} of the data, where {} was expected", entry->name, entry->begin, covered));
      }
      covered = entry->end;
    }
    if (covered != source_.size() - data_at_) {
      source_.corrupt(data_at_,
                      fmt::format("{} bytes of data, but the header has {}", source_.size() - data_at_, covered));
    }
  }

  const Source& source_;
  std::string_view text_;
  std::uint64_t data_at_ = 0;
};

[[noreturn]] void refuse(const OutputFile& file, ErrorCode code, const std::string& why) {
  throw Error(code, fmt::format("cannot write .safetensors: {}: {}", why, file.path().string()));
}

}  // namespace

Value read_safetensors(const Source& source, const LoadOptions& options, Metadata* metadata) {
  HeaderReader header(source);
  Budget budget(options, source.size());
  Dict dict;
  for (auto& entry : header.read(metadata)) {
    Tensor tensor = make_tensor(source, header.data_at() + entry.begin, std::move(entry.layout), budget);
    dict.entries.emplace_back(std::move(entry.name), std::move(tensor));
  }
  return dict;
}

void write_safetensors(OutputFile& file, const Value& value, const Metadata& metadata) {
  auto* dict = value.get_if<Dict>();
  if (!dict)
    refuse(file, ErrorCode::InvalidArgument,
           fmt::format("a dict of tensors is needed, not a {}", to_string(value.kind())));

  std::vector<std::pair<const std::string*, const Tensor*>> entries;
  std::unordered_set<std::string_view> names;
  for (auto& [key, item] : dict->entries) {
    auto* name = key.get_if<std::string>();
    auto* tensor = item.get_if<Tensor>();
    if (!name) refuse(file, ErrorCode::InvalidArgument, "its names must be text");
    if (!tensor)
      refuse(file, ErrorCode::InvalidArgument,
             fmt::format("'{}' is no tensor but a {}", *name, to_string(item.kind())));
    if (*name == "__metadata__") refuse(file, ErrorCode::InvalidArgument, "the name '__metadata__' is taken");
    if (!names.insert(*name).second) refuse(file, ErrorCode::InvalidArgument, fmt::format("'{}' comes twice", *name));
    if (safetensors_name(tensor->dtype).empty()) {
      refuse(file, ErrorCode::Unsupported,
             fmt::format("'{}' is {}, which it lacks; .pt and .npz have it", *name, to_string(tensor->dtype)));
    }
    entries.emplace_back(name, tensor);
  }

  auto by_size = entries;
  std::ranges::stable_sort(by_size, std::greater{}, [](auto& entry) { return item_size(entry.second->dtype); });
  std::unordered_map<const std::string*, std::uint64_t> offsets;
  std::uint64_t data_bytes = 0;
  for (auto& [name, tensor] : by_size) {
    offsets[name] = data_bytes;
    data_bytes += size_bytes(tensor->view());
  }

  std::string header(8, '\0');
  JsonWriter json(header);
  json.begin_object();
  if (!metadata.empty()) {
    json.key("__metadata__").begin_object();
    for (auto& [key, text] : metadata) json.key(key).text(text);
    json.end_object();
  }
  for (auto& [name, tensor] : entries) {
    json.key(*name).begin_object().key("dtype").text(safetensors_name(tensor->dtype)).key("shape").begin_array();
    for (auto size : tensor->shape) json.number(size);
    json.end_array().key("data_offsets").begin_array().number(offsets[name]);
    json.number(offsets[name] + size_bytes(tensor->view())).end_array().end_object();
  }
  json.end_object();
  header.append((64 - header.size() % 64) % 64, ' ');
  for (std::size_t i = 0; i < 8; ++i) header[i] = static_cast<char>((header.size() - 8) >> (8 * i));

  file.reserve(header.size() + data_bytes);
  file.write(header);
  for (auto& [name, tensor] : by_size) file.write_elements(tensor->view());
}

}  // namespace tenscope
