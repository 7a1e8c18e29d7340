#pragma once

#include <optional>
#include <unordered_map>
#include <vector>

#include "compare/call_key.hpp"
#include "compare/module_tree.hpp"
#include "compare/timeline.hpp"

namespace tenscope::compare {

// Parameters that have another owner or another name in the other run: of a layer whose code stands in the module
// around it, or one that is tied to another and known by that one's name. Keys are of each run's own tree.
struct MovedParameters {
  std::unordered_map<ParameterKey, ParameterKey, ParameterKeyHash> to_b, to_a;
};

// Told by their initial numbers, where these tell: in the same module first, then within the innermost module around
// them that both runs have, then anywhere.
MovedParameters find_moved_parameters(const Timeline& a, const Timeline& b, const ModuleTree& tree_a,
                                      const ModuleTree& tree_b, const ModuleMatch& match);

}  // namespace tenscope::compare
