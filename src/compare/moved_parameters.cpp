#include "compare/moved_parameters.hpp"

#include <map>
#include <tuple>
#include <unordered_set>
#include <utility>

namespace tenscope::compare {
namespace {

struct Parameter {
  ParameterKey key;
  TextId shape = 0;
  DType dtype = DType::F32;
  Fingerprint content;
  bool is_paired = false;
};

std::vector<Parameter> initial_parameters(const Timeline& timeline, const ModuleTree& tree) {
  std::vector<Parameter> found;
  std::unordered_set<ParameterKey, ParameterKeyHash> seen;
  for (const Lane& lane : timeline.lanes)
    for (const Item& item : lane.items) {
      if (item.io != Io::Param || item.phase != Phase::Init || !item.is_tensor() || item.root == 0) continue;
      const ParameterKey key{tree.find(item.root, item.scope), item.parameter};
      if (seen.insert(key).second) found.push_back({key, item.shape, item.dtype, item.fingerprint});
    }
  return found;
}

class Mover {
 public:
  Mover(const Timeline& a, const Timeline& b, const ModuleTree& tree_a, const ModuleTree& tree_b,
        const ModuleMatch& match)
      : tree_a_(tree_a),
        tree_b_(tree_b),
        match_(match),
        a_(initial_parameters(a, tree_a)),
        b_(initial_parameters(b, tree_b)) {}

  MovedParameters find() {
    leave_out_those_in_place();
    // The module of each, as the first run has it: the owner, or the innermost around it that both have, or the root.
    pair_where_unique([](const ModuleTree&, const std::vector<int>& partner, int node) {
      return partner[static_cast<std::size_t>(node)] < 0 ? -1 : node;
    });
    pair_where_unique([](const ModuleTree& tree, const std::vector<int>& partner, int node) {
      while (node >= 0 && partner[static_cast<std::size_t>(node)] < 0)
        node = tree.nodes[static_cast<std::size_t>(node)].parent;
      return node;
    });
    pair_where_unique([](const ModuleTree&, const std::vector<int>&, int) { return kAnywhere; });
    return std::move(moved_);
  }

 private:
  static constexpr int kAnywhere = -2;

  void leave_out_those_in_place() {
    std::unordered_map<ParameterKey, Parameter*, ParameterKeyHash> in_b;
    for (Parameter& parameter : b_) in_b.emplace(parameter.key, &parameter);
    for (Parameter& parameter : a_) {
      const int node = match_.to_b[static_cast<std::size_t>(parameter.key.node)];
      const auto found = in_b.find({node, parameter.key.name});
      if (found == in_b.end()) continue;
      parameter.is_paired = found->second->is_paired = true;
    }
  }

  using Token = std::tuple<int, TextId, DType, std::uint64_t, std::uint64_t>;

  // By content among those of one place; `place` says it by the tree and the partners of one run. -1: none.
  template <class Place>
  void pair_where_unique(Place place) {
    std::map<Token, std::pair<std::vector<Parameter*>, std::vector<Parameter*>>> found;
    const auto token = [](const Parameter& p, int at) {
      return Token{at, p.shape, p.dtype, p.content.low, p.content.high};
    };
    for (Parameter& p : a_)
      if (const int at = place(tree_a_, match_.to_b, p.key.node); !p.is_paired && at != -1)
        found[token(p, at)].first.push_back(&p);
    for (Parameter& p : b_)
      if (int at = place(tree_b_, match_.to_a, p.key.node); !p.is_paired && at != -1) {
        if (at >= 0) at = match_.to_a[static_cast<std::size_t>(at)];
        found[token(p, at)].second.push_back(&p);
      }
    for (auto& [key, both] : found) {
      if (both.first.size() != 1 || both.second.size() != 1) continue;
      Parameter &p = *both.first[0], &q = *both.second[0];
      p.is_paired = q.is_paired = true;
      moved_.to_b.emplace(p.key, q.key);
      moved_.to_a.emplace(q.key, p.key);
    }
  }

  const ModuleTree& tree_a_;
  const ModuleTree& tree_b_;
  const ModuleMatch& match_;
  std::vector<Parameter> a_, b_;
  MovedParameters moved_;
};

}  // namespace

MovedParameters find_moved_parameters(const Timeline& a, const Timeline& b, const ModuleTree& tree_a,
                                      const ModuleTree& tree_b, const ModuleMatch& match) {
  return Mover(a, b, tree_a, tree_b, match).find();
}

}  // namespace tenscope::compare
