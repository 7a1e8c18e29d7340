// Overview. Two runs' modules are matched by the strongest evidence first. A module whose parameters have the same
// numbers as those of one module of the other run is that module, whatever its name, its class and the modules around
// it. Where several, one inside the other, have the same (wrappers: torch.compile's `_orig_mod`, DDP's `module`, peft's
// `base_model.model`, or any other), they are told apart by what is in them. What is left (no parameters, other
// numbers) is matched from the outermost inwards: children of matched modules that have the same name and fit (same
// class or same structure) belong together; the others, with all that is in them, are aligned as sequences in the
// order of their first calls, between those that are matched already: by the numbers of their first call, the matched
// modules in them, class, structure and name.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "compare/module_tree.hpp"
#include "compare/path_rule.hpp"
#include "compare/sequence.hpp"
#include "core/suggest.hpp"
#include "tenscope/error.hpp"

namespace tenscope::compare {
namespace {

class Matcher {
 public:
  Matcher(const ModuleTree& a, const ModuleTree& b)
      : a_(a),
        b_(b),
        to_b_(a.nodes.size(), -1),
        to_a_(b.nodes.size(), -1),
        owners_a_(owners(a)),
        owners_b_(owners(b)) {}

  ModuleMatch match(const std::vector<std::string>& map) {
    match_roots();
    force(map);
    std::vector<std::pair<int, int>> roots;
    for (const int root : a_.roots)
      if (to_b_[root] >= 0) roots.emplace_back(root, to_b_[root]);
    for (const auto& [a, b] : roots) match_by_content(a, b);
    for (const auto& [a, b] : roots) to_b_[a] == b ? match_children(a, b) : descend(a);
    for (const auto& [a, b] : forced_) match_children(a, b);
    match_around();
    return {std::move(to_b_), std::move(to_a_), is_rough_, std::move(unused_)};
  }

 private:
  void pair(int a, int b) {
    to_b_[a] = b;
    to_a_[b] = a;
    inside_a_.clear();
    inside_b_.clear();
  }

  // Paired themselves, or one of them is a wrapper whose inside may be.
  bool are_roots_paired(int a, int b) const { return to_b_[a] == b || to_b_[a] < 0 || to_a_[b] < 0; }

  void match_roots() {
    std::vector<int> left_a, left_b;
    for (const int a : a_.roots) {
      const auto same = std::find_if(b_.roots.begin(), b_.roots.end(),
                                     [&](int b) { return to_a_[b] < 0 && b_.nodes[b].root == a_.nodes[a].root; });
      same != b_.roots.end() ? pair(a, *same) : left_a.push_back(a);
    }
    for (const int b : b_.roots)
      if (to_a_[b] < 0) left_b.push_back(b);
    for (std::size_t i = 0; i < std::min(left_a.size(), left_b.size()); ++i) pair(left_a[i], left_b[i]);
  }

  void force(const std::vector<std::string>& map) {
    for (const std::string& text : map) {
      const PathRule rule(text);
      bool is_used = false;
      std::optional<std::string> wanted;  // in the second run
      for (int a = 0; a < static_cast<int>(a_.nodes.size()); ++a) {
        const auto path = rule.apply(a_.nodes[a].path);
        if (!path) continue;
        if (!wanted) wanted = path;
        for (int b = 0; b < static_cast<int>(b_.nodes.size()); ++b)
          if (b_.nodes[b].path == *path && are_roots_paired(root_of(a_, a), root_of(b_, b))) {
            if (to_b_[a] >= 0) to_a_[to_b_[a]] = -1;
            if (to_a_[b] >= 0) to_b_[to_a_[b]] = -1;
            pair(a, b);
            forced_.emplace_back(a, b);
            is_used = true;
          }
      }
      if (is_used) continue;
      const std::string reason =
          wanted ? fmt::format("the second run has no module '{}'{}", *wanted, did_you_mean(*wanted, paths(b_)))
                 : fmt::format("no module of the first run matches '{}'{}", rule.left(),
                               did_you_mean(rule.left(), paths(a_)));
      unused_.push_back({text, fmt::format("the map '{}' fits nothing: {}", text, reason)});
    }
  }

