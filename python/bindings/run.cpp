// Overview: the recording side of the Python API. `record` is called often and mostly with two arguments, so it is a
// plain C function (METH_FASTCALL) rather than one of nanobind: its first statement is the check whether anything
// records at all.
#include <fmt/format.h>
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include "bindings/call_site.hpp"
#include "bindings/live_run.hpp"
#include "bindings/module.hpp"
#include "bindings/object.hpp"
#include "bindings/recording.hpp"
#include "bindings/tensor_adapter.hpp"
#include "compare/against.hpp"
#include "store/sigterm.hpp"

namespace tenscope::python {
namespace {

using namespace nb::literals;

struct RunObject {
  std::shared_ptr<LiveRun> live;
};

// The arguments of one record call; text is borrowed from the caller's objects.
struct Arguments {
  EventInfo info;
  PyObject* object = nullptr;
  PyObject* inputs = Py_None;
  Values values = Values::Full;
  bool has_site = false;
  std::string name;  // where it had to be made
  std::string meta;
};

bool set_error(PyObject* type, const std::string& message) {
  PyErr_SetString(type, message.c_str());
  return false;
}

bool take_text(PyObject* object, std::string_view& out) {
  if (object == Py_None) return true;
  Py_ssize_t size = 0;
  const char* text = PyUnicode_Check(object) ? PyUnicode_AsUTF8AndSize(object, &size) : nullptr;
  if (!text) return PyErr_Occurred() ? false : set_error(PyExc_TypeError, "record: a field must be text");
  out = {text, static_cast<std::size_t>(size)};
  return true;
}

bool take_integer(PyObject* object, std::int64_t& out) {
  if (object == Py_None) return true;
  out = PyLong_AsLongLong(object);
  return !(out == -1 && PyErr_Occurred());
}

bool take_name(PyObject* object, Arguments& arguments) {
  if (PyUnicode_Check(object)) {
    if (take_text(object, arguments.info.name)) return true;
    PyErr_Clear();  // lone surrogates
  }
  if (object == Py_None || PyFloat_Check(object) || is_tensor_like(object))
    return set_error(PyExc_TypeError,
                     "record() takes the name first, then the value: record(\"loss\", loss); a name is no " +
                         std::string(Py_TYPE(object)->tp_name));
  const Ref text = Ref::steal(PyObject_Str(object));
  if (!text) return false;
  arguments.name = utf8(text.get());
  arguments.info.name = arguments.name;
  return true;
}

bool to_json(PyObject* object, std::string& out) {
  const Ref json = Ref::steal(PyImport_ImportModule("json"));
  const Ref text = Ref::steal(json ? PyObject_CallMethod(json.get(), "dumps", "O", object) : nullptr);
  if (!text) return false;
  out = utf8(text.get());
  return true;
}

// Text of a JSON object as it is, or a dict.
bool take_meta(PyObject* object, Arguments& arguments) {
  if (object == Py_None || PyUnicode_Check(object)) return take_text(object, arguments.info.meta);
  if (!to_json(object, arguments.meta)) return false;
  arguments.info.meta = arguments.meta;
  return true;
}

// The names of what a value was made of become a member of meta.
bool take_inputs(PyObject* object, Arguments& arguments) {
  if (object == Py_None) return true;
  const Ref names = Ref::steal(PyUnicode_Check(object) ? nullptr : PySequence_List(object));
  bool is_list = static_cast<bool>(names);
  for (Py_ssize_t i = 0; is_list && i < PyList_GET_SIZE(names.get()); ++i)
    is_list = PyUnicode_Check(PyList_GET_ITEM(names.get(), i));
  if (!is_list)
    return set_error(PyExc_TypeError, "record: inputs is a list of the names of what the value was made of");
  std::string json;
  if (!to_json(names.get(), json)) return false;
  arguments.meta = with_members(arguments.info.meta, "\"inputs\":" + json);
  arguments.info.meta = arguments.meta;
  return true;
}

bool take_kind(PyObject* object, EventKind& out) {
  std::string_view text;
  if (!take_text(object, text)) return false;
  if (text.empty()) return true;
  auto kind = parse_event_kind(text);
  if (!kind) return set_error(PyExc_ValueError, "record: no such kind of event: " + std::string(text));
  out = *kind;
  return true;
}

bool take_values(PyObject* object, Values& out) {
  std::string_view text;
  if (!take_text(object, text)) return false;
  if (text == "stats") out = Values::Stats;
  if (text == "stats" || text == "full" || text.empty()) return true;
  return set_error(PyExc_ValueError, "record: values must be \"full\" or \"stats\", not " + std::string(text));
}

bool take_keyword(std::string_view keyword, PyObject* value, Arguments& arguments) {
  EventInfo& info = arguments.info;
  if (keyword == "kind") return take_kind(value, info.kind);
  if (keyword == "step" || keyword == "call") {
    if (take_integer(value, keyword == "step" ? info.step : info.call)) return true;
    PyErr_Clear();
    return set_error(PyExc_TypeError,
                     fmt::format("record: {} is an int, not {}", keyword, utf8(nb::repr(value).ptr())));
  }
  if (keyword == "site") return arguments.has_site = true, take_text(value, info.site);
  if (keyword == "scope") return take_text(value, info.scope);
  if (keyword == "io" || keyword == "phase") {
    std::string_view word;
    if (!take_text(value, word)) return false;
    if (keyword == "io")
      info.io = word;
    else
      info.phase = word;
    return true;
  }
  if (keyword == "root") return take_text(value, info.root);
  if (keyword == "cls") return take_text(value, info.cls);
  if (keyword == "task") return take_text(value, info.task);
  if (keyword == "meta") return take_meta(value, arguments);
  if (keyword == "inputs") return arguments.inputs = value, true;
  if (keyword == "file") return take_text(value, info.file);
  if (keyword == "values") return take_values(value, arguments.values);
  if (keyword == "value") return arguments.object = value, true;
  if (keyword == "name") return take_name(value, arguments);
  return set_error(PyExc_TypeError, "record() got an unexpected keyword argument '" + std::string(keyword) + "'");
}

bool parse(PyObject* const* args, Py_ssize_t count, PyObject* keywords, Arguments& arguments) {
  if (count > 2) return set_error(PyExc_TypeError, "record() takes a name and a value, all else by keyword");
  if (count > 0 && !take_name(args[0], arguments)) return false;
  if (count > 1) arguments.object = args[1];
  Py_ssize_t keyword_count = keywords ? PyTuple_GET_SIZE(keywords) : 0;
  for (Py_ssize_t i = 0; i < keyword_count; ++i) {
    std::string_view keyword;
    if (!take_text(PyTuple_GET_ITEM(keywords, i), keyword)) return false;
    if (!take_keyword(keyword, args[count + i], arguments)) return false;
  }
  if (!arguments.object && arguments.info.kind == EventKind::Value)
    return set_error(PyExc_TypeError, "record() needs a name and a value");
  return take_inputs(arguments.inputs, arguments);
}

PyObject* suspicion_handler = nullptr;

// Calls the handler where something was just recorded that differs from the run's reference. What it raises is meant
// for the program.
bool tell_suspicion(const std::shared_ptr<compare::Against>& against) {
  if (!against || against->suspicion() != compare::Suspicion::Differs) return true;
  if (suspicion_handler == nullptr || PyErr_Occurred()) return true;
  return static_cast<bool>(Ref::steal(PyObject_CallNoArgs(suspicion_handler)));
}

PyObject* record_into(std::shared_ptr<LiveRun> live, PyObject* const* args, Py_ssize_t count, PyObject* keywords) {
  Arguments arguments;
  if (!parse(args, count, keywords, arguments)) return nullptr;
  CallSite site;
  if (!arguments.has_site) {
    arguments.info.site = site;
    if (site.code && !std::string_view(site).empty()) live->tell_code(site.code.get());
  }
  const auto against = live->against;  // the run may be gone when it has recorded
  int events = arguments.object ? record_object(std::move(live), arguments.info, arguments.object, arguments.values)
                                : record_value(std::move(live), arguments.info, EventValue());
  const bool is_by_hand = !arguments.has_site;  // a probe says where, and when it may be looked at
  if (events < 0 || (is_by_hand && !tell_suspicion(against))) return nullptr;
  Py_RETURN_NONE;
}

PyObject* record_current(PyObject*, PyObject* const* args, Py_ssize_t count, PyObject* keywords) {
  if (!is_recording()) Py_RETURN_NONE;
  return record_into(share_current_run(), args, count, keywords);
}

PyObject* record_method(PyObject* self, PyObject* const* args, Py_ssize_t count, PyObject* keywords) {
  if (!nb::inst_ready(self)) return set_error(PyExc_RuntimeError, "record: Run.__init__ was not called"), nullptr;
  const auto& live = nb::inst_ptr<RunObject>(self)->live;
  if (!live || !live->run.enabled()) Py_RETURN_NONE;
  return record_into(live, args, count, keywords);
}

constexpr const char* kRecordDoc =
    "record(name, value, *, kind=None, step=None, call=None, site=None, scope=None, io=None, phase=None, root=None,\n"
    "       cls=None, task=None, meta=None, inputs=None, values='full')\n--\n\n"
    "Records a tensor, array, number, text, None or any nest of them under a name.\n\n"
    "Without a run and while disabled it does nothing, so calls may stay in the code. What goes wrong in it is a\n"
    "RecordingWarning, never an error in the program. docs/python.md says what becomes of each type of value.\n\n"
    "step, call   its place, where the run's own count is not meant\n"
    "site         \"file.py:12\"; the calling line by default\n"
    "io, phase    what it is: \"param\", \"input\", \"output\" ...; \"init\", \"forward\", \"backward\", "
    "\"optimizer\"\n"
    "scope, root  the module or function that it belongs to, and the outermost one\n"
    "kind         \"value\", or \"note\" for what is about the run itself\n"
    "cls, task    the class of the module; the asyncio task\n"
    "meta         a dict of anything else\n"
    "inputs       names of the values that it was made of, for the comparison of two engines (docs/engines.md)\n"
    "values       \"stats\" keeps statistics, fingerprint and sketch without the bytes";

PyMethodDef record_current_def = {"record", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(record_current)),
                                  METH_FASTCALL | METH_KEYWORDS, kRecordDoc};
PyMethodDef record_method_def = {"record", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(record_method)),
                                 METH_FASTCALL | METH_KEYWORDS, kRecordDoc};

