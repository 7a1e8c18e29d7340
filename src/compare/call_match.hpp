#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "compare/module_tree.hpp"
#include "compare/timeline.hpp"
#include "tenscope/diff.hpp"

namespace tenscope::compare {

// The step and call of an event of the second run in the first run's count.
struct CallNumber {
  std::int64_t step = 0, call = 0;
  bool has_partner = true;  // false: it belongs to a call that the first run does not have
};

struct CallMatch {
  std::vector<CallNumber> numbers;  // of each event of the second lane
  std::vector<DiffNote> notes;      // which calls are left over
};

// Where one run calls its outermost modules more often than the other (a forward to warm up, an evaluation in between),
// calls belong together that have the same inputs, not the same number. Nothing where numbers do as well.
std::optional<CallMatch> match_calls(const Lane& a, const Lane& b, const ModuleTree& tree_a, const ModuleTree& tree_b,
                                     const std::vector<int>& module_to_a, const std::vector<int>& module_to_b,
                                     const Interner& interner);

}  // namespace tenscope::compare
