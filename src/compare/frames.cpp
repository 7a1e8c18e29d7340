#include "compare/frames.hpp"

namespace tenscope::compare {
namespace {

std::uint64_t key(int node, std::int64_t call) {
  return (static_cast<std::uint64_t>(node) << 32) ^ static_cast<std::uint64_t>(call);
}

}  // namespace

int Frames::of(const Item& item) {
  const int node = node_of(item);
  if (node < 0) return kProgram;
  if (const auto found = index_.find(key(node, item.call)); found != index_.end()) return found->second;
  int parent = kProgram;  // no enter event was recorded: the latest call of the module above
  for (int above = tree_.nodes[static_cast<std::size_t>(node)].parent; above >= 0 && parent == kProgram;
       above = tree_.nodes[static_cast<std::size_t>(above)].parent)
    parent = latest(above);
  return add(node, item.call, parent);
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

int Frames::add(int node, std::int64_t call, int parent) {
  const int id = static_cast<int>(frames_.size());
  frames_.push_back({.parent = parent, .node = node, .call = call});
  index_[key(node, call)] = id;
  latest_[node] = id;
  return id;
}

void Frames::enter(const Item& item) {
  const int node = node_of(item);
  if (node < 0) return;
  std::vector<int>& stack = stacks_[item.thread];
  const int parent = stack.empty() ? kProgram : stack.back();
  const auto found = index_.find(key(node, item.call));
  stack.push_back(found != index_.end() ? found->second : add(node, item.call, parent));
  call_order_.push_back(node);
}

void Frames::exit(const Item& item) {
  std::vector<int>& stack = stacks_[item.thread];
  const int node = node_of(item);
  while (!stack.empty()) {
    const bool is_it = (*this)[stack.back()].node == node;
    stack.pop_back();
    if (is_it) break;
  }
}

}  // namespace tenscope::compare
