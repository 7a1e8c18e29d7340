#pragma once

#include <Python.h>

#include <functional>
#include <string>
#include <vector>

#include "bindings/object.hpp"

namespace tenscope::python {

// One step of a path. Attribute falls back on a mapping's key and a sequence's index, so that `cache.*.k` walks dicts
// too.
struct Step {
  enum class Kind { Attribute, Item, Variable, Any };
  Kind kind;
  Ref key;  // Attribute: the name; Item: the index; Variable: the name of the local that holds the index
};

// A watched expression: a variable and a path from it. Parsed in Python (tenscope.lines.expressions.parse), evaluated
// here; nothing is called but attribute and item access.
struct Expression {
  Ref text;  // as the user wrote it
  Ref root;  // the variable's name
  std::vector<Step> steps;
  bool any = false;       // has a `*`
  bool variable = false;  // has an index that is a variable
  bool seen = false;      // it had a value at some look

  // From ("text", "root", (("attr", name) | ("item", key) | ("var", name) | ("any", None), ...)). Throws
  // std::invalid_argument.
  static Expression from_python(PyObject* parsed);
};

using LookUp = std::function<Ref(PyObject* name)>;                   // a local variable's value, or null
using Visit = std::function<void(PyObject* name, PyObject* value)>;  // the concrete expression and its value

// Calls `visit` for each value the path leads to; what is not there is passed over. Never leaves a Python error set.
void evaluate(const Expression& expression, PyObject* root, const LookUp& look_up, const Visit& visit);

}  // namespace tenscope::python
