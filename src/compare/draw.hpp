#pragma once

#include "compare/measure.hpp"
#include "tenscope/diff.hpp"
#include "tenscope/event.hpp"

namespace tenscope::compare {

// Initial values of a tensor that differ between two runs: were they drawn anew, and from the same distribution?
// `error` is how far they are apart.
DiffDistribution compare_distributions(const TensorRecord& a, const TensorRecord& b, const PairError& error);

}  // namespace tenscope::compare
