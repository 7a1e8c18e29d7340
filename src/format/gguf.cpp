#include "format/gguf.hpp"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <array>
#include <bit>
#include <numeric>
#include <unordered_set>
#include <utility>

namespace tenscope {
namespace {

constexpr std::uint32_t kDefaultAlignment = 32;
constexpr std::uint32_t kMostAxes = 8;  // ggml has 4
constexpr std::string_view kAlignmentKey = "general.alignment";

// A type of ggml: plain elements, blocks that can be dequantised, or neither. Bytes of a block of so many elements.
struct GgmlType {
  std::uint32_t code;
  std::string_view name;
  std::optional<DType> dtype;
  std::optional<BlockType> blocks;
  std::uint64_t elements = 1, bytes = 0;
};

constexpr GgmlType plain(std::uint32_t code, std::string_view name, DType dtype) { return {code, name, dtype, {}}; }
constexpr GgmlType block(std::uint32_t code, std::string_view name, BlockType type) { return {code, name, {}, type}; }
constexpr GgmlType unread(std::uint32_t code, std::string_view name, std::uint64_t elements, std::uint64_t bytes) {
  return {code, name, {}, {}, elements, bytes};
}

// ggml's other codes are gone from the format, or were never stored.
constexpr std::array kTypes = {
    plain(0, "f32", DType::F32),
    plain(1, "f16", DType::F16),
    block(2, "q4_0", BlockType::Q4_0),
    block(3, "q4_1", BlockType::Q4_1),
    block(6, "q5_0", BlockType::Q5_0),
    block(7, "q5_1", BlockType::Q5_1),
    block(8, "q8_0", BlockType::Q8_0),
    block(10, "q2_K", BlockType::Q2_K),
    block(11, "q3_K", BlockType::Q3_K),
    block(12, "q4_K", BlockType::Q4_K),
    block(13, "q5_K", BlockType::Q5_K),
    block(14, "q6_K", BlockType::Q6_K),
    unread(16, "iq2_xxs", 256, 66),
    unread(17, "iq2_xs", 256, 74),
    unread(18, "iq3_xxs", 256, 98),
    unread(19, "iq1_s", 256, 50),
    block(20, "iq4_nl", BlockType::IQ4_NL),
    unread(21, "iq3_s", 256, 110),
    unread(22, "iq2_s", 256, 82),
    block(23, "iq4_xs", BlockType::IQ4_XS),
    plain(24, "i8", DType::I8),
    plain(25, "i16", DType::I16),
    plain(26, "i32", DType::I32),
    plain(27, "i64", DType::I64),
    plain(28, "f64", DType::F64),
    unread(29, "iq1_m", 256, 56),
    plain(30, "bf16", DType::BF16),
    block(34, "tq1_0", BlockType::TQ1_0),
    block(35, "tq2_0", BlockType::TQ2_0),
    block(39, "mxfp4", BlockType::MXFP4),
    unread(40, "nvfp4", 64, 36),
};

enum class MetadataType : std::uint32_t { U8, I8, U16, I16, U32, I32, F32, Bool, Text, Array, U64, I64, F64 };
constexpr std::array<std::uint64_t, 13> kLeastBytes = {1, 1, 2, 2, 4, 4, 4, 1, 8, 12, 8, 8, 8};

std::optional<DType> dtype_of(MetadataType type) {
  constexpr std::array<DType, 13> kDTypes = {DType::U8,  DType::I8,  DType::U16,  DType::I16, DType::U32,
                                             DType::I32, DType::F32, DType::Bool, DType::F32, DType::F32,
                                             DType::U64, DType::I64, DType::F64};
  if (type == MetadataType::Text || type == MetadataType::Array) return std::nullopt;
  return kDTypes[static_cast<std::size_t>(type)];
}

class HeaderReader {
 public:
  HeaderReader(const Source& source, const LoadOptions& options)
      : source_(source), options_(options), budget_(options, source.size()) {}

  void read(Dict& metadata, std::vector<GgufTensor>& tensors) {
    if (source_.text(0, 4, "magic number") != "GGUF") source_.corrupt(0, "it does not begin with 'GGUF'");
    at_ = 4;
    const auto version = take<std::uint32_t>("version");
    if (version != 0 && (version & 0xFFFF) == 0) source_.unsupported(4, "it is big-endian; only little-endian is read");
    if (version != 2 && version != 3)
      source_.fail(ErrorCode::Version, 4, fmt::format("version {}, where 2 and 3 are known", version));
    const std::uint64_t tensor_count = take_count(4 + 8 + 4 + 8, "number of tensors");
    const std::uint64_t metadata_count = take_count(8 + 4 + 1, "number of metadata");
    read_metadata(metadata_count, metadata);
    tensors.reserve(tensor_count);
    std::unordered_set<std::string> names;
    for (std::uint64_t i = 0; i < tensor_count; ++i) {
      tensors.push_back(read_tensor());
      if (!names.insert(tensors.back().name).second)
        source_.corrupt(at_, fmt::format("tensor '{}' twice", tensors.back().name));
    }
    place(tensors);
  }

