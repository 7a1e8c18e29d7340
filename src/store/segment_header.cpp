#include "store/segment_header.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <simdjson.h>

#include <algorithm>
#include <cstring>
#include <unordered_set>

#include "core/json_writer.hpp"
#include "tenscope/error.hpp"

namespace tenscope::store {
namespace {

constexpr std::uint64_t kLargestHeader = 100'000'000;  // as the safetensors package has it
constexpr std::size_t kLongestName = 4096;             // the rest of a longer name is in the journal only

[[noreturn]] void refuse(const std::string& why) { throw Error(ErrorCode::Corrupt, why); }

std::string layout_text(std::string_view dtype, std::span<const std::int64_t> shape) {
  return fmt::format("{} [{}]", dtype, fmt::join(shape, ","));
}

std::string layout_of(DType dtype, std::vector<std::int64_t> shape) {
  if (dtype != DType::C128) return layout_text(safetensors_name(dtype), shape);
  shape.push_back(2);
  return layout_text(safetensors_name(DType::F64), shape);
}

// The size in bytes of a layout; refuses what safetensors does not know or what overflows.
std::uint64_t layout_bytes(std::string_view key, std::string_view dtype, std::span<const std::int64_t> shape) {
  const auto known = parse_safetensors_dtype(dtype);
  if (!known) refuse(fmt::format("'{}' has the unknown dtype '{}'", key, dtype));
  std::uint64_t bytes = item_size(*known);
  for (const std::int64_t size : shape) {
    if (size < 0 || __builtin_mul_overflow(bytes, static_cast<std::uint64_t>(size), &bytes)) {
      refuse(fmt::format("'{}' has an impossible shape", key));
    }
  }
  return bytes;
}

HeaderItem read_item(std::string_view key, simdjson::dom::element element, std::uint64_t data_begin,
                     std::uint64_t data_size) {
  const auto entry = element.get_object();
  const std::string_view dtype = entry["dtype"].get_string();
  std::vector<std::int64_t> shape;
  for (const auto size : entry["shape"].get_array()) shape.push_back(size.get_int64());
  std::vector<std::uint64_t> offsets;
  for (const auto offset : entry["data_offsets"].get_array()) offsets.push_back(offset.get_uint64());
  if (offsets.size() != 2 || offsets[0] > offsets[1] || offsets[1] > data_size) {
    refuse(fmt::format("'{}' lies outside the file's data", key));
  }
  if (offsets[1] - offsets[0] != layout_bytes(key, dtype, shape)) {
    refuse(fmt::format("'{}' has a size that its dtype and shape do not ask for", key));
  }
  return {layout_text(dtype, shape), data_begin + offsets[0], data_begin + offsets[1]};
}

void check_cover(const std::map<std::string, HeaderItem>& items, std::uint64_t begin, std::uint64_t end) {
  std::vector<std::pair<std::uint64_t, std::uint64_t>> ranges;
  for (const auto& [key, item] : items) ranges.emplace_back(item.begin, item.end);
  std::sort(ranges.begin(), ranges.end());
  for (const auto& [from, to] : ranges) {
    if (from != begin) refuse(fmt::format("its entries leave a hole or overlap at offset {}", std::min(from, begin)));
    begin = to;
  }
  if (begin != end) refuse(fmt::format("its entries end at offset {} but the file at {}", begin, end));
}

std::string entry_text(std::string_view key, std::string_view dtype, std::span<const std::int64_t> shape,
                       std::uint64_t begin, std::uint64_t end) {
  std::string text;
  append_json_text(text, key);
  text += fmt::format(R"(:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}},)", dtype, fmt::join(shape, ","), begin,
                      end);
  return text;
}

std::string bytes_entry(std::string_view key, std::size_t number, std::uint64_t begin, std::uint64_t end) {
  const auto size = static_cast<std::int64_t>(end - begin);
  return entry_text(fmt::format("{}{}", key, number), "U8", {&size, 1}, begin, end);
}

std::string tensor_entry(const SegmentTensor& tensor, std::string_view key, std::uint64_t data_begin) {
  std::vector<std::int64_t> shape = tensor.shape;
  if (tensor.dtype == DType::C128) shape.push_back(2);
  const DType dtype = tensor.dtype == DType::C128 ? DType::F64 : tensor.dtype;
  return entry_text(key, safetensors_name(dtype), shape, tensor.begin - data_begin, tensor.end - data_begin);
}

}  // namespace

std::string segment_key(const Event& event) {
  return fmt::format("{}@{}#{}", std::string_view(event.name).substr(0, kLongestName), event.step, event.call);
}

std::string stored_layout(const TensorRecord& tensor) { return layout_of(tensor.dtype, tensor.shape); }

std::map<std::string, HeaderItem> read_segment_header(std::span<const std::byte> file_bytes) {
  if (file_bytes.size() < kHeaderPrefix) refuse(fmt::format("{} bytes are no safetensors file", file_bytes.size()));
  std::uint64_t length = 0;
  std::memcpy(&length, file_bytes.data(), sizeof length);
  if (length > kLargestHeader || length > file_bytes.size() - kHeaderPrefix) {
    refuse(fmt::format("its header is said to have {} bytes", length));
  }
  const std::string_view text(reinterpret_cast<const char*>(file_bytes.data()) + kHeaderPrefix, length);
  if (!text.starts_with('{') || text.find_last_not_of(' ') != text.rfind('}')) refuse("its header is no JSON object");
  const std::uint64_t data_begin = kHeaderPrefix + length;
  std::map<std::string, HeaderItem> items;
  try {
    simdjson::dom::parser parser;
    const simdjson::padded_string padded(text);
    for (const auto [key, value] : parser.parse(padded).get_object()) {
      if (key == "__metadata__") continue;
      const HeaderItem item = read_item(key, value, data_begin, file_bytes.size() - data_begin);
      if (!items.emplace(key, item).second) refuse(fmt::format("it has '{}' twice", key));
    }
  } catch (const simdjson::simdjson_error& error) {
    refuse(fmt::format("its header is damaged: {}", error.what()));
  }
  check_cover(items, data_begin, file_bytes.size());
  return items;
}

std::string make_segment_header(std::span<const SegmentTensor> tensors, std::uint64_t data_begin,
                                std::uint64_t data_end, std::size_t& unnamed) {
  const std::uint64_t room = data_begin - kHeaderPrefix;
  std::unordered_set<std::string> keys;
  std::string header = "{";
  std::uint64_t tail = data_begin;
  std::size_t pads = 0;
  // What may be needed behind the entries so far: one for all that follows, if the next does not fit.
  constexpr std::size_t kReserve = 128;
  unnamed = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const SegmentTensor& tensor = tensors[i];
    std::string entry;
    if (tensor.begin > tail) entry = bytes_entry(kPadKey, pads++, tail - data_begin, tensor.begin - data_begin);
    const bool is_new = keys.insert(tensor.key).second;
    entry += tensor_entry(tensor, is_new ? tensor.key : fmt::format("{}~{}", tensor.key, i), data_begin);
    if (header.size() + entry.size() + kReserve > room) {
      unnamed = tensors.size() - i;
      header += bytes_entry(kUnnamedKey, 0, tail - data_begin, data_end - data_begin);
      tail = data_end;
      break;
    }
    header += entry;
    tail = tensor.end;
  }
  if (tail < data_end) header += bytes_entry(kPadKey, pads, tail - data_begin, data_end - data_begin);
  if (header.back() == ',') header.pop_back();
  header += '}';
  if (header.size() > room) {
    throw Error(ErrorCode::Unsupported, fmt::format("a header of {} bytes does not fit into {}", header.size(), room));
  }
  header.resize(room, ' ');
  return header;
}

}  // namespace tenscope::store
