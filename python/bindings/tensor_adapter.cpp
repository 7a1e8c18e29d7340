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

#include "bindings/dlpack_abi.hpp"

namespace tenscope::python {
namespace {

PyObject* interned(const char* text) noexcept { return PyUnicode_InternFromString(text); }

PyObject* imported_module(PyObject* name) noexcept {
  return PyDict_GetItemWithError(PyImport_GetModuleDict(), name);  // borrowed
}

PyObject* attribute(PyObject* object, const char* name) noexcept {
  PyObject* result = object ? PyObject_GetAttrString(object, name) : nullptr;
  if (!result) PyErr_Clear();
  return result;
}

std::string as_text(PyObject* object) {
  PyObject* text = object ? PyObject_Str(object) : nullptr;
  const char* utf8 = text ? PyUnicode_AsUTF8(text) : nullptr;
  std::string result = utf8 ? utf8 : "";
  Py_XDECREF(text);
  PyErr_Clear();
  return result;
}

// Takes the pending Python error and returns the first line of its message.
std::string take_error() {
  PyObject *type = nullptr, *value = nullptr, *traceback = nullptr;
  PyErr_Fetch(&type, &value, &traceback);
  std::string message = as_text(value);
  Py_XDECREF(type);
  Py_XDECREF(value);
  Py_XDECREF(traceback);
  return message.substr(0, message.find('\n'));
}

struct Numpy {
  PyTypeObject* array = nullptr;
  PyTypeObject* scalar = nullptr;

  static const Numpy* get() noexcept {
    static Numpy numpy;
    static PyObject* name = interned("numpy");
    if (numpy.array) return &numpy;
    PyObject* module = imported_module(name);
    if (!module) return nullptr;
    PyObject* array = attribute(module, "ndarray");
    PyObject* scalar = attribute(module, "generic");
    if (!array || !scalar || !PyType_Check(array) || !PyType_Check(scalar)) {  // in the middle of its import
      Py_XDECREF(array);
      Py_XDECREF(scalar);
      return nullptr;
    }
    numpy.scalar = reinterpret_cast<PyTypeObject*>(scalar);
    numpy.array = reinterpret_cast<PyTypeObject*>(array);
    return &numpy;
  }
};

const dlpack::ExchangeApi* exchange_api(PyObject* type) noexcept {
  PyObject* capsule = attribute(type, "__dlpack_c_exchange_api__");
  if (!capsule) return nullptr;
  auto* api = static_cast<const dlpack::ExchangeApi*>(PyCapsule_GetPointer(capsule, "dlpack_exchange_api"));
  PyErr_Clear();
  while (api && api->version.major != 1) api = api->previous;
  if (api && !api->tensor_from) api = nullptr;
  Py_DECREF(capsule);  // the table is static: the type holds it
  return api;
}

struct Torch {
  PyTypeObject* tensor = nullptr;
  const dlpack::ExchangeApi* api = nullptr;
  PyObject* is_neg = nullptr;
  PyObject* is_conj = nullptr;
  PyObject* is_overridden = nullptr;   // _has_torch_function_unary
  PyObject* function_guard = nullptr;  // DisableTorchFunction
  PyObject* dispatch_guard = nullptr;  // _DisableTorchDispatch

