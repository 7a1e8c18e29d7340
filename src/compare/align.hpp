#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "compare/module_tree.hpp"
#include "compare/timeline.hpp"
#include "tenscope/diff.hpp"

namespace tenscope::compare {

inline constexpr std::int64_t kAlone = -1;

// Which event of the second run belongs to which of the first.
struct LanePair {
  const Lane* a = nullptr;
  const Lane* b = nullptr;              // as recorded, or `shifted`
  std::shared_ptr<const Lane> shifted;  // with the first run's numbers of calls (call_shift.hpp)
  std::vector<std::int64_t> to_b;       // index into b->items, or kAlone; enters, exits and values
  std::vector<std::int64_t> to_a;
};

struct Alignment {
  ModuleTree tree_a, tree_b;
  std::vector<int> module_to_b;  // nodes of tree_a to nodes of tree_b, -1: alone
  std::vector<LanePair> lanes;
  std::vector<DiffRenamed> renamed;
  std::vector<DiffUnmatched> unmatched;
  std::vector<std::string> notes;
};

// The timelines and the interner that both were read with must outlive the result.
Alignment align_timelines(const Timeline& a, const Timeline& b, Interner& interner,
                          const std::vector<std::string>& map);

}  // namespace tenscope::compare
