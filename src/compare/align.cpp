// Overview. Modules are matched first (module_tree.cpp); then an event's key is its rank, step, module, call and the
// rest of its name, with the first run's modules said in the second run's names. Runs mostly go in step, so that equal
// keys are met side by side; what is left is found by a table. A parameter that has moved to another module is known by
// its numbers (moved_parameters.cpp). Where one run has more calls of the outermost modules
// than the other, calls are paired by their inputs first (call_match.cpp). Arguments go by the names that the signature
// of the module has for them, then as they were recorded, then by their position (arguments.hpp). What is still alone
// is tried again without its last name (a parameter with another name), then by its full name, which also serves where
// one run alone has modules. Where that does not suffice, by content (align_content.cpp).
#include "compare/align.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <unordered_map>

#include "compare/align_content.hpp"
#include "compare/arguments.hpp"
#include "compare/call_key.hpp"
#include "compare/pairing_thresholds.hpp"
#include "compare/path_rule.hpp"
#include "compare/sequence.hpp"
#include "compare/uneven_backward.hpp"

namespace tenscope::compare {
namespace {

struct Key {
  TextId root, scope, tail;
  std::int64_t step, call;
  std::uint32_t sort;        // kind, io and phase
  std::uint32_t repetition;  // of the same key in the lane
  friend bool operator==(const Key&, const Key&) = default;
};

struct KeyHash {
  std::size_t operator()(const Key& key) const noexcept {
    std::size_t hash = key.root;
    for (const std::uint64_t part : {static_cast<std::uint64_t>(key.scope), static_cast<std::uint64_t>(key.tail),
                                     static_cast<std::uint64_t>(key.step), static_cast<std::uint64_t>(key.call),
                                     static_cast<std::uint64_t>(key.sort), static_cast<std::uint64_t>(key.repetition)})
      hash = mix_hash(hash, part);
    return hash;
  }
};

// The loss is the program's, whatever module was called last.
Key key_of(const Item& item) {
  return {item.io == Io::Loss ? 0 : item.root,
          item.scope,
          item.tail,
          item.step,
          item.call,
          (static_cast<std::uint32_t>(item.kind) << 16) | (static_cast<std::uint32_t>(item.io) << 8) |
              static_cast<std::uint32_t>(item.phase),
          0};
}

class LaneAligner {
 public:
  LaneAligner(Alignment& alignment, Interner& interner, const Lane& a, const Lane& b)
      : alignment_(alignment),
        interner_(interner),
        a_(a.items),
        b_(b.items),
        arguments_a_(alignment.tree_a, interner),
        arguments_b_(alignment.tree_b, interner) {
    pair_.a = &a;
    pair_.b = &b;
    if (auto match = match_calls(a, b, alignment.tree_a, alignment.tree_b, alignment.module_to_a, alignment.module_to_b,
                                 interner)) {
      pair_.numbers_b = std::move(match->numbers);
      alignment.notes.insert(alignment.notes.end(), match->notes.begin(), match->notes.end());
    }
    pair_.to_b.assign(a_.size(), kAlone);
    pair_.to_a.assign(b_.size(), kAlone);
  }

  // `rules` say which tensors belong together; those that fit are marked as used.
  LanePair align(const std::vector<PathRule>& rules, const ContentSource* content, std::vector<bool>& is_used) {
    content_ = content;
    const std::size_t common = walk_together();
    match_by_key(common, Naming::ByName);
    match_by_key(common, Naming::AsRecorded);
    match_by_key(common, Naming::ByPosition);
    match_uneven_backwards(alignment_, pair_);
    match_without_tail();
    for (std::size_t i = 0; i < rules.size(); ++i)
      if (match_by_rule(rules[i])) is_used[i] = true;
    match_names();
    if (content != nullptr && !are_modules_shared())
      align_by_content(alignment_, pair_, interner_, *content, std::move(weight_errors_));
    return std::move(pair_);
  }

