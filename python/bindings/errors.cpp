#include "bindings/module.hpp"
#include "bindings/object.hpp"
#include "tenscope/error.hpp"

// A tenscope::Error becomes the Python class that tenscope.errors lists for its code.
void set_python_error(const tenscope::Error& error) noexcept {
  using tenscope::python::attribute;
  using tenscope::python::Ref;
  const std::string code(to_string(error.code()));
  const Ref errors = Ref::steal(PyImport_ImportModule("tenscope.errors"));
  const Ref table = attribute(errors.get(), "BY_CODE");
  const Ref type = Ref::share(table ? PyDict_GetItemString(table.get(), code.c_str()) : nullptr);
  tenscope::python::drop_error();
  PyErr_SetString(type ? type.get() : PyExc_RuntimeError, error.what());
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
