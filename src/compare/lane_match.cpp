// Overview. A rank may call its modules by other names than the whole model does: those of a wrapper, or those of the
// list in which a stage of a pipeline keeps its layers. Parameters that have the same numbers on both sides, and no
// others have, tell which module is which. Such pairs of paths, without what they have in common at their end, are
// rules: `1.attn.proj` is `blocks.3.attn.proj` says that whatever is in `1` is in `blocks.3`. Where no rule fits, the
// same path is the same module, and what is left is matched as the modules of two runs are (module_match.cpp).
#include "compare/lane_match.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "kernels/summarize.hpp"
#include "store/shards.hpp"
#include "tenscope/error.hpp"

namespace tenscope::compare {
namespace {

bool is_initial(const Item& item) {
  return item.io == Io::Param && item.phase == Phase::Init && item.is_tensor() && item.root != 0;
}

Content content_of(const Item& item) { return {item.fingerprint.low, item.fingerprint.high, item.shape, item.dtype}; }

// Nodes by the content of a parameter that no other parameter has; with its name.
std::map<Content, std::pair<int, TextId>> owners_of(const LaneModules& modules) {
  std::map<Content, std::pair<int, TextId>> owners;
  std::set<Content> repeated;
  for (const Item& item : modules.lane->items) {
    if (!is_initial(item)) continue;
    const auto whole = modules.wholes->find({item.root, item.name});
    if (item.part != 0 && whole == modules.wholes->end()) continue;
    const Content content = item.part != 0 ? whole->second : content_of(item);
    if (!owners.try_emplace(content, modules.tree->find(item.root, item.scope), item.tail).second)
      repeated.insert(content);
  }
  for (const Content& content : repeated) owners.erase(content);
  return owners;
}

// What two paths have before the parts that they share at their end.
std::pair<std::string, std::string> without_common_end(std::string a, std::string b) {
  while (!a.empty() && !b.empty() && last_part(a) == last_part(b)) {
    a = parent_path(a);
    b = parent_path(b);
  }
  return {a, b};
}

class LaneMatcher {
 public:
  LaneMatcher(const LaneModules& skeleton, const LaneModules& other) : skeleton_(skeleton), other_(other) {
    for (std::size_t i = 0; i < skeleton.tree->nodes.size(); ++i)
      by_path_[skeleton.tree->nodes[i].path].push_back(static_cast<int>(i));
    learn();
  }

  std::vector<int> match(const std::vector<std::string>& map) {
    const std::vector<int> as_two_runs = match_modules(*skeleton_.tree, *other_.tree, map).to_a;
    if (!map.empty()) return as_two_runs;
    std::vector<int> result(other_.tree->nodes.size(), -1);
    std::set<int> taken;
    const auto take = [&](std::size_t i, int node) {
      if (node >= 0 && result[i] < 0 && taken.insert(node).second) result[i] = node;
    };
    for (std::size_t i = 0; i < result.size(); ++i) take(i, by_rule(other_.tree->nodes[i].path));
    for (std::size_t i = 0; i < result.size(); ++i)
      if (!has_rule(other_.tree->nodes[i].path)) take(i, by_same_path(i));
    const std::vector<int> sure = result;
    for (std::size_t i = 0; i < result.size(); ++i)
      if (has_same_inside(i, as_two_runs[i], sure)) take(i, as_two_runs[i]);
    return result;
  }

 private:
  void learn() {
    const auto here = owners_of(skeleton_), there = owners_of(other_);
    for (const auto& [content, owner] : there) {
      const auto found = here.find(content);
      if (found == here.end() || found->second.second != owner.second || owner.first < 0) continue;
      const std::string& path = other_.tree->nodes[static_cast<std::size_t>(owner.first)].path;
      const std::string& whole = skeleton_.tree->nodes[static_cast<std::size_t>(found->second.first)].path;
      const auto [from, to] = without_common_end(path, whole);
      ++rules_[from][{skeleton_.tree->nodes[static_cast<std::size_t>(found->second.first)].root, to}];
    }
  }

  struct Rule {
    std::string from, to;
    TextId root = 0;
  };

  static bool is_inside(const ModuleTree& tree, int node, int around) {
    while (node >= 0 && node != around) node = tree.nodes[static_cast<std::size_t>(node)].parent;
    return node >= 0;
  }

