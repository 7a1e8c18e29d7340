// Overview. Two runs' modules are matched from the outermost inwards. Children of matched modules that have the same
// name and fit (same class or same structure) belong together; the others are aligned as sequences in the order of
// their first calls, where equal numbers weigh most, then class and structure, then the name. A module that is left
// over on one side may be a wrapper: its children are tried against the other side's left-over modules. A wrapper
// around a whole module (torch.compile's `_orig_mod`, DDP's `module`, peft's `base_model.model`) is seen through by its
// structure: it has one child, and that one's children have the names of the other run's module's.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <unordered_map>

#include "compare/module_tree.hpp"
#include "compare/sequence.hpp"
#include "core/suggest.hpp"
#include "tenscope/error.hpp"

namespace tenscope::compare {
namespace {

// "blocks.*.attn=layers.*.self": what each * of the left side matches goes to the * of the same place on the right.
class PathRule {
 public:
  explicit PathRule(const std::string& rule) {
    const auto equals = rule.find('=');
    if (equals == std::string::npos || equals == 0)
      throw Error(ErrorCode::InvalidArgument, fmt::format("cannot use the map '{}': it must be of the form A=B", rule));
    left_ = rule.substr(0, equals);
    right_ = rule.substr(equals + 1);
    if (std::count(left_.begin(), left_.end(), '*') < std::count(right_.begin(), right_.end(), '*'))
      throw Error(ErrorCode::InvalidArgument,
                  fmt::format("cannot use the map '{}': more * on the right than on the left", rule));
  }

  const std::string& left() const { return left_; }

  std::optional<std::string> apply(std::string_view path) const {
    std::vector<std::string> captured;
    if (!match(left_, path, captured)) return std::nullopt;
    std::string result;
    std::size_t star = 0;
    for (const char c : right_) {
      if (c == '*')
        result += captured[star++];
      else
        result += c;
    }
    return result;
  }

 private:
  static bool match(std::string_view pattern, std::string_view path, std::vector<std::string>& captured) {
    if (pattern.empty()) return path.empty();
    if (pattern[0] != '*')
      return !path.empty() && path[0] == pattern[0] && match(pattern.substr(1), path.substr(1), captured);
    for (std::size_t size = 0; size <= path.size(); ++size) {
      captured.emplace_back(path.substr(0, size));
      if (match(pattern.substr(1), path.substr(size), captured)) return true;
      captured.pop_back();
    }
    return false;
  }

  std::string left_, right_;
};

class Matcher {
 public:
  Matcher(const ModuleTree& a, const ModuleTree& b)
      : a_(a), b_(b), to_b_(a.nodes.size(), -1), to_a_(b.nodes.size(), -1) {}

  ModuleMatch match(const std::vector<std::string>& map) {
    match_roots();
    force(map);
    for (const int root : a_.roots)
      if (to_b_[root] >= 0) match_children(root, to_b_[root]);
    for (const auto& [a, b] : forced_) match_children(a, b);
    return {std::move(to_b_), std::move(to_a_), is_rough_};
  }