  static std::vector<std::string> paths(const ModuleTree& tree) {
    std::vector<std::string> result;
    for (const ModuleNode& node : tree.nodes) result.push_back(node.path);
    return result;
  }

  static int root_of(const ModuleTree& tree, int node) {
    while (tree.nodes[node].parent >= 0) node = tree.nodes[node].parent;
    return node;
  }

  bool fits(int a, int b) const {
    const ModuleNode &x = a_.nodes[a], &y = b_.nodes[b];
    return x.structure == y.structure || x.cls == y.cls || x.cls == 0 || y.cls == 0;
  }

  bool same_name(int a, int b) const { return last_part(a_.nodes[a].path) == last_part(b_.nodes[b].path); }

  bool same_content(int a, int b) const {
    return a_.nodes[a].content != 0 && a_.nodes[a].content == b_.nodes[b].content;
  }

  bool same_flow(int a, int b) const { return a_.nodes[a].flow != 0 && a_.nodes[a].flow == b_.nodes[b].flow; }

  // How many of the children of a module are those of a module of the other run.
  int shared_children(int a, int b) const {
    const std::vector<int>& children = a_.nodes[a].children;
    return static_cast<int>(std::count_if(children.begin(), children.end(), [&](int child) {
      return to_b_[child] >= 0 && b_.nodes[to_b_[child]].parent == b;
    }));
  }

  int same_names_of_children(int a, int b) const {
    const std::vector<int>&x = a_.nodes[a].children, &y = b_.nodes[b].children;
    return static_cast<int>(std::count_if(x.begin(), x.end(), [&](int child) {
      return std::any_of(y.begin(), y.end(), [&](int other) { return same_name(child, other); });
    }));
  }

  // A weight that two modules share is recorded with the first of them: it alone does not make one the other.
  bool has_same_parameters(int a, int b) const {
    const ModuleNode &x = a_.nodes[a], &y = b_.nodes[b];
    return x.own != 0 && x.own == y.own && x.shapes == y.shapes;
  }

  // Of modules with the same parameters in them: what makes something else of its first input, and has neither
  // parameters of its own nor name nor class, is another module. A wrapper hands on what it is given.
  bool may_be_one(int a, int b) const {
    const ModuleNode &x = a_.nodes[a], &y = b_.nodes[b];
    return x.flow == 0 || y.flow == 0 || x.flow == y.flow || x.cls == y.cls || same_name(a, b) ||
           has_same_parameters(a, b);
  }

  // Modules with the same parameters, of which several may be wrappers around one: which of them are alike?
  int score_in_chain(int a, int b) const {
    const ModuleNode &x = a_.nodes[a], &y = b_.nodes[b];
    if (x.is_called != y.is_called) return 0;
    if (!may_be_one(a, b)) return 0;
    int value = 8 * std::min(2, shared_children(a, b)) + 4 * std::min(2, same_names_of_children(a, b));
    if (has_same_parameters(a, b)) value += 32;
    if (x.structure == y.structure) value += 16;
    if (x.cls == y.cls && x.cls != 0) value += 14;
    if (same_name(a, b)) value += 4;
    if (same_flow(a, b)) value += 12;
    return value;
  }

  static bool is_within(const ModuleTree& tree, int node, int around) {
    while (node >= 0 && node != around) node = tree.nodes[node].parent;
    return node == around;
  }

  struct Chain {
    std::vector<int> nodes;  // from the outermost inwards
    bool is_chain = true;
    std::size_t size = 0;  // of the outermost, in modules
  };

  // The modules below and including `root` by their content; a later one must lie within the one before.
  static std::size_t collect_chains(const ModuleTree& tree, int root,
                                    std::unordered_map<std::uint64_t, Chain>& chains) {
    Chain* chain = nullptr;
    if (const std::uint64_t content = tree.nodes[root].content; content != 0) {
      chain = &chains[content];
      chain->is_chain &= chain->nodes.empty() || is_within(tree, root, chain->nodes.back());
      chain->nodes.push_back(root);
    }
    std::size_t size = 1;
    for (const int child : tree.nodes[root].children) size += collect_chains(tree, child, chains);
    if (chain != nullptr) chain->size = std::max(chain->size, size);
    return size;
  }

