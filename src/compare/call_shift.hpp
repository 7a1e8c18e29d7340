#pragma once

#include <optional>
#include <string>
#include <vector>

#include "compare/module_tree.hpp"
#include "compare/timeline.hpp"

namespace tenscope::compare {

// The second run's lane with the first run's numbers of calls and steps.
struct ShiftedLane {
  Lane lane;
  std::string note;  // which calls are left over, a sentence
};

// Where one run calls its outermost modules more often than the other (a forward to warm up, an evaluation in between),
// calls belong together that have the same inputs, not the same number. Nothing where numbers do as well.
std::optional<ShiftedLane> shift_calls(const Lane& a, const Lane& b, const ModuleTree& tree_a, const ModuleTree& tree_b,
                                       const std::vector<int>& module_to_b, const Interner& interner);

}  // namespace tenscope::compare
