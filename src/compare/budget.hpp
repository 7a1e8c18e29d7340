#pragma once

#include "compare/align.hpp"
#include "compare/budget_sums.hpp"
#include "compare/lane_state.hpp"

namespace tenscope::compare {

// What modules add to the error, of one rank.
BudgetSums make_budget(const Alignment& alignment, const Interner& interner, const Measures& measures);

}  // namespace tenscope::compare