  // Modules whose parameters' numbers only one module of the other run has, the smallest first.
  void match_by_content(int root_a, int root_b) {
    std::unordered_map<std::uint64_t, Chain> chains_a, chains_b;
    collect_chains(a_, root_a, chains_a);
    collect_chains(b_, root_b, chains_b);
    std::vector<std::pair<const Chain*, const Chain*>> pairs;
    for (const auto& [content, chain] : chains_a)
      if (const auto found = chains_b.find(content);
          found != chains_b.end() && chain.is_chain && found->second.is_chain)
        pairs.emplace_back(&chain, &found->second);
    std::sort(pairs.begin(), pairs.end(), [](const auto& x, const auto& y) {
      return std::pair(x.first->size, x.first->nodes[0]) < std::pair(y.first->size, y.first->nodes[0]);
    });
    const auto is_free = [](int node, int root, const std::vector<int>& partner, int other_root) {
      return partner[node] < 0 || (node == root && partner[node] == other_root);
    };
    for (const auto& [x, y] : pairs) {
      const auto aligned = align_sequences(
          std::vector<std::uint64_t>(x->nodes.size()), std::vector<std::uint64_t>(y->nodes.size()),
          [&, x = x, y = y](std::size_t i, std::size_t j) { return score_in_chain(x->nodes[i], y->nodes[j]); });
      for (const auto& [i, j] : aligned.pairs) {
        const int a = x->nodes[i], b = y->nodes[j];
        if (!is_free(a, root_a, to_b_, root_b) || !is_free(b, root_b, to_a_, root_a)) continue;
        if (to_b_[a] >= 0) to_a_[to_b_[a]] = -1;
        if (to_a_[b] >= 0) to_b_[to_a_[b]] = -1;
        pair(a, b);
      }
    }
  }

  // How alike a module of each run is, by what is in it; 0: not at all.
  std::size_t likeness(int a, int b) const {
    const ModuleNode &x = a_.nodes[a], &y = b_.nodes[b];
    if (x.children.empty() && y.children.empty())
      return (x.own != 0 && x.own == y.own ? 2U : 0U) + (x.cls != 0 && x.cls == y.cls ? 1U : 0U);
    const int alike = 2 * shared_children(a, b) + same_names_of_children(a, b);
    return static_cast<std::size_t>(alike);
  }

  // Of a module and what is in it, level by level as long as that is one child, the one that `alike` likes best.
  template <class Alike>
  static int inside_wrappers(const ModuleTree& tree, int node, Alike alike) {
    constexpr int kMostWrappers = 8;
    int best = node;
    std::size_t likes = alike(node);
    for (int level = 0; level < kMostWrappers && tree.nodes[node].children.size() == 1; ++level) {
      node = tree.nodes[node].children[0];
      if (alike(node) > likes) {
        best = node;
        likes = alike(node);
      }
    }
    return best;
  }

  // Pairs what is inside wrappers instead of the wrappers themselves.
  void see_through_wrappers(int& a, int& b) {
    const int inner_b = inside_wrappers(b_, b, [&](int node) { return likeness(a, node); });
    const int inner_a = inside_wrappers(a_, a, [&](int node) { return likeness(node, inner_b); });
    if ((inner_a == a && inner_b == b) || (inner_a != a && to_b_[inner_a] >= 0) ||
        (inner_b != b && to_a_[inner_b] >= 0))
      return;
    // Of a compiled module the wrapper's calls are seen and its own are not: then the wrapper's are the module's.
    const bool is_a_called = inner_a == a || a_.nodes[inner_a].is_called || !a_.nodes[a].is_called;
    const bool is_b_called = inner_b == b || b_.nodes[inner_b].is_called || !b_.nodes[b].is_called;
    if (is_a_called && is_b_called) {
      to_b_[a] = to_a_[b] = -1;
      pair(inner_a, inner_b);
    }
    a = inner_a;
    b = inner_b;
  }

