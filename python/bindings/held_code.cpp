// Which functions, classes and code objects a module holds, as one number: made in some tenths of a millisecond for all
// modules of torch, so that exchanged ones can be looked for at every step. By addresses: nothing is kept alive, and no
// Python code runs.

#include <Python.h>
#include <nanobind/stl/vector.h>

#include <cstdint>

#include "bindings/module.hpp"
#include "bindings/object.hpp"

using tenscope::python::Ref;

namespace {

constexpr int kMostNested = 4;  // classes in classes

class HeldCode {
 public:
  explicit HeldCode(PyObject* module_name) : module_name_(module_name) {}

  void add_all_of(PyObject* dict, int depth) {
    PyObject *key = nullptr, *value = nullptr;
    Py_ssize_t position = 0;
    while (PyDict_Next(dict, &position, &key, &value)) {
      const std::uint64_t before = hash_;
      add_value(value, depth);
      if (hash_ != before) mix(key);
    }
  }

  std::uint64_t hash() const { return hash_; }

 private:
  void mix(const void* address) {
    hash_ ^= reinterpret_cast<std::uintptr_t>(address);
    hash_ *= 0x9E3779B97F4A7C15U;
    hash_ ^= hash_ >> 29;
  }

  void add_value(PyObject* value, int depth) {
    if (PyFunction_Check(value)) {
      mix(value);
      mix(PyFunction_GET_CODE(value));
    } else if (PyType_Check(value)) {
      mix(value);
      add_class(value, depth);
    } else if (Py_IS_TYPE(value, &PyStaticMethod_Type) || Py_IS_TYPE(value, &PyClassMethod_Type)) {
      add_behind(value, "__func__", depth);
    } else if (Py_IS_TYPE(value, &PyProperty_Type)) {
      add_behind(value, "fget", depth);
    } else if (PyMethod_Check(value)) {
      mix(value);
      add_value(PyMethod_GET_FUNCTION(value), depth);
    }
  }

  void add_behind(PyObject* descriptor, const char* attribute, int depth) {
    mix(descriptor);
    const Ref function = Ref::steal(PyObject_GetAttrString(descriptor, attribute));
    if (!function)
      PyErr_Clear();
    else if (PyFunction_Check(function.get()))
      add_value(function.get(), depth);
  }

  // A class' own attributes, where it was defined in this module: those of others are looked at there.
  void add_class(PyObject* type, int depth) {
    if (depth >= kMostNested) return;
#if PY_VERSION_HEX >= 0x030C0000
    const Ref dict = Ref::steal(PyType_GetDict(reinterpret_cast<PyTypeObject*>(type)));
#else
    const Ref dict = Ref::share(reinterpret_cast<PyTypeObject*>(type)->tp_dict);
#endif
    if (!dict || !PyDict_Check(dict.get())) return;
    PyObject* home = PyDict_GetItemString(dict.get(), "__module__");
    if (!home || !PyUnicode_Check(home) || PyUnicode_Compare(home, module_name_) != 0) return;
    add_all_of(dict.get(), depth + 1);
  }

  PyObject* module_name_;
  std::uint64_t hash_ = 0x2545F4914F6CDD1DU;
};

std::vector<std::uint64_t> held_code(const nb::list& modules) {
  std::vector<std::uint64_t> hashes;
  hashes.reserve(nb::len(modules));
  for (nb::handle module : modules) {
    PyObject* dict = PyModule_Check(module.ptr()) ? PyModule_GetDict(module.ptr()) : nullptr;
    PyObject* name = dict ? PyDict_GetItemString(dict, "__name__") : nullptr;
    if (!name || !PyUnicode_Check(name)) {
      hashes.push_back(0);
      continue;
    }
    HeldCode held(name);
    held.add_all_of(dict, 0);
    hashes.push_back(held.hash());
  }
  return hashes;
}

}  // namespace

void init_held_code(nb::module_& m) {
  m.def("held_code", &held_code, nb::arg("modules"),
        "For each module a number that is another one when it holds other functions, classes or code than before.");
}
