#pragma once

#include "compare/measure.hpp"
#include "compare/update.hpp"
#include "tenscope/event.hpp"
#include "tenscope/sketch.hpp"

namespace tenscope::compare {

// The scalar product of two tensors, about.
double dot(const Sketch& x, const Sketch& y);

// How far two tensors are apart, from their statistics and sketches alone. Both are the same part of a whole.
PairError estimate(const TensorRecord& a, const TensorRecord& b, const Sketch& x, const Sketch& y);

// One parameter at one step of an optimizer.
struct UpdateSketches {
  Sketch before, after, gradient;
};

// An update that is another one times a factor, as by another learning rate, is a mistake; of others nothing is said.
UpdateError estimate_update(const UpdateSketches& a, const UpdateSketches& b, DType dtype);

}  // namespace tenscope::compare
