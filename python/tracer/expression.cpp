#include "tracer/expression.hpp"

#include <stdexcept>
#include <string_view>

#include "tracer/known.hpp"

namespace tenscope::python {
namespace {

Ref or_none(PyObject* result) {
  if (!result) drop_error();
  return Ref::steal(result);
}

Ref dict_item(PyObject* dict, PyObject* key) {
  PyObject* found = PyDict_GetItemWithError(dict, key);  // not __missing__: a defaultdict must not grow
  if (!found) drop_error();
  return Ref::share(found);
}

Ref get_item(PyObject* object, PyObject* key) {
  if (PyDict_Check(object)) {
    Ref found = dict_item(object, key);
    const auto* mapping = Py_TYPE(object)->tp_as_mapping;
    if (found || mapping->mp_subscript == PyDict_Type.tp_as_mapping->mp_subscript) return found;
  }
  if (PyType_Check(object)) return {};  // list[int] is no item
  return or_none(PyObject_GetItem(object, key));
}

bool is_index(PyObject* key) {
  if (!PyUnicode_Check(key) || PyUnicode_GET_LENGTH(key) == 0) return false;
  for (Py_ssize_t i = 0; i < PyUnicode_GET_LENGTH(key); ++i) {
    const Py_UCS4 c = PyUnicode_READ_CHAR(key, i);
    if (c < '0' || c > '9') return false;
  }
  return true;
}

Ref get_attribute(PyObject* object, PyObject* name) {
  if (!is_index(name)) {
    Ref found = or_none(PyObject_GetAttr(object, name));
    if (found) return found;
  }
  if (PyDict_Check(object)) {
    Ref found = dict_item(object, name);
    if (found || !is_index(name)) return found;
  }
  if (is_index(name)) {
    const Ref index = or_none(PyLong_FromUnicodeObject(name, 10));
    if (index && (PySequence_Check(object) || PyMapping_Check(object))) {
      Ref found = get_item(object, index.get());
      if (found) return found;
    }
    return or_none(PyObject_GetAttr(object, name));  // the modules of a torch.nn.Sequential
  }
  return {};
}

std::string key_text(PyObject* key) {
  const std::string text = utf8(or_none(PyUnicode_Check(key) ? Py_NewRef(key) : PyObject_Repr(key)).get());
  return text.empty() ? "?" : text;
}

using Each = std::function<void(const std::string&, PyObject*)>;

void each_child(PyObject* nest, TypeClass kind, const Each& each) {
  Children children(nest, kind);
  Child child{};
  std::string error;
  while (children.error().empty() && children.next(child, error)) {
    if (child.value) each(child.key ? key_text(child.key) : std::to_string(child.index), child.value);
  }
}

// The names and values one level below an object: items of a mapping, positions of a sequence, else attributes, among
// them the submodules, parameters and buffers of a torch.nn.Module.
void children(PyObject* object, const Each& each) {
  const TypeClass kind = class_of(object);
  if (kind == TypeClass::Dict) return each_child(object, kind, each);
  if (kind == TypeClass::List || kind == TypeClass::Tuple || kind == TypeClass::Deque) {
    return each_child(object, kind, [&, i = 0](const std::string&, PyObject* value) mutable {
      each(std::to_string(i++), value);  // of named tuples too: their names are attributes
    });
  }
  if (kind == TypeClass::Scalar || kind == TypeClass::Torch || kind == TypeClass::Array || PyType_Check(object)) return;
  const Ref attributes = or_none(PyObject_GetAttrString(object, "__dict__"));
  if (!attributes || !PyDict_Check(attributes.get())) return;
  bool is_module = false;
  for (const char* group : {"_parameters", "_buffers", "_modules"}) {
    const Ref members = Ref::share(PyDict_GetItemString(attributes.get(), group));
    if (members && PyDict_Check(members.get())) {
      is_module = true;
      each_child(members.get(), TypeClass::Dict, each);
    }
  }
  each_child(attributes.get(), TypeClass::Dict, [&](const std::string& name, PyObject* value) {
    if (!is_module || !name.starts_with('_')) each(name, value);
  });
}

struct Walk {
  const Expression& expression;
  const LookUp& look_up;
  const Visit& visit;

  void from(std::size_t index, PyObject* object, const std::string& name) const {
    if (index == expression.steps.size()) {
      if (!expression.any) return visit(expression.text.get(), object);
      const Ref text = or_none(PyUnicode_FromStringAndSize(name.data(), static_cast<Py_ssize_t>(name.size())));
      if (text) visit(text.get(), object);
      return;
    }
    const Step& step = expression.steps[index];
    Ref next;
    std::string next_name;
    switch (step.kind) {
      case Step::Kind::Any:
        return children(object, [&](const std::string& child, PyObject* value) {
          const Ref hold = Ref::share(value);
          from(index + 1, value, name + "." + child);
        });
      case Step::Kind::Attribute:
        next = get_attribute(object, step.key.get());
        if (expression.any) next_name = name + "." + key_text(step.key.get());
        break;
      case Step::Kind::Item:
        next = get_item(object, step.key.get());
        break;
      case Step::Kind::Variable: {
        const Ref key = look_up(step.key.get());
        if (key) next = get_item(object, key.get());
        break;
      }
    }
    if (!next) return;
    if (expression.any && step.kind != Step::Kind::Attribute) next_name = name + "[" + quoted(step.key.get()) + "]";
    from(index + 1, next.get(), next_name);
  }

  static std::string quoted(PyObject* key) {
    const std::string text = utf8(or_none(PyObject_Repr(key)).get());
    return text.empty() ? "?" : text;
  }
};

}  // namespace

Expression Expression::from_python(PyObject* parsed) {
  Expression result;
  PyObject *text = nullptr, *root = nullptr, *steps = nullptr;
  if (!PyTuple_Check(parsed) || !PyArg_ParseTuple(parsed, "UUO!", &text, &root, &PyTuple_Type, &steps)) {
    PyErr_Clear();
    throw std::invalid_argument("not a parsed expression");
  }
  result.text = Ref::share(text);
  Py_INCREF(root);
  PyUnicode_InternInPlace(&root);
  result.root = Ref::steal(root);
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(steps); ++i) {
    const char* kind = nullptr;
    PyObject* key = nullptr;
    if (!PyArg_ParseTuple(PyTuple_GET_ITEM(steps, i), "sO", &kind, &key)) {
      PyErr_Clear();
      throw std::invalid_argument("not a step of a parsed expression");
    }
    const std::string_view name = kind;
    const auto step = name == "attr"  ? Step::Kind::Attribute
                      : name == "var" ? Step::Kind::Variable
                      : name == "any" ? Step::Kind::Any
                                      : Step::Kind::Item;
    result.any |= step == Step::Kind::Any;
    result.variable |= step == Step::Kind::Variable;
    result.steps.push_back({step, Ref::share(key)});
  }
  return result;
}

void evaluate(const Expression& expression, PyObject* root, const LookUp& look_up, const Visit& visit) {
  const char* name = expression.any ? PyUnicode_AsUTF8(expression.root.get()) : "";
  Walk{expression, look_up, visit}.from(0, root, name ? name : "");
}

}  // namespace tenscope::python
