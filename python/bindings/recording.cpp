// Overview: any Python object becomes events.
//
// Numbers, text and None go inline, tensors by their bytes. A nest is walked depth first, each leaf under a dotted
// name; the walk is bounded in depth and in leaves, and remembers the containers above it, so that cycles end. What
// could not be recorded is said: a placeholder text with meta "unsupported", or a note "not_seen" or "by_parts". While
// an object is walked its elements may run Python (keys' __str__, a device copy), so every borrowed reference is taken
// first, and a flag of the thread keeps the recorder from recording itself.
#include "bindings/recording.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "bindings/live_run.hpp"
#include "bindings/module.hpp"
#include "bindings/tensor_adapter.hpp"
#include "core/json_writer.hpp"

namespace tenscope::python {
namespace {

constexpr int kMaxDepth = 64;
constexpr int kMaxLeaves = 65536;
constexpr std::size_t kReleaseGilBytes = 1u << 20;

// A new reference that is dropped at the end of the scope.
class Ref {
 public:
  explicit Ref(PyObject* owned) : object_(owned) {}
  ~Ref() { Py_XDECREF(object_); }
  Ref(const Ref&) = delete;
  Ref& operator=(const Ref&) = delete;
  PyObject* get() const { return object_; }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  PyObject* object_;
};

struct PythonError {};  // thrown with a Python error set

PyObject* checked(PyObject* object) {
  if (!object) throw PythonError{};
  return object;
}

PyObject* interned(const char* text) { return PyUnicode_InternFromString(text); }

bool type_has(PyObject* object, PyObject* name) noexcept { return _PyType_Lookup(Py_TYPE(object), name) != nullptr; }

std::string type_name(PyObject* object) {
  Ref module(PyObject_GetAttrString(reinterpret_cast<PyObject*>(Py_TYPE(object)), "__module__"));
  Ref name(PyObject_GetAttrString(reinterpret_cast<PyObject*>(Py_TYPE(object)), "__qualname__"));
  PyErr_Clear();
  const char* module_text = module && PyUnicode_Check(module.get()) ? PyUnicode_AsUTF8(module.get()) : nullptr;
  const char* name_text = name && PyUnicode_Check(name.get()) ? PyUnicode_AsUTF8(name.get()) : nullptr;
  PyErr_Clear();
  if (!name_text) return Py_TYPE(object)->tp_name;
  if (!module_text || std::strcmp(module_text, "builtins") == 0) return name_text;
  return std::string(module_text) + "." + name_text;
}

// Text that has lone surrogates is kept with them escaped.
std::string utf8(PyObject* text) {
  Py_ssize_t size = 0;
  if (const char* data = PyUnicode_AsUTF8AndSize(text, &size)) return {data, static_cast<std::size_t>(size)};
  PyErr_Clear();
  Ref bytes(checked(PyUnicode_AsEncodedString(text, "utf-8", "backslashreplace")));
  return {PyBytes_AS_STRING(bytes.get()), static_cast<std::size_t>(PyBytes_GET_SIZE(bytes.get()))};
}

std::string str(PyObject* object) {
  Ref text(checked(PyObject_Str(object)));
  return utf8(text.get());
}

// One JSON object with `members` (as `"key":value`) added to those of `meta`.
std::string with_members(std::string_view meta, const std::string& members) {
  auto end = meta.rfind('}');
  auto begin = meta.find('{');
  bool empty = end == std::string_view::npos || meta.find_first_not_of(" \t\n", begin + 1) == end;
  if (empty) return "{" + members + "}";
  return std::string(meta.substr(0, end)) + "," + members + "}";
}

std::string json_member(std::string_view key, std::string_view text) {
  std::string json;
  append_json_text(json, key);
  json += ':';
  append_json_text(json, text);
  return json;
}

// Objects whose text is their value: paths, dates, decimals, enums, torch's and NumPy's dtypes and devices.
bool is_known_by_text(PyObject* object) {
  static PyObject* enum_marker = interned("_member_map_");
  if (type_has(object, enum_marker)) return true;
  std::string name = type_name(object);
  for (std::string_view known :
       {"torch.dtype", "torch.device", "torch.layout", "torch.memory_format", "decimal.Decimal", "fractions.Fraction",
        "uuid.UUID", "datetime.datetime", "datetime.date", "datetime.timedelta"})
    if (name == known) return true;
  return name.starts_with("pathlib.") || name.starts_with("numpy.dtype");
}

PyObject* registered_types = nullptr;

class Walk {
 public:
  Walk(Run& run, const EventInfo& info, Values values) : run_(run), info_(info), values_(values) {}

  int events() const { return events_; }

