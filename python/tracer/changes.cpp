#include "tracer/changes.hpp"

#include <fmt/format.h>

#include <cstdlib>
#include <set>
#include <string>

#include "bindings/module.hpp"
#include "tracer/python_types.hpp"

namespace tenscope::python {

Ref make_changes(const std::shared_ptr<CallLog>& log) {
  Ref result = Ref::steal(nb::cast(Changes{log}).release().ptr());
  PyErr_Clear();
  return result;
}

Ref make_change(const std::shared_ptr<CallLog>& log, const ChangeItem& item) {
  Ref result = Ref::steal(nb::cast(Change{log, item}).release().ptr());
  PyErr_Clear();
  return result;
}

std::string current_task_name() {
  static PyObject* module_name = PyUnicode_InternFromString("asyncio");
  PyObject* asyncio = PyDict_GetItemWithError(PyImport_GetModuleDict(), module_name);
  Ref task = asyncio ? Ref::steal(PyObject_CallMethod(asyncio, "current_task", nullptr)) : Ref();
  Ref name;
  if (task && task.get() != Py_None) name = Ref::steal(PyObject_CallMethod(task.get(), "get_name", nullptr));
  const char* utf8 = name ? PyUnicode_AsUTF8(name.get()) : nullptr;
  std::string result = utf8 ? utf8 : "";
  PyErr_Clear();
  return result;
}

namespace {

void warn_once(const std::string& message) noexcept {
  static auto* told = new std::set<std::string>;
  if (!told->insert(message).second) return;
  PySys_WriteStderr("tenscope: watching went wrong, the program goes on: %.500s\n", message.c_str());
}

}  // namespace

void note_failure(const char* where) noexcept {
  if (!PyErr_Occurred()) return;
  if (PyErr_ExceptionMatches(PyExc_KeyboardInterrupt)) {  // Ctrl-C is for the program: it gets it at its next line
    PyErr_Clear();
    PyErr_SetInterrupt();
    return;
  }
  if (const char* strict = std::getenv("TENSCOPE_STRICT"); strict && std::string_view(strict) == "1") {
    PyErr_Print();
    return;
  }
  PyObject *type = nullptr, *value = nullptr, *traceback = nullptr;
  PyErr_Fetch(&type, &value, &traceback);
  warn_once(fmt::format("{}: {}", where, value ? short_text(value, 300) : "unknown error"));
  Py_XDECREF(type);
  Py_XDECREF(value);
  Py_XDECREF(traceback);
}

void note_exception(const std::exception& error) noexcept {
  warn_once(error.what());
  PyErr_Clear();
}

}  // namespace tenscope::python