  static const Torch* get() noexcept {
    static Torch torch;
    static PyObject* name = interned("torch");
    if (torch.tensor) return &torch;
    PyObject* module = imported_module(name);
    if (!module) return nullptr;
    PyObject* tensor = attribute(module, "Tensor");
    PyObject* c = attribute(module, "_C");
    PyObject* base = attribute(c, "TensorBase");
    if (!base) base = attribute(c, "_TensorBase");
    if (tensor && base && PyType_Check(tensor)) {
      torch.api = exchange_api(tensor);
      torch.is_neg = attribute(base, "is_neg");
      torch.is_conj = attribute(base, "is_conj");
      torch.is_overridden = attribute(c, "_has_torch_function_unary");
      torch.function_guard = attribute(c, "DisableTorchFunction");
      torch.dispatch_guard = attribute(c, "_DisableTorchDispatch");
      torch.tensor = reinterpret_cast<PyTypeObject*>(Py_NewRef(tensor));
    }
    Py_XDECREF(tensor);
    Py_XDECREF(c);
    Py_XDECREF(base);
    return torch.tensor ? &torch : nullptr;
  }
};

// While it lives, calls into torch reach neither __torch_function__ nor __torch_dispatch__.
class TorchGuard {
 public:
  explicit TorchGuard(const Torch& torch) {
    if (torch.function_guard) function_ = PyObject_CallNoArgs(torch.function_guard);
    if (function_) Py_XDECREF(PyObject_CallMethod(function_, "__enter__", nullptr));
    if (torch.dispatch_guard) dispatch_ = PyObject_CallNoArgs(torch.dispatch_guard);
    PyErr_Clear();
  }
  ~TorchGuard() {
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    Py_XDECREF(dispatch_);
    if (function_) {
      Py_XDECREF(PyObject_CallMethod(function_, "__exit__", "OOO", Py_None, Py_None, Py_None));
      Py_DECREF(function_);
      PyErr_Clear();
    }
    PyErr_Restore(type, value, traceback);
  }
  TorchGuard(const TorchGuard&) = delete;
  TorchGuard& operator=(const TorchGuard&) = delete;