Durability parse_durability(const std::string& text) {
  if (text == "process") return Durability::Process;
  if (text == "disk") return Durability::Disk;
  throw Error(ErrorCode::InvalidArgument, "durability must be \"process\" or \"disk\", not " + text);
}

Keep parse_keep(const std::string& text) {
  if (text == "first") return Keep::First;
  if (text == "last") return Keep::Last;
  throw Error(ErrorCode::InvalidArgument, "keep must be \"first\" or \"last\", not " + text);
}

Values parse_values(const std::string& text) {
  if (text == "full") return Values::Full;
  if (text == "stats") return Values::Stats;
  throw Error(ErrorCode::InvalidArgument, "values must be \"full\" or \"stats\", not " + text);
}

// Calls into the run without the GIL, then lets its warnings out.
template <class Call>
auto without_gil(const std::shared_ptr<LiveRun>& live, Call call) {
  struct Warnings {
    ~Warnings() { issue_warnings(); }
  } warnings;
  auto keep = live;  // NOLINT(performance-unnecessary-copy-initialization): held while the GIL is away
  GilRelease release;
  return call(keep->run);
}

// The number of a step, or nothing for the next one. Throws TypeError where it is something else.
std::optional<std::int64_t> step_number(const nb::object& object) {
  if (object.is_none()) return std::nullopt;
  const Ref index = Ref::steal(PyNumber_Index(object.ptr()));
  std::int64_t number = 0;
  if (!index || !take_integer(index.get(), number) || number < 0) {
    PyErr_Clear();
    throw nb::type_error(
        fmt::format("step takes the number of a step, an int from 0 on, or nothing for the next one: not {}",
                    utf8(nb::repr(object).ptr()))
            .c_str());
  }
  return number;
}

