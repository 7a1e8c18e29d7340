#include "tracer/watcher.hpp"

// Overview: Python 3.12 and later. sys.monitoring tells of lines, starts and ends of the watched code objects only;
// code that is not watched runs at full speed. Unwinding by an exception is no local event, so it is asked for
// globally: it costs some nanoseconds per frame that an exception leaves, and nothing else. A watcher that looks below
// its function also asks for the start of every function; those without any of its variables are switched off one by
// one.
//
// sys.settrace is not involved: debuggers and coverage tools run beside.

#if PY_VERSION_HEX >= 0x030C0000

namespace tenscope::python {
namespace {

ts_frame* current_frame() {  // at every line: inline
#if PY_VERSION_HEX >= 0x030D0000
  return reinterpret_cast<ts_frame*>(PyThreadState_GetUnchecked()->current_frame);
#else
  return reinterpret_cast<ts_frame*>(_PyThreadState_UncheckedGet()->cframe->current_frame);
#endif
}

int small_number(PyObject* number) {
  return static_cast<int>(PyUnstable_Long_CompactValue(reinterpret_cast<PyLongObject*>(number)));
}

struct Monitoring {
  Ref module;  // sys.monitoring
  Ref tool, disable;
  long line = 0, start = 0, resume = 0, give = 0, yield = 0, unwind = 0, jump = 0;
  bool deep = false;
};

Monitoring& monitoring() {
  static auto* instance = new Monitoring;
  return *instance;
}

Frame* current(Thread& thread, ts_frame* frame, PyObject* code) {
  Frame* top = thread.top();
  if (top && top->frame == frame) [[likely]]
    return top;
  if (thread.busy) return nullptr;
  if (Frame* found = thread.find(frame)) return found;
  return is_suspended(frame) ? enter(thread, frame, reinterpret_cast<PyCodeObject*>(code), false) : nullptr;
}

PyObject* on_line(PyObject*, PyObject* const* arguments, Py_ssize_t) {
  Thread& thread = this_thread();
  ts_frame* frame = current_frame();
  if (Frame* found = current(thread, frame, arguments[0])) {
    if (!found->info->comprehensions.empty() && found->info->is_comprehension(ts_frame_offset(frame))) Py_RETURN_NONE;
    look(thread, *found, small_number(arguments[1]));
    if (thread.failure && thread.raise_failure()) [[unlikely]]
      return nullptr;
  }
  Py_RETURN_NONE;
}

// The back edge of a loop that stands on one line gives no line event of its own.
PyObject* on_jump(PyObject*, PyObject* const* arguments, Py_ssize_t) {
  Thread& thread = this_thread();
  Frame* top = thread.top();
  if (!top || thread.busy || top->frame != current_frame()) Py_RETURN_NONE;
  const int from = small_number(arguments[1]), to = small_number(arguments[2]);
  auto* code = reinterpret_cast<PyCodeObject*>(arguments[0]);
  if (top->info->is_comprehension(from)) Py_RETURN_NONE;
  if (to < from && PyCode_Addr2Line(code, to) == top->line) look(thread, *top, top->line);
  Py_RETURN_NONE;
}

PyObject* on_start(PyObject*, PyObject* const* arguments, Py_ssize_t) {
  Thread& thread = this_thread();
  auto* code = reinterpret_cast<PyCodeObject*>(arguments[0]);
  if (!thread.busy && (is_watched(code) || !thread.deep.empty())) {
    enter(thread, current_frame(), code, true);
  }
  if (monitoring().deep && !thread.busy && !is_watched(code) && !is_wanted_below(code)) {
    return Py_NewRef(monitoring().disable.get());
  }
  Py_RETURN_NONE;
}

PyObject* on_resume(PyObject*, PyObject* const* arguments, Py_ssize_t) {
  Thread& thread = this_thread();
  ts_frame* frame = current_frame();
  if (!thread.busy && !thread.find(frame)) enter(thread, frame, reinterpret_cast<PyCodeObject*>(arguments[0]), false);
  Py_RETURN_NONE;
}

PyObject* on_return(PyObject*, PyObject* const*, Py_ssize_t) {
  Thread& thread = this_thread();
  leave(thread, current_frame(), false, false);
  if (thread.failure && thread.raise_failure()) [[unlikely]]
    return nullptr;
  Py_RETURN_NONE;
}

PyObject* on_yield(PyObject*, PyObject* const*, Py_ssize_t) {
  leave(this_thread(), current_frame(), true, false);
  Py_RETURN_NONE;
}

PyObject* on_unwind(PyObject*, PyObject* const*, Py_ssize_t) {
  Thread& thread = this_thread();
  ts_frame* frame = current_frame();
  if (!thread.frames.empty() || is_suspended(frame)) leave(thread, frame, false, true);
  if (thread.failure) [[unlikely]]
    thread.write_failure();
  Py_RETURN_NONE;
}

using Callback = PyObject* (*)(PyObject*, PyObject* const*, Py_ssize_t);

bool listen(const char* event, long& bit, Callback callback, PyMethodDef& method) {
  Monitoring& m = monitoring();
  const Ref events = Ref::steal(PyObject_GetAttrString(m.module.get(), "events"));
  const Ref number = events ? Ref::steal(PyObject_GetAttrString(events.get(), event)) : Ref();
  if (!number) return false;
  bit = PyLong_AsLong(number.get());
  method = {event, reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(callback)), METH_FASTCALL, nullptr};
  const Ref function = Ref::steal(PyCFunction_New(&method, nullptr));
  const Ref old = Ref::steal(
      PyObject_CallMethod(m.module.get(), "register_callback", "OOO", m.tool.get(), number.get(), function.get()));
  return bool(old);
}

bool claim_tool() {
  Monitoring& m = monitoring();
  for (const int id : {4, 3, 1, 2}) {
    m.tool = Ref::steal(PyLong_FromLong(id));
    if (Ref::steal(PyObject_CallMethod(m.module.get(), "use_tool_id", "Os", m.tool.get(), "tenscope"))) return true;
    PyErr_Clear();
  }
  return false;
}

void set_global_events() {
  Monitoring& m = monitoring();
  const Ref done = Ref::steal(
      PyObject_CallMethod(m.module.get(), "set_events", "Ol", m.tool.get(), m.unwind | (m.deep ? m.start : 0)));
  PyErr_Clear();
}

}  // namespace