  void visit(PyObject* object) {
    if (registered_types != nullptr && PyDict_GET_SIZE(registered_types) > 0 && visit_registered(object)) return;
    if (PyFloat_Check(object)) return put(PyFloat_AS_DOUBLE(object));
    if (PyBool_Check(object)) return put(object == Py_True);
    if (PyLong_Check(object)) return put_integer(object);
    if (object == Py_None) return put(nullptr);
    if (PyUnicode_Check(object)) return put(utf8(object));
    if (PyDict_Check(object)) return visit_dict(object);
    if (PyList_Check(object)) return visit_list(object);
    if (PyTuple_Check(object)) return visit_tuple(object);
    if (visit_tensor(object)) return;
    visit_other(object);
  }

 private:
  template <class T>
  void put(T&& value, std::string_view meta = {}) {
    if (leaves_++ >= kMaxLeaves) return;
    EventInfo info = info_;
    info.name = name();
    if (!meta.empty()) info.meta = meta;
    count(run_.record(info, EventValue(std::forward<T>(value))));
  }

  std::string_view name() const { return above_.empty() ? info_.name : std::string_view(name_); }

  void count(const Recorded& recorded) { events_ += recorded.kept; }

  void put_integer(PyObject* object) {
    int overflow = 0;
    long long value = PyLong_AsLongLongAndOverflow(object, &overflow);
    if (!overflow) return put(static_cast<std::int64_t>(value));
    Ref digits(PyNumber_ToBase(object, 10));
    if (digits) return put(BigInt{utf8(digits.get())});
    PyErr_Clear();
    put_placeholder(object, "an integer of too many digits to print");
  }

  void put_placeholder(PyObject* object, const std::string& reason) {
    put("<" + type_name(object) + ">", with_members(info_.meta, json_member("unsupported", reason)));
  }

  void note_not_seen(const std::string& reason) { note(kNotSeenNote, reason); }

  void note(std::string_view note_name, const std::string& reason) {
    EventInfo info = info_;
    info.kind = EventKind::Note;
    info.name = note_name;
    info.call = -1;
    std::string meta = with_members(info_.meta, json_member("name", name()) + "," + json_member("reason", reason));
    info.meta = meta;
    count(run_.record(info, EventValue(std::string(name()) + ": " + reason)));
  }

  bool visit_tensor(PyObject* object) {
    BorrowedTensor tensor;
    switch (tensor.borrow(object)) {
      case Borrowed::NotATensor:
        return false;
      case Borrowed::Unsupported:
        visit_parts(object, tensor.reason);
        return true;
      case Borrowed::Ok:
        break;
    }
    if (tensor.view.shape.empty() && is_numpy_scalar(object) && kind_of(tensor.view.dtype) != DTypeKind::Complex) {
      visit_numpy_scalar(object, kind_of(tensor.view.dtype));
      return true;
    }
    put_tensor(tensor.view);
    return true;
  }

  void put_tensor(const TensorView& view) {
    if (leaves_++ >= kMaxLeaves) return;
    EventInfo info = info_;
    info.name = name();
    if (size_bytes(view) < kReleaseGilBytes) return count(run_.record(info, view, values_));
    auto keep = share(run_);  // another thread may close and drop the run meanwhile
    GilRelease release;
    count(run_.record(info, view, values_));
  }

  void visit_numpy_scalar(PyObject* object, DTypeKind kind) {
    if (kind == DTypeKind::Bool) return put(PyObject_IsTrue(object) == 1);
    if (kind == DTypeKind::Float) {
      double value = PyFloat_AsDouble(object);
      if (value == -1.0 && PyErr_Occurred()) throw PythonError{};
      return put(value);
    }
    Ref integer(checked(PyNumber_Index(object)));
    put_integer(integer.get());
  }

  // A tensor that has no plain bytes (sparse, quantised, nested, a wrapper) is recorded by the parts that
  // tenscope.recording.parts names.
  void visit_parts(PyObject* object, const std::string& reason) {
    Ref module(checked(PyImport_ImportModule("tenscope.recording.parts")));
    Ref parts(checked(PyObject_CallMethod(module.get(), "parts", "O", object)));
    if (PyDict_Check(parts.get()) && PyDict_GET_SIZE(parts.get()) > 0) {
      note(kByPartsNote, reason + ", recorded by its parts");
      return visit_dict(parts.get());
    }
    Ref text(checked(PyObject_CallMethod(module.get(), "describe", "O", object)));
    put("<" + str(text.get()) + ">", with_members(info_.meta, json_member("unsupported", reason)));
  }

