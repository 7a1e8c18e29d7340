#pragma once

#include <cstddef>

#include "kernels/sketch.hpp"
#include "tenscope/summary.hpp"
#include "tenscope/tensor_view.hpp"

namespace tenscope::kernels {

// One pass over the tensor: statistics, fingerprint and, where `destination` is not null, a copy of its bytes in C
// order (size_bytes(view) bytes), where `sketch` is not null, its sketch as that part of a whole. Reads any strides.
// The view must be valid (see validate()).
Summary summarize(const TensorView& view, std::byte* destination = nullptr, Sketch* sketch = nullptr,
                  const PartOf& part = {});

// Each alone; the sketch alone is in sketch.hpp.
Stats statistics(const TensorView& view);
Fingerprint fingerprint(const TensorView& view);
void copy_c_order(const TensorView& view, std::byte* destination);

}  // namespace tenscope::kernels
