#pragma once

#include <optional>
#include <string>
#include <vector>

#include "compare/module_tree.hpp"

namespace tenscope::compare {

// The gradient of a parameter: its module, and whether it differs.
struct GradientSeen {
  int node = -1;
  bool differs = false;
};

// Where only parameters' gradients were recorded, the order of the forward calls tells where a backward went wrong: the
// gradients of the modules behind the place agree, those of the modules before it differ. Gives the path of the module
// between them that has no parameters of its own, or that of the code around both. Nothing where the gradients do not
// part like this. `calls`: the modules (nodes of `tree`) in the order of their calls.
std::optional<std::string> blame_by_order(const ModuleTree& tree, const std::vector<int>& calls,
                                          const std::vector<GradientSeen>& gradients);

}  // namespace tenscope::compare