  void match_children(int a, int b) {
    const bool is_same = same_flow(a, b) && a_.nodes[a].cls == b_.nodes[b].cls;
    if (!is_same && !same_content(a, b)) see_through_wrappers(a, b);
    match_by_flow(a, b);
    match_by_name(a, b);
    align_below(a, b);
    match_by_name_alone(a, b);
    for (const int x : a_.nodes[a].children) descend(x);
  }

  // Into all that is matched, also within what is not.
  void descend(int a) {
    if (to_b_[a] >= 0) {
      if (visited_.insert(a).second) match_children(a, to_b_[a]);
      return;
    }
    for (const int x : a_.nodes[a].children) descend(x);
  }

  static std::vector<int> free_of(const std::vector<int>& nodes, const std::vector<int>& partner) {
    std::vector<int> result;
    for (const int node : nodes)
      if (partner[node] < 0) result.push_back(node);
    return result;
  }

  // What only one module of each run makes of the same input; not where the input is handed on.
  void match_by_flow(int a, int b) {
    std::vector<int> list_a, list_b;
    collect_open(a_, a, to_b_, list_a);
    collect_open(b_, b, to_a_, list_b);
    std::unordered_map<std::uint64_t, std::pair<std::vector<int>, std::vector<int>>> by_flow;
    for (const int x : free_of(list_a, to_b_))
      if (a_.nodes[x].flow != 0 && !a_.nodes[x].hands_on) by_flow[a_.nodes[x].flow].first.push_back(x);
    for (const int y : free_of(list_b, to_a_))
      if (b_.nodes[y].flow != 0 && !b_.nodes[y].hands_on) by_flow[b_.nodes[y].flow].second.push_back(y);
    for (const int x : list_a) {
      const auto found = by_flow.find(a_.nodes[x].flow);
      if (to_b_[x] >= 0 || found == by_flow.end()) continue;
      const auto& [in_a, in_b] = found->second;
      if (in_a.size() == 1 && in_b.size() == 1 && !shares_little(x, in_b[0])) pair_within(x, in_b[0]);
    }
  }

  void match_by_name(int a, int b) {
    const auto list_a = free_of(a_.nodes[a].children, to_b_), list_b = free_of(b_.nodes[b].children, to_a_);
    std::unordered_map<std::string_view, int> by_name;
    for (const int y : list_b) by_name.emplace(last_part(b_.nodes[y].path), y);
    for (const int x : list_a) {
      const auto found = by_name.find(last_part(a_.nodes[x].path));
      if (found == by_name.end() || to_a_[found->second] >= 0 || !fits(x, found->second)) continue;
      if (list_a.size() != list_b.size() && !same_flow(x, found->second) && !same_content(x, found->second)) continue;
      if (shares_little(x, found->second)) continue;
      pair(x, found->second);
    }
  }

  // What is left: a module whose class was changed. Children first, then what is in other modules that one run has.
  void match_by_name_alone(int a, int b) {
    match_by_name_alone(free_of(a_.nodes[a].children, to_b_), free_of(b_.nodes[b].children, to_a_));
    std::vector<int> list_a, list_b;
    collect_open(a_, a, to_b_, list_a);
    collect_open(b_, b, to_a_, list_b);
    match_by_name_alone(free_of(list_a, to_b_), free_of(list_b, to_a_));
  }

  void match_by_name_alone(const std::vector<int>& list_a, const std::vector<int>& list_b) {
    std::unordered_map<std::string_view, int> count, by_name;
    for (const int x : list_a) ++count[last_part(a_.nodes[x].path)];
    for (const int y : list_b) ++count[last_part(b_.nodes[y].path)], by_name[last_part(b_.nodes[y].path)] = y;
    for (const int x : list_a) {
      const auto found = by_name.find(last_part(a_.nodes[x].path));
      if (found == by_name.end() || count[found->first] != 2) continue;
      if (!shares_little(x, found->second) && !has_moved(x, found->second)) pair_within(x, found->second);
    }
  }