 private:
  void pair(int a, int b) {
    to_b_[a] = b;
    to_a_[b] = a;
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
      throw Error(ErrorCode::NotFound, fmt::format("the map '{}' fits nothing: {}", text, reason));
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

  int score(int a, int b) const {
    const ModuleNode &x = a_.nodes[a], &y = b_.nodes[b];
    int value = 0;
    if (same_content(a, b)) value += 16;
    if (x.structure == y.structure) value += 6;
    if (x.cls == y.cls && x.cls != 0) value += 6;
    if (same_name(a, b) && (value > 0 || x.cls == 0 || y.cls == 0)) value += 4;
    if (value == 0 && x.cls == 0 && y.cls == 0 && !x.children.empty() && !y.children.empty()) value = 1;
    return value;
  }

  // How alike a module of each run is, by what is in it; 0: not at all.
  std::size_t likeness(int a, int b) const {
    const std::vector<int>&x = a_.nodes[a].children, &y = b_.nodes[b].children;
    if (x.empty() && y.empty()) return a_.nodes[a].cls != 0 && a_.nodes[a].cls == b_.nodes[b].cls ? 1 : 0;
    return static_cast<std::size_t>(std::count_if(x.begin(), x.end(), [&](int child) {
      return std::any_of(y.begin(), y.end(), [&](int other) { return same_name(child, other); });
    }));
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
    see_through_wrappers(a, b);
    const auto pairs = match_lists(free_of(a_.nodes[a].children, to_b_), free_of(b_.nodes[b].children, to_a_));
    for (const auto& [x, y] : pairs) match_children(x, y);
    for (const int y : free_of(b_.nodes[b].children, to_a_)) unwrap(a_.nodes[a].children, b_.nodes[y].children);
    for (const int x : free_of(a_.nodes[a].children, to_b_)) unwrap(a_.nodes[x].children, b_.nodes[b].children);
    match_by_name_alone(free_of(a_.nodes[a].children, to_b_), free_of(b_.nodes[b].children, to_a_));
  }

  // What is left: a module whose class was changed.
  void match_by_name_alone(const std::vector<int>& list_a, const std::vector<int>& list_b) {
    for (const int x : list_a)
      for (const int y : list_b)
        if (to_a_[y] < 0 && same_name(x, y)) {
          pair(x, y);
          match_children(x, y);
          break;
        }
  }

  void unwrap(const std::vector<int>& list_a, const std::vector<int>& list_b) {
    for (const auto& [x, y] : match_lists(free_of(list_a, to_b_), free_of(list_b, to_a_))) match_children(x, y);
  }

  static std::vector<int> free_of(const std::vector<int>& nodes, const std::vector<int>& partner) {
    std::vector<int> result;
    for (const int node : nodes)
      if (partner[node] < 0) result.push_back(node);
    return result;
  }

  std::vector<std::pair<int, int>> match_lists(const std::vector<int>& list_a, const std::vector<int>& list_b) {
    std::vector<std::pair<int, int>> pairs;
    std::unordered_map<std::string_view, int> by_name;
    for (const int y : list_b) by_name.emplace(last_part(b_.nodes[y].path), y);
    for (const int x : list_a) {
      const auto found = by_name.find(last_part(a_.nodes[x].path));
      if (found == by_name.end() || to_a_[found->second] >= 0 || !fits(x, found->second)) continue;
      if (list_a.size() != list_b.size() && a_.nodes[x].content != 0 && !same_content(x, found->second)) continue;
      pair(x, found->second);
      pairs.emplace_back(x, found->second);
    }
    align(free_of(list_a, to_b_), free_of(list_b, to_a_), pairs);
    return pairs;
  }

  void align(const std::vector<int>& list_a, const std::vector<int>& list_b, std::vector<std::pair<int, int>>& pairs) {
    std::vector<std::uint64_t> tokens_a, tokens_b;
    for (const int x : list_a) tokens_a.push_back(a_.nodes[x].content);
    for (const int y : list_b) tokens_b.push_back(b_.nodes[y].content);
    const SequenceAlignment aligned =
        align_sequences(tokens_a, tokens_b, [&](std::size_t i, std::size_t j) { return score(list_a[i], list_b[j]); });
    is_rough_ |= aligned.is_rough;
    for (const auto& [i, j] : aligned.pairs) {
      pair(list_a[i], list_b[j]);
      pairs.emplace_back(list_a[i], list_b[j]);
    }
  }

  const ModuleTree& a_;
  const ModuleTree& b_;
  std::vector<int> to_b_, to_a_;
  std::vector<std::pair<int, int>> forced_;
  bool is_rough_ = false;
};

}  // namespace

ModuleMatch match_modules(const ModuleTree& a, const ModuleTree& b, const std::vector<std::string>& map) {
  return Matcher(a, b).match(map);
}

}  // namespace tenscope::compare