 private:
  void join(std::size_t a, std::size_t b) { pair_.join(a, b); }

  // The key of an event of the second run, by the first run's count of steps and calls; nothing where that has no such.
  std::optional<Key> key_in_b(std::size_t j, Naming naming = Naming::ByName) {
    const CallNumber number = pair_.number_of_b(j);
    if (!number.has_partner) return std::nullopt;
    Key key = key_of(b_[j]);
    key.tail = arguments_b_.tail(b_[j], naming);
    key.step = number.step;
    key.call = number.call;
    return key;
  }

  // The key of an event of the first run in the names of the second; nothing where that has no such module.
  std::optional<Key> key_in_a(std::size_t i, Naming naming = Naming::ByName) {
    const Item& item = a_[i];
    Key key = key_of(item);
    key.tail = arguments_a_.tail(item, naming);
    if (key.root == 0) return key;
    if (Alignment::is_of_parameter(item))
      if (const auto moved = alignment_.moved.to_b.find(alignment_.parameter_of_a(item));
          moved != alignment_.moved.to_b.end())
        return moved_key(key, item, moved->second);
    const int partner = alignment_.module_to_b[static_cast<std::size_t>(alignment_.node_of_a(item))];
    if (partner < 0) return std::nullopt;
    key.root = alignment_.tree_b.nodes[static_cast<std::size_t>(partner)].root;
    key.scope = scope_in_b(partner);
    return key;
  }

  Key moved_key(Key key, const Item& item, const ParameterKey& to) {
    key.root = alignment_.tree_b.nodes[static_cast<std::size_t>(to.node)].root;
    key.scope = scope_in_b(to.node);
    key.tail =
        item.io == Io::Grad ? interner_.text(std::string(interner_.text(to.name)).append(kGradientSuffix)) : to.name;
    return key;
  }

  TextId scope_in_b(int node) {
    const auto [place, is_new] = scope_in_b_.try_emplace(node);
    if (is_new) place->second = interner_.text(alignment_.tree_b.nodes[static_cast<std::size_t>(node)].path);
    return place->second;
  }

  std::size_t walk_together() {
    std::size_t i = 0, j = 0;
    while (true) {
      while (i < a_.size() && !is_pairable(a_[i])) ++i;
      while (j < b_.size() && !is_pairable(b_[j])) ++j;
      if (i == a_.size() || j == b_.size()) return i;
      const auto key = key_in_a(i);
      if (!key || key != key_in_b(j)) return i;
      join(i++, j++);
    }
  }

  // Whether the signatures say that two inputs are different arguments of the same module.
  bool are_other_arguments(std::size_t i, std::size_t j) {
    const TextId a = arguments_a_.argument(a_[i]), b = arguments_b_.argument(b_[j]);
    return a != b && a != 0 && b != 0 && (arguments_b_.takes(b_[j], a) || arguments_a_.takes(a_[i], b));
  }

  void match_by_key(std::size_t from, Naming naming) {
    std::unordered_map<Key, std::size_t, KeyHash> in_b;
    std::unordered_map<Key, std::uint32_t, KeyHash> count;
    const auto numbered = [&](Key key) {
      key.repetition = count[key]++;
      return key;
    };
    for (std::size_t j = 0; j < b_.size(); ++j) {
      if (!is_pairable(b_[j]) || pair_.to_a[j] != kAlone) continue;
      if (const auto key = key_in_b(j, naming)) in_b.emplace(numbered(*key), j);
    }
    if (in_b.empty()) return;
    count.clear();
    for (std::size_t i = from; i < a_.size(); ++i) {
      if (!is_pairable(a_[i]) || pair_.to_b[i] != kAlone) continue;
      const auto key = key_in_a(i, naming);
      if (!key) continue;
      const auto found = in_b.find(numbered(*key));
      if (found != in_b.end() && !are_other_arguments(i, found->second)) join(i, found->second);
    }
  }

