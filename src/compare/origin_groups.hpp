#pragma once

#include <vector>

#include "compare/lane_walker.hpp"

namespace tenscope::compare {

// Of the origins of one lane those that arise together count as one: gradients of one backward, parameters of one step,
// initial values of one module.
std::vector<Origin> group_origins(std::vector<Origin> origins, const LaneWalker& walker, const ModuleTree& tree);

// Ranks exchange gradients: one that starts to differ on a rank, at or after a difference on another one, follows from
// it.
void drop_what_other_ranks_caused(std::vector<Origin>& origins);

}  // namespace tenscope::compare
