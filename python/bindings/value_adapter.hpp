#pragma once

#include "bindings/module.hpp"
#include "format/value.hpp"

namespace tenscope::python {

enum class ValueFor { File, Comparison };

// A Python object as a tree of values: plain values, tensors, arrays, and any nest of dict, list, tuple and set of
// them. What is none of these is taken apart by a Python callable that gives (type's name, arguments or None, state or
// None), or None for what it does not know. For a file the types must be exactly these, and a tensor's origin is kept;
// for a comparison an object of a subclass counts as its base. Tensors are borrowed, not copied: the object must stay
// alive and unchanged while the value is used, and the value must end with the GIL held. Throws Unsupported with the
// type's name and the place (`["a"][0]`) of what it cannot take; Python errors as nb::python_error.
Value value_of(nb::handle object, ValueFor purpose, nb::handle take_apart);

// A tree as Python objects, made by tenscope.files: arrays and torch tensors over the tree's own memory.
nb::object object_of(const Value& value);

}  // namespace tenscope::python
