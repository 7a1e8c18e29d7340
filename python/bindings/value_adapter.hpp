#pragma once

#include "bindings/module.hpp"
#include "format/value.hpp"

namespace tenscope::python {

// A Python object as a tree of values: plain values, tensors, arrays, and any nest of dict, list, tuple and set of
// them, and the few classes that tenscope.files describes. Tensors are borrowed, not copied: the object must stay
// alive and unchanged while the value is used, and the value must end with the GIL held. Throws Unsupported with the
// type's name and the place
// (`["a"][0]`) of what it cannot take; Python errors as nb::python_error.
Value value_of(nb::handle object);

// A tree as Python objects, made by tenscope.files: arrays and torch tensors over the tree's own memory.
nb::object object_of(const Value& value);

}  // namespace tenscope::python