 private:
  template <class T>
  T take(std::string_view what) {
    const T value = source_.little<T>(at_, what);
    at_ += sizeof(T);
    return value;
  }

  // A number of things that take so many bytes each at least.
  std::uint64_t take_count(std::uint64_t least_bytes, std::string_view what) {
    const std::uint64_t where = at_, count = take<std::uint64_t>(what);
    if (count > (source_.size() - at_) / least_bytes)
      source_.corrupt(where, fmt::format("{} {}, which the file has no room for", what, count));
    return count;
  }

  std::string_view take_text(std::string_view what) {
    const auto size = take<std::uint64_t>(what);
    const std::string_view text = source_.text(at_, size, what);
    at_ += size;
    return text;
  }

  std::string take_name(std::string_view what) {
    const std::uint64_t where = at_;
    const std::string_view text = take_text(what);
    if (!simdjson::validate_utf8(text)) source_.corrupt(where, fmt::format("a {} that is not UTF-8", what));
    return std::string(text);
  }

  void read_metadata(std::uint64_t count, Dict& metadata) {
    std::unordered_set<std::string> keys;
    for (std::uint64_t i = 0; i < count; ++i) {
      const std::uint64_t where = at_;
      std::string key = take_name("key");
      if (!keys.insert(key).second) source_.corrupt(where, fmt::format("key '{}' twice", key));
      const MetadataType type = take_type();
      Value value = read_value(type, 0);
      if (key == kAlignmentKey) set_alignment(where, value);
      metadata.entries.emplace_back(std::move(key), std::move(value));
    }
  }

  void set_alignment(std::uint64_t where, const Value& value) {
    const auto* number = value.get_if<std::int64_t>();
    if (number == nullptr || *number <= 0 || *number > (1 << 20) ||
        !std::has_single_bit(static_cast<std::uint64_t>(*number)))
      source_.corrupt(where, "an alignment that is no power of two");
    alignment_ = static_cast<std::uint64_t>(*number);
  }

  MetadataType take_type() {
    const std::uint64_t where = at_;
    const auto code = take<std::uint32_t>("type of a value");
    if (code >= kLeastBytes.size()) source_.corrupt(where, fmt::format("a value of the unknown type {}", code));
    return static_cast<MetadataType>(code);
  }

  Value read_value(MetadataType type, int depth) {
    switch (type) {
      case MetadataType::U8:
        return std::int64_t{take<std::uint8_t>("value")};
      case MetadataType::I8:
        return std::int64_t{take<std::int8_t>("value")};
      case MetadataType::U16:
        return std::int64_t{take<std::uint16_t>("value")};
      case MetadataType::I16:
        return std::int64_t{take<std::int16_t>("value")};
      case MetadataType::U32:
        return std::int64_t{take<std::uint32_t>("value")};
      case MetadataType::I32:
        return std::int64_t{take<std::int32_t>("value")};
      case MetadataType::F32:
        return static_cast<double>(std::bit_cast<float>(take<std::uint32_t>("value")));
      case MetadataType::Bool:
        return take<std::uint8_t>("value") != 0;
      case MetadataType::Text:
        return read_text();
      case MetadataType::Array:
        return read_array(depth + 1);
      case MetadataType::U64: {
        const auto number = take<std::uint64_t>("value");
        return std::in_range<std::int64_t>(number) ? Value(static_cast<std::int64_t>(number))
                                                   : Value(BigInt{fmt::format("{}", number)});
      }
      case MetadataType::I64:
        return take<std::int64_t>("value");
      case MetadataType::F64:
        return std::bit_cast<double>(take<std::uint64_t>("value"));
    }
    return {};
  }

  Value read_text() {
    const std::string_view text = take_text("text");
    if (!simdjson::validate_utf8(text)) return Bytes{std::string(text)};
    return std::string(text);
  }

  Value read_array(int depth) {
    const std::uint64_t where = at_;
    if (depth > options_.max_nesting) source_.unsupported(where, fmt::format("arrays nested beyond {}", depth - 1));
    const MetadataType type = take_type();
    const std::uint64_t count = take_count(kLeastBytes[static_cast<std::size_t>(type)], "length of an array");
    if (const auto dtype = dtype_of(type)) {
      Tensor tensor =
          make_tensor(source_, at_, {.dtype = *dtype, .shape = {static_cast<std::int64_t>(count)}}, budget_);
      at_ += count * item_size(*dtype);
      return tensor;
    }
    List list;
    budget_.take(source_, where, count * (sizeof(Value) + sizeof(std::string)), "a list");
    list.items.reserve(count);
    for (std::uint64_t i = 0; i < count; ++i) list.items.push_back(read_value(type, depth));
    return list;
  }

