// Overview: how a Python object's elements are borrowed.
//
//   torch     the type's DLPack C exchange API gives pointer, shape and strides in some tens of nanoseconds, runs no
//   Python
//             and no dispatcher. Older torch: __dlpack__. What the API cannot say is asked of torch itself: conj and
//             neg views export raw bits (they are resolved into a copy), device tensors are copied to the host.
//   NumPy     the buffer protocol; what it cannot express (ml_dtypes) by a view of the bits, what the core does not
//   take
//             (foreign byte order, unaligned elements) by a copy.
//   others    __dlpack__, and plain buffers (array.array, memoryview, bytes).
//
// Neither torch nor numpy is ever imported: an object of theirs exists only if they are in sys.modules already. Their
// types are looked up once and held for good. Calls into torch are made with __torch_function__ and __torch_dispatch__
// switched off, so that a user's modes and subclasses do not see the recorder.
#include "bindings/tensor_adapter.hpp"

#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <optional>
#include <string_view>
#include <utility>

#include "core/dlpack.hpp"

namespace tenscope::python {
namespace {

// The pending Python error's message, its first line; dropped.
std::string first_line_of_error() {
  const std::string message = take_error().message;
  return message.substr(0, message.find('\n'));
}

struct Numpy {
  PyTypeObject* array = nullptr;
  PyTypeObject* scalar = nullptr;

  static const Numpy* get() noexcept {
    static Numpy numpy;
    static PyObject* name = interned("numpy");
    if (numpy.array) return &numpy;
    const Ref module = imported_module(name);
    if (!module) return nullptr;
    Ref array = attribute(module.get(), "ndarray"), scalar = attribute(module.get(), "generic");
    if (!array || !scalar || !PyType_Check(array.get()) || !PyType_Check(scalar.get()))
      return nullptr;  // half imported
    numpy.scalar = reinterpret_cast<PyTypeObject*>(scalar.release());
    numpy.array = reinterpret_cast<PyTypeObject*>(array.release());
    return &numpy;
  }
};

const dlpack::ExchangeApi* exchange_api(PyObject* type) noexcept {
  const Ref capsule = attribute(type, "__dlpack_c_exchange_api__");
  if (!capsule) return nullptr;
  auto* api = static_cast<const dlpack::ExchangeApi*>(PyCapsule_GetPointer(capsule.get(), "dlpack_exchange_api"));
  PyErr_Clear();
  while (api && api->version.major != 1) api = api->previous;
  return api && api->tensor_from ? api : nullptr;  // the table is static: the type holds it
}

struct Torch {
  PyTypeObject* tensor = nullptr;
  const dlpack::ExchangeApi* api = nullptr;
  PyObject* is_neg = nullptr;
  PyObject* is_conj = nullptr;
  PyObject* storage_offset = nullptr;
  PyObject* is_overridden = nullptr;   // _has_torch_function_unary
  PyObject* function_guard = nullptr;  // DisableTorchFunction
  PyObject* dispatch_guard = nullptr;  // _DisableTorchDispatch

  static const Torch* get() noexcept {
    static Torch torch;
    static PyObject* name = interned("torch");
    if (torch.tensor) return &torch;
    const Ref module = imported_module(name);
    if (!module) return nullptr;
    Ref tensor = attribute(module.get(), "Tensor");
    const Ref c = attribute(module.get(), "_C");
    Ref base = attribute(c.get(), "TensorBase");
    if (!base) base = attribute(c.get(), "_TensorBase");
    if (!tensor || !base || !PyType_Check(tensor.get())) return nullptr;
    torch.api = exchange_api(tensor.get());
    torch.is_neg = attribute(base.get(), "is_neg").release();
    torch.is_conj = attribute(base.get(), "is_conj").release();
    torch.storage_offset = attribute(base.get(), "storage_offset").release();
    torch.is_overridden = attribute(c.get(), "_has_torch_function_unary").release();
    torch.function_guard = attribute(c.get(), "DisableTorchFunction").release();
    torch.dispatch_guard = attribute(c.get(), "_DisableTorchDispatch").release();
    torch.tensor = reinterpret_cast<PyTypeObject*>(tensor.release());
    return &torch;
  }
};

// While it lives, calls into torch reach neither __torch_function__ nor __torch_dispatch__.
class TorchGuard {
 public:
  explicit TorchGuard(const Torch& torch) {
    if (torch.function_guard) function_ = Ref::steal(PyObject_CallNoArgs(torch.function_guard));
    if (function_) Ref::steal(PyObject_CallMethod(function_.get(), "__enter__", nullptr));
    if (torch.dispatch_guard) dispatch_ = Ref::steal(PyObject_CallNoArgs(torch.dispatch_guard));
    drop_error();
  }
  ~TorchGuard() {
    const ErrorKeeper keeper;
    dispatch_ = {};
    if (function_) {
      Ref::steal(PyObject_CallMethod(function_.get(), "__exit__", "OOO", Py_None, Py_None, Py_None));
      function_ = {};
    }
    drop_error();
  }
  TorchGuard(const TorchGuard&) = delete;
  TorchGuard& operator=(const TorchGuard&) = delete;