  // A module that is within another stays within it.
  void pair_within(int a, int b) {
    const int around_a = matched_ancestor(a_, a, to_b_), around_b = matched_ancestor(b_, b, to_a_);
    if (around_a < 0 || around_b < 0 || to_b_[around_a] == around_b) pair(a, b);
  }

  // The parameters of one are those of modules elsewhere in the other run: what has its name there is something else.
  bool has_moved(int a, int b) const {
    const auto is_elsewhere = [](const ModuleNode& module, const Owners& owners, const ModuleTree& tree, int around) {
      return std::any_of(module.parameters.begin(), module.parameters.end(), [&](std::uint64_t parameter) {
        const auto owner = owners.find(parameter);
        return owner != owners.end() && !is_within(tree, owner->second, around);
      });
    };
    return is_elsewhere(a_.nodes[a], owners_b_, b_, b) || is_elsewhere(b_.nodes[b], owners_a_, a_, a);
  }

  using Owners = std::unordered_map<std::uint64_t, int>;  // of parameters whose numbers no other has

  static Owners owners(const ModuleTree& tree) {
    Owners result;
    std::unordered_map<std::uint64_t, int> count;
    for (std::size_t node = 0; node < tree.nodes.size(); ++node)
      for (const std::uint64_t parameter : tree.nodes[node].parameters) {
        ++count[parameter];
        result[parameter] = static_cast<int>(node);
      }
    std::erase_if(result, [&](const auto& entry) { return count[entry.first] > 1; });
    return result;
  }

  // Modules in them are matched, and few of these with one of the other's.
  bool shares_little(int a, int b) const {
    const Inside &x = inside(inside_a_, a_, to_b_, a), &y = inside(inside_b_, b_, to_a_, b);
    std::size_t shared = 0;
    for (const int partner : x.partners) shared += y.nodes.contains(partner) ? 1 : 0;
    return 2 * shared < std::max(x.partners.size(), y.partners.size());
  }

  struct Inside {
    std::vector<int> partners;      // of the matched modules in a module
    std::unordered_set<int> nodes;  // these modules
  };
  using InsideCache = std::unordered_map<int, Inside>;

  static void collect_inside(const ModuleTree& tree, const std::vector<int>& partner, int node, Inside& found) {
    for (const int child : tree.nodes[node].children) {
      if (partner[child] >= 0) {
        found.partners.push_back(partner[child]);
        found.nodes.insert(child);
      }
      collect_inside(tree, partner, child, found);
    }
  }

  // Kept as long as no pair is made.
  const Inside& inside(InsideCache& cache, const ModuleTree& tree, const std::vector<int>& partner, int node) const {
    const auto [place, is_new] = cache.try_emplace(node);
    if (is_new) collect_inside(tree, partner, node, place->second);
    return place->second;
  }

  int score(int a, int b) const {
    if (to_b_[a] >= 0 || to_a_[b] >= 0) return to_b_[a] == b ? kFixed : 0;
    const ModuleNode &x = a_.nodes[a], &y = b_.nodes[b];
    if (shares_little(a, b) || (has_moved(a, b) && !same_flow(a, b))) return 0;
    if (x.own != 0 && y.own != 0 && x.own != y.own && !same_name(a, b)) return 0;
    int value = 0;
    if (same_content(a, b) && may_be_one(a, b)) value += 16;
    if (same_flow(a, b)) value += 8;
    if (x.structure == y.structure) value += 6;
    if (x.own == y.own && x.own != 0) value += 5;
    if (x.cls == y.cls && x.cls != 0) value += 6;
    if (same_name(a, b) && (value > 0 || x.cls == 0 || y.cls == 0)) value += 4;
    if (value == 0 && x.cls == 0 && y.cls == 0 && !x.children.empty() && !y.children.empty()) value = 1;
    return value;
  }

