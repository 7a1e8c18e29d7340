#pragma once

#include <Python.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "bindings/object.hpp"
#include "tenscope/summary.hpp"
#include "tenscope/tensor_view.hpp"
#include "tracer/known.hpp"

namespace tenscope::python {

// A tensor as it was at a change: what it is, its statistics and, where they were kept, its bytes in C order.
struct TensorValue {
  DType dtype = DType::F32;
  std::vector<std::int64_t> shape;
  std::string device;
  bool from_torch = false;
  Summary summary;
  bool has_bytes = false;
  std::vector<std::byte> bytes;

  std::string describe() const;  // "float32[2, 3] mean 0.5 min 0 max 1", "float32[] 0.25", "float32[3] nan 2 ..."
};

// Stands in a snapshot for what is not in it.
struct LeftOut {
  std::size_t count = 0;  // of children; 0: see the reason
  std::string reason;

  std::string describe() const;  // "… 3 more"
};

struct SnapshotOptions {
  std::size_t max_tensor_bytes = 1024;  // larger tensors keep their statistics only
  Opaque opaque = Opaque::Identity;
};

// A value as it is now, safe to keep: scalars themselves, tensors as TensorValue, nests copied, anything else as text
// (its class; under Opaque::Repr its repr). Where the limits of nest.hpp cut, a LeftOut or a text says so. Keeps no
// reference to the user's mutable objects. Never fails: at worst text.
Ref snapshot(PyObject* value, const SnapshotOptions& options);

// One line of text for a snapshot, for messages and for an event's meta; at most `limit` bytes.
std::string short_text(PyObject* value, std::size_t limit = 80);

}  // namespace tenscope::python