bool door_open(std::string& problem) {
  Monitoring& m = monitoring();
  const Ref sys = Ref::steal(PyImport_ImportModule("sys"));
  m.module = Ref::steal(PyObject_GetAttrString(sys.get(), "monitoring"));
  static PyMethodDef methods[7];
  const bool ready =
      m.module && claim_tool() && listen("LINE", m.line, on_line, methods[0]) &&
      listen("PY_START", m.start, on_start, methods[1]) && listen("PY_RESUME", m.resume, on_resume, methods[2]) &&
      listen("PY_RETURN", m.give, on_return, methods[3]) && listen("PY_YIELD", m.yield, on_yield, methods[4]) &&
      listen("PY_UNWIND", m.unwind, on_unwind, methods[5]) && listen("JUMP", m.jump, on_jump, methods[6]);
  PyErr_Clear();
  if (!ready) {
    problem = "cannot watch: every tool id of sys.monitoring is taken by another tool";
    return false;
  }
  m.disable = Ref::steal(PyObject_GetAttrString(m.module.get(), "DISABLE"));
  set_global_events();
  return true;
}

void door_watch(const CodeInfo& info, bool on) {
  Monitoring& m = monitoring();
  long events = m.line | m.start | m.resume | m.give | m.yield;
  if (info.one_line_loops) events |= m.jump;
  const Ref done = Ref::steal(
      PyObject_CallMethod(m.module.get(), "set_local_events", "OOl", m.tool.get(), info.code.get(), on ? events : 0L));
  PyErr_Clear();
}

void door_watch_deep() {
  Monitoring& m = monitoring();
  if (!m.deep) {
    m.deep = true;
    set_global_events();
  }
  const Ref done = Ref::steal(PyObject_CallMethod(m.module.get(), "restart_events", nullptr));
  PyErr_Clear();
}

void door_attach(Thread&, Frame&) {}
void door_detach(Thread&) {}

const char* door_name() { return "monitoring"; }

}  // namespace tenscope::python

#endif
