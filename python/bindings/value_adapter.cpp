#include "bindings/value_adapter.hpp"

#include <fmt/format.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/complex.h>
#include <nanobind/stl/string.h>

#include <unordered_map>
#include <vector>

#include "bindings/tensor_adapter.hpp"

namespace tenscope::python {
namespace {

constexpr int kMaxNesting = 200;

class ToValue {
 public:
  ToValue(ValueFor purpose, nb::handle take_apart)
      : is_for_file_(purpose == ValueFor::File), take_apart_(nb::borrow(take_apart)) {
    if (is_for_file_) facts_ = nb::module_::import_("tenscope.files").attr("_tensor_facts");
  }

  Value convert(nb::handle object, int nesting = 0) {
    PyObject* raw = object.ptr();
    if (raw == Py_None) return {};
    if (PyBool_Check(raw)) return raw == Py_True;
    if (PyLong_CheckExact(raw)) return integer(object);
    if (PyFloat_CheckExact(raw)) return PyFloat_AS_DOUBLE(raw);
    if (const auto known = made_.find(raw); known != made_.end()) {
      if (known->second.is_none()) refuse("it contains itself", nested_code());
      return known->second;
    }
    if (nesting > kMaxNesting) refuse(fmt::format("it is nested deeper than {}", kMaxNesting), nested_code());
    made_.emplace(raw, Value());
    keep_.push_back(nb::borrow(object));
    return made_[raw] = convert_part(object, nesting);
  }

 private:
  // A file gives objects of subclasses back as what they are, or not at all; a comparison takes them for their base.
  bool is(PyObject* object, PyTypeObject& type) const {
    return Py_IS_TYPE(object, &type) || (!is_for_file_ && PyObject_TypeCheck(object, &type));
  }

  Value convert_part(nb::handle object, int nesting) {
    PyObject* raw = object.ptr();
    if (is_tensor_like(raw)) return tensor(object);
    if (is(raw, PyLong_Type)) return integer(object);
    if (is(raw, PyFloat_Type)) return PyFloat_AS_DOUBLE(raw);
    if (is(raw, PyUnicode_Type)) return text(object);
    if (is(raw, PyBytes_Type))
      return Bytes{std::string(PyBytes_AS_STRING(raw), static_cast<std::size_t>(PyBytes_GET_SIZE(raw))), false};
    if (is(raw, PyByteArray_Type)) {
      return Bytes{std::string(PyByteArray_AS_STRING(raw), static_cast<std::size_t>(PyByteArray_GET_SIZE(raw))), true};
    }
    if (is(raw, PyComplex_Type)) return std::complex<double>(PyComplex_RealAsDouble(raw), PyComplex_ImagAsDouble(raw));
    if (is(raw, PyList_Type)) return List{items(object, nesting)};
    if (is(raw, PyTuple_Type)) return Tuple{items(object, nesting)};
    if (is(raw, PySet_Type)) return Set{items(object, nesting), false};
    if (is(raw, PyFrozenSet_Type)) return Set{items(object, nesting), true};
    if (PyDict_Check(raw)) return dict(object, nesting);
    return described(object, nesting);
  }

  Value integer(nb::handle object) {
    int overflow = 0;
    const long long value = PyLong_AsLongLongAndOverflow(object.ptr(), &overflow);
    if (!overflow) return static_cast<std::int64_t>(value);
    const nb::object digits = nb::steal(PyLong_Type.tp_repr(object.ptr()));  // not that of a subclass
    if (!digits) throw nb::python_error();
    return BigInt{nb::cast<std::string>(digits)};
  }

  static Value text(nb::handle object) {
    Py_ssize_t size = 0;
    if (const char* utf8 = PyUnicode_AsUTF8AndSize(object.ptr(), &size))
      return std::string(utf8, static_cast<std::size_t>(size));
    PyErr_Clear();  // it has lone surrogates, which pickle writes too
    nb::object bytes = nb::steal(PyUnicode_AsEncodedString(object.ptr(), "utf-8", "surrogatepass"));
    if (!bytes) throw nb::python_error();
    return std::string(PyBytes_AS_STRING(bytes.ptr()), static_cast<std::size_t>(PyBytes_GET_SIZE(bytes.ptr())));
  }