  GgufTensor read_tensor() {
    GgufTensor tensor{.name = take_name("name of a tensor")};
    const std::uint64_t where = at_;
    const auto axes = take<std::uint32_t>("number of axes");
    if (axes > kMostAxes)
      source_.corrupt(where, fmt::format("'{}' with {} axes, above {}", tensor.name, axes, kMostAxes));
    for (std::uint32_t i = 0; i < axes; ++i) tensor.shape.push_back(take<std::int64_t>("size of an axis"));
    std::ranges::reverse(tensor.shape);
    const auto code = take<std::uint32_t>("type of a tensor");
    const auto type = std::ranges::find(kTypes, code, &GgmlType::code);
    if (type == kTypes.end())
      source_.unsupported(where, fmt::format("'{}' is of ggml's type {}, which is not known", tensor.name, code));
    tensor.type = type->name;
    tensor.dtype = type->dtype;
    tensor.blocks = type->blocks;
    tensor.at = take<std::uint64_t>("place of a tensor");
    tensor.size_bytes = checked_size_bytes(source_, where, type->dtype.value_or(DType::F32), tensor.shape);
    if (!type->dtype) tensor.size_bytes = block_size(where, tensor, *type);
    return tensor;
  }

  std::uint64_t block_size(std::uint64_t where, const GgufTensor& tensor, const GgmlType& type) const {
    const std::uint64_t elements = type.blocks ? block_elements(*type.blocks) : type.elements;
    const std::uint64_t bytes = type.blocks ? block_bytes(*type.blocks) : type.bytes;
    const std::uint64_t row = tensor.shape.empty() ? 1 : static_cast<std::uint64_t>(tensor.shape.back());
    if (row % elements != 0)
      source_.corrupt(where, fmt::format("'{}' has rows of {} elements; {} needs a multiple of {}", tensor.name, row,
                                         type.name, elements));
    return tensor.size_bytes / item_size(DType::F32) / elements * bytes;
  }

  // From places in the data to places in the file.
  void place(std::vector<GgufTensor>& tensors) const {
    const std::uint64_t data_at = (at_ + alignment_ - 1) / alignment_ * alignment_;
    std::vector<const GgufTensor*> by_place;
    for (GgufTensor& tensor : tensors) {
      if (tensor.at % alignment_ != 0)
        source_.corrupt(at_, fmt::format("'{}' lies at {} of the data, which is no multiple of the alignment {}",
                                         tensor.name, tensor.at, alignment_));
      if (tensor.at > source_.size()) source_.corrupt(at_, fmt::format("'{}' lies outside of the file", tensor.name));
      tensor.at += data_at;
      if (tensor.size_bytes > 0) source_.require(tensor.at, tensor.size_bytes, fmt::format("'{}'", tensor.name));
      by_place.push_back(&tensor);
    }
    std::ranges::sort(by_place, {}, [](const GgufTensor* tensor) { return std::pair(tensor->at, tensor->size_bytes); });
    for (std::size_t i = 1; i < by_place.size(); ++i)
      if (by_place[i - 1]->at + by_place[i - 1]->size_bytes > by_place[i]->at)
        source_.corrupt(by_place[i]->at, fmt::format("'{}' lies over '{}'", by_place[i]->name, by_place[i - 1]->name));
  }

  const Source& source_;
  const LoadOptions& options_;
  Budget budget_;
  std::uint64_t at_ = 0;
  std::uint64_t alignment_ = kDefaultAlignment;
};

}  // namespace

GgufFile::GgufFile(const Source& source, const LoadOptions& options) : source_(source), options_(options) {
  HeaderReader(source_, options_).read(metadata_, tensors_);
}

Tensor GgufFile::read(const GgufTensor& stored) const {
  Layout layout{.dtype = stored.dtype.value_or(DType::U8), .shape = stored.shape};
  if (stored.blocks) {
    Tensor tensor{.dtype = DType::F32, .shape = stored.shape};
    const std::int64_t count = element_count(stored.shape);
    std::byte* elements = nullptr;
    tensor.storage = allocate_storage(static_cast<std::size_t>(count) * sizeof(float), &elements);
    tensor.data = elements;
    dequantise(*stored.blocks, source_.bytes.data() + stored.at, count, reinterpret_cast<float*>(elements));
    return tensor;
  }
  if (!stored.dtype && !layout.shape.empty()) {
    const std::int64_t rows = element_count({layout.shape.data(), layout.shape.size() - 1});
    layout.shape.back() = rows == 0 ? 0 : static_cast<std::int64_t>(stored.size_bytes) / rows;
  }
  Budget budget(options_, source_.size());
  return make_tensor(source_, stored.size_bytes == 0 ? 0 : stored.at, std::move(layout), budget);
}

Value read_gguf(const Source& source, const LoadOptions& options) {
  const GgufFile file(source, options);
  Dict tensors, attributes;
  for (const GgufTensor& tensor : file.tensors()) tensors.entries.emplace_back(tensor.name, file.read(tensor));
  attributes.entries.emplace_back("metadata", file.metadata());
  tensors.is_ordered_dict = true;
  tensors.attributes = std::make_shared<const Value>(std::move(attributes));
  return tensors;
}

}  // namespace tenscope
