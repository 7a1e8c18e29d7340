// Overview: any Python object becomes events.
//
// Numbers, text and None go inline, tensors by their bytes. A nest is walked depth first, each leaf under a dotted
// name (nest.hpp has the walk and its limits). What could not be recorded is said: a placeholder text with meta
// "unsupported", or a note "not_seen" or "by_parts". While an object is walked its elements may run Python (keys'
// __str__, a device copy), so the run and every reference are held, and a flag of the thread keeps the recorder from
// recording itself.
#include "bindings/recording.hpp"

#include <fmt/format.h>

#include <array>
#include <chrono>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "bindings/module.hpp"
#include "bindings/nest.hpp"
#include "bindings/object.hpp"
#include "bindings/tensor_adapter.hpp"
#include "core/json_writer.hpp"

namespace tenscope::python {
namespace {

constexpr std::size_t kReleaseGilBytes = 1u << 20;
constexpr int kMaxConversions = 64;  // by tenscope.register, of one value

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

// A value of a function that JAX traces stands for numbers that there will be when the compiled function runs.
bool is_tracer(PyObject* object) {
  const Ref bases = Ref::share(Py_TYPE(object)->tp_mro);
  for (Py_ssize_t i = 0; bases && i < PyTuple_GET_SIZE(bases.get()); ++i) {
    PyObject* base = PyTuple_GET_ITEM(bases.get(), i);
    if (std::string_view(reinterpret_cast<PyTypeObject*>(base)->tp_name) != "Tracer") continue;
    const Ref module = attribute(base, "__module__");
    if (module && PyUnicode_Check(module.get()) && utf8(module.get()).starts_with("jax")) return true;
  }
  return false;
}

PyObject* registered_types = nullptr;

class Walk {
 public:
  Walk(Run& run, const EventInfo& info, Values values) : run_(run), info_(info), values_(values) {}

  int events() const { return events_; }

  // Why a value was left out, if one was that has no numbers yet.
  const std::string& refused() const { return refused_; }

  void visit(PyObject* object) {
    if (registered_types != nullptr && PyDict_GET_SIZE(registered_types) > 0 && visit_registered(object)) return;
    if (PyFloat_Check(object)) return put(PyFloat_AS_DOUBLE(object));
    if (PyBool_Check(object)) return put(object == Py_True);
    if (PyLong_Check(object)) return put_integer(object);
    if (object == Py_None) return put(nullptr);
    if (PyUnicode_Check(object)) return put(utf8(object));
    if (PyDict_Check(object)) return visit_nest(object, TypeClass::Dict);
    if (PyList_Check(object)) return visit_nest(object, TypeClass::List);
    if (PyTuple_Check(object)) return visit_nest(object, TypeClass::Tuple);
    if (visit_tensor(object)) return;
    visit_other(object);
  }

  // Says in the run what is not in it.
  void note(std::string_view note_name, const std::string& reason) {
    EventInfo info = info_;
    info.kind = EventKind::Note;
    info.name = note_name;
    info.call = -1;
    std::string meta = with_members(info_.meta, json_member("name", name()) + "," + json_member("reason", reason));
    info.meta = meta;
    count(run_.record(info, EventValue(std::string(name()) + ": " + reason)));
  }

 private:
  template <class T>
  void put(T&& value, std::string_view meta = {}) {
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
    const Ref digits = Ref::steal(PyNumber_ToBase(object, 10));
    if (digits) return put(BigInt{utf8(digits.get())});
    drop_error();
    put_placeholder(object, "an integer of too many digits to print");
  }

  void put_placeholder(PyObject* object, const std::string& reason) {
    put(fmt::format("<{}>", type_name(object)), with_members(info_.meta, json_member("unsupported", reason)));
  }

