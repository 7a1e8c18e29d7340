#include "bindings/module.hpp"
#include "tenscope/error.hpp"

// A tenscope::Error becomes the Python class that tenscope.errors lists for its code.
void set_python_error(const tenscope::Error& error) noexcept {
  std::string code(to_string(error.code()));
  PyObject* errors = PyImport_ImportModule("tenscope.errors");
  PyObject* table = errors ? PyObject_GetAttrString(errors, "BY_CODE") : nullptr;
  PyObject* type = table ? PyDict_GetItemString(table, code.c_str()) : nullptr;
  PyErr_Clear();
  PyErr_SetString(type ? type : PyExc_RuntimeError, error.what());
  Py_XDECREF(table);
  Py_XDECREF(errors);
}

void init_errors(nb::module_&) {
  nb::register_exception_translator([](const std::exception_ptr& pointer, void*) {
    try {
      std::rethrow_exception(pointer);
    } catch (const tenscope::Error& error) {
      set_python_error(error);
    }
  });
}
