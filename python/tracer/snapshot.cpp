#include "tracer/snapshot.hpp"

#include <fmt/format.h>

#include <cmath>
#include <new>

#include "bindings/module.hpp"
#include "bindings/tensor_adapter.hpp"
#include "kernels/summarize.hpp"

namespace tenscope::python {
namespace {

Ref text(const std::string& content) {
  return Ref::steal(PyUnicode_DecodeUTF8(content.data(), static_cast<Py_ssize_t>(content.size()), "replace"));
}

bool is_plain(PyObject* value) { return PyLong_CheckExact(value) || PyFloat_CheckExact(value) || value == Py_None; }

class Snapshotter {
 public:
  explicit Snapshotter(const SnapshotOptions& options) : options_(options) {}

  Ref take(PyObject* value) {
    Ref result;
    switch (const TypeClass kind = class_of(value)) {
      case TypeClass::Scalar:
        return Ref::share(value);
      case TypeClass::Torch:
      case TypeClass::Array:
        result = take_tensor(value);
        break;
      case TypeClass::List:
      case TypeClass::Deque:
      case TypeClass::Tuple:
      case TypeClass::Set:
        result = take_sequence(value, kind);
        break;
      case TypeClass::Fields:
        if (options_.opaque == Opaque::Repr) break;
        [[fallthrough]];
      case TypeClass::Dict:
      case TypeClass::Namespace:
        result = take_dict(value, kind);
        break;
      case TypeClass::Mapping:
      case TypeClass::Opaque:
        break;
    }
    drop_error();
    return result ? result : take_opaque(value);
  }

 private:
  Ref take_tensor(PyObject* value) {
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
    if (class_of(value) == TypeClass::Array) {  // of objects, text, records
      const Ref parts = Ref::steal(PyObject_CallMethod(value, "tolist", nullptr));
      if (parts && parts.get() != value && class_of(parts.get()) != TypeClass::Array) return take(parts.get());
      drop_error();
    }
    return text(fmt::format("<{}: {}>", Py_TYPE(value)->tp_name, borrowed.reason));
  }

  // A list of numbers is copied as it is.
  Ref take_numbers(PyObject* list) {
    if (walk_.depth() >= kKeepLimits.depth) return {};
    const Py_ssize_t size = PyList_GET_SIZE(list);
    for (Py_ssize_t i = 0; i < size; ++i)
      if (!is_plain(PyList_GET_ITEM(list, i))) return {};
    return walk_.take_items(static_cast<std::size_t>(size)) ? Ref::steal(PyList_GetSlice(list, 0, size)) : Ref();
  }

  Ref take_sequence(PyObject* value, TypeClass kind) {
    if (PyList_CheckExact(value)) {
      if (Ref numbers = take_numbers(value)) return numbers;
    }
    const Ref items = Ref::steal(PyList_New(0));
    Ref instead;
    const auto append = [&](const Ref& item) {
      if (!item || !items || PyList_Append(items.get(), item.get()) != 0) throw std::bad_alloc();
    };
    const auto cut = [&](const Cut& what) { mark(what, value, instead, append); };
    walk_.descend(
        value, kind,
        [&](const Child& child) { append(is_plain(child.value) ? Ref::share(child.value) : take(child.value)); }, cut);
    if (instead) return instead;
    if (kind == TypeClass::Tuple) return Ref::steal(PyList_AsTuple(items.get()));
    if (kind == TypeClass::Set) return Ref::steal(PySet_New(items.get()));
    return items;
  }

  Ref take_dict(PyObject* value, TypeClass kind) {
    const Ref result = Ref::steal(PyDict_New());
    Ref instead;
    const auto set = [&](const Ref& key, const Ref& item) {
      if (!key || !item || PyDict_SetItem(result.get(), key.get(), item.get()) != 0) drop_error();
    };
    const auto cut = [&](const Cut& what) {
      mark(what, value, instead, [&](const Ref& item) { set(text("…"), item); });
    };
    const auto each = [&](const Child& child) {
      const bool safe = class_of(child.key) == TypeClass::Scalar || PyTuple_Check(child.key);
      set(safe ? Ref::share(child.key) : take_opaque(child.key), take(child.value));
    };
    walk_.descend(value, kind, each, cut);
    return instead ? instead : result;
  }

  // What a snapshot has in the place of what it lacks: a LeftOut behind the children that it has, or text for the
  // whole.
  template <class Append>
  static void mark(const Cut& cut, PyObject* nest, Ref& instead, Append append) {
    const bool whole = cut.kind == Cut::Kind::Cycle || cut.kind == Cut::Kind::TooDeep;
    if (whole) {
      instead =
          text(fmt::format("<{} at {}: {}>", Py_TYPE(nest)->tp_name, static_cast<const void*>(nest), cut.reason()));
    } else {
      append(Ref::steal(nb::cast(LeftOut{cut.left_out, cut.reason()}).release().ptr()));
    }
  }

  Ref take_opaque(PyObject* value) {
    if (options_.opaque == Opaque::Repr) {
      Ref result = Ref::steal(PyObject_Repr(value));
      if (result && PyUnicode_CheckExact(result.get())) return result;
      drop_error();
    }
    if (PyType_Check(value)) return text(fmt::format("<class {}>", reinterpret_cast<PyTypeObject*>(value)->tp_name));
    return text(fmt::format("<{} at {}>", Py_TYPE(value)->tp_name, static_cast<const void*>(value)));
  }

  const SnapshotOptions& options_;
  NestWalk walk_{kKeepLimits};
};

}  // namespace

std::string LeftOut::describe() const { return count ? fmt::format("… {} more", count) : "… " + reason; }

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
  drop_error();
  return result ? result : Ref::share(Py_None);
}

std::string short_text(PyObject* value, std::size_t limit) {
  if (!value) return "";
  const Ref repr = Ref::steal(PyObject_Repr(value));
  Py_ssize_t size = 0;
  const char* utf8 = repr ? PyUnicode_AsUTF8AndSize(repr.get(), &size) : nullptr;
  drop_error();
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
