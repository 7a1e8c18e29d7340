#pragma once

#include <unordered_map>
#include <vector>

#include "compare/module_tree.hpp"
#include "compare/noise.hpp"

namespace tenscope::compare {

// How far parameters and buffers agree: each by itself, and those of a module with all that are below it.
class ModuleState {
 public:
  explicit ModuleState(const ModuleTree& tree) : tree_(tree), states_(tree.nodes.size()) {}

  void set(int node, TextId name, const Trust& trust) {
    if (node < 0) return;
    Trust& own = at(node).own[name];
    const int change = static_cast<int>(trust.is_tainted) - static_cast<int>(own.is_tainted);
    own = trust;
    for (; node >= 0; node = tree_.nodes[static_cast<std::size_t>(node)].parent) {
      at(node).tainted += change;
      at(node).all.add(trust);
    }
  }

  Trust of(int node) const {
    if (node < 0) return {};
    const State& state = states_[static_cast<std::size_t>(node)];
    Trust trust = state.all;
    trust.is_tainted = state.tainted > 0;
    return trust;
  }

  Trust of(int node, TextId name) const {
    if (node < 0) return {};
    const auto& own = states_[static_cast<std::size_t>(node)].own;
    const auto found = own.find(name);
    return found == own.end() ? Trust{} : found->second;
  }

 private:
  struct State {
    std::unordered_map<TextId, Trust> own;
    int tainted = 0;  // here and in the modules below, at this moment
    Trust all;        // of what was set so far
  };
  State& at(int node) { return states_[static_cast<std::size_t>(node)]; }

  const ModuleTree& tree_;
  std::vector<State> states_;
};

}  // namespace tenscope::compare
