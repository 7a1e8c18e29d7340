#include "compare/frames.hpp"

#include <algorithm>

namespace tenscope::compare {

int Frames::of(const CallKey& key) {
  if (key.node < 0) return kProgram;
  if (const auto found = index_.find(key); found != index_.end()) return found->second;
  int parent = kProgram;  // no enter event was recorded, or none that counts: the latest call of the module above
  for (int above = tree_.nodes[static_cast<std::size_t>(key.node)].parent; above >= 0 && parent == kProgram;
       above = tree_.nodes[static_cast<std::size_t>(above)].parent)
    parent = latest(above);
  return is_alone(key.node) ? parent : add(key, parent);
}

int Frames::latest(int node) const {
  const auto found = latest_.find(node);
  return found == latest_.end() ? kProgram : found->second;
}

bool Frames::is_within(int id, int around) const {
  while (id != around && id != kProgram) id = (*this)[id].parent;
  return id == around;
}

std::string Frames::path(int id) const {
  const int node = (*this)[id].node;
  return node < 0 ? std::string() : tree_.nodes[static_cast<std::size_t>(node)].path;
}

int Frames::add(const CallKey& key, int parent) {
  const int id = static_cast<int>(frames_.size());
  frames_.push_back({.parent = parent, .node = key.node, .call = key.call});
  index_[key] = id;
  latest_[key.node] = id;
  return id;
}

void Frames::enter(const CallKey& key, std::uint64_t thread) {
  if (key.node < 0) return;
  std::vector<Entered>& stack = stacks_[thread];
  const int parent = stack.empty() ? kProgram : stack.back().frame;
  call_order_.push_back(key.node);
  if (is_alone(key.node)) {
    stack.push_back({key.node, parent});
    return;
  }
  const auto found = index_.find(key);
  stack.push_back({key.node, found != index_.end() ? found->second : add(key, parent)});
  (*this)[stack.back().frame].is_entered = true;
}

int Frames::exit(int node, std::uint64_t thread) {
  std::vector<Entered>& stack = stacks_[thread];
  const auto found =
      std::find_if(stack.rbegin(), stack.rend(), [&](const Entered& entered) { return entered.node == node; });
  if (found == stack.rend()) return kProgram;
  const int id = is_alone(node) ? kProgram : found->frame;
  stack.erase(found.base() - 1, stack.end());  // and calls within it that were left by a raise
  return id;
}

}  // namespace tenscope::compare
