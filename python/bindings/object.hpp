#pragma once

#include <Python.h>

#include <string>
#include <utility>

namespace tenscope::python {

// An owned reference.
class Ref {
 public:
  Ref() = default;
  static Ref steal(PyObject* object) { return Ref(object); }
  static Ref share(PyObject* object) { return Ref(Py_XNewRef(object)); }
  Ref(const Ref& other) : object_(Py_XNewRef(other.object_)) {}
  Ref(Ref&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Ref& operator=(Ref other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Ref() { Py_XDECREF(object_); }

  PyObject* get() const { return object_; }
  PyObject* release() { return std::exchange(object_, nullptr); }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  explicit Ref(PyObject* object) : object_(object) {}
  PyObject* object_ = nullptr;
};

// Puts the pending Python error aside, and back at the end: what the recorder does never disturbs it.
class ErrorKeeper {
 public:
  ErrorKeeper() { PyErr_Fetch(&type_, &value_, &traceback_); }
  ~ErrorKeeper() { PyErr_Restore(type_, value_, traceback_); }
  ErrorKeeper(const ErrorKeeper&) = delete;
  ErrorKeeper& operator=(const ErrorKeeper&) = delete;

 private:
  PyObject *type_ = nullptr, *value_ = nullptr, *traceback_ = nullptr;
};

struct PythonError {};  // thrown with a Python error set

inline Ref checked(PyObject* owned) {
  if (!owned) throw PythonError{};
  return Ref::steal(owned);
}

// Drops the pending Python error, if there is one. A Ctrl-C that came while the recorder ran Python code is not lost:
// the program gets it at its next instruction.
inline void drop_error() noexcept {
  if (!PyErr_Occurred()) return;
  const bool interrupted = PyErr_ExceptionMatches(PyExc_KeyboardInterrupt);
  PyErr_Clear();
  if (interrupted) PyErr_SetInterrupt();
}

struct ErrorText {
  std::string type, message;
};
ErrorText take_error();  // the pending Python error, dropped as above; of no error, empty

inline PyObject* interned(const char* text) noexcept { return PyUnicode_InternFromString(text); }  // kept for ever

// A module that the program has imported, or null. Never imports.
Ref imported_module(PyObject* name) noexcept;

// null where there is none or it raises.
inline Ref attribute(PyObject* object, const char* name) noexcept {
  Ref result = Ref::steal(object ? PyObject_GetAttrString(object, name) : nullptr);
  if (!result) drop_error();
  return result;
}

inline bool type_has(PyObject* object, PyObject* name) noexcept {
  return _PyType_Lookup(Py_TYPE(object), name) != nullptr;
}

std::string type_name(PyObject* object);  // "module.Class", of built-ins "int"

// Text as UTF-8, lone surrogates escaped. Empty for null and for what is no text; no error is left.
std::string utf8(PyObject* text);
std::string str(PyObject* object);      // str(object); throws PythonError
std::string as_text(PyObject* object);  // the same, empty for null and where it raises

}  // namespace tenscope::python