 private:
  PyObject* function_ = nullptr;
  PyObject* dispatch_ = nullptr;
};

bool call_is_true(PyObject* function, PyObject* argument) noexcept {
  if (!function) return false;
  PyObject* result = PyObject_CallOneArg(function, argument);
  bool truth = result == Py_True;
  Py_XDECREF(result);
  PyErr_Clear();
  return truth;
}

// object.a().b(), each by torch's own method; null where one fails.
PyObject* call_chain(const Torch& torch, PyObject* object, std::initializer_list<const char*> methods) noexcept {
  TorchGuard guard(torch);
  PyObject* current = Py_NewRef(object);
  for (const char* method : methods) {
    PyObject* next = PyObject_CallMethod(current, method, nullptr);
    Py_DECREF(current);
    if (!next) return nullptr;
    current = next;
  }
  return current;
}

bool flag(PyObject* object, const char* name) noexcept {
  PyObject* value = attribute(object, name);
  bool truth = value == Py_True;
  Py_XDECREF(value);
  return truth;
}

// Why torch would not hand out the elements of a tensor.
std::string unsupported_reason(const Torch& torch, PyObject* object, std::string error) {
  TorchGuard guard(torch);
  std::string type = Py_TYPE(object)->tp_name;
  if (flag(object, "is_nested")) return "nested tensor";
  if (flag(object, "is_quantized")) return "quantised tensor";
  if (type == "FakeTensor") return "fake tensor: it has no elements";
  if (flag(object, "is_meta")) return "meta tensor: it has no elements";
  PyObject* layout = attribute(object, "layout");
  std::string layout_name = as_text(layout);
  Py_XDECREF(layout);
  if (!layout_name.empty() && layout_name != "torch.strided")
    return layout_name.substr(layout_name.find('.') + 1) + " tensor";
  if (!error.empty()) return type + ": " + error;
  return type + " without storage of its own (a wrapper subclass, a functionalised tensor or a freed storage)";
}

std::optional<DType> dtype_of_dlpack(const dlpack::DataType& type) noexcept {
  if (type.lanes != 1) return std::nullopt;
  int bits = type.bits;
  switch (type.code) {
    case dlpack::kInt:
      return bits == 64   ? DType::I64
             : bits == 32 ? DType::I32
             : bits == 16 ? DType::I16
             : bits == 8  ? std::optional(DType::I8)
                          : std::nullopt;
    case dlpack::kUInt:
      return bits == 64   ? DType::U64
             : bits == 32 ? DType::U32
             : bits == 16 ? DType::U16
             : bits == 8  ? std::optional(DType::U8)
                          : std::nullopt;
    case dlpack::kFloat:
      return bits == 64 ? DType::F64 : bits == 32 ? DType::F32 : bits == 16 ? std::optional(DType::F16) : std::nullopt;
    case dlpack::kBfloat:
      return bits == 16 ? std::optional(DType::BF16) : std::nullopt;
    case dlpack::kComplex:
      return bits == 64 ? DType::C64 : bits == 128 ? std::optional(DType::C128) : std::nullopt;
    case dlpack::kBool:
      return bits == 8 ? std::optional(DType::Bool) : std::nullopt;
    case dlpack::kFloat8E4M3Fn:
      return DType::F8E4M3;
    case dlpack::kFloat8E4M3Fnuz:
      return DType::F8E4M3Fnuz;
    case dlpack::kFloat8E5M2:
      return DType::F8E5M2;
    case dlpack::kFloat8E5M2Fnuz:
      return DType::F8E5M2Fnuz;
    default:
      return std::nullopt;
  }
}

bool is_aligned(const void* data, std::size_t item_size) noexcept {
  return reinterpret_cast<std::uintptr_t>(data) % std::min(item_size, alignof(double)) == 0;
}

bool on_host(const dlpack::Device& device) noexcept {
  return device.type == dlpack::kCpu || device.type == dlpack::kCudaHost || device.type == dlpack::kRocmHost;
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
  PyObject* dtype = attribute(array, "dtype");
  PyObject* name = attribute(dtype, "name");
  std::string text = as_text(name);
  Py_XDECREF(name);
  Py_XDECREF(dtype);
  return text;
}

// A copy of a NumPy array in native byte order, aligned and in C order; of a scalar, a 0-d array.
PyObject* native_copy(PyObject* array) noexcept {
  PyObject* dtype = attribute(array, "dtype");
  PyObject* native = dtype ? PyObject_CallMethod(dtype, "newbyteorder", "s", "=") : nullptr;
  PyObject* copy = native ? PyObject_CallMethod(array, "astype", "O", native) : nullptr;
  PyErr_Clear();
  Py_XDECREF(native);
  Py_XDECREF(dtype);
  return copy;
}

bool is_instance(PyObject* object, PyTypeObject* type) noexcept {
  return Py_TYPE(object) == type || PyType_IsSubtype(Py_TYPE(object), type);
}

bool has_dlpack(PyObject* object) noexcept {
  static PyObject* name = interned("__dlpack__");
  return _PyType_Lookup(Py_TYPE(object), name) != nullptr;
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

BorrowedTensor::~BorrowedTensor() { release(); }

void BorrowedTensor::release() noexcept {
  if (buffer_.obj) PyBuffer_Release(&buffer_);
  Py_CLEAR(keepalive_);
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
    PyErr_Clear();
    return Borrowed::Unsupported;
  }
  return Borrowed::NotATensor;
}

Borrowed BorrowedTensor::unsupported(std::string why) {
  release();
  PyErr_Clear();
  reason = std::move(why);
  return Borrowed::Unsupported;
}

// Shape and strides are copied, so that they stay valid whatever becomes of the tensor's own.
bool BorrowedTensor::take(const void* tensor) noexcept {
  const auto& source = *static_cast<const dlpack::Tensor*>(tensor);
  auto dtype = dtype_of_dlpack(source.dtype);
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
    PyObject* detached = call_chain(torch, object, {"detach", "cpu", "resolve_conj", "resolve_neg"});
    if (!detached) return unsupported(unsupported_reason(torch, object, take_error()));
    Borrowed result = borrow_dlpack(detached);
    if (result == Borrowed::Ok) keepalive_ = Py_NewRef(detached);
    Py_DECREF(detached);
    return result;
  }

  dlpack::Tensor tensor;
  if (torch.api->tensor_from(object, &tensor) != 0) return unsupported(unsupported_reason(torch, object, take_error()));
  if (!take(&tensor)) {
    TorchGuard guard(torch);
    PyObject* dtype = attribute(object, "dtype");
    std::string name = as_text(dtype);
    Py_XDECREF(dtype);
    return unsupported("dtype " + name.substr(name.find('.') + 1));
  }
  if (!tensor.data) {
    if (element_count(view.shape) != 0) return unsupported(unsupported_reason(torch, object, ""));
    return Borrowed::Ok;
  }

