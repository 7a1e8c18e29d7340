#include "tracer/snapshot.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "bindings/module.hpp"
#include "bindings/tensor_adapter.hpp"
#include "kernels/summarize.hpp"

namespace tenscope::python {
namespace {

constexpr int kMaxDepth = 32;
constexpr Py_ssize_t kMaxItems = 100'000;

Ref text(const std::string& content) {
  return Ref::steal(PyUnicode_DecodeUTF8(content.data(), static_cast<Py_ssize_t>(content.size()), "replace"));
}

class Snapshotter {
 public:
  explicit Snapshotter(const SnapshotOptions& options) : options_(options) {}

  Ref take(PyObject* value, int depth = 0) {
    Ref result;
    switch (class_of(value)) {
      case TypeClass::Scalar:
        return Ref::share(value);
      case TypeClass::Torch:
      case TypeClass::Array:
        result = take_tensor(value, depth);
        break;
      default:
        if (depth < kMaxDepth && items_ < kMaxItems && !is_open(value)) {
          open_.push_back(value);
          result = take_container(value, depth);
          open_.pop_back();
        }
    }
    PyErr_Clear();
    return result ? result : take_opaque(value);
  }

 private:
  Ref take_tensor(PyObject* value, int depth) {
    BorrowedTensor borrowed;
    const Borrowed state = borrowed.borrow(value);
    if (state == Borrowed::Ok) {
      TensorValue result;
      const TensorView& view = borrowed.view;
      result.dtype = view.dtype;
      result.shape.assign(view.shape.begin(), view.shape.end());
      result.device = view.device;
      result.from_torch = class_of(value) == TypeClass::Torch;
      result.has_bytes = size_bytes(view) <= options_.max_tensor_bytes;
      if (result.has_bytes) result.bytes.resize(size_bytes(view));
      result.summary =
          kernels::summarize(view, result.has_bytes && !result.bytes.empty() ? result.bytes.data() : nullptr);
      return Ref::steal(nb::cast(std::move(result)).release().ptr());
    }
    if (class_of(value) == TypeClass::Array && depth < kMaxDepth) {
      const Ref parts = Ref::steal(PyObject_CallMethod(value, "tolist", nullptr));
      if (parts) return take(parts.get(), depth + 1);
      PyErr_Clear();
    }
    return text(fmt::format("<{}: {}>", Py_TYPE(value)->tp_name, borrowed.reason));
  }

  Ref take_list(PyObject* sequence, int depth) {
    const Ref items = Ref::steal(PySequence_List(sequence));
    if (!items) return {};
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(items.get()); ++i) {
      ++items_;
      PyObject* old = PyList_GET_ITEM(items.get(), i);
      PyList_SET_ITEM(items.get(), i, take(old, depth + 1).release());
      Py_DECREF(old);
    }
    return items;
  }

  Ref take_dict(PyObject* dict, int depth) {
    const Ref copy = Ref::steal(PyDict_Copy(dict));
    Ref result = Ref::steal(PyDict_New());
    PyObject *key = nullptr, *value = nullptr;
    Py_ssize_t position = 0;
    while (copy && result && PyDict_Next(copy.get(), &position, &key, &value)) {
      ++items_;
      const Ref safe_key =
          class_of(key) == TypeClass::Scalar || PyTuple_Check(key) ? Ref::share(key) : take_opaque(key);
      PyDict_SetItem(result.get(), safe_key.get(), take(value, depth + 1).get());
      PyErr_Clear();
    }
    return result;
  }

  Ref take_fields(PyObject* value, int depth) {
    const Ref names = Ref::steal(PyObject_GetAttrString(value, "__dataclass_fields__"));
    if (!names || !PyDict_Check(names.get())) return {};
    Ref result = Ref::steal(PyDict_New());
    PyObject *name = nullptr, *field = nullptr;
    Py_ssize_t position = 0;
    while (PyDict_Next(names.get(), &position, &name, &field)) {
      const Ref item = Ref::steal(PyObject_GetAttr(value, name));
      if (item) PyDict_SetItem(result.get(), name, take(item.get(), depth + 1).get());
      PyErr_Clear();
    }
    return result;
  }

  Ref take_container(PyObject* value, int depth) {
    switch (class_of(value)) {
      case TypeClass::List:
      case TypeClass::Deque:
        return take_list(value, depth);
      case TypeClass::Tuple: {
        const Ref items = take_list(value, depth);
        return items ? Ref::steal(PyList_AsTuple(items.get())) : Ref();
      }
      case TypeClass::Set: {
        const Ref items = take_list(value, depth);
        return items ? Ref::steal(PySet_New(items.get())) : Ref();
      }
      case TypeClass::Dict:
        return take_dict(value, depth);
      case TypeClass::Fields:
        return options_.opaque == Opaque::Repr ? Ref() : take_fields(value, depth);
      case TypeClass::Namespace: {
        const Ref fields = Ref::steal(PyObject_GetAttrString(value, "__dict__"));
        return fields ? take_dict(fields.get(), depth) : Ref();
      }
      default:
        return {};
    }
  }

  Ref take_opaque(PyObject* value) {
    if (options_.opaque == Opaque::Repr) {
      Ref result = Ref::steal(PyObject_Repr(value));
      if (result && PyUnicode_CheckExact(result.get())) return result;
      PyErr_Clear();
    }
    if (PyType_Check(value)) return text(fmt::format("<class {}>", reinterpret_cast<PyTypeObject*>(value)->tp_name));
    return text(fmt::format("<{} at {}>", Py_TYPE(value)->tp_name, static_cast<const void*>(value)));
  }

  bool is_open(PyObject* value) const { return std::find(open_.begin(), open_.end(), value) != open_.end(); }

  const SnapshotOptions& options_;
  Py_ssize_t items_ = 0;
  std::vector<PyObject*> open_;  // the containers around the value, for cycles
};

}  // namespace

std::string TensorValue::describe() const {
  const Stats& stats = summary.stats;
  std::string result = fmt::format("{}[{}]", to_string(dtype), fmt::join(shape, ", "));
  if (device != "cpu") result += fmt::format(" {}", device);
  if (stats.nan) result += fmt::format(" NAN {}", stats.nan);
  if (stats.pos_inf) result += fmt::format(" +INF {}", stats.pos_inf);
  if (stats.neg_inf) result += fmt::format(" -INF {}", stats.neg_inf);
  if (std::isnan(stats.mean)) return result;
  if (stats.count == 1) return result + fmt::format(" {:.6g}", stats.mean);
  return result + fmt::format(" mean {:.4g} min {:.4g} max {:.4g}", stats.mean, stats.min, stats.max);
}

Ref snapshot(PyObject* value, const SnapshotOptions& options) {
  Ref result = Snapshotter(options).take(value);
  PyErr_Clear();
  return result ? result : Ref::share(Py_None);
}

std::string short_text(PyObject* value, std::size_t limit) {
  if (!value) return "";
  const Ref repr = Ref::steal(PyObject_Repr(value));
  Py_ssize_t size = 0;
  const char* utf8 = repr ? PyUnicode_AsUTF8AndSize(repr.get(), &size) : nullptr;
  PyErr_Clear();
  std::string result = utf8 ? std::string(utf8, static_cast<std::size_t>(size)) : "?";
  if (result.size() > limit) {
    std::size_t end = limit;
    while (end > 0 && (static_cast<unsigned char>(result[end]) & 0xC0) == 0x80) --end;
    result.resize(end);
    result += "…";
  }
  return result;
}

}  // namespace tenscope::python