  std::vector<Value> items(nb::handle object, int nesting) {
    std::vector<Value> items;
    std::size_t index = 0;
    for (nb::handle item : nb::list(object)) {  // a copy: taking objects apart may run code that changes it
      path_.push_back(fmt::format("[{}]", index++));
      items.push_back(convert(item, nesting + 1));
      path_.pop_back();
    }
    return items;
  }

  Value dict(nb::handle object, int nesting) {
    Dict result;
    const std::string type = nb::cast<std::string>(nb::str(object.type().attr("__qualname__")));
    const bool is_ordered = is_for_file_ && type == "OrderedDict";
    if (is_for_file_ && !PyDict_CheckExact(object.ptr()) && !is_ordered && type != "defaultdict" && type != "Counter")
      return described(object, nesting);
    result.is_ordered_dict = is_ordered;
    const nb::object pairs = nb::steal(PyDict_Items(object.ptr()));
    for (nb::handle pair : pairs) {
      nb::object key = pair[0], item = pair[1];
      path_.push_back(fmt::format("[{}]", nb::cast<std::string>(nb::str(nb::repr(key)))));
      Value converted_key = convert(key, nesting + 1);
      result.entries.emplace_back(std::move(converted_key), convert(item, nesting + 1));
      path_.pop_back();
    }
    if (is_ordered) {
      nb::dict attributes(object.attr("__dict__"));
      if (!attributes.empty()) result.attributes = std::make_shared<const Value>(convert(attributes, nesting + 1));
    }
    return result;
  }

  Value tensor(nb::handle object) {
    auto borrowed = std::make_shared<BorrowedTensor>();
    if (borrowed->borrow(object.ptr()) != Borrowed::Ok)
      refuse(borrowed->reason.empty() ? "its bytes cannot be read" : borrowed->reason);
    const TensorView& view = borrowed->view;
    Tensor tensor;
    tensor.dtype = view.dtype;
    tensor.shape.assign(view.shape.begin(), view.shape.end());
    if (!is_c_order(view)) tensor.strides.assign(view.strides.begin(), view.strides.end());
    tensor.data = static_cast<const std::byte*>(view.data);
    tensor.device = view.device;
    tensor.storage = std::make_shared<const Storage>(Storage{tensor.data, size_bytes(view), std::move(borrowed)});
    if (!is_for_file_) return tensor;
    nb::object facts = facts_(object);
    tensor.origin = static_cast<TensorOrigin>(nb::cast<int>(facts[0]));
    tensor.requires_grad = nb::cast<bool>(facts[1]);
    return tensor;
  }

  Value described(nb::handle object, int nesting) {
    nb::object description = take_apart_(object);
    if (description.is_none()) {
      nb::object type = nb::borrow(object.type());
      refuse(fmt::format("an object of {}.{}", nb::cast<std::string>(nb::str(type.attr("__module__"))),
                         nb::cast<std::string>(nb::str(type.attr("__qualname__")))));
    }
    Object result{nb::cast<std::string>(nb::str(description[0])), nullptr, nullptr};
    nb::object args = description[1], state = description[2];
    if (!args.is_none()) result.args = std::make_shared<const Value>(convert(args, nesting + 1));
    if (!state.is_none()) result.state = std::make_shared<const Value>(convert(state, nesting + 1));
    return result;
  }

  ErrorCode nested_code() const { return is_for_file_ ? ErrorCode::Unsupported : ErrorCode::InvalidArgument; }

  [[noreturn]] void refuse(const std::string& why, ErrorCode code = ErrorCode::Unsupported) const {
    std::string place;
    for (auto& part : path_) place += part;
    throw Error(code, fmt::format("cannot take the value{}: {}", place.empty() ? "" : " at " + place, why));
  }

  bool is_for_file_;
  nb::object take_apart_, facts_;
  std::unordered_map<PyObject*, Value> made_;  // None: being made
  std::vector<nb::object> keep_;               // so that no address is used twice
  std::vector<std::string> path_;
};

class ToObject {
 public:
  ToObject()
      : files_(nb::module_::import_("tenscope.files")),
        make_tensor_(files_.attr("_make_tensor")),
        make_object_(files_.attr("_make_object")) {}

  nb::object convert(const Value& value) {
    const void* identity = value.identity();
    if (!identity) return convert_part(value);
    if (const auto known = made_.find(identity); known != made_.end()) return known->second;
    nb::object object = convert_part(value);
    made_.emplace(identity, object);
    return object;
  }

