#include "tracer/known.hpp"

#include <bit>
#include <cmath>
#include <cstring>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "bindings/tensor_adapter.hpp"
#include "kernels/summarize.hpp"

namespace tenscope::python {
namespace {

constexpr int kMaxDepth = 64;
constexpr std::size_t kMaxItems = 1'000'000;

bool has(PyObject* type, const char* name) {
  const int found = PyObject_HasAttrString(type, name);
  PyErr_Clear();
  return found;
}

TypeClass classify(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  auto* type_object = reinterpret_cast<PyObject*>(type);
  if (object == Py_None || object == Py_Ellipsis || object == Py_NotImplemented || PyBool_Check(object) ||
      PyLong_Check(object) || PyFloat_Check(object) || PyComplex_Check(object) || PyUnicode_Check(object) ||
      PyBytes_Check(object)) {
    return TypeClass::Scalar;
  }
  if (is_tensor_like(object)) return has(type_object, "_version") ? TypeClass::Torch : TypeClass::Array;
  if (PyList_Check(object)) return TypeClass::List;
  if (PyTuple_Check(object)) return TypeClass::Tuple;
  if (PyDict_Check(object)) return TypeClass::Dict;
  if (PyAnySet_Check(object)) return TypeClass::Set;
  if (PyType_Check(object)) return TypeClass::Opaque;
  if (std::string_view(type->tp_name) == "collections.deque") return TypeClass::Deque;
  if (std::string_view(type->tp_name) == "types.SimpleNamespace") return TypeClass::Namespace;
  if (has(type_object, "__dataclass_fields__")) return TypeClass::Fields;
  return TypeClass::Opaque;
}

// Writes a value's structure into bytes, whose hash is the digest.
class Writer {
 public:
  explicit Writer(Opaque opaque) : opaque_(opaque) {}

  void add(PyObject* value) {
    if (++items_ > kMaxItems) return;
    const TypeClass kind = class_of(value);
    tag(static_cast<char>(kind), Py_TYPE(value));
    switch (kind) {
      case TypeClass::Scalar:
        return add_scalar(value);
      case TypeClass::Torch:
      case TypeClass::Array:
        return add_tensor(value, kind);
      case TypeClass::Opaque:
        return add_opaque(value);
      default:
        break;
    }
    for (PyObject* open : open_) {
      if (open == value) return put('@');
    }
    if (open_.size() >= kMaxDepth) return put(value);
    open_.push_back(value);
    switch (kind) {
      case TypeClass::List:
        put(PyList_GET_SIZE(value));
        for (Py_ssize_t i = 0; i < PyList_GET_SIZE(value); ++i) add(Ref::share(PyList_GET_ITEM(value, i)).get());
        break;
      case TypeClass::Tuple:
        put(PyTuple_GET_SIZE(value));
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(value); ++i) add(PyTuple_GET_ITEM(value, i));
        break;
      case TypeClass::Dict:
        add_dict(value);
        break;
      case TypeClass::Fields:
        add_fields(value);
        break;
      case TypeClass::Namespace: {
        const Ref fields = Ref::steal(PyObject_GetAttrString(value, "__dict__"));
        if (fields) add_dict(fields.get());
        PyErr_Clear();
        break;
      }
      default:
        add_iterable(value, kind == TypeClass::Set);
        break;
    }
    open_.pop_back();
  }

  Digest finish() const { return hash(0); }

 private:
  template <class T>
  void put(const T& value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void put_text(const void* data, std::size_t size) {
    put(size);
    bytes_.append(static_cast<const char*>(data), size);
  }
  void tag(char kind, PyTypeObject* type) {
    put(kind);
    put(type);
  }

  Digest hash(std::size_t from) const {
    const XXH128_hash_t h = XXH3_128bits(bytes_.data() + from, bytes_.size() - from);
    return {h.low64, h.high64};
  }

  void add_scalar(PyObject* value) {
    if (PyLong_Check(value)) {
      int overflow = 0;
      const long long small = PyLong_AsLongLongAndOverflow(value, &overflow);
      if (!overflow) return put(small);
      const Ref text = Ref::steal(PyNumber_ToBase(value, 16));
      if (text) put_text(PyUnicode_DATA(text.get()), PyUnicode_GET_LENGTH(text.get()));
    } else if (PyFloat_Check(value)) {
      const double number = PyFloat_AS_DOUBLE(value);
      put(std::isnan(number) ? std::numeric_limits<double>::quiet_NaN() : number);
    } else if (PyUnicode_Check(value)) {
      const auto kind = static_cast<std::size_t>(PyUnicode_KIND(value));
      put_text(PyUnicode_DATA(value), kind * PyUnicode_GET_LENGTH(value));
    } else if (PyBytes_Check(value)) {
      put_text(PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value));
    } else if (PyComplex_Check(value)) {
      put(PyComplex_AsCComplex(value));
    } else {
      put(value);
    }
    PyErr_Clear();
  }