  // Of a backward() that the other run does not make.
  bool is_left_alone(const Item& item, std::int64_t step) const {
    return (item.io == Io::Loss || item.io == Io::Grad) && pair_.uneven_steps.contains(step);
  }

  void match_without_tail() {
    std::unordered_map<Key, std::vector<std::size_t>, KeyHash> in_b;
    for (std::size_t j = 0; j < b_.size(); ++j) {
      if (!b_[j].is_tensor() || b_[j].root == 0 || pair_.to_a[j] != kAlone) continue;
      if (is_left_alone(b_[j], pair_.number_of_b(j).step)) continue;
      auto key = key_in_b(j);
      if (!key) continue;
      key->tail = 0;
      in_b[*key].push_back(j);
    }
    if (in_b.empty()) return;
    for (std::size_t i = 0; i < a_.size(); ++i) {
      if (!a_[i].is_tensor() || a_[i].root == 0 || pair_.to_b[i] != kAlone) continue;
      if (is_left_alone(a_[i], a_[i].step)) continue;
      auto key = key_in_a(i);
      if (!key) continue;
      key->tail = 0;
      const auto found = in_b.find(*key);
      if (found == in_b.end()) continue;
      for (const std::size_t j : found->second)
        if (pair_.to_a[j] == kAlone && a_[i].shape == b_[j].shape && !are_other_arguments(i, j)) {
          join(i, j);
          break;
        }
    }
  }

  bool match_by_rule(const PathRule& rule) {
    std::map<std::pair<std::string_view, std::size_t>, std::size_t> in_b;
    std::unordered_map<TextId, std::size_t> seen;
    for (std::size_t j = 0; j < b_.size(); ++j)
      if (is_value(b_[j])) in_b.emplace(std::pair{interner_.text(b_[j].name), seen[b_[j].name]++}, j);
    seen.clear();
    bool is_used = false;
    for (std::size_t i = 0; i < a_.size(); ++i) {
      if (!is_value(a_[i])) continue;
      const std::size_t repetition = seen[a_[i].name]++;
      const auto name = rule.apply(interner_.text(a_[i].name));
      if (!name) continue;
      const auto found = in_b.find({*name, repetition});
      if (found == in_b.end()) continue;
      part(i, found->second);
      join_values(i, found->second, true);
      is_used = true;
    }
    return is_used;
  }

  // Takes what was paired otherwise apart.
  void part(std::size_t i, std::size_t j) {
    if (pair_.to_b[i] != kAlone) pair_.to_a[static_cast<std::size_t>(pair_.to_b[i])] = kAlone;
    if (pair_.to_a[j] != kAlone) pair_.to_b[static_cast<std::size_t>(pair_.to_a[j])] = kAlone;
  }

  // Of all tensors of both runs: 4 heads of 12 may be found where these two have one axis of 48.
  const AxisSizes& axis_sizes() {
    if (!axis_sizes_.empty()) return axis_sizes_;
    for (const int side : {0, 1})
      for (const Item& item : side == 0 ? a_ : b_)
        if (item.is_tensor()) {
          const auto shape = content_->record(side, item).shape;
          axis_sizes_.insert(shape.begin(), shape.end());
        }
    return axis_sizes_;
  }

  // Two values whose names say that they are the same; tensors of other shapes lie in another order, and those that a
  // map names may.
  void join_values(std::size_t i, std::size_t j, bool is_by_map = false) {
    join(i, j);
    const Item &x = a_[i], &y = b_[j];
    if (content_ == nullptr || !x.is_tensor() || !y.is_tensor() || !x.has_bytes || !y.has_bytes) return;
    if (is_same_value(x, y) || (x.shape == y.shape && !is_by_map)) return;
    const TensorData data_a = content_->data(0, x), data_b = content_->data(1, y);
    const auto found = find_layout(data_a.view, data_b.view, axis_sizes(), pairing::kSureLayout);
    if (!found || (x.shape == y.shape && found->error > pairing::kLayoutAgrees)) return;
    content_->keep(x, y, found->layout);
    if (x.io == Io::Param && found->error <= pairing::kLayoutAgrees) weight_errors_.push_back(found->error);
  }

