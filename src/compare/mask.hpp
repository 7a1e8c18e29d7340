#pragma once

#include "tenscope/tensor_view.hpp"

namespace tenscope::compare {

// Whether two attention masks of different forms allow the same: bools, integers 0 and 1, or numbers that are added to
// the scores, 0 and very negative; with axes of size 1 or without, or with values repeated along them. False for what
// is no mask.
bool is_same_mask(const TensorView& a, const TensorView& b);

}  // namespace tenscope::compare
