#include "format/value.hpp"

#include <fmt/format.h>

#include <cstring>

#include "tenscope/error.hpp"

namespace tenscope {
namespace {

template <std::size_t kSize>
void copy_row(const std::byte* from, std::int64_t count, std::int64_t stride_bytes, std::byte* to) {
  for (std::int64_t i = 0; i < count; ++i) std::memcpy(to + i * kSize, from + i * stride_bytes, kSize);
}

void copy_row(const std::byte* from, std::int64_t count, std::int64_t stride, std::size_t size, std::byte* to) {
  if (stride == 1 || count == 1) {
    std::memcpy(to, from, count * size);
    return;
  }
  const std::int64_t stride_bytes = stride * static_cast<std::int64_t>(size);
  switch (size) {
    case 1:
      return copy_row<1>(from, count, stride_bytes, to);
    case 2:
      return copy_row<2>(from, count, stride_bytes, to);
    case 4:
      return copy_row<4>(from, count, stride_bytes, to);
    case 8:
      return copy_row<8>(from, count, stride_bytes, to);
    default:
      return copy_row<16>(from, count, stride_bytes, to);
  }
}

}  // namespace

std::shared_ptr<const Storage> allocate_storage(std::size_t size_bytes, std::byte** bytes) {
  std::shared_ptr<std::byte[]> memory(new (std::align_val_t(64)) std::byte[size_bytes],
                                      [](std::byte* p) { ::operator delete[](p, std::align_val_t(64)); });
  *bytes = memory.get();
  return std::make_shared<const Storage>(Storage{memory.get(), size_bytes, std::move(memory)});
}

void copy_elements(const TensorView& view, std::byte* out) {
  const auto* data = static_cast<const std::byte*>(view.data);
  const std::size_t item = item_size(view.dtype);
  if (element_count(view.shape) == 0) return;
  if (is_c_order(view)) {
    std::memcpy(out, data, size_bytes(view));
    return;
  }
  // Axes after the last strided one are copied as one block of bytes; the others are counted through like an odometer.
  const std::size_t rank = view.shape.size();
  std::size_t inner = rank;
  std::int64_t block = 1;
  while (inner > 0 && (view.shape[inner - 1] == 1 || view.strides[inner - 1] == block)) block *= view.shape[--inner];
  const std::size_t block_bytes = static_cast<std::size_t>(block) * item;
  const bool by_row = block == 1;
  if (by_row) --inner;  // copy the last strided axis by a loop of its own
  const std::int64_t row = by_row ? view.shape[inner] : 1;
  const std::size_t row_bytes = by_row ? static_cast<std::size_t>(row) * item : block_bytes;

  std::vector<std::int64_t> index(inner, 0);
  std::int64_t offset = 0;
  for (;;) {
    const std::byte* from = data + offset * static_cast<std::int64_t>(item);
    if (by_row) {
      copy_row(from, row, view.strides[inner], item, out);
    } else {
      std::memcpy(out, from, block_bytes);
    }
    out += row_bytes;
    std::size_t axis = inner;
    for (;; --axis) {
      if (axis == 0) return;
      if (++index[axis - 1] < view.shape[axis - 1]) break;
      offset -= (view.shape[axis - 1] - 1) * view.strides[axis - 1];
      index[axis - 1] = 0;
    }
    offset += view.strides[axis - 1];
  }
}

Tensor Tensor::copy_of(const TensorView& view) {
  validate(view);
  std::byte* bytes = nullptr;
  Tensor tensor;
  tensor.dtype = view.dtype;
  tensor.shape.assign(view.shape.begin(), view.shape.end());
  tensor.storage = allocate_storage(size_bytes(view), &bytes);
  tensor.data = bytes;
  tensor.device = view.device;
  copy_elements(view, bytes);
  return tensor;
}

std::string_view to_string(ValueKind kind) noexcept {
  switch (kind) {
    case ValueKind::None:
      return "None";
    case ValueKind::Bool:
      return "bool";
    case ValueKind::Int:
    case ValueKind::BigInt:
      return "int";
    case ValueKind::Float:
      return "float";
    case ValueKind::Complex:
      return "complex";
    case ValueKind::Text:
      return "str";
    case ValueKind::Bytes:
      return "bytes";
    case ValueKind::Tensor:
      return "tensor";
    case ValueKind::List:
      return "list";
    case ValueKind::Tuple:
      return "tuple";
    case ValueKind::Dict:
      return "dict";
    case ValueKind::Set:
      return "set";
    case ValueKind::Object:
      return "object";
  }
  return "object";
}

const Value* Dict::find(std::string_view key) const noexcept {
  for (auto& [name, value] : entries) {
    if (auto* text = name.get_if<std::string>(); text && *text == key) return &value;
  }
  return nullptr;
}

const std::vector<Value>* Value::items() const noexcept {
  if (auto* list = get_if<List>()) return &list->items;
  if (auto* tuple = get_if<Tuple>()) return &tuple->items;
  if (auto* set = get_if<Set>()) return &set->items;
  return nullptr;
}

const void* Value::identity() const noexcept {
  return std::visit(
      [](const auto& part) -> const void* {
        if constexpr (requires { part.get(); }) return part.get();
        return nullptr;
      },
      data_);
}

void Value::throw_wrong_kind() const {
  throw Error(ErrorCode::InvalidArgument,
              fmt::format("value refused: it is a {}, not what was asked for", to_string(kind())));
}

}  // namespace tenscope