 private:
  Ref function_, dispatch_;
};

bool call_is_true(PyObject* function, PyObject* argument) noexcept {
  if (!function) return false;
  const Ref result = Ref::steal(PyObject_CallOneArg(function, argument));
  if (!result) drop_error();
  return result.get() == Py_True;
}

// object.a().b(), each by torch's own method; null with an error set where one fails.
Ref call_chain(const Torch& torch, PyObject* object, std::initializer_list<const char*> methods) noexcept {
  TorchGuard guard(torch);
  Ref current = Ref::share(object);
  for (const char* method : methods) {
    current = Ref::steal(PyObject_CallMethod(current.get(), method, nullptr));
    if (!current) break;
  }
  return current;
}

bool flag(PyObject* object, const char* name) noexcept { return attribute(object, name).get() == Py_True; }

// Why torch would not hand out the elements of a tensor.
std::string unsupported_reason(const Torch& torch, PyObject* object, const std::string& error) {
  TorchGuard guard(torch);
  std::string type = Py_TYPE(object)->tp_name;
  if (flag(object, "is_nested")) return "nested tensor";
  if (flag(object, "is_quantized")) return "quantised tensor";
  if (type == "FakeTensor") return "fake tensor: it has no elements";
  if (flag(object, "is_meta")) return "meta tensor: it has no elements";
  const std::string layout = as_text(attribute(object, "layout").get());
  if (!layout.empty() && layout != "torch.strided") return layout.substr(layout.find('.') + 1) + " tensor";
  if (!error.empty()) return type + ": " + error;
  return type + " without storage of its own (a wrapper subclass, a functionalised tensor or a freed storage)";
}

// A tensor without storage (a wrapper subclass, a functionalised tensor) has for its address nothing but the storage
// offset in bytes: null, or a small number. Where the address could be one, torch is asked for the offset. No tensor
// has an offset of a terabyte, and few machines give memory out below it, so the question is rare.
bool is_without_storage(const Torch& torch, PyObject* object, const TensorView& view) noexcept {
  constexpr std::uintptr_t kTerabyte = std::uintptr_t{1} << 40;
  const auto address = reinterpret_cast<std::uintptr_t>(view.data);
  if (element_count(view.shape) == 0 || address >= kTerabyte) return false;
  if (address == 0 || !torch.storage_offset) return true;
  TorchGuard guard(torch);
  const Ref offset = Ref::steal(PyObject_CallOneArg(torch.storage_offset, object));
  const long long items = offset ? PyLong_AsLongLong(offset.get()) : -1;
  drop_error();
  return items < 0 || address == static_cast<std::uintptr_t>(items) * item_size(view.dtype);
}

bool is_aligned(const void* data, std::size_t item_size) noexcept {
  return reinterpret_cast<std::uintptr_t>(data) % std::min(item_size, alignof(double)) == 0;
}

// The format character of the struct module with its size, as NumPy exports it in native byte order.
std::optional<DType> dtype_of_format(std::string_view format, Py_ssize_t size) noexcept {
  if (!format.empty() && (format[0] == '@' || format[0] == '=' || format[0] == '<')) format.remove_prefix(1);
  if (format == "Zf") return DType::C64;
  if (format == "Zd") return DType::C128;
  if (format.size() != 1) return std::nullopt;
  switch (format[0]) {
    case '?':
      return DType::Bool;
    case 'e':
      return DType::F16;
    case 'f':
      return DType::F32;
    case 'd':
      return DType::F64;
    case 'c':
      return DType::U8;
    case 'b':
    case 'h':
    case 'i':
    case 'l':
    case 'q':
    case 'n':
      return size == 8 ? DType::I64 : size == 4 ? DType::I32 : size == 2 ? DType::I16 : DType::I8;
    case 'B':
    case 'H':
    case 'I':
    case 'L':
    case 'Q':
    case 'N':
      return size == 8 ? DType::U64 : size == 4 ? DType::U32 : size == 2 ? DType::U16 : DType::U8;
    default:
      return std::nullopt;
  }
}

bool is_plain_buffer(PyObject* object) noexcept {
  if (PyBytes_CheckExact(object) || PyByteArray_CheckExact(object) || PyMemoryView_Check(object)) return true;
  return std::strcmp(Py_TYPE(object)->tp_name, "array.array") == 0;
}

std::string numpy_dtype_name(PyObject* array) {
  const Ref dtype = attribute(array, "dtype");
  return as_text(attribute(dtype.get(), "name").get());
}

// A copy of a NumPy array in native byte order, aligned and in C order; of a scalar, a 0-d array.
Ref native_copy(PyObject* array) noexcept {
  const Ref dtype = attribute(array, "dtype");
  const Ref native = Ref::steal(dtype ? PyObject_CallMethod(dtype.get(), "newbyteorder", "s", "=") : nullptr);
  Ref copy = Ref::steal(native ? PyObject_CallMethod(array, "astype", "O", native.get()) : nullptr);
  drop_error();
  return copy;
}

bool is_instance(PyObject* object, PyTypeObject* type) noexcept {
  return Py_TYPE(object) == type || PyType_IsSubtype(Py_TYPE(object), type);
}

bool has_dlpack(PyObject* object) noexcept {
  static PyObject* name = interned("__dlpack__");
  return type_has(object, name);
}

}  // namespace

bool is_tensor_like(PyObject* object) noexcept {
  if (const Torch* torch = Torch::get(); torch && is_instance(object, torch->tensor)) return true;
  const Numpy* numpy = Numpy::get();
  return numpy && (is_instance(object, numpy->array) || is_instance(object, numpy->scalar));
}

bool is_numpy_scalar(PyObject* object) noexcept {
  const Numpy* numpy = Numpy::get();
  return numpy && is_instance(object, numpy->scalar);
}

StandIn stand_in(PyObject* object) noexcept {
  StandIn result;
  if (const Torch* torch = Torch::get(); !torch || !is_instance(object, torch->tensor)) return result;
  const ErrorKeeper keeper;
  const Ref module = Ref::steal(PyImport_ImportModule("tenscope.recording.parts"));
  const Ref pair = Ref::steal(module ? PyObject_CallMethod(module.get(), "stand_in", "O", object) : nullptr);
  drop_error();
  if (pair && PyTuple_Check(pair.get()) && PyTuple_GET_SIZE(pair.get()) == 2) {
    result.tensor = Ref::share(PyTuple_GET_ITEM(pair.get(), 0));
    result.members = as_text(PyTuple_GET_ITEM(pair.get(), 1));
  }
  return result;
}

BorrowedTensor::~BorrowedTensor() { release(); }

void BorrowedTensor::release() noexcept {
  if (buffer_.obj) PyBuffer_Release(&buffer_);
  keepalive_ = {};
}

Borrowed BorrowedTensor::borrow(PyObject* object) noexcept {
  release();
  try {
    if (const Torch* torch = Torch::get(); torch && is_instance(object, torch->tensor)) return borrow_torch(object);
    if (const Numpy* numpy = Numpy::get()) {
      if (is_instance(object, numpy->array)) return borrow_buffer(object);
      if (is_instance(object, numpy->scalar)) return borrow_numpy_scalar(object);
    }
    if (is_plain_buffer(object)) return borrow_buffer(object);
    if (has_dlpack(object) && !PyType_Check(object)) return borrow_dlpack(object);
  } catch (...) {
    drop_error();
    return Borrowed::Unsupported;
  }
  return Borrowed::NotATensor;
}

Borrowed BorrowedTensor::borrow_or_stand_in(PyObject* object) noexcept {
  constexpr int kMaxWrappers = 8;  // around one tensor
  Ref current = Ref::share(object);
  Borrowed result = borrow(object);
  for (int i = 0; i < kMaxWrappers && result == Borrowed::Unsupported; ++i) {
    StandIn inner = stand_in(current.get());
    if (!inner.tensor) break;
    current = std::move(inner.tensor);
    result = borrow(current.get());
  }
  stand_in_ = std::move(current);
  return result;
}

Borrowed BorrowedTensor::unsupported(std::string why) {
  release();
  drop_error();
  reason = std::move(why);
  return Borrowed::Unsupported;
}

// Shape and strides are copied, so that they stay valid whatever becomes of the tensor's own.
bool BorrowedTensor::take(const void* tensor) noexcept {
  const auto& source = *static_cast<const dlpack::Tensor*>(tensor);
  auto dtype = dlpack::dtype_of(source.dtype);
  if (!dtype || source.ndim < 0 || source.ndim > kMaxRank) return false;
  auto rank = static_cast<std::size_t>(source.ndim);
  if (rank) std::memcpy(shape_, source.shape, rank * sizeof(std::int64_t));
  if (rank && source.strides) std::memcpy(strides_, source.strides, rank * sizeof(std::int64_t));
  view = {static_cast<const char*>(source.data) + source.byte_offset,
          *dtype,
          {shape_, rank},
          {strides_, source.strides ? rank : 0},
          "cpu"};
  return true;
}

Borrowed BorrowedTensor::borrow_torch(PyObject* object) {
  const Torch& torch = *Torch::get();
  if (!torch.api) {
    const Ref host = call_chain(torch, object, {"detach", "cpu", "resolve_conj", "resolve_neg"});
    if (!host) return unsupported(unsupported_reason(torch, object, first_line_of_error()));
    const Borrowed result = borrow_dlpack(host.get());  // its capsule keeps the host tensor
    if (result == Borrowed::Ok && is_without_storage(torch, host.get(), view))
      return unsupported(unsupported_reason(torch, object, ""));
    return result;
  }

  dlpack::Tensor tensor;
  if (torch.api->tensor_from(object, &tensor) != 0)
    return unsupported(unsupported_reason(torch, object, first_line_of_error()));
  if (!take(&tensor)) {
    TorchGuard guard(torch);
    const std::string name = as_text(attribute(object, "dtype").get());
    return unsupported("dtype " + name.substr(name.find('.') + 1));
  }
  if (is_without_storage(torch, object, view)) return unsupported(unsupported_reason(torch, object, ""));
  if (element_count(view.shape) == 0) return Borrowed::Ok;

  std::string device;
  bool copied = !dlpack::is_on_host(tensor.device);
  if (copied) {
    TorchGuard guard(torch);
    device = as_text(attribute(object, "device").get());
  }
  DTypeKind kind = kind_of(view.dtype);
  bool lazy = false;
  if (kind == DTypeKind::Float || kind == DTypeKind::Complex) {
    if (torch.is_overridden && !call_is_true(torch.is_overridden, object)) {
      lazy = call_is_true(torch.is_neg, object) || (kind == DTypeKind::Complex && call_is_true(torch.is_conj, object));
    } else {
      TorchGuard guard(torch);
      lazy = call_is_true(torch.is_neg, object) || call_is_true(torch.is_conj, object);
    }
  }
  bool unaligned = !is_aligned(view.data, item_size(view.dtype));
  if (!copied && !lazy && !unaligned) return Borrowed::Ok;

  keepalive_ = call_chain(torch, object, {"detach", copied ? "cpu" : "clone", "resolve_conj", "resolve_neg"});
  if (!keepalive_) return unsupported(unsupported_reason(torch, object, first_line_of_error()));
  if (torch.api->tensor_from(keepalive_.get(), &tensor) != 0 || !take(&tensor))
    return unsupported(unsupported_reason(torch, object, first_line_of_error()));
  if (is_without_storage(torch, keepalive_.get(), view)) return unsupported(unsupported_reason(torch, object, ""));
  if (copied) {
    device_ = std::move(device);
    view.device = device_;
  }
  return Borrowed::Ok;
}

Borrowed BorrowedTensor::borrow_dlpack(PyObject* object) {
  // The capsule stays the owner: unless renamed to "used_...", its destructor frees the tensor.
  keepalive_ = Ref::steal(PyObject_CallMethod(object, "__dlpack__", nullptr));
  PyObject* capsule = keepalive_.get();
  std::string type = Py_TYPE(object)->tp_name;
  if (!capsule) return unsupported(type + ": " + first_line_of_error());
  const dlpack::Tensor* tensor = nullptr;
  if (PyCapsule_IsValid(capsule, "dltensor")) {
    tensor = &static_cast<dlpack::ManagedTensor*>(PyCapsule_GetPointer(capsule, "dltensor"))->tensor;
  } else if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
    auto* managed = static_cast<dlpack::ManagedTensorVersioned*>(PyCapsule_GetPointer(capsule, "dltensor_versioned"));
    if (managed->version.major == 1) tensor = &managed->tensor;
  }
  if (!tensor) return unsupported(type + ": its __dlpack__ returned no DLPack 1 tensor");
  if (!dlpack::is_on_host(tensor->device)) return unsupported(type + " on a device: copy it to the host first");
  if (!take(tensor)) return unsupported(type + " of an unknown dtype");
  if (!tensor->data && element_count(view.shape) != 0) return unsupported(type + " without elements in memory");
  return Borrowed::Ok;
}

