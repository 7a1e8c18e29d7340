#pragma once

#include <vector>

#include "compare/lane_state.hpp"

namespace tenscope::compare {

// Of the origins of one lane those that arise together count as one: gradients of one backward, parameters of one step,
// initial values of one module. Takes them out of the state; in the order in which they arise.
std::vector<Origin> group_origins(LaneState& state);

// Wrong initial values first, then by position in their lane.
void sort_origins(std::vector<Origin>& origins);

}  // namespace tenscope::compare
