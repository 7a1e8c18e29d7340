#include <fmt/format.h>

#include <algorithm>
#include <complex>

#include "format/unpickler.hpp"

namespace tenscope {
namespace {

// The tree as it is walked may refer to one part many times, but not be far larger than the file.
constexpr std::uint64_t kFreeWeight = 1 << 20, kWeightPerByte = 16;

template <class T>
void conjugate_or_negate(T* numbers, std::size_t count, std::size_t step, std::size_t first) {
  for (std::size_t i = first; i < count; i += step) numbers[i] = -numbers[i];
}

}  // namespace

Value Unpickler::finish() {
  built_containers_.resize(children_.size());
  built_objects_.resize(objects_.size());
  built_texts_.resize(texts_.size());
  built_kinds_.resize(texts_.size());
  built_tensors_.resize(tensors_.size());
  return to_value(stack_.back(), 0);
}

std::optional<std::uint32_t> Unpickler::root_slot() const {
  const Node& root = nodes_[stack_.back()];
  if (root.kind != Kind::Storage) return std::nullopt;
  return root.index;
}

std::optional<DType> Unpickler::root_dtype() const {
  const Node& root = nodes_[stack_.back()];
  if (root.kind != Kind::Storage || !root.flag) return std::nullopt;
  return root.dtype;
}

std::uint64_t Unpickler::weight_of(NodeId id) const {
  const Node& node = nodes_[id];
  switch (node.kind) {
    case Kind::BigInt:
    case Kind::Text:
    case Kind::Bytes:
    case Kind::ByteArray:
      return 1 + texts_[node.index].text.size() / 16;
    case Kind::List:
    case Kind::Tuple:
    case Kind::Dict:
    case Kind::OrderedDict:
    case Kind::Set:
    case Kind::FrozenSet:
      return built_containers_[node.index].weight;
    case Kind::Object:
      return built_objects_[node.index].weight;
    default:
      return 1;
  }
}

Value Unpickler::to_value(NodeId id, int nesting) {
  const Node node = nodes_[id];
  const auto shared = [&](auto make) -> Value {  // one text may be used as bytes too: the first use is the shared one
    Value& built = built_texts_[node.index];
    Value made =
        built.is_none() || built_kinds_[node.index] != node.kind ? make(std::string(texts_[node.index].text)) : built;
    if (built.is_none()) {
      built = made;
      built_kinds_[node.index] = node.kind;
    }
    return made;
  };
  if (nesting > options_.max_nesting)
    source_.unsupported(begin_, fmt::format("values nested deeper than {}", options_.max_nesting));
  switch (node.kind) {
    case Kind::None:
      return {};
    case Kind::Bool:
      return node.integer != 0;
    case Kind::Int:
      return node.integer;
    case Kind::Float:
      return node.number;
    case Kind::Complex: {
      const auto& parts = children_[node.index];
      return std::complex(nodes_[parts[0]].number, nodes_[parts[1]].number);
    }
    case Kind::BigInt:
      return shared([](std::string digits) { return BigInt{std::move(digits)}; });
    case Kind::Text:
      return shared([](std::string text) { return text; });
    case Kind::Bytes:
      return shared([](std::string bytes) { return Bytes{std::move(bytes), false}; });
    case Kind::ByteArray:
      return shared([](std::string bytes) { return Bytes{std::move(bytes), true}; });
    case Kind::Tensor: {
      Value& built = built_tensors_[node.index];
      if (built.is_none()) built = to_tensor(tensors_[node.index]);
      return built;
    }
    case Kind::NumpyDType:
      return Object{"numpy.dtype", std::make_shared<const Value>(Tuple{{std::string(to_string(node.dtype))}}), nullptr};
    case Kind::Storage:
      source_.unsupported(begin_, "a torch storage outside of a tensor");
    case Kind::Global:
    case Kind::Object:
      return make_object(node, nesting);
    default:
      return make_container(id, nesting);
  }
}

Value Unpickler::make_container(NodeId id, int nesting) {
  const Node node = nodes_[id];
  // `built` stays in place: the tables have their final sizes.
  Built& built = built_containers_[node.index];
  if (built.progress == Built::Progress::Visiting) source_.unsupported(begin_, "a value that contains itself");
  if (built.progress == Built::Progress::Done) return built.value;
  built.progress = Built::Progress::Visiting;

  const auto& children = children_[node.index];
  std::uint64_t weight = 1;
  std::vector<Value> items;
  items.reserve(children.size());
  for (const NodeId child : children) {
    items.push_back(to_value(child, nesting + 1));
    weight += weight_of(child);
    if (weight > kFreeWeight + kWeightPerByte * source_.size()) {
      source_.unsupported(begin_, "a value that refers to its parts so often that it is far larger than the file");
    }
  }
  switch (node.kind) {
    case Kind::List:
      built.value = List{std::move(items)};
      break;
    case Kind::Tuple:
      built.value = Tuple{std::move(items)};
      break;
    case Kind::Set:
      built.value = Set{std::move(items), false};
      break;
    case Kind::FrozenSet:
      built.value = Set{std::move(items), true};
      break;
    default: {
      Dict dict;
      dict.is_ordered_dict = node.kind == Kind::OrderedDict;
      dict.entries.reserve(items.size() / 2);
      for (std::size_t i = 0; i + 1 < items.size(); i += 2)
        dict.entries.emplace_back(std::move(items[i]), std::move(items[i + 1]));
      if (auto state = state_of_.find(id); state != state_of_.end()) {
        Value attributes = to_value(state->second, nesting + 1);
        if (attributes.kind() != ValueKind::Dict) source_.corrupt(begin_, "an OrderedDict whose state is no dict");
        dict.attributes = std::make_shared<const Value>(std::move(attributes));
        weight += weight_of(state->second);
      }
      built.value = std::move(dict);
    }
  }
  built.weight = weight;
  built.progress = Built::Progress::Done;
  return built.value;
}

Value Unpickler::make_object(const Node& node, int nesting) {
  const ObjectPart& part = objects_[node.index];
  Built& built = built_objects_[node.index];
  if (built.progress == Built::Progress::Visiting) source_.unsupported(begin_, "a value that contains itself");
  if (built.progress == Built::Progress::Done) return built.value;
  built.progress = Built::Progress::Visiting;
  const GlobalKind kind = part.global->kind;
  if (node.kind == Kind::Global && kind != GlobalKind::Kept && kind != GlobalKind::KeptConstant &&
      kind != GlobalKind::TorchDType) {
    source_.unsupported(begin_, fmt::format("the value '{}' itself", part.global->name));
  }
  Object object{std::string(part.global->name), nullptr, nullptr};
  built.weight = 1;
  if (part.args) {
    object.args = std::make_shared<const Value>(to_value(*part.args, nesting + 1));
    built.weight += weight_of(*part.args);
  }
  if (part.state) {
    object.state = std::make_shared<const Value>(to_value(*part.state, nesting + 1));
    built.weight += weight_of(*part.state);
  }
  if (built.weight > kFreeWeight + kWeightPerByte * source_.size())
    source_.unsupported(begin_, "a value far larger than the file");
  built.value = std::move(object);
  built.progress = Built::Progress::Done;
  return built.value;
}

Tensor Unpickler::to_tensor(const TensorPart& part) {
  if (!part.slot) source_.corrupt(part.at, "a NumPy array without data");
  StorageSlot& slot = slots_[*part.slot];
  if (!slot.storage) source_.corrupt(part.at, fmt::format("a tensor whose storage '{}' is missing", slot.key));
  const std::uint64_t size = checked_size_bytes(source_, part.at, part.dtype, part.shape);
  const auto item = static_cast<std::int64_t>(item_size(part.dtype));
  slot.storage = aligned(source_, part.at, std::move(slot.storage), item_size(part.dtype), budget_);

  // The first and the last element that it reaches, in elements.
  std::int64_t first = part.offset, last = part.offset;
  for (std::size_t axis = 0; size > 0 && axis < part.strides.size(); ++axis) {
    std::int64_t reach = 0;
    auto& end = part.strides[axis] < 0 ? first : last;
    if (__builtin_mul_overflow(part.shape[axis] - 1, part.strides[axis], &reach) ||
        __builtin_add_overflow(end, reach, &end)) {
      source_.corrupt(part.at, "a tensor whose strides overflow");
    }
  }
  const auto available = static_cast<std::int64_t>(slot.storage->size_bytes) / item;
  const bool fits =
      part.strides.empty() ? size <= slot.storage->size_bytes : size == 0 || (first >= 0 && last < available);
  if (!fits)
    source_.corrupt(part.at, fmt::format("a tensor that reaches past its storage '{}' of {} bytes", slot.key,
                                         slot.storage->size_bytes));

  Tensor tensor;
  tensor.dtype = part.dtype;
  tensor.shape = part.shape;
  tensor.strides = part.strides;
  tensor.storage = slot.storage;
  tensor.data = slot.storage->data + (size > 0 ? part.offset * item : 0);
  tensor.origin = part.origin;
  tensor.requires_grad = part.requires_grad;
  tensor.device = slot.device;
  if (is_c_order(tensor.view())) tensor.strides.clear();

  if (part.is_big_endian || (is_big_endian_ && !slot.dtype && item > 1)) {
    budget_.take(source_, part.at, slot.storage->size_bytes, "swapping the bytes of a tensor");
    std::byte* bytes = nullptr;
    tensor.storage = allocate_storage(slot.storage->size_bytes, &bytes);
    copy_swapped(part.dtype, {slot.storage->data, slot.storage->size_bytes}, bytes);
    tensor.data = bytes + part.offset * item;
  }
  if (part.is_conj || part.is_neg) {
    budget_.take(source_, part.at, size, "resolving a conjugate or negative view");
    const TensorOrigin origin = tensor.origin;
    tensor = Tensor::copy_of(tensor.view());
    tensor.origin = origin;
    tensor.requires_grad = part.requires_grad;
    auto* bytes = const_cast<std::byte*>(tensor.storage->data);
    const bool is_complex = kind_of(part.dtype) == DTypeKind::Complex;
    const auto flip = [&](auto* numbers) {
      const std::size_t count = size / sizeof(*numbers);
      if (part.is_neg) conjugate_or_negate(numbers, count, 1, 0);
      if (part.is_conj && is_complex) conjugate_or_negate(numbers, count, 2, 1);
    };
    if (part.dtype == DType::C128 || part.dtype == DType::F64) {
      flip(reinterpret_cast<double*>(bytes));
    } else if (part.dtype == DType::C64 || part.dtype == DType::F32) {
      flip(reinterpret_cast<float*>(bytes));
    } else {
      source_.unsupported(part.at, fmt::format("a conjugate or negative view of {}", to_string(part.dtype)));
    }
  }
  return tensor;
}

}  // namespace tenscope