Borrowed BorrowedTensor::borrow_buffer(PyObject* object, bool is_copy) {
  if (PyObject_GetBuffer(object, &buffer_, PyBUF_FULL_RO) != 0) {
    const std::string error = first_line_of_error();
    return is_copy ? unsupported(std::string(Py_TYPE(object)->tp_name) + ": " + error) : borrow_bits(object, error);
  }
  auto size = buffer_.itemsize;
  std::string_view format = buffer_.format ? buffer_.format : "B";
  auto dtype = dtype_of_format(format, size);
  if (!dtype) {
    bool foreign = (format[0] == '>' || format[0] == '!') && dtype_of_format(format.substr(1), size);
    if (is_copy) return unsupported("buffer of format " + std::string(format));
    PyBuffer_Release(&buffer_);
    return foreign ? borrow_copy(object) : borrow_bits(object, "");
  }
  if (static_cast<Py_ssize_t>(item_size(*dtype)) != size || buffer_.suboffsets || buffer_.ndim > kMaxRank)
    return unsupported("buffer of format " + std::string(format));

  bool regular = is_aligned(buffer_.buf, static_cast<std::size_t>(size));
  for (int i = 0; i < buffer_.ndim; ++i) {
    shape_[i] = buffer_.shape[i];
    if (buffer_.strides) {
      regular = regular && buffer_.strides[i] % size == 0;
      strides_[i] = buffer_.strides[i] / size;
    }
  }
  if (!regular && element_count({shape_, static_cast<std::size_t>(buffer_.ndim)}) != 0) {
    if (is_copy) return unsupported(std::string(Py_TYPE(object)->tp_name) + " whose elements are not aligned");
    PyBuffer_Release(&buffer_);
    return borrow_copy(object);
  }
  auto rank = static_cast<std::size_t>(buffer_.ndim);
  view = {buffer_.buf, *dtype, {shape_, rank}, {strides_, buffer_.strides ? rank : 0}, "cpu"};
  return Borrowed::Ok;
}