  // An object of a type that the user registered: what its callable gives, marked with the type and where it stands.
  bool visit_registered(PyObject* object) {
    PyObject* to_value = nullptr;
    PyObject* bases = Py_TYPE(object)->tp_mro;
    for (Py_ssize_t i = 0; bases != nullptr && to_value == nullptr && i < PyTuple_GET_SIZE(bases); ++i)
      to_value = PyDict_GetItem(registered_types, PyTuple_GET_ITEM(bases, i));
    if (to_value == nullptr) return false;
    Ref value(checked(PyObject_CallOneArg(to_value, object)));
    if (value.get() == object || above_.size() >= kMaxDepth) return false;
    const std::string_view meta = info_.meta;
    const std::string marked =
        with_members(meta, json_member("type", type_name(object)) + "," + json_member("at", name()));
    info_.meta = marked;
    visit(value.get());
    info_.meta = meta;
    return true;
  }

  template <class Body>
  void descend(PyObject* container, Py_ssize_t size, Body body) {
    if (size == 0) return put_empty(container);
    for (const auto& [above, name_size] : above_)
      if (above == container) return note_not_seen("a cycle, it refers back to " + name_.substr(0, name_size));
    if (above_.size() >= kMaxDepth) return note_not_seen("nested deeper than " + std::to_string(kMaxDepth) + " levels");
    if (above_.empty()) name_ = info_.name;
    above_.emplace_back(container, name_.size());
    body();
    above_.pop_back();
  }

  void put_empty(PyObject* container) {
    const char* kind = PyDict_Check(container) ? "dict" : PyList_Check(container) ? "list" : "tuple";
    put(std::monostate{}, with_members(info_.meta, json_member("empty", kind)));
  }

  // False where no more may be recorded.
  bool child(std::string_view key, PyObject* value) {
    if (leaves_ >= kMaxLeaves) {
      if (leaves_ == kMaxLeaves) {
        ++leaves_;
        note_not_seen("more than " + std::to_string(kMaxLeaves) + " leaves, the rest left out");
      }
      return false;
    }
    std::size_t size = name_.size();
    if (size) name_ += '.';
    name_ += key;
    visit(value);
    name_.resize(size);
    return true;
  }

  void visit_dict(PyObject* dict) {
    descend(dict, PyDict_GET_SIZE(dict), [&] {
      Py_ssize_t position = 0;
      PyObject *borrowed_key, *borrowed_value;
      while (PyDict_Next(dict, &position, &borrowed_key, &borrowed_value)) {
        Ref key(Py_NewRef(borrowed_key));
        Ref value(Py_NewRef(borrowed_value));
        if (!child(PyUnicode_Check(key.get()) ? utf8(key.get()) : str(key.get()), value.get())) return;
      }
    });
  }

  void visit_list(PyObject* list) {
    descend(list, PyList_GET_SIZE(list), [&] {
      for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); ++i) {
        Ref value(Py_NewRef(PyList_GET_ITEM(list, i)));
        if (!child(std::to_string(i), value.get())) return;
      }
    });
  }

