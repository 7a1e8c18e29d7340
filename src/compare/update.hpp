#pragma once

#include <cstdint>

#include "compare/thresholds.hpp"
#include "tenscope/diff.hpp"
#include "tenscope/tensor_view.hpp"

namespace tenscope::compare {

// One parameter at one step of an optimizer.
struct UpdateTensors {
  TensorView before, after, gradient;
};

// How far two updates of one parameter are apart, of which the gradients agree but for noise.
struct UpdateError {
  std::int64_t usable = 0;  // elements whose gradients agree well enough to expect the same update
  double typical = 0;       // median of |difference of the updates| / |update|
  double explained = 0;     // what the gradients' noise and the rounding of the parameters account for

  bool is_mistake() const { return usable >= thresholds::kUpdateElements && typical > explained; }
};

// All shapes must be equal. Looks at some ten thousand elements of large tensors.
UpdateError measure_update(const UpdateTensors& a, const UpdateTensors& b);

// What both updates did to the parameter; the gradients are not looked at.
DiffUpdate describe_update(const UpdateTensors& a, const UpdateTensors& b);

}  // namespace tenscope::compare