  std::string device;
  bool copied = !on_host(tensor.device);
  if (copied) {
    TorchGuard guard(torch);
    PyObject* name = attribute(object, "device");
    device = as_text(name);
    Py_XDECREF(name);
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

  PyObject* host = call_chain(torch, object, {"detach", copied ? "cpu" : "clone", "resolve_conj", "resolve_neg"});
  if (!host) return unsupported(unsupported_reason(torch, object, take_error()));
  keepalive_ = host;
  if (torch.api->tensor_from(host, &tensor) != 0 || !take(&tensor))
    return unsupported(unsupported_reason(torch, object, take_error()));
  if (copied) {
    device_ = std::move(device);
    view.device = device_;
  }
  return Borrowed::Ok;
}

Borrowed BorrowedTensor::borrow_dlpack(PyObject* object) {
  PyObject* capsule = PyObject_CallMethod(object, "__dlpack__", nullptr);
  if (!capsule) return unsupported(std::string(Py_TYPE(object)->tp_name) + ": " + take_error());
  // The capsule stays the owner: unless renamed to "used_...", its destructor frees the tensor.
  const dlpack::Tensor* tensor = nullptr;
  if (PyCapsule_IsValid(capsule, "dltensor")) {
    tensor = &static_cast<dlpack::ManagedTensor*>(PyCapsule_GetPointer(capsule, "dltensor"))->tensor;
  } else if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
    auto* managed = static_cast<dlpack::ManagedTensorVersioned*>(PyCapsule_GetPointer(capsule, "dltensor_versioned"));
    if (managed->version.major == 1) tensor = &managed->tensor;
  }
  keepalive_ = capsule;
  std::string type = Py_TYPE(object)->tp_name;
  if (!tensor) return unsupported(type + ": its __dlpack__ returned no DLPack 1 tensor");
  if (!on_host(tensor->device)) return unsupported(type + " on a device: copy it to the host first");
  if (!take(tensor)) return unsupported(type + " of an unknown dtype");
  if (!tensor->data && element_count(view.shape) != 0) return unsupported(type + " without elements in memory");
  return Borrowed::Ok;
}

Borrowed BorrowedTensor::borrow_buffer(PyObject* object) {
  if (PyObject_GetBuffer(object, &buffer_, PyBUF_FULL_RO) != 0) {
    std::string error = take_error();
    return borrow_bits(object, error);
  }
  auto size = buffer_.itemsize;
  std::string_view format = buffer_.format ? buffer_.format : "B";
  auto dtype = dtype_of_format(format, size);
  if (!dtype) {
    bool foreign = (format[0] == '>' || format[0] == '!') && dtype_of_format(format.substr(1), size);
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
    PyBuffer_Release(&buffer_);
    return borrow_copy(object);
  }
  auto rank = static_cast<std::size_t>(buffer_.ndim);
  view = {buffer_.buf, *dtype, {shape_, rank}, {strides_, buffer_.strides ? rank : 0}, "cpu"};
  return Borrowed::Ok;
}

Borrowed BorrowedTensor::borrow_copy(PyObject* object) {
  PyObject* copy = native_copy(object);
  if (!copy) return unsupported(std::string(Py_TYPE(object)->tp_name) + " whose elements are not aligned");
  Borrowed result = borrow_buffer(copy);
  if (result == Borrowed::Ok) keepalive_ = Py_NewRef(copy);
  Py_DECREF(copy);
  return result;
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
  PyObject* bits = PyObject_CallMethod(object, "view", "s", item_size(*dtype) == 2 ? "u2" : "u1");
  if (!bits) return unsupported("dtype " + name + ": " + take_error());
  Borrowed result = borrow_buffer(bits);
  Py_DECREF(bits);  // the buffer keeps it
  if (result == Borrowed::Ok) view.dtype = *dtype;
  return result;
}

Borrowed BorrowedTensor::borrow_numpy_scalar(PyObject* object) {
  PyObject* array = PyObject_CallMethod(object, "__array__", nullptr);
  if (!array) return unsupported(std::string(Py_TYPE(object)->tp_name) + ": " + take_error());
  Borrowed result = borrow_buffer(array);
  Py_DECREF(array);
  return result;
}

}  // namespace tenscope::python
