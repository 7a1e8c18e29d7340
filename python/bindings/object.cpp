#include "bindings/object.hpp"

namespace tenscope::python {

ErrorText take_error() {
  if (!PyErr_Occurred()) return {};
  const bool interrupted = PyErr_ExceptionMatches(PyExc_KeyboardInterrupt);
  PyObject *type = nullptr, *value = nullptr, *traceback = nullptr;
  PyErr_Fetch(&type, &value, &traceback);
  const Ref kind = Ref::steal(type), error = Ref::steal(value), trace = Ref::steal(traceback);
  ErrorText text{reinterpret_cast<PyTypeObject*>(type)->tp_name, as_text(value)};
  if (interrupted) PyErr_SetInterrupt();
  return text;
}

Ref imported_module(PyObject* name) noexcept {
  Ref module = Ref::share(PyDict_GetItemWithError(PyImport_GetModuleDict(), name));
  if (!module) drop_error();
  return module;
}

std::string type_name(PyObject* object) {
  auto* type = reinterpret_cast<PyObject*>(Py_TYPE(object));
  const Ref module = attribute(type, "__module__"), name = attribute(type, "__qualname__");
  const std::string name_text = utf8(name.get()), module_text = utf8(module.get());
  if (name_text.empty()) return Py_TYPE(object)->tp_name;
  if (module_text.empty() || module_text == "builtins") return name_text;
  return module_text + "." + name_text;
}

std::string utf8(PyObject* text) {
  if (!text || !PyUnicode_Check(text)) return {};
  Py_ssize_t size = 0;
  if (const char* data = PyUnicode_AsUTF8AndSize(text, &size)) return {data, static_cast<std::size_t>(size)};
  PyErr_Clear();
  const Ref bytes = Ref::steal(PyUnicode_AsEncodedString(text, "utf-8", "backslashreplace"));
  if (!bytes) return drop_error(), std::string();
  return {PyBytes_AS_STRING(bytes.get()), static_cast<std::size_t>(PyBytes_GET_SIZE(bytes.get()))};
}

std::string str(PyObject* object) { return utf8(checked(PyObject_Str(object)).get()); }

std::string as_text(PyObject* object) {
  const Ref text = Ref::steal(object ? PyObject_Str(object) : nullptr);
  if (!text) drop_error();
  return utf8(text.get());
}

}  // namespace tenscope::python
