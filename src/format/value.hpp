#pragma once

#include <complex>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "tenscope/dtype.hpp"
#include "tenscope/event.hpp"
#include "tenscope/tensor_view.hpp"

namespace tenscope {

// A run of bytes that tensors look into: a piece of a mapped file, a buffer of our own, or the caller's memory. Tensors
// that share memory share one Storage. The bytes stay valid while `owner` lives.
struct Storage {
  const std::byte* data = nullptr;
  std::size_t size_bytes = 0;
  std::shared_ptr<const void> owner;
};

// A storage of our own, not initialised; `bytes` points to its writable memory.
std::shared_ptr<const Storage> allocate_storage(std::size_t size_bytes, std::byte** bytes);

enum class TensorOrigin : std::uint8_t { Numpy, NumpyScalar, Torch, TorchParameter };

struct Tensor {
  DType dtype = DType::F32;
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides;  // in elements; empty means C order
  std::shared_ptr<const Storage> storage;
  const std::byte* data = nullptr;  // its first element, inside the storage
  TensorOrigin origin = TensorOrigin::Numpy;
  bool requires_grad = false;
  std::string device = "cpu";  // where it lived; the bytes are here

  // Valid while this Tensor lives.
  TensorView view() const noexcept { return {data, dtype, shape, strides, device}; }

  // A copy of a view's elements, in C order.
  static Tensor copy_of(const TensorView& view);
};

// Copies a view's elements in C order to `out`, which has room for size_bytes(view).
void copy_elements(const TensorView& view, std::byte* out);

class Value;

enum class ValueKind : std::uint8_t {
  None,
  Bool,
  Int,
  BigInt,
  Float,
  Complex,
  Text,
  Bytes,
  Tensor,
  List,
  Tuple,
  Dict,
  Set,
  Object,
};

std::string_view to_string(ValueKind kind) noexcept;  // "None", "bool", "int", "int", "float", ...: Python's names

struct Bytes {
  std::string data;
  bool is_mutable = false;  // a bytearray
};

struct List {
  std::vector<Value> items;
};

struct Tuple {
  std::vector<Value> items;
};

// Keys of any kind, in order. Writers of dicts give a key once; readers do not check it.
struct Dict {
  std::vector<std::pair<Value, Value>> entries;
  bool is_ordered_dict = false;  // collections.OrderedDict, as a state_dict is
  std::shared_ptr<const Value>
      attributes;  // a dict of what is set on an OrderedDict (_metadata of a state_dict), or null

  const Value* find(std::string_view key) const noexcept;  // null where there is none
};

struct Set {
  std::vector<Value> items;
  bool is_frozen = false;
};

// An object of a known, harmless class that is kept by its name and parts, not interpreted: torch.float32 (args is
// null: the global itself), torch.device("cpu"), torch.Size, slice, datetime...
struct Object {
  std::string type;                    // "torch.device"
  std::shared_ptr<const Value> args;   // the tuple it was called with; null for the global itself
  std::shared_ptr<const Value> state;  // what was set on it afterwards; null for none
};

// What a file holds: a tree of plain values and tensors. Immutable and cheap to copy (parts are shared, so a tree read
// from a file that refers to one part many times does not grow; loading bounds the size of the tree as walked).
class Value {
 public:
  Value() = default;  // None
  Value(std::nullptr_t) {}
  Value(bool value) : data_(value) {}
  Value(int value) : data_(std::int64_t{value}) {}
  Value(std::int64_t value) : data_(value) {}
  Value(double value) : data_(value) {}
  Value(std::complex<double> value) : data_(value) {}
  Value(const char* text) : Value(std::string(text)) {}
  Value(std::string text) : data_(std::make_shared<const std::string>(std::move(text))) {}
  Value(BigInt value) : data_(std::make_shared<const BigInt>(std::move(value))) {}
  Value(Bytes value) : data_(std::make_shared<const Bytes>(std::move(value))) {}
  Value(Tensor value) : data_(std::make_shared<const Tensor>(std::move(value))) {}
  Value(List value) : data_(std::make_shared<const List>(std::move(value))) {}
  Value(Tuple value) : data_(std::make_shared<const Tuple>(std::move(value))) {}
  Value(Dict value) : data_(std::make_shared<const Dict>(std::move(value))) {}
  Value(Set value) : data_(std::make_shared<const Set>(std::move(value))) {}
  Value(Object value) : data_(std::make_shared<const Object>(std::move(value))) {}

  ValueKind kind() const noexcept { return static_cast<ValueKind>(data_.index()); }
  bool is_none() const noexcept { return kind() == ValueKind::None; }

  // get<T> throws InvalidArgument where the value is no T; get_if<T> gives null. T is bool, std::int64_t, double,
  // std::complex<double>, std::string, BigInt, Bytes, Tensor, List, Tuple, Dict, Set or Object.
  template <class T>
  const T* get_if() const noexcept {
    if constexpr (std::is_arithmetic_v<T> || std::is_same_v<T, std::complex<double>>) {
      return std::get_if<T>(&data_);
    } else {
      auto* shared = std::get_if<std::shared_ptr<const T>>(&data_);
      return shared ? shared->get() : nullptr;
    }
  }
  template <class T>
  const T& get() const {
    if (auto* found = get_if<T>()) return *found;
    throw_wrong_kind();
  }

  // The items of a List, Tuple or Set; null for other kinds.
  const std::vector<Value>* items() const noexcept;

  // The address of the shared part behind this value (null for None and plain numbers): equal for one part referred to
  // twice.
  const void* identity() const noexcept;

 private:
  [[noreturn]] void throw_wrong_kind() const;

  template <class T>
  using Shared = std::shared_ptr<const T>;
  // In the order of ValueKind.
  std::variant<std::monostate, bool, std::int64_t, Shared<BigInt>, double, std::complex<double>, Shared<std::string>,
               Shared<Bytes>, Shared<Tensor>, Shared<List>, Shared<Tuple>, Shared<Dict>, Shared<Set>, Shared<Object>>
      data_;
};

}  // namespace tenscope
