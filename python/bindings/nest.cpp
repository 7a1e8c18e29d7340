#include "bindings/nest.hpp"

#include <fmt/format.h>

#include <string_view>
#include <unordered_map>

#include "bindings/tensor_adapter.hpp"

namespace tenscope::python {
namespace {

constexpr std::size_t kMaxCachedTypes = 4096;

TypeClass classify(PyObject* object) {
  static PyObject* version = interned("_version");
  static PyObject* fields = interned("__dataclass_fields__");
  static PyObject* keys = interned("keys");
  static PyObject* getitem = interned("__getitem__");
  if (object == Py_None || object == Py_Ellipsis || object == Py_NotImplemented || PyBool_Check(object) ||
      PyLong_Check(object) || PyFloat_Check(object) || PyComplex_Check(object) || PyUnicode_Check(object) ||
      PyBytes_Check(object)) {
    return TypeClass::Scalar;
  }
  if (is_tensor_like(object)) return type_has(object, version) ? TypeClass::Torch : TypeClass::Array;
  if (PyList_Check(object)) return TypeClass::List;
  if (PyTuple_Check(object)) return TypeClass::Tuple;
  if (PyDict_Check(object)) return TypeClass::Dict;
  if (PyAnySet_Check(object)) return TypeClass::Set;
  const std::string_view name = Py_TYPE(object)->tp_name;
  if (name == "collections.deque") return TypeClass::Deque;
  if (name == "types.SimpleNamespace") return TypeClass::Namespace;
  if (type_has(object, fields)) return TypeClass::Fields;
  if (type_has(object, keys) && type_has(object, getitem)) return TypeClass::Mapping;
  return TypeClass::Opaque;
}

std::string error_text() {
  const ErrorText error = take_error();
  return error.type + ": " + error.message;
}

}  // namespace

TypeClass class_of(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  if (type == &PyLong_Type || type == &PyFloat_Type || type == &PyUnicode_Type || object == Py_None) {
    return TypeClass::Scalar;
  }
  using Cache = std::unordered_map<PyTypeObject*, std::pair<TypeClass, Ref>>;  // the type is held: no address is reused
  static auto* cache = new Cache;
  const auto found = cache->find(type);
  if (found != cache->end()) return found->second.first;
  if (PyType_Check(object)) return TypeClass::Opaque;  // a class: its type may be any metaclass
  const TypeClass result = classify(object);
  Cache old;  // outlives what follows, since the end of a class may run Python code
  if (cache->size() >= kMaxCachedTypes) old.swap(*cache);
  cache->emplace(type, std::pair(result, Ref::share(reinterpret_cast<PyObject*>(type))));
  return result;
}

std::string Cut::reason() const {
  switch (kind) {
    case Kind::Cycle:
      return "a cycle";
    case Kind::TooDeep:
      return fmt::format("nested deeper than {} levels", depth);
    case Kind::TooMany:
      return fmt::format("more than {} items, {} left out here", items, left_out);
    case Kind::Changed:
      return "it was changed while it was read";
    case Kind::Unreadable:
      return "it cannot be read: " + error;
  }
  return {};
}

Children::Children(PyObject* nest, TypeClass kind) {
  static PyObject* fields = interned("_fields");
  switch (kind) {
    case TypeClass::List:
      sequence_ = Ref::share(nest);
      break;
    case TypeClass::Tuple:
      sequence_ = Ref::share(nest);
      size_ = static_cast<std::size_t>(PyTuple_GET_SIZE(nest));
      if (!PyTuple_CheckExact(nest) && type_has(nest, fields)) {
        names_ = attribute(nest, "_fields");
        if (names_ && (!PyTuple_Check(names_.get()) || PyTuple_GET_SIZE(names_.get()) != PyTuple_GET_SIZE(nest)))
          names_ = {};
      }
      break;
    case TypeClass::Dict:
      take_dict(Ref::share(nest));
      break;
    case TypeClass::Namespace:
      take_dict(Ref::steal(PyObject_GetAttrString(nest, "__dict__")));
      break;
    case TypeClass::Fields:
      object_ = Ref::share(nest);
      take_dict(Ref::steal(PyObject_GetAttrString(reinterpret_cast<PyObject*>(Py_TYPE(nest)), "__dataclass_fields__")));
      break;
    case TypeClass::Mapping:
      pairs_ = true;
      sequence_ = Ref::steal(PyMapping_Items(nest));
      if (!sequence_) error_ = error_text();
      break;
    default:
      sequence_ = Ref::steal(PySequence_List(nest));
      if (!sequence_) error_ = error_text();
  }
}

void Children::take_dict(Ref dict) {
  if (dict && PyDict_Check(dict.get())) {
    size_ = static_cast<std::size_t>(PyDict_GET_SIZE(dict.get()));
    dict_ = std::move(dict);
  } else {
    error_ = dict ? "its fields are no dict" : error_text();
  }
}

bool Children::next(Child& child, std::string& field_error) {
  if (dict_) {
    PyObject *key = nullptr, *value = nullptr;
    while (PyDict_Next(dict_.get(), &position_, &key, &value)) {
      Ref next_key = Ref::share(key), next_value = Ref::share(value);
      key_ = std::move(next_key);  // the end of the one before may run Python code
      if (!object_) {
        value_ = std::move(next_value);
      } else {
        value_ = Ref::steal(PyObject_GetAttr(object_.get(), key_.get()));
        if (!value_ && PyErr_ExceptionMatches(PyExc_AttributeError)) {  // a slot that is not set
          PyErr_Clear();
          continue;
        }
        if (!value_) field_error = error_text();
      }
      child = {key_.get(), value_.get(), index_++, size_};
      return true;
    }
    return false;
  }
  PyObject* sequence = sequence_.get();
  const bool is_list = PyList_Check(sequence);
  if (is_list) size_ = static_cast<std::size_t>(PyList_GET_SIZE(sequence));  // it may change meanwhile
  if (index_ >= size_) return false;
  const auto index = static_cast<Py_ssize_t>(index_);
  value_ = Ref::share(is_list ? PyList_GET_ITEM(sequence, index) : PyTuple_GET_ITEM(sequence, index));
  key_ = names_ ? Ref::share(PyTuple_GET_ITEM(names_.get(), index)) : Ref();
  if (pairs_) {
    if (PyTuple_Check(value_.get()) && PyTuple_GET_SIZE(value_.get()) == 2) {
      key_ = Ref::share(PyTuple_GET_ITEM(value_.get(), 0));
      value_ = Ref::share(PyTuple_GET_ITEM(value_.get(), 1));
    } else {
      value_ = {};
      field_error = "an item that is no pair";
    }
  }
  child = {key_.get(), value_.get(), index_++, size_};
  return true;
}

}  // namespace tenscope::python
