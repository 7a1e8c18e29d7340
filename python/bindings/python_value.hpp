#pragma once

#include <Python.h>

#include "format/value.hpp"

namespace tenscope::python {

// A Python object as a tree of values, its tensors borrowed: nothing of a tensor is copied, and the objects are kept
// alive by the tree. Other objects are taken apart by `reduce`, a Python callable that gives (type name, args or None,
// state or None). Needs the GIL, also where the tree is destroyed. Throws Unsupported (a tensor without readable
// bytes), InvalidArgument (nested too deeply), or nb::python_error.
Value value_of(PyObject* object, PyObject* reduce);

}  // namespace tenscope::python