  // Equal names, also where one run alone has modules: the n-th tensor of a name belongs to the n-th.
  void match_names() {
    std::map<std::pair<TextId, std::size_t>, std::size_t> in_b;
    std::unordered_map<TextId, std::size_t> seen;
    for (std::size_t j = 0; j < b_.size(); ++j)
      if (is_value(b_[j]) && pair_.to_a[j] == kAlone) in_b.emplace(std::pair{b_[j].name, seen[b_[j].name]++}, j);
    seen.clear();
    for (std::size_t i = 0; i < a_.size(); ++i) {
      if (!is_value(a_[i]) || pair_.to_b[i] != kAlone) continue;
      const auto found = in_b.find({a_[i].name, seen[a_[i].name]++});
      if (found == in_b.end()) continue;
      const Item& other = b_[found->second];
      const bool is_plain = a_[i].root == 0 || other.root == 0;
      if (is_plain && a_[i].is_tensor() == other.is_tensor()) join_values(i, found->second);
    }
  }

  static bool has_modules(const std::vector<Item>& items) {
    return std::ranges::any_of(items, [](const Item& item) { return item.root != 0; });
  }

  // Do names and modules suffice? Not where one run has no modules, or none that the other has.
  bool are_modules_shared() const {
    return has_modules(a_) && has_modules(b_) &&
           std::ranges::any_of(alignment_.module_to_b, [](int partner) { return partner >= 0; });
  }

  Alignment& alignment_;
  Interner& interner_;
  const std::vector<Item>& a_;
  const std::vector<Item>& b_;
  const ContentSource* content_ = nullptr;
  std::vector<double> weight_errors_;  // of parameters that were paired by names and lie in another order
  AxisSizes axis_sizes_;
  ArgumentNames arguments_a_, arguments_b_;
  std::unordered_map<int, TextId> scope_in_b_;
  LanePair pair_;
};

void list_renamed(Alignment& alignment, const Interner& interner) {
  for (std::size_t i = 0; i < alignment.tree_a.nodes.size(); ++i) {
    if (alignment.module_to_b[i] < 0) continue;
    const ModuleNode& a = alignment.tree_a.nodes[i];
    const ModuleNode& b = alignment.tree_b.nodes[static_cast<std::size_t>(alignment.module_to_b[i])];
    if (a.path == b.path) continue;
    const bool parent_says_so = a.parent >= 0 && b.parent >= 0 &&
                                alignment.module_to_b[static_cast<std::size_t>(a.parent)] == b.parent &&
                                last_part(a.path) == last_part(b.path);
    if (!parent_says_so) alignment.renamed.push_back({std::string(interner.text(a.root)), a.path, b.path});
  }
}

// Modules on one side only, the outermost of them; and single events of modules on both sides, by name.
class UnmatchedList {
 public:
  UnmatchedList(Alignment& alignment, const Interner& interner, int side)
      : alignment_(alignment),
        interner_(interner),
        side_(side),
        tree_(side == 0 ? alignment.tree_a : alignment.tree_b) {
    has_partner_.assign(tree_.nodes.size(), false);
    for (std::size_t i = 0; i < alignment.module_to_b.size(); ++i)
      if (alignment.module_to_b[i] >= 0)
        has_partner_[side == 0 ? i : static_cast<std::size_t>(alignment.module_to_b[i])] = true;
  }

  void add(const Item& item) {
    int node = item.root == 0 ? -1 : tree_.find(item.root, item.scope);
    if (node >= 0 && !has_partner_[static_cast<std::size_t>(node)]) {
      int parent = tree_.nodes[static_cast<std::size_t>(node)].parent;
      while (parent >= 0 && !has_partner_[static_cast<std::size_t>(parent)]) {
        node = parent;
        parent = tree_.nodes[static_cast<std::size_t>(node)].parent;
      }
      modules_[node] += is_value(item);
    } else if (is_value(item)) {
      ++single_[{item.root, item.scope, item.name}];
    }
  }