 private:
  nb::object convert_part(const Value& value) {
    switch (value.kind()) {
      case ValueKind::None:
        return nb::none();
      case ValueKind::Bool:
        return nb::cast(value.get<bool>());
      case ValueKind::Int:
        return nb::cast(value.get<std::int64_t>());
      case ValueKind::BigInt:
        return steal(PyLong_FromString(value.get<BigInt>().digits.c_str(), nullptr, 10));
      case ValueKind::Float:
        return nb::cast(value.get<double>());
      case ValueKind::Complex:
        return nb::cast(value.get<std::complex<double>>());
      case ValueKind::Text: {
        const auto& text = value.get<std::string>();
        return steal(PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "surrogatepass"));
      }
      case ValueKind::Bytes: {
        const auto& bytes = value.get<Bytes>();
        const auto size = static_cast<Py_ssize_t>(bytes.data.size());
        return steal(bytes.is_mutable ? PyByteArray_FromStringAndSize(bytes.data.data(), size)
                                      : PyBytes_FromStringAndSize(bytes.data.data(), size));
      }
      case ValueKind::Tensor:
        return tensor(value.get<Tensor>());
      case ValueKind::List:
        return list(value.get<List>().items);
      case ValueKind::Tuple:
        return nb::tuple(list(value.get<Tuple>().items));
      case ValueKind::Set: {
        const auto& set = value.get<Set>();
        nb::list items = list(set.items);
        return steal(set.is_frozen ? PyFrozenSet_New(items.ptr()) : PySet_New(items.ptr()));
      }
      case ValueKind::Dict:
        return dict(value.get<Dict>());
      case ValueKind::Object: {
        const auto& object = value.get<Object>();
        return make_object_(object.type, object.args ? convert(*object.args) : nb::none(),
                            object.state ? convert(*object.state) : nb::none());
      }
    }
    return nb::none();
  }

  static nb::object steal(PyObject* object) {
    if (!object) throw nb::python_error();
    return nb::steal(object);
  }

  nb::list list(const std::vector<Value>& items) {
    nb::list result;
    for (auto& item : items) result.append(convert(item));
    return result;
  }

  nb::object dict(const Dict& dict) {
    nb::object result =
        dict.is_ordered_dict ? nb::module_::import_("collections").attr("OrderedDict")() : nb::object(nb::dict());
    for (auto& [key, item] : dict.entries) {
      nb::object made_key = convert(key), made_item = convert(item);
      if (PyObject_SetItem(result.ptr(), made_key.ptr(), made_item.ptr()) != 0) throw nb::python_error();
    }
    if (dict.attributes && dict.is_ordered_dict) result.attr("__dict__").attr("update")(convert(*dict.attributes));
    return result;
  }

  nb::object tensor(const Tensor& tensor) {
    const auto& storage = tensor.storage;
    nb::object& bytes = storages_[storage.get()];
    if (!bytes) {
      auto* owner = new std::shared_ptr<const Storage>(storage);
      nb::capsule capsule(owner, [](void* p) noexcept { delete static_cast<std::shared_ptr<const Storage>*>(p); });
      bytes = nb::cast(nb::ndarray<nb::numpy, std::uint8_t, nb::ndim<1>>(const_cast<std::byte*>(storage->data),
                                                                         {storage->size_bytes}, capsule));
    }
    nb::object strides = nb::none();
    if (!tensor.strides.empty()) strides = numbers(tensor.strides);
    return make_tensor_(bytes, tensor.data - storage->data, std::string(to_string(tensor.dtype)), numbers(tensor.shape),
                        strides, static_cast<int>(tensor.origin), tensor.requires_grad);
  }

  static nb::tuple numbers(const std::vector<std::int64_t>& values) {
    nb::list list;
    for (const auto value : values) list.append(value);
    return nb::tuple(list);
  }

  nb::module_ files_;
  nb::object make_tensor_, make_object_;
  std::unordered_map<const void*, nb::object> made_;
  std::unordered_map<const Storage*, nb::object> storages_;
};

}  // namespace

Value value_of(nb::handle object, ValueFor purpose, nb::handle take_apart) {
  return ToValue(purpose, take_apart).convert(object);
}

nb::object object_of(const Value& value) { return ToObject().convert(value); }

}  // namespace tenscope::python