  void add_tensor(PyObject* value, TypeClass kind) {
    BorrowedTensor borrowed;
    if (borrowed.borrow(value) == Borrowed::Ok) {
      put(borrowed.view.dtype);
      put_text(borrowed.view.device.data(), borrowed.view.device.size());
      put(borrowed.view.shape.size());
      for (const std::int64_t size : borrowed.view.shape) put(size);
      const Fingerprint print = kernels::fingerprint(borrowed.view);
      put(print.low);
      put(print.high);
      return;
    }
    if (kind == TypeClass::Torch) {  // sparse, nested, meta: what can be told without its bytes
      put(value);
      const Ref version = Ref::steal(PyObject_GetAttrString(value, "_version"));
      if (version) put(PyLong_AsLongLong(version.get()));
    } else {  // arrays of objects, text, records
      Ref parts = Ref::steal(PyObject_CallMethod(value, "tolist", nullptr));
      if (parts) add(parts.get());
      PyErr_Clear();
      const Ref shape = Ref::steal(PyObject_GetAttrString(value, "shape"));
      if (shape) add(shape.get());
    }
    PyErr_Clear();
  }

  void add_opaque(PyObject* value) {
    if (opaque_ == Opaque::Repr && Py_TYPE(value)->tp_repr != PyBaseObject_Type.tp_repr) {
      const Ref text = Ref::steal(PyObject_Repr(value));
      if (text) return add_scalar(text.get());
      PyErr_Clear();
    }
    put(value);
  }

  void add_pair(PyObject* key, PyObject* value, Digest& sum) {
    const std::size_t mark = bytes_.size();
    add(key);
    if (value) add(value);
    const Digest pair = hash(mark);
    bytes_.resize(mark);
    sum.low += pair.low;
    sum.high += pair.high;
  }

  void add_dict(PyObject* dict) {
    put(PyDict_GET_SIZE(dict));
    Digest sum;
    if (PyDict_GET_SIZE(dict) > 0) {
      const Ref items = Ref::steal(PyDict_Items(dict));  // a copy: digesting may run code that changes the dict
      for (Py_ssize_t i = 0; items && i < PyList_GET_SIZE(items.get()); ++i) {
        PyObject* pair = PyList_GET_ITEM(items.get(), i);
        add_pair(PyTuple_GET_ITEM(pair, 0), PyTuple_GET_ITEM(pair, 1), sum);
      }
    }
    put(sum);
  }

  void add_fields(PyObject* value) {
    const Ref fields = Ref::steal(PyObject_GetAttrString(value, "__dataclass_fields__"));
    PyObject *name = nullptr, *field = nullptr;
    Py_ssize_t position = 0;
    while (fields && PyDict_Check(fields.get()) && PyDict_Next(fields.get(), &position, &name, &field)) {
      const Ref item = Ref::steal(PyObject_GetAttr(value, name));
      if (item) add(item.get());
      PyErr_Clear();
    }
    PyErr_Clear();
  }

  void add_iterable(PyObject* value, bool unordered) {
    const Ref items = Ref::steal(PySequence_List(value));
    PyErr_Clear();
    if (!items) return put(value);
    const Py_ssize_t size = PyList_GET_SIZE(items.get());
    put(size);
    Digest sum;
    for (Py_ssize_t i = 0; i < size; ++i) {
      PyObject* item = PyList_GET_ITEM(items.get(), i);
      if (unordered) {
        add_pair(item, nullptr, sum);
      } else {
        add(item);
      }
    }
    put(sum);
  }

  Opaque opaque_;
  std::size_t items_ = 0;
  std::string bytes_;
  std::vector<PyObject*> open_;
};

Ref weak_reference(PyObject* object) {
  if (!PyType_SUPPORTS_WEAKREFS(Py_TYPE(object))) return {};
  Ref weak = Ref::steal(PyWeakref_NewRef(object, nullptr));
  PyErr_Clear();
  return weak;
}

bool refers_to(const Ref& weak, PyObject* object) {
  if (!weak) return true;
#if PY_VERSION_HEX >= 0x030D0000
  PyObject* now = nullptr;
  PyWeakref_GetRef(weak.get(), &now);
  Py_XDECREF(now);
  return now == object;
#else
  return PyWeakref_GET_OBJECT(weak.get()) == object;
#endif
}

long long version_of(PyObject* tensor) {
  static PyObject* name = PyUnicode_InternFromString("_version");
  const Ref version = Ref::steal(PyObject_GetAttr(tensor, name));  // inference tensors have none
  const long long number = version ? PyLong_AsLongLong(version.get()) : -1;
  PyErr_Clear();
  return number;
}

// Reading a tensor of another device copies it to the host and waits for the device: never at every line.
bool is_on_device(PyObject* tensor) {
  static PyObject* name = PyUnicode_InternFromString("is_cpu");
  const Ref is_cpu = Ref::steal(PyObject_GetAttr(tensor, name));
  PyErr_Clear();
  return is_cpu.get() == Py_False;
}

}  // namespace