std::int64_t step(const std::shared_ptr<LiveRun>& live, std::optional<std::int64_t> number) {
  return without_gil(live, [&](Run& run) {
    if (!number) return run.step();
    run.step(*number);
    return *number;
  });
}

}  // namespace
}  // namespace tenscope::python

void init_run(nb::module_& m) {
  using namespace tenscope;
  using namespace tenscope::python;

  auto run = nb::class_<RunObject>(m, "Run", "A recording; see tenscope.Run.");
  run.def(
         "__init__",
         [](RunObject* self, const std::filesystem::path& base, std::string name, int rank, int world_size,
            const std::string& durability, std::uint64_t max_bytes, const std::string& keep, const std::string& values,
            std::uint64_t segment_bytes, bool strict, bool join) {
           RunOptions options{.name = std::move(name),
                              .rank = rank,
                              .world_size = world_size,
                              .join = join,
                              .durability = parse_durability(durability),
                              .max_bytes = max_bytes,
                              .keep = parse_keep(keep),
                              .values = parse_values(values),
                              .strict = strict};
           if (segment_bytes) options.segment_bytes = segment_bytes;
           new (self) RunObject{std::make_shared<LiveRun>(base, options)};
           issue_warnings();
         },
         "base"_a, nb::kw_only(), "name"_a = "", "rank"_a = 0, "world_size"_a = 1, "durability"_a = "process",
         "max_bytes"_a = 0, "keep"_a = "first", "values"_a = "full", "segment_bytes"_a = 0, "strict"_a = false,
         "join"_a = false)
      .def(
          "step", [](RunObject& self, const nb::object& number) { return step(self.live, step_number(number)); },
          "number"_a = nb::none(), nb::sig("def step(self, number: int | None = None) -> int"),
          "Begins the next step, or the one of that number, and returns its number.")
      .def(
          "set_against",
          [](RunObject& self, std::shared_ptr<compare::Against> against) {
            self.live->against = against;
            self.live->run.set_watcher(std::move(against));
          },
          "against"_a.none(), "Compares what is recorded from now on with a recording; None: no longer.")
      .def(
          "enable", [](RunObject& self) { self.live->run.enable(); }, "Goes on recording.")
      .def(
          "disable", [](RunObject& self) { self.live->run.disable(); }, "Stops recording until enable().")
      .def(
          "flush", [](RunObject& self) { without_gil(self.live, [](Run& run) { run.flush(); }); },
          "With durability=\"disk\": all that was recorded so far is on the disk when it returns.")
      .def(
          "close", [](RunObject& self) { without_gil(self.live, [](Run& run) { run.close(); }); },
          "Seals the open segments and ends the journal. May be called again.")
      .def_prop_ro(
          "enabled", [](RunObject& self) { return self.live->run.enabled(); }, "Whether it records now.")
      .def_prop_ro(
          "current_step", [](RunObject& self) { return self.live->run.current_step(); }, "The number of the step.")
      .def_prop_ro(
          "path", [](RunObject& self) { return self.live->run.path(); }, "The run's folder.")
      .def_prop_ro(
          "writer_path", [](RunObject& self) { return self.live->run.writer_path(); }, "This process' folder in it.")
      .def_prop_ro(
          "dropped", [](RunObject& self) { return self.live->run.dropped() + self.live->dropped.load(); },
          "How many events were lost.")
      .def_prop_ro(
          "spent_ns", [](RunObject& self) { return self.live->spent_ns.load(); },
          "The time that recording them took, by all threads together.")
      .def(
          "on_code", [](RunObject& self, const nb::object& call) { self.live->on_code = Ref::share(call.ptr()); },
          "call"_a, "Has it called with a code object that records, the first of each file.")
      .def_prop_ro("strict", [](RunObject& self) { return self.live->strict; }, "Whether what goes wrong raises.");
  PyObject* method = PyDescr_NewMethod(reinterpret_cast<PyTypeObject*>(run.ptr()), &record_method_def);
  run.attr("record") = nb::steal(method);

  m.attr("record") = nb::steal(PyCFunction_NewEx(&record_current_def, nullptr, nullptr));
  m.def(
      "set_suspicion_handler",
      [](const nb::object& handler) {
        PyObject* before = suspicion_handler;
        suspicion_handler = handler.is_none() ? nullptr : nb::object(handler).release().ptr();
        Py_XDECREF(before);
      },
      "handler"_a.none(), "Called without arguments by a record whose value differs from the run's reference.");
  m.def("set_registered", [](const nb::dict& types) { set_registered(types.ptr()); }, "types"_a);
  m.def("is_strict", &is_strict, "Whether what goes wrong in the recorder raises: TENSCOPE_STRICT or a strict run.");
  m.def("forget_codes", &forget_codes, "Every file of a code object that records is news again: in a forked child.");
  m.def(
      "set_run_opener", [](const nb::object& opener) { set_run_opener(opener.is_none() ? nullptr : opener.ptr()); },
      "opener"_a.none(),
      "Called with False where a program wants to record and no run is current, with True where it steps.");
  m.def("set_current", [](RunObject* run) { set_current_run(run ? run->live : nullptr); }, "run"_a.none());
  m.def(
      "step",
      [](const nb::object& object) -> std::optional<std::int64_t> {
        const std::optional<std::int64_t> number = step_number(object);
        auto live = share_current_run_for(Wish::Step);
        if (!live) return std::nullopt;
        return step(live, number);
      },
      "number"_a = nb::none(), nb::sig("def step(number: int | None = None) -> int | None"),
      "Begins the next step of the current run, or the one of that number, and returns its number.\n\n"
      "What is recorded from now on belongs to that step. None where no run is open.");
  m.def(
      "enable",
      [] {
        if (const auto live = share_current_run_for(Wish::Record)) live->run.enable();
      },
      "Goes on recording into the current run, after disable().");
  m.def(
      "disable",
      [] {
        if (const auto live = share_current_run_for(Wish::Record)) live->run.disable();
      },
      "Stops recording into the current run until enable(). A call of record costs next to nothing then.");
  store::sigterm_thread_is_late = true;  // Python warns of a fork where there are several threads
  m.def("close_runs_on_sigterm", &close_runs_on_sigterm, nb::call_guard<nb::gil_scoped_release>(),
        "From now on SIGTERM closes open runs before it ends the process; False where the program handles it itself.");
}
