#include <fmt/format.h>

#include <algorithm>

#include "format/npy.hpp"
#include "format/pt_legacy.hpp"
#include "format/unescape.hpp"
#include "format/unpickler.hpp"

namespace tenscope {
namespace {

constexpr int kMaxStreamDepth = 2;  // a pickle whose tensors hold streams of their own

}  // namespace

std::string_view Unpickler::text(NodeId id) const {
  const Node& node = nodes_[id];
  if (node.kind != Kind::Text && node.kind != Kind::Bytes && node.kind != Kind::ByteArray)
    corrupt("a pickle with something else where text belongs");
  return texts_[node.index].text;
}

std::int64_t Unpickler::integer(NodeId id) const {
  if (nodes_[id].kind != Kind::Int) corrupt("a pickle with something else where an integer belongs");
  return nodes_[id].integer;
}

bool Unpickler::boolean(NodeId id) const {
  if (nodes_[id].kind != Kind::Bool && nodes_[id].kind != Kind::Int)
    corrupt("a pickle with something else where a bool belongs");
  return nodes_[id].integer != 0;
}

const Global* Unpickler::global(NodeId id) const {
  return nodes_[id].kind == Kind::Global ? objects_[nodes_[id].index].global : nullptr;
}

std::vector<std::int64_t> Unpickler::sizes(NodeId id) const {
  const Node* node = &nodes_[id];
  if (node->kind == Kind::Object && objects_[node->index].global->name == "torch.Size" && objects_[node->index].args) {
    const Node& args = nodes_[*objects_[node->index].args];
    if (args.kind == Kind::Tuple && children_[args.index].size() == 1) node = &nodes_[children_[args.index][0]];
  }
  if (node->kind != Kind::Tuple && node->kind != Kind::List)
    corrupt("a pickle with something else where a tuple of sizes belongs");
  const auto& children = children_[node->index];
  if (children.size() > kMaxRank) corrupt(fmt::format("a tensor of rank {}, above {}", children.size(), kMaxRank));
  std::vector<std::int64_t> sizes;
  for (const NodeId child : children) sizes.push_back(integer(child));
  return sizes;
}

const std::vector<Unpickler::NodeId>& Unpickler::arguments(NodeId args, std::size_t at_least, std::size_t at_most) {
  if (nodes_[args].kind != Kind::Tuple) corrupt("a call without a tuple of arguments");
  const auto& children = children_[nodes_[args].index];
  if (children.size() < at_least || children.size() > at_most)
    corrupt(fmt::format("a call with {} arguments", children.size()));
  return children;
}

Unpickler::NodeId Unpickler::copy_children(Kind kind, NodeId from) {
  const Kind source = nodes_[from].kind;
  const bool is_sequence =
      source == Kind::List || source == Kind::Tuple || source == Kind::Set || source == Kind::FrozenSet;
  if (!is_sequence) corrupt("a collection made of something else than a list");
  std::vector<NodeId> children = children_[nodes_[from].index];
  budget_.take(source_, opcode_at_, children.size() * sizeof(NodeId) + 64, "a collection");
  children_.push_back(std::move(children));
  return add({.kind = kind, .index = static_cast<std::uint32_t>(children_.size() - 1)});
}

Unpickler::NodeId Unpickler::call(NodeId callable, NodeId args) {
  const Global* called = global(callable);
  if (!called) corrupt("a call of something that cannot be called");
  switch (called->kind) {
    case GlobalKind::Kept:
      return new_object(*called, args);
    case GlobalKind::NumpyReconstruct:
    case GlobalKind::NumpyFromBuffer:
    case GlobalKind::NumpyScalar:
    case GlobalKind::NumpyDType:
      return call_numpy(*called, args);
    case GlobalKind::RebuildTensor:
    case GlobalKind::RebuildTensorV2:
    case GlobalKind::RebuildTensorV3:
    case GlobalKind::RebuildParameter:
    case GlobalKind::RebuildFromType:
    case GlobalKind::RebuildOnDevice:
    case GlobalKind::LoadFromBytes:
      return call_torch(*called, args);
    default:
      return call_builtin(*called, args);
  }
}

Unpickler::NodeId Unpickler::new_object(const Global& global, NodeId args) {
  arguments(args, 0, 64);
  budget_.take(source_, opcode_at_, sizeof(ObjectPart), "an object");
  objects_.push_back({&global, args, {}});
  return add({.kind = Kind::Object, .index = static_cast<std::uint32_t>(objects_.size() - 1)});
}

Unpickler::NodeId Unpickler::call_builtin(const Global& global, NodeId args) {
  const auto fresh = [this](Kind kind) {
    children_.emplace_back();
    return add({.kind = kind, .index = static_cast<std::uint32_t>(children_.size() - 1)});
  };
  const auto number = [this](NodeId id) {
    const Node& node = nodes_[id];
    if (node.kind == Kind::Float) return node.number;
    return static_cast<double>(integer(id));
  };
  switch (global.kind) {
    case GlobalKind::OrderedDict: {
      const auto& given = arguments(args, 0, 1);
      if (given.empty()) return fresh(Kind::OrderedDict);
      const Node& list = nodes_[given[0]];
      if (list.kind == Kind::Dict || list.kind == Kind::OrderedDict) unsupported("an OrderedDict made of a dict");
      if (list.kind != Kind::List && list.kind != Kind::Tuple)
        corrupt("an OrderedDict made of something else than pairs");
      std::vector<NodeId> items;  // Python 2 wrote a list of pairs
      for (const NodeId pair : children_[list.index]) {
        const Kind kind = nodes_[pair].kind;
        if ((kind != Kind::List && kind != Kind::Tuple) || children_[nodes_[pair].index].size() != 2) {
          corrupt("an OrderedDict made of something else than pairs");
        }
        const auto& both = children_[nodes_[pair].index];
        items.insert(items.end(), both.begin(), both.end());
      }
      budget_.take(source_, opcode_at_, items.size() * sizeof(NodeId) + 64, "an OrderedDict");
      children_.push_back(std::move(items));
      return add({.kind = Kind::OrderedDict, .index = static_cast<std::uint32_t>(children_.size() - 1)});
    }
    case GlobalKind::DefaultDict:
      arguments(args, 0, 1);
      return fresh(Kind::Dict);
    case GlobalKind::Counter: {
      const auto& given = arguments(args, 0, 1);
      if (given.empty()) return fresh(Kind::Dict);
      if (nodes_[given[0]].kind != Kind::Dict) corrupt("a Counter made of something else than a dict");
      return given[0];
    }
    case GlobalKind::Set:
    case GlobalKind::FrozenSet: {
      const Kind kind = global.kind == GlobalKind::Set ? Kind::Set : Kind::FrozenSet;
      const auto& given = arguments(args, 0, 1);
      return given.empty() ? fresh(kind) : copy_children(kind, given[0]);
    }
    case GlobalKind::Bytes:
    case GlobalKind::ByteArray: {
      const Kind kind = global.kind == GlobalKind::Bytes ? Kind::Bytes : Kind::ByteArray;
      const auto& given = arguments(args, 0, 2);
      if (given.size() == 2) return encode_text(given[0], given[1], kind);
      if (given.size() == 1) {
        text(given[0]);
        Node node = nodes_[given[0]];
        node.kind = kind;
        return add(node);
      }
      texts_.push_back({});
      return add({.kind = kind, .index = static_cast<std::uint32_t>(texts_.size() - 1)});
    }
    case GlobalKind::Encode: {
      const auto& given = arguments(args, 2, 2);
      return encode_text(given[0], given[1], Kind::Bytes);
    }
    case GlobalKind::Complex: {
      const auto& given = arguments(args, 2, 2);
      children_.push_back({add({.kind = Kind::Float, .number = number(given[0])}),
                           add({.kind = Kind::Float, .number = number(given[1])})});
      return add({.kind = Kind::Complex, .index = static_cast<std::uint32_t>(children_.size() - 1)});
    }
    case GlobalKind::Reconstructor: {  // protocols 0 and 1: (class, object, None)
      const auto& given = arguments(args, 3, 3);
      const Global* made = this->global(given[0]);
      if (!made || made->kind != GlobalKind::Kept) corrupt("an object of an unknown class");
      children_.emplace_back();
      return new_object(*made, add({.kind = Kind::Tuple, .index = static_cast<std::uint32_t>(children_.size() - 1)}));
    }
    default:
      unsupported(fmt::format("a call of {}", global.name));
  }
}

Unpickler::NodeId Unpickler::encode_text(NodeId text_id, NodeId encoding, Kind kind) {
  const auto name = text(encoding);
  if (name != "latin1" && name != "latin-1") unsupported(fmt::format("bytes written as '{}' text", name.substr(0, 40)));
  budget_.take(source_, opcode_at_, text(text_id).size() + 64, "bytes written as text");
  auto decoded = latin1_of_utf8(text(text_id));
  if (!decoded) corrupt("bytes written as text with other characters");
  auto owner = std::make_shared<const std::string>(std::move(*decoded));
  texts_.push_back({*owner, owner});
  return add({.kind = kind, .index = static_cast<std::uint32_t>(texts_.size() - 1)});
}

Unpickler::NodeId Unpickler::call_numpy(const Global& global, NodeId args) {
  const auto dtype_node = [this](NodeId id) {
    if (nodes_[id].kind != Kind::NumpyDType) corrupt("a NumPy array with something else as its dtype");
    return nodes_[id];
  };
  switch (global.kind) {
    case GlobalKind::NumpyDType: {
      const auto& given = arguments(args, 1, 3);
      if (const Global* type = this->global(given[0])) {  // a class of ml_dtypes
        if (type->kind != GlobalKind::NumpyType) unsupported(fmt::format("the NumPy dtype of {}", type->name));
        return add({.kind = Kind::NumpyDType, .dtype = *type->dtype});
      }
      const auto code = text(given[0]);
      const auto parsed = parse_numpy_dtype(code);
      if (!parsed) unsupported(fmt::format("the NumPy dtype '{}'", code.substr(0, 40)));
      return add({.kind = Kind::NumpyDType, .flag = parsed->is_big_endian, .dtype = parsed->dtype});
    }
    case GlobalKind::NumpyReconstruct: {
      const auto& given = arguments(args, 3, 3);
      const Global* type = this->global(given[0]);
      if (!type || type->kind != GlobalKind::NumpyArray) corrupt("a NumPy array of another class");
      return add_tensor({.origin = TensorOrigin::Numpy, .at = opcode_at_});
    }
    case GlobalKind::NumpyScalar: {
      const auto& given = arguments(args, 2, 2);
      return array_of_bytes(given[1], dtype_node(given[0]), {}, false, TensorOrigin::NumpyScalar);
    }
    default: {  // NumpyFromBuffer: buffer, dtype, shape, order
      const auto& given = arguments(args, 4, 5);
      const bool is_fortran = text(given[3]) == "F";
      return array_of_bytes(given[0], dtype_node(given[1]), sizes(given[2]), is_fortran, TensorOrigin::Numpy);
    }
  }
}

Unpickler::NodeId Unpickler::add_tensor(TensorPart part) {
  budget_.take(source_, opcode_at_, sizeof(TensorPart) + 16 * part.shape.size(), "a tensor");
  tensors_.push_back(std::move(part));
  return add({.kind = Kind::Tensor, .index = static_cast<std::uint32_t>(tensors_.size() - 1)});
}

Unpickler::NodeId Unpickler::array_of_bytes(NodeId bytes, const Node& dtype, std::vector<std::int64_t> shape,
                                            bool is_fortran, TensorOrigin origin) {
  TensorPart array{.shape = std::move(shape), .origin = origin, .at = opcode_at_};
  fill_array(array, bytes, dtype, is_fortran);
  return add_tensor(std::move(array));
}

void Unpickler::fill_array(TensorPart& array, NodeId bytes, const Node& dtype, bool is_fortran) {
  const auto data = text(bytes);
  const std::uint64_t size = checked_size_bytes(source_, opcode_at_, dtype.dtype, array.shape);
  if (size != data.size()) corrupt(fmt::format("a NumPy array of {} bytes with {} bytes of data", size, data.size()));
  array.dtype = dtype.dtype;
  array.is_big_endian = dtype.flag && item_size(dtype.dtype) > 1;
  if (is_fortran && array.shape.size() > 1) array.strides = fortran_strides(array.shape);
  const TextPart& part = texts_[nodes_[bytes].index];
  budget_.take(source_, opcode_at_, sizeof(StorageSlot), "an array");
  slots_.push_back({.size_bytes = size, .at = opcode_at_, .dtype = dtype.dtype});
  slots_.back().storage = std::make_shared<const Storage>(
      Storage{reinterpret_cast<const std::byte*>(data.data()), data.size(), part.owner ? part.owner : source_.owner});
  array.slot = static_cast<std::uint32_t>(slots_.size() - 1);
}

void Unpickler::build_array(TensorPart& array, NodeId state) {
  const auto& given = arguments(state, 5, 5);  // version, shape, dtype, is it in Fortran order, data
  if (array.slot || array.origin != TensorOrigin::Numpy) corrupt("a state for something else than a new NumPy array");
  if (nodes_[given[2]].kind != Kind::NumpyDType) corrupt("a NumPy array with something else as its dtype");
  array.shape = sizes(given[1]);
  fill_array(array, given[4], nodes_[given[2]], boolean(given[3]));
}

void Unpickler::build(NodeId target, NodeId state) {
  Node& node = nodes_[target];
  switch (node.kind) {
    case Kind::Tensor:
      return build_array(tensors_[node.index], state);
    case Kind::NumpyDType: {
      const auto& given = arguments(state, 2, 16);  // version, byte order, subarray, names, fields, ...
      for (std::size_t i = 2; i < std::min<std::size_t>(given.size(), 5); ++i) {
        if (nodes_[given[i]].kind != Kind::None) unsupported("a structured NumPy dtype");
      }
      const auto order = text(given[1]);
      if (order.size() != 1 || std::string_view("<>|=").find(order[0]) == std::string_view::npos)
        corrupt("a NumPy dtype with an unknown byte order");
      node.flag = order == ">";
      return;
    }
    case Kind::Object:
      objects_[node.index].state = state;
      return;
    case Kind::OrderedDict:
      state_of_[target] = state;
      return;
    default:
      corrupt("a state for something that takes none");
  }
}

Unpickler::NodeId Unpickler::call_torch(const Global& global, NodeId args) {
  switch (global.kind) {
    case GlobalKind::RebuildParameter:
      return rebuild_parameter(args);
    case GlobalKind::RebuildFromType:
      return rebuild_from_type(args);
    case GlobalKind::LoadFromBytes:
      return load_from_bytes(args);
    case GlobalKind::RebuildOnDevice: {  // data, dtype, device, requires_grad
      const auto& given = arguments(args, 4, 4);
      if (nodes_[given[0]].kind != Kind::Tensor) corrupt("a device tensor made of something else than a tensor");
      TensorPart part = tensors_[nodes_[given[0]].index];
      const Global* dtype = this->global(given[1]);
      if (!dtype || dtype->dtype != part.dtype) unsupported("a device tensor that changes its dtype");
      part.origin = TensorOrigin::Torch;
      part.requires_grad = boolean(given[3]);
      return add_tensor(std::move(part));
    }
    default:
      return rebuild_tensor(global, args);
  }
}

Unpickler::NodeId Unpickler::rebuild_tensor(const Global& global, NodeId args) {
  // storage, offset, size, stride [, requires_grad, hooks [, dtype of v3] [, metadata]]
  const bool is_v3 = global.kind == GlobalKind::RebuildTensorV3;
  const bool is_v1 = global.kind == GlobalKind::RebuildTensor;
  const auto& given = arguments(args, is_v1 ? 4 : is_v3 ? 7 : 6, is_v1 ? 4 : is_v3 ? 8 : 7);
  const Node storage = nodes_[given[0]];
  if (storage.kind != Kind::Storage) corrupt("a tensor made of something else than a storage");
  TensorPart part{.slot = storage.index, .at = opcode_at_};
  part.offset = integer(given[1]);
  part.shape = sizes(given[2]);
  part.strides = sizes(given[3]);
  if (part.strides.size() != part.shape.size()) corrupt("a tensor with strides of another rank");
  if (is_v3) {
    const Global* dtype = this->global(given[6]);
    if (!dtype || dtype->kind != GlobalKind::TorchDType) corrupt("a tensor with something else as its dtype");
    part.dtype = *dtype->dtype;
  } else {
    if (!storage.flag) corrupt("a tensor without a dtype");
    part.dtype = storage.dtype;
  }
  if (!is_v1) part.requires_grad = boolean(given[4]);
  const std::size_t metadata_at = is_v3 ? 7 : 6;
  if (given.size() > metadata_at && nodes_[given[metadata_at]].kind == Kind::Dict) {
    const auto& metadata = children_[nodes_[given[metadata_at]].index];
    for (std::size_t i = 0; i + 1 < metadata.size(); i += 2) {
      if (text(metadata[i]) == "conj") part.is_conj = boolean(metadata[i + 1]);
      if (text(metadata[i]) == "neg") part.is_neg = boolean(metadata[i + 1]);
    }
  }
  return add_tensor(std::move(part));
}

Unpickler::NodeId Unpickler::rebuild_parameter(NodeId args) {
  const auto& given = arguments(args, 3, 4);  // tensor, requires_grad, hooks [, state]
  if (nodes_[given[0]].kind != Kind::Tensor) corrupt("a parameter made of something else than a tensor");
  TensorPart part = tensors_[nodes_[given[0]].index];
  part.origin = TensorOrigin::TorchParameter;
  part.requires_grad = boolean(given[1]);
  return add_tensor(std::move(part));
}

Unpickler::NodeId Unpickler::rebuild_from_type(NodeId args) {
  const auto& given = arguments(args, 4, 4);  // function, type, arguments, state
  const Global* function = global(given[0]);
  const Global* type = global(given[1]);
  const NodeId inner = given[2];
  if (!type || (type->kind != GlobalKind::TorchTensor && type->kind != GlobalKind::TorchParameter))
    corrupt("a tensor of an unknown class");
  if (!function || function->kind == GlobalKind::RebuildFromType) corrupt("a tensor made by an unknown function");
  switch (function->kind) {
    case GlobalKind::RebuildTensor:
    case GlobalKind::RebuildTensorV2:
    case GlobalKind::RebuildTensorV3:
    case GlobalKind::RebuildParameter:
      return call_torch(*function, inner);
    default:
      corrupt("a tensor made by an unknown function");
  }
}

Unpickler::NodeId Unpickler::load_from_bytes(NodeId args) {
  const auto& given = arguments(args, 1, 1);
  if (depth_ >= kMaxStreamDepth) unsupported("streams nested too deeply");
  const TextPart part = texts_[(text(given[0]), nodes_[given[0]].index)];
  budget_.take(source_, opcode_at_, part.text.size() + 1024, "a stream inside of the pickle");
  Source stream{source_.path, source_.format, 0, std::as_bytes(std::span(part.text)),
                part.owner ? part.owner : source_.owner};
  if (!part.owner)
    stream.offset = source_.offset + static_cast<std::uint64_t>(stream.bytes.data() - source_.bytes.data());
  auto [storage, dtype] = read_legacy_storage(stream, options_, budget_, depth_ + 1);
  slots_.push_back({.size_bytes = storage->size_bytes, .at = opcode_at_, .storage = storage, .dtype = dtype});
  return add({.kind = Kind::Storage,
              .flag = dtype.has_value(),
              .dtype = dtype.value_or(DType::U8),
              .index = static_cast<std::uint32_t>(slots_.size() - 1)});
}

Unpickler::NodeId Unpickler::persistent(NodeId id) {
  const auto& given = arguments(id, 5, 6);  // "storage", type, key, device, count [, view]
  if (text(given[0]) != "storage")
    unsupported(fmt::format("a persistent id of kind '{}'", text(given[0]).substr(0, 40)));
  const Global* type = global(given[1]);
  const bool is_typed = type && type->kind == GlobalKind::TorchStorage;
  if (!is_typed && !(type && type->kind == GlobalKind::TorchUntypedStorage)) corrupt("a storage of an unknown type");
  const std::size_t item = is_typed ? item_size(*type->dtype) : 1;

  StorageSlot slot{.key = std::string(text(given[2])), .device = std::string(text(given[3])), .at = opcode_at_};
  if (is_typed) slot.dtype = type->dtype;
  const std::int64_t count = integer(given[4]);
  if (count < 0 || __builtin_mul_overflow(static_cast<std::uint64_t>(count), item, &slot.size_bytes))
    corrupt("a storage of impossible size");
  if (given.size() == 6 && nodes_[given[5]].kind != Kind::None) {  // a view: key, offset, count
    const auto& view = arguments(given[5], 3, 3);
    const std::int64_t offset = integer(view[1]), view_count = integer(view[2]);
    if (offset < 0 || view_count < 0 || offset > count || view_count > count - offset)
      corrupt("a storage that views past another");
    StorageSlot root = slot;
    slot.view_of = slot.key;
    slot.key = "view " + std::string(text(view[0]));
    slot.view_offset_bytes = static_cast<std::uint64_t>(offset) * item;
    slot.size_bytes = static_cast<std::uint64_t>(view_count) * item;
    if (slot_by_key_.emplace(root.key, static_cast<std::uint32_t>(slots_.size())).second)
      slots_.push_back(std::move(root));
  }
  const auto [place, is_new] = slot_by_key_.emplace(slot.key, static_cast<std::uint32_t>(slots_.size()));
  if (is_new) {
    budget_.take(source_, opcode_at_, sizeof(StorageSlot) + slot.key.size() + slot.device.size(), "a storage");
    slots_.push_back(std::move(slot));
  } else if (slots_[place->second].size_bytes != slot.size_bytes) {
    corrupt(fmt::format("two sizes of the storage '{}'", slot.key));
  }
  return add(
      {.kind = Kind::Storage, .flag = is_typed, .dtype = is_typed ? *type->dtype : DType::U8, .index = place->second});
}

}  // namespace tenscope