  // Are the modules that are known to be in one also in the other?
  bool has_same_inside(std::size_t i, int node, const std::vector<int>& known) const {
    if (node < 0) return false;
    for (std::size_t k = 0; k < known.size(); ++k)
      if (known[k] >= 0 && is_inside(*other_.tree, static_cast<int>(k), static_cast<int>(i)) !=
                               is_inside(*skeleton_.tree, known[k], node))
        return false;
    return true;
  }

  // The rule for the longest path around a module.
  std::optional<Rule> rule_for(const std::string& path) const {
    for (std::string prefix = path;; prefix = parent_path(prefix)) {
      if (const auto found = rules_.find(prefix); found != rules_.end()) {
        const auto& targets = found->second;
        const auto best = std::ranges::max_element(targets, {}, [](const auto& target) { return target.second; });
        return Rule{prefix, best->first.second, best->first.first};
      }
      if (prefix.empty()) return std::nullopt;
    }
  }

  bool has_rule(const std::string& path) const {
    const auto rule = rule_for(path);
    return rule && !rule->from.empty();
  }

  int by_rule(const std::string& path) const {
    const auto rule = rule_for(path);
    if (!rule) return -1;
    const std::string rest = path == rule->from ? "" : path.substr(rule->from.empty() ? 0 : rule->from.size() + 1);
    return node_at(join_path(rule->to, rest), rule->root, false);
  }

  // The skeleton's node of a path; -1: none. Of several the one of that root, else the first unless only that will do.
  int node_at(const std::string& path, TextId root, bool is_any_root) const {
    const auto found = by_path_.find(path);
    if (found == by_path_.end()) return -1;
    for (const int node : found->second)
      if (skeleton_.tree->nodes[static_cast<std::size_t>(node)].root == root) return node;
    return is_any_root ? found->second.front() : -1;
  }

  // The same path, where what it is does not say that it is another module.
  int by_same_path(std::size_t i) const {
    const ModuleNode& node = other_.tree->nodes[i];
    const int found = node.path.empty() ? -1 : node_at(node.path, node.root, true);
    if (found < 0) return -1;
    const ModuleNode& whole = skeleton_.tree->nodes[static_cast<std::size_t>(found)];
    const bool is_like = node.cls == whole.cls || node.cls == 0 || whole.cls == 0 ||
                         parameter_names(other_, i) == parameter_names(skeleton_, static_cast<std::size_t>(found));
    return is_like ? found : -1;
  }

  static std::set<TextId> parameter_names(const LaneModules& modules, std::size_t node) {
    std::set<TextId> names;
    for (const Item& item : modules.lane->items)
      if (is_initial(item) && modules.tree->find(item.root, item.scope) == static_cast<int>(node))
        names.insert(item.tail);
    return names;
  }

  const LaneModules& skeleton_;
  const LaneModules& other_;
  std::map<std::string, std::vector<int>> by_path_;  // nodes of the skeleton
  // Paths of the other to a root and a path of the skeleton, with how many parameters say so.
  std::map<std::string, std::map<std::pair<TextId, std::string>, std::size_t>> rules_;
};

}  // namespace

Contents whole_contents(const std::vector<Timeline>& lanes, const Reader& reader, Interner& interner) {
  std::map<std::pair<TextId, TextId>, std::vector<EventId>> parts;
  for (const Timeline& timeline : lanes)
    for (const Item& item : timeline.lanes.front().items)
      if (is_initial(item) && item.part != 0) parts[{item.root, item.name}].push_back(item.event);
  Contents contents;
  for (const auto& [name, events] : parts) {
    try {
      const TensorData whole = store::assemble(reader, events);
      Item item;
      set_tensor(item,
                 {.dtype = whole.view.dtype,
                  .shape = {whole.view.shape.begin(), whole.view.shape.end()},
                  .fingerprint = kernels::fingerprint(whole.view)},
                 interner);
      contents.emplace(name, content_of(item));
    } catch (const Error&) {  // a rank is missing, or its bytes are: nothing is known of this one
    }
  }
  return contents;
}

std::vector<int> match_lane(const LaneModules& skeleton, const LaneModules& other,
                            const std::vector<std::string>& map) {
  return LaneMatcher(skeleton, other).match(map);
}

}  // namespace tenscope::compare
