#pragma once

#include <cstddef>

#include "tenscope/summary.hpp"
#include "tenscope/tensor_view.hpp"

namespace tenscope::kernels {

// One pass over the tensor: statistics, fingerprint and, where `destination` is not null, a copy of its bytes in C
// order (size_bytes(view) bytes). Reads any strides. The view must be valid (see validate()).
Summary summarize(const TensorView& view, std::byte* destination = nullptr);

// Each of the three alone.
Stats statistics(const TensorView& view);
Fingerprint fingerprint(const TensorView& view);
void copy_c_order(const TensorView& view, std::byte* destination);

}  // namespace tenscope::kernels
