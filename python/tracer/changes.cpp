#include "tracer/changes.hpp"

#include <fmt/format.h>

#include <set>
#include <string>

#include "bindings/live_run.hpp"
#include "bindings/module.hpp"
#include "tracer/python_types.hpp"

namespace tenscope::python {

Ref make_changes(const std::shared_ptr<CallLog>& log) {
  Ref result = Ref::steal(nb::cast(Changes{log}).release().ptr());
  drop_error();
  return result;
}

Ref make_change(const std::shared_ptr<CallLog>& log, const ChangeItem& item) {
  Ref result = Ref::steal(nb::cast(Change{log, item}).release().ptr());
  drop_error();
  return result;
}

std::string current_task_name() {
  static PyObject* module_name = interned("asyncio");
  const Ref asyncio = imported_module(module_name);
  const Ref task = Ref::steal(asyncio ? PyObject_CallMethod(asyncio.get(), "current_task", nullptr) : nullptr);
  Ref name;
  if (task && task.get() != Py_None) name = Ref::steal(PyObject_CallMethod(task.get(), "get_name", nullptr));
  drop_error();
  return utf8(name.get());
}

namespace {

// Takes the pending error for the door to raise; of several the first.
void keep_failure(Thread& thread) noexcept {
  PyObject *type = nullptr, *value = nullptr, *traceback = nullptr;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  Ref error = Ref::steal(value);
  const Ref kind = Ref::steal(type), trace = Ref::steal(traceback);
  if (trace) PyException_SetTraceback(error.get(), trace.get());
  if (!thread.failure) thread.failure = error.release();
}

void warn_once(const std::string& message) {
  static auto* told = new std::set<std::string>;
  if (!told->insert(message).second) return;
  PySys_WriteStderr("tenscope: watching went wrong, the program goes on: %.500s\n", message.c_str());
}

}  // namespace

void note_failure(const char* where) noexcept try {
  if (!PyErr_Occurred()) return;
  if (PyErr_ExceptionMatches(PyExc_KeyboardInterrupt)) return drop_error();  // the program gets it at its next line
  if (is_strict()) return keep_failure(this_thread());
  PyObject *type = nullptr, *value = nullptr, *traceback = nullptr;
  PyErr_Fetch(&type, &value, &traceback);
  const Ref kind = Ref::steal(type), error = Ref::steal(value), trace = Ref::steal(traceback);
  warn_once(fmt::format("{}: {}", where, value ? short_text(value, 300) : "unknown error"));
} catch (const std::exception&) {
  PyErr_Clear();
}

void note_exception(const std::exception& error) noexcept try {
  if (is_strict()) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
    return keep_failure(this_thread());
  }
  warn_once(error.what());
  drop_error();
} catch (const std::exception&) {
  PyErr_Clear();
}

bool Thread::raise_failure() noexcept {
  if (!failure) return false;
  if (PyErr_Occurred()) return write_failure(), false;  // the program's own error goes first
  PyObject* value = std::exchange(failure, nullptr);
  PyObject* traceback = PyException_GetTraceback(value);
  PyErr_Restore(Py_NewRef(reinterpret_cast<PyObject*>(Py_TYPE(value))), value, traceback);
  return true;
}

void Thread::write_failure() noexcept {
  const ErrorKeeper keeper;
  if (raise_failure()) PyErr_WriteUnraisable(nullptr);
}

}  // namespace tenscope::python