TypeClass class_of(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  if (type == &PyLong_Type || type == &PyFloat_Type || type == &PyUnicode_Type || object == Py_None) {
    return TypeClass::Scalar;
  }
  static auto* cache = new std::unordered_map<PyTypeObject*, TypeClass>;
  const auto found = cache->find(type);
  if (found != cache->end()) return found->second;
  if (PyType_Check(object)) return TypeClass::Opaque;  // a class: its type may be any metaclass
  Py_INCREF(type);
  return cache->emplace(type, classify(object)).first->second;
}

Digest digest_of(PyObject* value, Opaque opaque) {
  Writer writer(opaque);
  writer.add(value);
  return writer.finish();
}

bool same_scalar(PyObject* a, PyObject* b) {
  if (a == b) return true;
  if (Py_TYPE(a) != Py_TYPE(b)) return false;
  if (PyFloat_Check(a)) {
    const double x = PyFloat_AS_DOUBLE(a), y = PyFloat_AS_DOUBLE(b);
    return std::bit_cast<std::uint64_t>(x) == std::bit_cast<std::uint64_t>(y) || (std::isnan(x) && std::isnan(y));
  }
  if (PyLong_Check(a)) {
    const Ref same = Ref::steal(PyLong_Type.tp_richcompare(a, b, Py_EQ));
    return same.get() == Py_True;
  }
  if (PyUnicode_Check(a)) return PyUnicode_Compare(a, b) == 0;
  if (PyBytes_Check(a)) {
    return PyBytes_GET_SIZE(a) == PyBytes_GET_SIZE(b) &&
           std::memcmp(PyBytes_AS_STRING(a), PyBytes_AS_STRING(b), PyBytes_GET_SIZE(a)) == 0;
  }
  if (PyComplex_Check(a)) return digest_of(a, Opaque::Identity) == digest_of(b, Opaque::Identity);
  return false;
}

bool Known::update_scalar(PyObject* value) {
  const bool changed = !pin_ || !same_scalar(pin_.get(), value);
  pin_ = Ref::share(value);
  weak_ = {};
  by_digest_ = false;
  return changed;
}

bool Known::update_digest(PyObject* value, const Ladder& ladder) {
  const bool same_object = by_digest_ && id_ == value && type_ == Py_TYPE(value);
  const bool torch = class_of(value) == TypeClass::Torch;
  const bool versioned = torch && (ladder.trust == Trust::Versions || is_on_device(value));
  if (versioned) {
    const long long version = version_of(value);
    if (same_object && weak_ && refers_to(weak_, value) && version >= 0 && version == version_) return false;
    version_ = version;
  }
  const Digest now = digest_of(value, ladder.opaque);
  bool changed = !by_digest_ || now != digest_;
  if (ladder.identity && torch && !(same_object && refers_to(weak_, value))) changed = true;
  if ((versioned || (torch && ladder.identity)) && !(weak_ && refers_to(weak_, value))) weak_ = weak_reference(value);
  digest_ = now;
  by_digest_ = true;
  pin_ = {};
  return changed;
}

bool Known::update_opaque(PyObject* value) {
  const bool same = seen_ && !pin_ && !by_digest_ && id_ == value && refers_to(weak_, value);
  if (same) return false;
  pin_ = {};
  by_digest_ = false;
  weak_ = weak_reference(value);
  return true;
}

bool Known::update(PyObject* value, const Ladder& ladder) {
  const TypeClass kind = class_of(value);
  bool changed;
  if (kind == TypeClass::Scalar) {
    changed = update_scalar(value);
  } else if (kind == TypeClass::Opaque && (ladder.opaque == Opaque::Identity || PyType_Check(value))) {
    changed = update_opaque(value);
  } else {
    changed = update_digest(value, ladder);
  }
  id_ = value;
  type_ = Py_TYPE(value);
  seen_ = true;
  return changed;
}

}  // namespace tenscope::python