  void finish() {
    for (const auto& [node, events] : modules_) {
      const ModuleNode& module = tree_.nodes[static_cast<std::size_t>(node)];
      alignment_.unmatched.push_back({side_, text(module.root), module.path, text(module.cls), "", events});
    }
    for (const auto& [key, events] : single_)
      alignment_.unmatched.push_back(
          {side_, text(std::get<0>(key)), text(std::get<1>(key)), "", text(std::get<2>(key)), events});
  }

 private:
  std::string text(TextId id) const { return std::string(interner_.text(id)); }

  Alignment& alignment_;
  const Interner& interner_;
  int side_;
  const ModuleTree& tree_;
  std::vector<bool> has_partner_;
  std::map<int, std::size_t> modules_;
  std::map<std::tuple<TextId, TextId, TextId>, std::size_t> single_;
};

void list_unmatched(Alignment& alignment, const Timeline& timeline, const Interner& interner, int side) {
  UnmatchedList list(alignment, interner, side);
  std::unordered_map<const Lane*, const std::vector<std::int64_t>*> partners;
  for (const LanePair& pair : alignment.lanes)
    partners.emplace(side == 0 ? pair.a : pair.b, side == 0 ? &pair.to_b : &pair.to_a);
  for (const Lane& lane : timeline.lanes) {
    const auto partner = partners.find(&lane);
    for (std::size_t i = 0; i < lane.items.size(); ++i) {
      const bool is_alone = partner == partners.end() || (*partner->second)[i] == kAlone;
      if (is_alone && is_pairable(lane.items[i])) list.add(lane.items[i]);
    }
  }
  list.finish();
}

}  // namespace

bool is_value(const Item& item) noexcept { return item.kind == EventKind::Value || item.kind == EventKind::Change; }

bool is_pairable(const Item& item) noexcept {
  return is_value(item) || item.kind == EventKind::Enter || item.kind == EventKind::Exit;
}

Alignment align_timelines(const Timeline& a, const Timeline& b, Interner& interner, const std::vector<std::string>& map,
                          const ContentSource* content) {
  Alignment alignment;
  alignment.tree_a = build_module_tree(a, interner);
  alignment.tree_b = build_module_tree(b, interner);
  ModuleMatch match = match_modules(alignment.tree_a, alignment.tree_b, map);
  alignment.moved = find_moved_parameters(a, b, alignment.tree_a, alignment.tree_b, match);
  alignment.module_to_b = std::move(match.to_b);
  alignment.module_to_a = std::move(match.to_a);
  if (match.is_rough) alignment.notes.push_back({.kind = DiffNote::Kind::RoughAlignment});
  list_renamed(alignment, interner);
  std::vector<PathRule> rules;
  for (const UnusedRule& unused : match.unused) rules.emplace_back(unused.text);
  std::vector<bool> is_used(rules.size(), false);
  std::map<std::pair<int, std::size_t>, const Lane*> in_b;
  for (const Lane& lane : b.lanes) in_b.emplace(std::pair(lane.rank, lane.ordinal), &lane);
  for (const Lane& lane : a.lanes)
    if (const auto found = in_b.find({lane.rank, lane.ordinal}); found != in_b.end())
      alignment.lanes.push_back(LaneAligner(alignment, interner, lane, *found->second).align(rules, content, is_used));
  for (std::size_t i = 0; i < rules.size(); ++i)
    if (!is_used[i]) alignment.unused.push_back(std::move(match.unused[i]));
  list_unmatched(alignment, a, interner, 0);
  list_unmatched(alignment, b, interner, 1);
  return alignment;
}

}  // namespace tenscope::compare
