#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "compare/call_match.hpp"
#include "compare/content_match.hpp"
#include "compare/module_tree.hpp"
#include "compare/moved_parameters.hpp"
#include "compare/timeline.hpp"
#include "tenscope/diff.hpp"

namespace tenscope::compare {

inline constexpr std::int64_t kAlone = -1;

// Which event of the second run belongs to which of the first.
struct LanePair {
  const Lane* a = nullptr;
  const Lane* b = nullptr;
  std::vector<CallNumber> numbers_b;  // where calls were matched by their inputs (call_match.hpp); empty: as recorded
  std::vector<std::int64_t> to_b;     // index into b->items, or kAlone; enters, exits and values
  std::vector<std::int64_t> to_a;
  bool is_by_content = false;  // paired with no help from modules: content_match.hpp
  double weight_error = 0;     // then: how far parameters are apart, the coarser engine's precision
  std::map<std::size_t, std::vector<std::int64_t>> further;  // more of b's items that an item of a holds
  std::vector<ContentHow> how_b;                             // then: of each item of b that has a partner
  std::set<std::int64_t> uneven_steps;  // in which the runs call backward() a different number of times

  void join(std::size_t item_a, std::size_t item_b) {
    to_b[item_a] = static_cast<std::int64_t>(item_b);
    to_a[item_b] = static_cast<std::int64_t>(item_a);
  }

  // Step and call of an event of the second run in the first run's count.
  CallNumber number_of_b(std::size_t item) const {
    return numbers_b.empty() ? CallNumber{b->items[item].step, b->items[item].call} : numbers_b[item];
  }
};

struct Alignment {
  ModuleTree tree_a, tree_b;
  std::vector<int> module_to_b;  // nodes of tree_a to nodes of tree_b, -1: alone
  std::vector<int> module_to_a;
  MovedParameters moved;
  std::vector<LanePair> lanes;
  std::vector<DiffRenamed> renamed;
  std::vector<DiffUnmatched> unmatched;
  std::vector<DiffNote> notes;
  bool are_weights_in_doubt = false;  // some changed places or lie otherwise, and nothing made with them was paired
  std::vector<DiffContentPair> content_pairs;
  std::vector<UnusedRule> unused;  // rules of the map that fit nothing

  // The first run's node of an event of either run; -1: it belongs to no module that the first run has.
  int node_of_a(const Item& item) const { return item.root == 0 ? -1 : tree_a.find(item.root, item.scope); }
  int node_of_b(const Item& item) const { return parameter_of_b(item).node; }

  // The same with the name of the parameter or buffer that an event is of, itself or its gradient.
  ParameterKey parameter_of_a(const Item& item) const { return {node_of_a(item), item.parameter}; }
  ParameterKey parameter_of_b(const Item& item) const {
    const int node = item.root == 0 ? -1 : tree_b.find(item.root, item.scope);
    if (node < 0) return {-1, item.parameter};
    if (is_of_parameter(item))
      if (const auto moved_to = moved.to_a.find({node, item.parameter}); moved_to != moved.to_a.end())
        return moved_to->second;
    return {module_to_a[static_cast<std::size_t>(node)], item.parameter};
  }

  // Is the module of an event of the first run in the second too, or the parameter that it is of?
  bool is_shared(const Item& item) const {
    const ParameterKey key = parameter_of_a(item);
    if (key.node < 0) return false;
    return module_to_b[static_cast<std::size_t>(key.node)] >= 0 || (is_of_parameter(item) && moved.to_b.contains(key));
  }

  static bool is_of_parameter(const Item& item) { return item.io == Io::Param || item.io == Io::Grad; }
};

// The timelines and the interner that both were read with must outlive the result.
// `content` may be missing: then nothing is paired by content.
Alignment align_timelines(const Timeline& a, const Timeline& b, Interner& interner, const std::vector<std::string>& map,
                          const ContentSource* content = nullptr);

// Events that have a partner, or could have one: values, changes, and calls.
bool is_pairable(const Item& item) noexcept;

// A value or a change of one.
bool is_value(const Item& item) noexcept;

}  // namespace tenscope::compare
