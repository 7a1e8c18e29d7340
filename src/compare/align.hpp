#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "compare/call_match.hpp"
#include "compare/content_match.hpp"
#include "compare/module_tree.hpp"
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
  bool is_by_content = false;           // paired with no help from modules: content_match.hpp
  double weight_error = 0;              // then: how far parameters are apart, the coarser engine's precision
  std::vector<ContentHow> how_b;        // then: of each item of b that has a partner
  std::set<std::int64_t> uneven_steps;  // in which the runs call backward() a different number of times

  // Step and call of an event of the second run in the first run's count.
  CallNumber number_of_b(std::size_t item) const {
    return numbers_b.empty() ? CallNumber{b->items[item].step, b->items[item].call} : numbers_b[item];
  }
};

struct Alignment {
  ModuleTree tree_a, tree_b;
  std::vector<int> module_to_b;  // nodes of tree_a to nodes of tree_b, -1: alone
  std::vector<int> module_to_a;
  std::vector<LanePair> lanes;
  std::vector<DiffRenamed> renamed;
  std::vector<DiffUnmatched> unmatched;
  std::vector<DiffNote> notes;

  // The first run's node of an event of either run; -1: it belongs to no module that the first run has.
  int node_of_a(const Item& item) const { return item.root == 0 ? -1 : tree_a.find(item.root, item.scope); }
  int node_of_b(const Item& item) const {
    const int node = item.root == 0 ? -1 : tree_b.find(item.root, item.scope);
    return node < 0 ? -1 : module_to_a[static_cast<std::size_t>(node)];
  }
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
