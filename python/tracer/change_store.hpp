#pragma once

#include <Python.h>
#if PY_VERSION_HEX < 0x030B0000
#include <longintrepr.h>
#endif

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

#include "bindings/object.hpp"

namespace tenscope::python {

struct CodeInfo;

// Overview: the changes of a call, packed. A loop makes them by the hundred thousand, so a number is kept as a number,
// not as a Python object, and nothing is allocated per change; Python objects are made when somebody asks (`unpack`).

enum class KeptKind : std::uint8_t { Nothing, Int, Float, Object };

// Ints below 2^30 have one digit, which is read inline.
#if PY_VERSION_HEX >= 0x030C0000
inline bool is_one_digit(PyObject* value) { return PyUnstable_Long_IsCompact(reinterpret_cast<PyLongObject*>(value)); }
inline std::int64_t one_digit(PyObject* value) {
  return PyUnstable_Long_CompactValue(reinterpret_cast<PyLongObject*>(value));
}
#else
inline bool is_one_digit(PyObject* value) { return Py_SIZE(value) >= -1 && Py_SIZE(value) <= 1; }
inline std::int64_t one_digit(PyObject* value) {
  if (Py_SIZE(value) == 0) return 0;
  return Py_SIZE(value) * static_cast<std::int64_t>(reinterpret_cast<PyLongObject*>(value)->ob_digit[0]);
}
#endif

// A value to keep. `object` is an owned reference where the kind is Object; ownership is the holder's affair.
struct Kept {
  union Payload {
    std::int64_t integer;
    double number;
    PyObject* object;
  };
  Payload payload{.integer = 0};
  KeptKind kind = KeptKind::Nothing;

  // Plain int and float as numbers; Nothing for everything else, and for ints of more than 64 bits.
  static Kept of_number(PyObject* value) {
    Kept kept;
    if (PyFloat_CheckExact(value)) {
      kept.payload.number = PyFloat_AS_DOUBLE(value);
      kept.kind = KeptKind::Float;
    } else if (PyLong_CheckExact(value)) {
      int overflow = 0;
      if (is_one_digit(value)) [[likely]] {
        kept.payload.integer = one_digit(value);
      } else {
        kept.payload.integer = PyLong_AsLongLongAndOverflow(value, &overflow);
      }
      if (!overflow) kept.kind = KeptKind::Int;
    }
    return kept;
  }

  static Kept of(PyObject* value) {
    if (!value) return {};
    Kept kept = of_number(value);
    if (kept.kind == KeptKind::Nothing) kept = {{.object = Py_NewRef(value)}, KeptKind::Object};
    return kept;
  }

  Ref unpack() const {
    switch (kind) {
      case KeptKind::Int:
        return Ref::steal(PyLong_FromLongLong(payload.integer));
      case KeptKind::Float:
        return Ref::steal(PyFloat_FromDouble(payload.number));
      case KeptKind::Object:
        return Ref::share(payload.object);
      case KeptKind::Nothing:
        break;
    }
    return {};
  }

  // Of two numbers: the same kind and bits, or both NaN.
  bool is_same_number(const Kept& other) const {
    if (kind != other.kind) return false;
    if (payload.integer == other.payload.integer) return true;
    return kind == KeptKind::Float && std::isnan(payload.number) && std::isnan(other.payload.number);
  }
};

struct PackedChange {
  std::int64_t stamp;  // see tick_clock.hpp
  Kept::Payload old_value, new_value;
  const CodeInfo* info;  // whose frame it was
  std::uint32_t name;    // of the log's names
  std::int32_t line, next_line;
  KeptKind old_kind, new_kind;

  Kept old_kept() const { return {old_value, old_kind}; }
  Kept new_kept() const { return {new_value, new_kind}; }
};

class ChangeStore {
 public:
  ChangeStore() = default;
  ChangeStore(const ChangeStore&) = delete;
  ChangeStore& operator=(const ChangeStore&) = delete;
  ~ChangeStore() {
    while (size_ > 0) drop_last();
    std::free(items_);
  }

  std::size_t size() const { return size_; }
  const PackedChange& operator[](std::size_t index) const { return items_[index]; }

  // Takes over the references in it.
  void append(const PackedChange& change) {
    if (size_ == capacity_) [[unlikely]]
      grow();
    items_[size_++] = change;
  }

  void drop_last() {
    const PackedChange change = items_[--size_];
    if (change.old_kind == KeptKind::Object) Py_DECREF(change.old_value.object);
    if (change.new_kind == KeptKind::Object) Py_DECREF(change.new_value.object);
  }

 private:
  void grow() {
    const std::size_t wanted = capacity_ == 0 ? 16 : 2 * capacity_;
    void* moved = std::realloc(items_, wanted * sizeof(PackedChange));  // large blocks grow without a copy
    if (!moved) throw std::bad_alloc();
    items_ = static_cast<PackedChange*>(moved);
    capacity_ = wanted;
  }

  PackedChange* items_ = nullptr;
  std::size_t size_ = 0, capacity_ = 0;
};

}  // namespace tenscope::python