  // What is below a module and not below another that is matched, in the order of the first calls.
  static void collect_open(const ModuleTree& tree, int node, const std::vector<int>& partner, std::vector<int>& open) {
    for (const int child : tree.nodes[node].children) {
      open.push_back(child);
      if (partner[child] < 0) collect_open(tree, child, partner, open);
    }
  }

  static int matched_ancestor(const ModuleTree& tree, int node, const std::vector<int>& partner) {
    do node = tree.nodes[node].parent;
    while (node >= 0 && partner[node] < 0);
    return node;
  }

  void align_below(int a, int b) {
    std::vector<int> list_a, list_b;
    collect_open(a_, a, to_b_, list_a);
    collect_open(b_, b, to_a_, list_b);
    if (free_of(list_a, to_b_).empty() || free_of(list_b, to_a_).empty()) return;
    std::vector<std::uint64_t> tokens_a, tokens_b;
    for (const int x : list_a) tokens_a.push_back(a_.nodes[x].content + a_.nodes[x].flow);
    for (const int y : list_b) tokens_b.push_back(b_.nodes[y].content + b_.nodes[y].flow);
    const SequenceAlignment aligned =
        align_sequences(tokens_a, tokens_b, [&](std::size_t i, std::size_t j) { return score(list_a[i], list_b[j]); });
    is_rough_ |= aligned.is_rough;
    for (const auto& [i, j] : aligned.pairs) {
      const int x = list_a[i], y = list_b[j];
      if (to_b_[x] < 0 && to_a_[y] < 0) pair_within(x, y);
    }
  }

  // Modules that are left on both sides and hold the same matched ones: an attention whose projections are one module
  // in one run and three in the other, a block whose layers are grouped.
  void match_around() {
    for (int a = static_cast<int>(a_.nodes.size()) - 1; a >= 0; --a) {  // from the inside
      if (to_b_[a] >= 0 || !a_.nodes[a].is_called) continue;
      const std::vector<int> inside = matched_inside(a_, to_b_, a);
      if (inside.empty()) continue;
      int around = b_.nodes[to_b_[inside.front()]].parent;
      const auto holds_all = [&](int node) {
        return std::all_of(inside.begin(), inside.end(), [&](int one) { return is_within(b_, to_b_[one], node); });
      };
      while (around >= 0 && to_a_[around] < 0 && !(b_.nodes[around].is_called && holds_all(around)))
        around = b_.nodes[around].parent;
      if (around < 0 || to_a_[around] >= 0) continue;
      const std::vector<int> others = matched_inside(b_, to_a_, around);
      const bool are_same =
          std::all_of(others.begin(), others.end(), [&](int one) { return is_within(a_, to_a_[one], a); });
      const int above_a = matched_ancestor(a_, a, to_b_), above_b = matched_ancestor(b_, around, to_a_);
      if (are_same && above_a >= 0 && to_b_[above_a] == above_b) pair(a, around);
    }
  }

  static std::vector<int> matched_inside(const ModuleTree& tree, const std::vector<int>& partner, int node) {
    std::vector<int> found, open = tree.nodes[node].children;
    while (!open.empty()) {
      const int one = open.back();
      open.pop_back();
      if (partner[one] >= 0) found.push_back(one);
      open.insert(open.end(), tree.nodes[one].children.begin(), tree.nodes[one].children.end());
    }
    return found;
  }

  static constexpr int kFixed = 1000;  // of a pair that is made already
  const ModuleTree& a_;
  const ModuleTree& b_;
  std::vector<int> to_b_, to_a_;
  std::vector<std::pair<int, int>> forced_;
  std::unordered_set<int> visited_;
  mutable InsideCache inside_a_, inside_b_;
  Owners owners_a_, owners_b_;
  bool is_rough_ = false;
  std::vector<UnusedRule> unused_;
};

}  // namespace

ModuleMatch match_modules(const ModuleTree& a, const ModuleTree& b, const std::vector<std::string>& map) {
  return Matcher(a, b).match(map);
}

}  // namespace tenscope::compare