  void visit_tuple(PyObject* tuple) {
    static PyObject* fields_name = interned("_fields");
    Ref fields(PyTuple_CheckExact(tuple) ? nullptr : PyObject_GetAttr(tuple, fields_name));
    PyErr_Clear();
    bool named = fields && PyTuple_Check(fields.get()) && PyTuple_GET_SIZE(fields.get()) == PyTuple_GET_SIZE(tuple);
    descend(tuple, PyTuple_GET_SIZE(tuple), [&] {
      for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); ++i)
        if (!child(named ? str(PyTuple_GET_ITEM(fields.get(), i)) : std::to_string(i), PyTuple_GET_ITEM(tuple, i)))
          return;
    });
  }

  void visit_other(PyObject* object) {
    static PyObject* dataclass_fields = interned("__dataclass_fields__");
    static PyObject* keys = interned("keys");
    static PyObject* getitem = interned("__getitem__");
    if (!PyType_Check(object)) {
      if (type_has(object, dataclass_fields)) return visit_dataclass(object);
      if (type_has(object, keys) && type_has(object, getitem)) return visit_mapping(object);
      if (type_name(object) == "collections.deque") {
        Ref list(checked(PySequence_List(object)));
        return visit_list(list.get());
      }
    }
    if (PyComplex_Check(object)) {
      Py_complex value = PyComplex_AsCComplex(object);
      std::array<double, 2> parts{value.real, value.imag};
      return put_tensor({parts.data(), DType::C128, {}, {}, "cpu"});
    }
    if (is_known_by_text(object)) return put(str(object));
    put_placeholder(object, "not a tensor, number, text or nest");
  }

  void visit_dataclass(PyObject* object) {
    Ref fields(checked(PyObject_GetAttrString(reinterpret_cast<PyObject*>(Py_TYPE(object)), "__dataclass_fields__")));
    if (!PyDict_Check(fields.get())) return put_placeholder(object, "a dataclass without fields");
    descend(object, PyDict_GET_SIZE(fields.get()), [&] {
      Py_ssize_t position = 0;
      PyObject *name, *field;
      while (PyDict_Next(fields.get(), &position, &name, &field)) {
        Ref value(PyObject_GetAttr(object, name));  // a ClassVar is listed too, a slot may be unset
        if (!value) {
          PyErr_Clear();
          continue;
        }
        if (!child(str(name), value.get())) return;
      }
    });
  }

  void visit_mapping(PyObject* object) {
    Ref items(PyMapping_Items(object));
    if (!items || !PyList_Check(items.get())) {
      PyErr_Clear();
      return put_placeholder(object, "not a tensor, number, text or nest");
    }
    descend(object, PyList_GET_SIZE(items.get()), [&] {
      for (Py_ssize_t i = 0; i < PyList_GET_SIZE(items.get()); ++i) {
        PyObject* item = PyList_GET_ITEM(items.get(), i);
        if (!PyTuple_Check(item) || PyTuple_GET_SIZE(item) != 2) continue;
        if (!child(str(PyTuple_GET_ITEM(item, 0)), PyTuple_GET_ITEM(item, 1))) return;
      }
    });
  }

  Run& run_;
  EventInfo info_;
  Values values_;
  std::string name_;  // the dotted name inside a nest; outside it is the event's own
  std::vector<std::pair<PyObject*, std::size_t>> above_;  // the containers around, each with the length of its name
  int leaves_ = 0;
  int events_ = 0;
};

thread_local bool recording = false;

struct RecursionGuard {
  RecursionGuard() { recording = true; }
  ~RecursionGuard() { recording = false; }
};

// Keeps an exception that is on its way through the user's code while the recorder runs.
class PendingError {
 public:
  PendingError() {
    if (PyErr_Occurred()) PyErr_Fetch(&type_, &value_, &traceback_);
  }
  ~PendingError() {
    if (type_) PyErr_Restore(type_, value_, traceback_);
  }

 private:
  PyObject *type_ = nullptr, *value_ = nullptr, *traceback_ = nullptr;
};

// The pending Python error as "Type: message", cleared.
std::string take_python_error() {
  PyObject *type = nullptr, *value = nullptr, *traceback = nullptr;
  PyErr_Fetch(&type, &value, &traceback);
  std::string text = type ? reinterpret_cast<PyTypeObject*>(type)->tp_name : "error";
  Ref message(value ? PyObject_Str(value) : nullptr);
  const char* message_text = message ? PyUnicode_AsUTF8(message.get()) : nullptr;
  if (message_text) text += std::string(": ") + message_text;
  PyErr_Clear();
  Py_XDECREF(type);
  Py_XDECREF(value);
  Py_XDECREF(traceback);
  return text;
}

}  // namespace

namespace {

// Runs `body` so that its errors end here: counted and warned of, or set as a Python error where the run is strict.
template <class Body>
bool guarded(Run& run, const EventInfo& info, Body body) {
  std::string trouble;
  try {
    body();
    issue_warnings();
    return true;
  } catch (const PythonError&) {
    if (is_strict(run)) return false;
    trouble = take_python_error();
  } catch (const Error& error) {  // thrown by a strict run only
    set_python_error(error);
    return false;
  } catch (const std::exception& error) {
    if (is_strict(run)) {
      PyErr_SetString(PyExc_RuntimeError, error.what());
      return false;
    }
    trouble = error.what();
  }
  count_dropped(run, "recording " + std::string(info.name) + " failed: " + trouble);
  issue_warnings();
  return true;
}

}  // namespace

void set_registered(PyObject* types) noexcept {
  Py_XINCREF(types);
  registered_types = types;
}

int record_object(Run& run, const EventInfo& info, PyObject* object, Values values) {
  if (recording || !run.enabled()) return 0;
  RecursionGuard guard;
  PendingError pending;
  Walk walk(run, info, values);
  return guarded(run, info, [&] { walk.visit(object); }) ? walk.events() : -1;
}

int record_value(Run& run, const EventInfo& info, const EventValue& value) {
  if (recording || !run.enabled()) return 0;
  RecursionGuard guard;
  PendingError pending;
  int events = 0;
  return guarded(run, info, [&] { events = run.record(info, value).kept; }) ? events : -1;
}

}  // namespace tenscope::python