  bool visit_tensor(PyObject* object) {
    BorrowedTensor tensor;
    switch (tensor.borrow(object)) {
      case Borrowed::NotATensor:
        return false;
      case Borrowed::Unsupported:
        if (!refuse_tracer(object)) visit_parts(object, tensor.reason);
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

  bool refuse_tracer(PyObject* object) {
    if (!is_tracer(object)) return false;
    refused_ = fmt::format(
        "{} has no numbers while JAX traces the function: call tenscope.jax.record there, or trace the function with "
        "tenscope.jax.trace",
        name());
    return true;
  }

  void put_tensor(const TensorView& view) {
    EventInfo info = info_;
    info.name = name();
    if (size_bytes(view) < kReleaseGilBytes) return count(run_.record(info, view, values_));
    GilRelease release;
    count(run_.record(info, view, values_));
  }

  void visit_numpy_scalar(PyObject* object, DTypeKind kind) {
    if (kind == DTypeKind::Bool) {
      const int truth = PyObject_IsTrue(object);
      if (truth < 0) throw PythonError{};
      return put(truth == 1);
    }
    if (kind == DTypeKind::Float) {
      double value = PyFloat_AsDouble(object);
      if (value == -1.0 && PyErr_Occurred()) throw PythonError{};
      return put(value);
    }
    put_integer(checked(PyNumber_Index(object)).get());
  }

  // A tensor that has no plain bytes (sparse, quantised, nested, a wrapper) is recorded by what stands in for it, or
  // by the parts that tenscope.recording.parts names.
  void visit_parts(PyObject* object, const std::string& reason) {
    if (const StandIn inner = stand_in(object); inner.tensor && inner.tensor.get() != object) {
      const std::string_view meta = info_.meta;
      const std::string marked = inner.members.empty() ? std::string(meta) : with_members(meta, inner.members);
      info_.meta = marked;
      visit(inner.tensor.get());
      info_.meta = meta;
      return;
    }
    const Ref module = checked(PyImport_ImportModule("tenscope.recording.parts"));
    const Ref parts = checked(PyObject_CallMethod(module.get(), "parts", "O", object));
    if (PyDict_Check(parts.get()) && PyDict_GET_SIZE(parts.get()) > 0) {
      note(kByPartsNote, reason + ", recorded by its parts");
      return visit_nest(parts.get(), TypeClass::Dict);
    }
    const Ref text = checked(PyObject_CallMethod(module.get(), "describe", "O", object));
    put(fmt::format("<{}>", str(text.get())), with_members(info_.meta, json_member("unsupported", reason)));
  }

  // The callable that the user registered for an object's type, or null.
  static Ref converter_of(PyObject* object) {
    const Ref bases = Ref::share(Py_TYPE(object)->tp_mro);
    for (Py_ssize_t i = 0; bases && i < PyTuple_GET_SIZE(bases.get()); ++i) {
      Ref found = Ref::share(PyDict_GetItemWithError(registered_types, PyTuple_GET_ITEM(bases.get(), i)));
      if (!found && PyErr_Occurred()) throw PythonError{};
      if (found) return found;
    }
    return {};
  }

  // An object of a type that the user registered: what its callable gives, marked with the type and where it stands.
  bool visit_registered(PyObject* object) {
    const Ref to_value = converter_of(object);
    if (!to_value || conversions_ >= kMaxConversions) return false;
    const Ref value = checked(PyObject_CallOneArg(to_value.get(), object));
    if (value.get() == object) return false;
    const std::string_view meta = info_.meta;
    const std::string marked =
        with_members(meta, json_member("type", type_name(object)) + "," + json_member("at", name()));
    info_.meta = marked;
    ++conversions_;
    visit(value.get());
    --conversions_;
    info_.meta = meta;
    return true;
  }

  void visit_nest(PyObject* nest, TypeClass kind) {
    const std::string_view outer = name();
    if (above_.empty()) name_ = outer;
    const std::size_t size = name_.size();
    bool cut = false;
    const auto on_cut = [&](const Cut& what) {
      cut = true;
      std::string reason = what.reason();
      if (what.kind == Cut::Kind::Cycle) reason += ", it refers back to " + name_.substr(0, above_[what.depth]);
      note("not_seen", reason);
    };
    const auto each = [&](const Child& child) {
      above_.push_back(size);
      if (size) name_ += '.';
      if (child.key) {
        name_ += PyUnicode_Check(child.key) ? utf8(child.key) : str(child.key);
      } else {
        name_ += std::to_string(child.index);
      }
      visit(child.value);
      name_.resize(size);
      above_.pop_back();
    };
    if (walk_.descend(nest, kind, each, on_cut) == 0 && !cut) put_empty(kind);
  }

  void put_empty(TypeClass kind) {
    const char* text = kind == TypeClass::Tuple                              ? "tuple"
                       : kind == TypeClass::List || kind == TypeClass::Deque ? "list"
                                                                             : "dict";
    put(std::monostate{}, with_members(info_.meta, json_member("empty", text)));
  }

  void visit_other(PyObject* object) {
    switch (const TypeClass kind = class_of(object)) {
      case TypeClass::Fields:
      case TypeClass::Namespace:
      case TypeClass::Mapping:
      case TypeClass::Deque:
        return visit_nest(object, kind);
      default:
        break;
    }
    if (PyComplex_Check(object)) {
      Py_complex value = PyComplex_AsCComplex(object);
      std::array<double, 2> parts{value.real, value.imag};
      return put_tensor({parts.data(), DType::C128, {}, {}, "cpu"});
    }
    if (refuse_tracer(object)) return;
    if (is_known_by_text(object)) return put(str(object));
    put_placeholder(object, "not a tensor, number, text or nest");
  }

  Run& run_;
  EventInfo info_;
  Values values_;
  NestWalk walk_{kKeepLimits};
  std::string name_;                // the dotted name inside a nest; outside it is the event's own
  std::vector<std::size_t> above_;  // the length of its part that names each nest around
  std::string refused_;
  int conversions_ = 0;
  int events_ = 0;
};

thread_local bool recording = false;

// Calls `body` with the thread's flag up and with no error pending: one that is on its way through the user's code is
// put aside meanwhile, and comes back unless `body` (negative) has set another.
template <class Body>
int outside_errors(Body body) {
  struct Flag {
    ~Flag() { recording = before; }
    const bool before = std::exchange(recording, true);
  } flag;
  if (!PyErr_Occurred()) return body();
  PyObject *type = nullptr, *value = nullptr, *traceback = nullptr;
  PyErr_Fetch(&type, &value, &traceback);
  const int result = body();
  if (result < 0) PyErr_Clear();
  PyErr_Restore(type, value, traceback);
  return result;
}

// Runs `body` so that its errors end here: counted, warned of and noted in the run, or set as a Python error where the
// run is strict.
template <class Body>
bool guarded(LiveRun& live, const EventInfo& info, Body body) {
  std::string trouble;
  try {
    body();
    issue_warnings();
    return true;
  } catch (const PythonError&) {
    if (live.strict || PyErr_ExceptionMatches(PyExc_KeyboardInterrupt)) return false;
    const ErrorText error = take_error();
    trouble = error.type + (error.message.empty() ? "" : ": " + error.message);
  } catch (const Error& error) {  // thrown by a strict run only
    set_python_error(error);
    return false;
  } catch (const std::exception& error) {
    if (live.strict) {
      PyErr_SetString(PyExc_RuntimeError, error.what());
      return false;
    }
    trouble = error.what();
  }
  live.count_dropped("recording " + std::string(info.name) + " failed: " + trouble);
  try {
    Walk(live.run, info, Values::Stats).note("not_seen", "recording it failed: " + trouble);
  } catch (const std::exception&) {  // counted already
  }
  issue_warnings();
  return true;
}

// A record that is called in the midst of another, by a converter or a key's __str__, is left out, and that is said.
int leave_out(LiveRun& live, const EventInfo& info) {
  const auto refuse = [] { throw std::runtime_error("it was called in the midst of another record"); };
  return outside_errors([&] { return guarded(live, info, refuse) ? 0 : -1; });
}

}  // namespace

std::string with_members(std::string_view meta, const std::string& members) {
  auto end = meta.rfind('}');
  auto begin = meta.find('{');
  bool empty = end == std::string_view::npos || meta.find_first_not_of(" \t\n", begin + 1) == end;
  if (empty) return "{" + members + "}";
  return std::string(meta.substr(0, end)) + "," + members + "}";
}

void set_registered(PyObject* types) noexcept {
  Py_XINCREF(types);
  registered_types = types;
}

namespace {

// Counts how long recording takes.
template <class Action>
int measured(LiveRun& live, Action&& action) {
  const auto begin = std::chrono::steady_clock::now();
  const int events = action();
  const auto spent = std::chrono::steady_clock::now() - begin;
  live.spent_ns += static_cast<std::uint64_t>(std::chrono::nanoseconds(spent).count());
  return events;
}

}  // namespace

int record_object(std::shared_ptr<LiveRun> live, const EventInfo& info, PyObject* object, Values values) {
  if (!live->run.enabled()) return 0;
  if (recording) return leave_out(*live, info);
  Walk walk(live->run, info, values);
  const auto visit = [&] {
    walk.visit(object);
    if (!walk.refused().empty()) throw std::runtime_error(walk.refused());
  };
  return measured(*live,
                  [&] { return outside_errors([&] { return guarded(*live, info, visit) ? walk.events() : -1; }); });
}

int record_value(std::shared_ptr<LiveRun> live, const EventInfo& info, const EventValue& value) {
  if (!live->run.enabled()) return 0;
  if (recording) return leave_out(*live, info);
  int events = 0;
  const auto record = [&] { events = live->run.record(info, value).kept; };
  return measured(*live, [&] { return outside_errors([&] { return guarded(*live, info, record) ? events : -1; }); });
}

}  // namespace tenscope::python
