#include "bindings/python_value.hpp"

#include <fmt/format.h>
#include <nanobind/nanobind.h>

#include "bindings/tensor_adapter.hpp"
#include "tenscope/error.hpp"

namespace nb = nanobind;

namespace tenscope::python {
namespace {

constexpr int kMaxDepth = 200;

class Converter {
 public:
  explicit Converter(PyObject* reduce) : reduce_(reduce) {}

  Value convert(nb::handle object, int depth) const {
    PyObject* o = object.ptr();
    if (depth > kMaxDepth) {
      throw Error(ErrorCode::InvalidArgument,
                  fmt::format("value refused: nested more than {} deep, or in itself", kMaxDepth));
    }
    if (o == Py_None) return {};
    if (PyBool_Check(o)) return o == Py_True;
    if (is_tensor_like(o)) return tensor(o);
    if (PyLong_Check(o)) return integer(o);
    if (PyFloat_Check(o)) return PyFloat_AS_DOUBLE(o);
    if (PyComplex_Check(o)) return std::complex<double>(PyComplex_RealAsDouble(o), PyComplex_ImagAsDouble(o));
    if (PyUnicode_Check(o)) return text(o);
    if (PyBytes_Check(o))
      return Bytes{std::string(PyBytes_AS_STRING(o), static_cast<std::size_t>(PyBytes_GET_SIZE(o)))};
    if (PyByteArray_Check(o)) {
      return Bytes{std::string(PyByteArray_AS_STRING(o), static_cast<std::size_t>(PyByteArray_GET_SIZE(o))), true};
    }
    if (PyList_Check(o)) return List{items(object, depth)};
    if (PyTuple_Check(o)) return Tuple{items(object, depth)};
    if (PyDict_Check(o)) return dict(object, depth);
    if (PyAnySet_Check(o)) return Set{items(object, depth), PyFrozenSet_Check(o) != 0};
    return other(object, depth);
  }

 private:
  static Value tensor(PyObject* object) {
    auto borrowed = std::make_shared<BorrowedTensor>();
    if (borrowed->borrow(object) != Borrowed::Ok) {
      throw Error(ErrorCode::Unsupported,
                  fmt::format("cannot compare this tensor: {}",
                              borrowed->reason.empty() ? "its bytes cannot be read" : borrowed->reason));
    }
    const TensorView& view = borrowed->view;
    Tensor result;
    result.dtype = view.dtype;
    result.shape.assign(view.shape.begin(), view.shape.end());
    result.strides.assign(view.strides.begin(), view.strides.end());
    result.data = static_cast<const std::byte*>(view.data);
    auto storage = std::make_shared<Storage>();
    storage->data = result.data;
    storage->size_bytes = size_bytes(view);
    storage->owner = std::move(borrowed);
    result.storage = std::move(storage);
    return result;
  }

  static Value integer(PyObject* object) {
    int overflow = 0;
    const long long small = PyLong_AsLongLongAndOverflow(object, &overflow);
    if (overflow == 0) return std::int64_t{small};
    const nb::str digits = nb::steal<nb::str>(PyLong_Type.tp_repr(object));
    if (!digits.is_valid()) throw nb::python_error();
    return BigInt{digits.c_str()};
  }

  static Value text(PyObject* object) {
    Py_ssize_t size = 0;
    if (const char* utf8 = PyUnicode_AsUTF8AndSize(object, &size))
      return std::string(utf8, static_cast<std::size_t>(size));
    PyErr_Clear();
    const nb::bytes bytes = nb::steal<nb::bytes>(PyUnicode_AsEncodedString(object, "utf-8", "surrogatepass"));
    if (!bytes.is_valid()) throw nb::python_error();
    return std::string(bytes.c_str(), bytes.size());
  }

  std::vector<Value> items(nb::handle object, int depth) const {
    std::vector<Value> result;
    for (nb::handle item : object) result.push_back(convert(item, depth + 1));
    return result;
  }

  Value dict(nb::handle object, int depth) const {
    Dict result;
    for (auto [key, value] : nb::borrow<nb::dict>(object)) {
      result.entries.emplace_back(convert(key, depth + 1), convert(value, depth + 1));
    }
    return result;
  }

  Value other(nb::handle object, int depth) const {
    const nb::object parts = nb::handle(reduce_)(object);
    Object result;
    result.type = nb::str(parts[0]).c_str();
    const auto part = [&](nb::handle value) {
      return value.is_none() ? nullptr : std::make_shared<const Value>(convert(value, depth + 1));
    };
    result.args = part(nb::object(parts[1]));
    result.state = part(nb::object(parts[2]));
    return result;
  }

  PyObject* reduce_;
};

}  // namespace

Value value_of(PyObject* object, PyObject* reduce) { return Converter(reduce).convert(object, 0); }

}  // namespace tenscope::python