Borrowed BorrowedTensor::borrow_copy(PyObject* object) {
  const Ref copy = native_copy(object);
  if (!copy) return unsupported(std::string(Py_TYPE(object)->tp_name) + " whose elements are not aligned");
  return borrow_buffer(copy.get(), true);  // the buffer keeps it
}

// Types that NumPy does not export by the buffer protocol but the core knows by name: bfloat16 and float8 of ml_dtypes.
Borrowed BorrowedTensor::borrow_bits(PyObject* object, const std::string& error) {
  std::string name = numpy_dtype_name(object);
  auto dtype = parse_dtype(name);
  if (!dtype || item_size(*dtype) > 2) {
    if (name.empty()) return unsupported(std::string(Py_TYPE(object)->tp_name) + ": " + error);
    if (name.starts_with("void")) name = "structured (" + name + ")";
    return unsupported("dtype " + name);
  }
  const Ref bits = Ref::steal(PyObject_CallMethod(object, "view", "s", item_size(*dtype) == 2 ? "u2" : "u1"));
  if (!bits) return unsupported("dtype " + name + ": " + first_line_of_error());
  const Borrowed result = borrow_buffer(bits.get(), true);
  if (result == Borrowed::Ok) view.dtype = *dtype;
  return result;
}

Borrowed BorrowedTensor::borrow_numpy_scalar(PyObject* object) {
  const Ref array = Ref::steal(PyObject_CallMethod(object, "__array__", nullptr));
  if (!array) return unsupported(std::string(Py_TYPE(object)->tp_name) + ": " + first_line_of_error());
  return borrow_buffer(array.get());
}

}  // namespace tenscope::python
