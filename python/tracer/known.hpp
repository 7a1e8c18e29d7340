#pragma once

#include <Python.h>

#include <cstdint>
#include <string>

#include "bindings/nest.hpp"
#include "bindings/object.hpp"

namespace tenscope::python {

// Overview: what counts as a change. Known is what the tracer remembers of one watched expression: enough to tell
// whether the value it has now is another one, without repr and without a copy. From cheap to dear:
//
//   scalars      int, float, str, bytes, bool, None, complex and their kin: pinned, so that the same object is the same
//                value; else type and value (floats by their bits, one NaN equals another)
//   tensors      type, dtype, shape, device and the fingerprint of the elements. Where the caller says that nothing can
//                have been written (see Trust) the same object is not read again.
//   nests        list, tuple, dict, set, deque, dataclass, SimpleNamespace: a digest of the structure down to scalars
//                and tensors; dict and set without their order. What the limits of nest.hpp cut off is told: left_out()
//   the rest     identity, by a weak reference where the type allows; or the text of repr (Opaque::Repr)
//
// Tensors and nests are never pinned: their life is the program's affair.

enum class Opaque : std::uint8_t { Identity, Repr };

enum class Trust : std::uint8_t {
  Nothing,   // code ran that can have written anywhere (of tensors on another device the version is believed anyhow)
  Versions,  // torch's version counter is believed: writes through .data, NumPy views and some kernels go unseen
};

struct Ladder {
  Opaque opaque = Opaque::Identity;
  bool identity = false;  // another tensor object is a change even with the same content
  Trust trust = Trust::Nothing;
};

struct Digest {
  std::uint64_t low = 0;
  std::uint64_t high = 0;
  friend bool operator==(const Digest&, const Digest&) = default;
};

class Known {
 public:
  // Compares the value with what was known and remembers it. True: first sight or a change. May run Python code
  // (attributes of tensors, repr): needs the GIL, a free error indicator; never leaves an error set.
  bool update(PyObject* value, const Ladder& ladder);

  // Another plain int or float in place of the one that is pinned.
  void pin_number(PyObject* value) {
    pin_ = Ref::share(value);
    id_ = value;
    type_ = Py_TYPE(value);
  }

  bool seen() const { return seen_; }
  PyObject* pinned() const { return pin_.get(); }  // the last value, where it is a scalar
  const Digest& digest() const { return digest_; }
  const std::string& left_out() const { return left_out_; }  // why a part of the last value was not compared, or empty

 private:
  bool update_scalar(PyObject* value);
  bool update_digest(PyObject* value, const Ladder& ladder);
  bool update_opaque(PyObject* value);

  bool seen_ = false;
  bool by_digest_ = false;
  PyTypeObject* type_ = nullptr;  // compared only
  PyObject* id_ = nullptr;        // compared only
  Ref pin_;                       // a scalar, strongly
  Ref weak_;                      // an opaque object or a torch tensor, weakly
  long long version_ = -1;
  Digest digest_;
  std::string left_out_;
};

// A digest of a value by content; what has none goes in by identity or repr. What a limit or an error kept out of it is
// told in `left_out`; else that is empty.
Digest digest_of(PyObject* value, Opaque opaque, std::string* left_out = nullptr);

// Identity of two scalars of class Scalar.
bool same_scalar(PyObject* a, PyObject* b);

}  // namespace tenscope::python
