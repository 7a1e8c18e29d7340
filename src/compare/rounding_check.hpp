#pragma once

#include <string>

#include "compare/checkpoint.hpp"
#include "compare/layout.hpp"

namespace tenscope::compare {

// What the rounding of the coarser type does not explain in two weights that are near each other over all. Overview in
// the source.
struct RoundingCheck {
  std::string words;      // "in row 7 of b, b is -1 times a but for rounding"; empty: rounding explains all
  bool is_all = false;    // they hold for the tensor as a whole, not for a part of it
  double systematic = 0;  // f - 1, where most blocks of the rounded side are f times the other's
  bool is_known = false;  // false: nothing is known of the type, or there is too little of it
};
RoundingCheck check_rounding(const StoredTensor& stored_a, const TensorView& a, const StoredTensor& stored_b,
                             const TensorView& b, const Layout& layout);

}  // namespace tenscope::compare
