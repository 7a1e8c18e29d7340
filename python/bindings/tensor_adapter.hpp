#pragma once

#include <Python.h>

#include <string>

#include "bindings/object.hpp"
#include "tenscope/tensor_view.hpp"

namespace tenscope::python {

// How a Python object's tensor is borrowed for one call: DLPack's C exchange API for torch, the buffer protocol for
// NumPy.
enum class Borrowed {
  Ok,           // `view` is valid while this BorrowedTensor lives
  NotATensor,   // some other object; no Python error is set. bytes, memoryview and array.array are taken as arrays
  Unsupported,  // a tensor whose bytes cannot be had (sparse, meta, fake, nested...): `reason` names why; no error is
                // set
};

// The object must be held by the caller meanwhile. The view may be read without the GIL; making, borrowing and ending
// need it.
class BorrowedTensor {
 public:
  BorrowedTensor() = default;
  ~BorrowedTensor();
  BorrowedTensor(const BorrowedTensor&) = delete;
  BorrowedTensor& operator=(const BorrowedTensor&) = delete;

  // May be called again to borrow another object. Needs the GIL; never leaves a Python error set.
  Borrowed borrow(PyObject* object) noexcept;
  // The same; where it has no storage, what stands in for it. Runs Python for such a tensor.
  Borrowed borrow_or_stand_in(PyObject* object) noexcept;

  TensorView view;
  std::string reason;

 private:
  Borrowed borrow_torch(PyObject* object);
  Borrowed borrow_dlpack(PyObject* object);
  Borrowed borrow_buffer(PyObject* object, bool is_copy = false);  // a copy is not copied again
  Borrowed borrow_copy(PyObject* object);
  Borrowed borrow_bits(PyObject* object, const std::string& error);
  Borrowed borrow_numpy_scalar(PyObject* object);
  Borrowed unsupported(std::string why);
  bool take(const void* dlpack_tensor) noexcept;
  void release() noexcept;

  Py_buffer buffer_{};
  Ref keepalive_;  // a host copy, a resolved conj view, a DLPack capsule
  std::int64_t shape_[kMaxRank];
  std::int64_t strides_[kMaxRank];
  std::string device_;
  Ref stand_in_;
};

// True for torch.Tensor (and subclasses), numpy.ndarray and NumPy scalars; cheap, cached by type.
bool is_tensor_like(PyObject* object) noexcept;
bool is_numpy_scalar(PyObject* object) noexcept;

// The tensor that a wrapper without storage is known by under its own name: a DTensor's local part, the result of a
// collective that the program started (waited for). Null where there is none. Runs Python; leaves no error set.
struct StandIn {
  Ref tensor;
  std::string members;  // of the event's meta, as JSON: what part it is
};
StandIn stand_in(PyObject* object) noexcept;

}  // namespace tenscope::python
