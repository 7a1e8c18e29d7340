#pragma once

#include <Python.h>

#include <string>

#include "tenscope/tensor_view.hpp"

namespace tenscope::python {

// How a Python object's tensor is borrowed for one call: DLPack's C exchange API for torch, the buffer protocol for NumPy.
enum class Borrowed {
  Ok,           // `view` is valid while this BorrowedTensor lives
  NotATensor,   // some other object; no Python error is set
  Unsupported,  // a tensor whose bytes cannot be had (sparse, meta, fake, nested...): `reason` names why; no error is set
};

class BorrowedTensor {
 public:
  BorrowedTensor() = default;
  ~BorrowedTensor();
  BorrowedTensor(const BorrowedTensor&) = delete;
  BorrowedTensor& operator=(const BorrowedTensor&) = delete;

  // May be called again to borrow another object. Needs the GIL; never leaves a Python error set.
  Borrowed borrow(PyObject* object) noexcept;

  TensorView view;
  std::string reason;

 private:
  void release() noexcept;
  Py_buffer buffer_{};
  PyObject* keepalive_ = nullptr;  // a host copy, a resolved conj view, a managed DLPack tensor's owner
  void* managed_ = nullptr;
  std::int64_t shape_[kMaxRank];
  std::int64_t strides_[kMaxRank];
  std::string device_;
};

// True for torch.Tensor (and subclasses), numpy.ndarray and NumPy scalars; cheap, cached by type.
bool is_tensor_like(PyObject* object) noexcept;

}  // namespace tenscope::python
