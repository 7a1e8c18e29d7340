#include "tracer/known.hpp"

#include <bit>
#include <cmath>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "bindings/tensor_adapter.hpp"
#include "kernels/summarize.hpp"

namespace tenscope::python {
namespace {

// Writes a value's structure into bytes, whose hash is the digest.
class Writer {
 public:
  explicit Writer(Opaque opaque) : opaque_(opaque) {}

  void add(PyObject* value) {
    const TypeClass kind = class_of(value);
    tag(static_cast<char>(kind), Py_TYPE(value));
    switch (kind) {
      case TypeClass::Scalar:
        return add_scalar(value);
      case TypeClass::Torch:
      case TypeClass::Array:
        return add_tensor(value, kind);
      case TypeClass::Mapping:  // of any class: reading it may be dear, or do something
      case TypeClass::Opaque:
        return add_opaque(value);
      default:
        return add_nest(value, kind);
    }
  }

  Digest finish() const { return hash(0); }
  const std::string& left_out() const { return left_out_; }

 private:
  template <class T>
  void put(const T& value) {
    const auto bytes = std::as_bytes(std::span(&value, 1));
    bytes_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
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
      if (text) put_text(PyUnicode_DATA(text.get()), static_cast<std::size_t>(PyUnicode_GET_LENGTH(text.get())));
    } else if (PyFloat_Check(value)) {
      const double number = PyFloat_AS_DOUBLE(value);
      put(std::isnan(number) ? std::numeric_limits<double>::quiet_NaN() : number);
    } else if (PyUnicode_Check(value)) {
      const auto kind = static_cast<std::size_t>(PyUnicode_KIND(value));
      put_text(PyUnicode_DATA(value), kind * static_cast<std::size_t>(PyUnicode_GET_LENGTH(value)));
    } else if (PyBytes_Check(value)) {
      put_text(PyBytes_AS_STRING(value), static_cast<std::size_t>(PyBytes_GET_SIZE(value)));
    } else if (PyComplex_Check(value)) {
      put(PyComplex_AsCComplex(value));
    } else {
      put(value);
    }
    drop_error();
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
      drop_error();
      const Ref shape = Ref::steal(PyObject_GetAttrString(value, "shape"));
      if (shape) add(shape.get());
    }
    drop_error();
  }

  void add_opaque(PyObject* value) {
    if (opaque_ == Opaque::Repr && Py_TYPE(value)->tp_repr != PyBaseObject_Type.tp_repr) {
      const Ref text = Ref::steal(PyObject_Repr(value));
      if (text) return add_scalar(text.get());
      drop_error();
    }
    put(value);
  }

  void add_nest(PyObject* nest, TypeClass kind) {
    const bool unordered = kind == TypeClass::Dict || kind == TypeClass::Namespace || kind == TypeClass::Set;
    Digest sum;
    const auto each = [&](const Child& child) {
      const std::size_t mark = bytes_.size();
      if (unordered && child.key) add(child.key);
      add(child.value);
      if (!unordered) return;
      const Digest part = hash(mark);
      bytes_.resize(mark);
      sum.low += part.low;
      sum.high += part.high;
    };
    const auto cut = [&](const Cut& what) {
      put(what.kind);
      put(what.left_out);
      if (what.kind == Cut::Kind::TooDeep || what.kind == Cut::Kind::Unreadable) put(nest);
      if (what.kind != Cut::Kind::Cycle && left_out_.empty()) left_out_ = what.reason();
    };
    const std::size_t count = walk_.descend(nest, kind, each, cut);
    put(count);
    if (unordered) put(sum);
  }

  Opaque opaque_;
  NestWalk walk_{kReadLimits};
  std::string bytes_;
  std::string left_out_;
};

Ref weak_reference(PyObject* object) {
  if (!PyType_SUPPORTS_WEAKREFS(Py_TYPE(object))) return {};
  Ref weak = Ref::steal(PyWeakref_NewRef(object, nullptr));
  drop_error();
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
  static PyObject* name = interned("_version");
  const Ref version = Ref::steal(PyObject_GetAttr(tensor, name));  // inference tensors have none
  const long long number = version ? PyLong_AsLongLong(version.get()) : -1;
  drop_error();
  return number;
}

// Reading a tensor of another device copies it to the host and waits for the device: never at every line.
bool is_on_device(PyObject* tensor) {
  static PyObject* name = interned("is_cpu");
  const Ref is_cpu = Ref::steal(PyObject_GetAttr(tensor, name));
  drop_error();
  return is_cpu.get() == Py_False;
}

}  // namespace

Digest digest_of(PyObject* value, Opaque opaque, std::string* left_out) {
  Writer writer(opaque);
  writer.add(value);
  if (left_out) *left_out = writer.left_out();
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
           std::memcmp(PyBytes_AS_STRING(a), PyBytes_AS_STRING(b), static_cast<std::size_t>(PyBytes_GET_SIZE(a))) == 0;
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
  const Digest now = digest_of(value, ladder.opaque, &left_out_);
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
  const bool opaque = kind == TypeClass::Opaque || kind == TypeClass::Mapping;
  bool changed = false;
  if (kind == TypeClass::Scalar) {
    changed = update_scalar(value);
  } else if (opaque && (ladder.opaque == Opaque::Identity || PyType_Check(value))) {
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
