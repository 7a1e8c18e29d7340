#include "compare/skeleton.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "compare/pipeline_stage.hpp"

namespace tenscope::compare {
namespace {

using Scope = std::pair<TextId, TextId>;  // root and path

bool is_call(const Item& item) { return item.kind == EventKind::Enter || item.kind == EventKind::Exit; }

bool is_initial(const Item& item) { return item.io == Io::Param && item.phase == Phase::Init; }

bool is_inner_backward(const Item& item) {
  return item.io == Io::GradInput || item.io == Io::GradOutput || item.io == Io::Loss;
}

bool is_of_forward(const Item& item) {
  return is_call(item) || (!is_inner_backward(item) && item.io != Io::Grad && item.io != Io::Param);
}

// What the lanes that were merged so far have.
struct Covered {
  std::set<Scope> scopes;
  std::map<TextId, std::set<std::int64_t>> stages;  // of each root

  void add(const Lane& lane, const Interner& interner) {
    for (const Item& item : lane.items)
      if (item.root != 0) scopes.insert({item.root, item.scope});
    for (const auto& [root, stage] : stages_of(lane, interner)) stages[root].insert(stage.stage);
  }
};

// What a lane has that the lanes before it have not.
std::vector<Item> own_items(const Lane& lane, Covered& covered, Interner& interner) {
  std::set<TextId> renamed;  // roots of other stages that have modules of the same names
  for (const auto& [root, stage] : stages_of(lane, interner)) {
    const auto known = covered.stages.find(root);
    if (known == covered.stages.end()) continue;
    const bool has_same_names = std::ranges::any_of(lane.items, [&](const Item& item) {
      return item.kind == EventKind::Enter && item.root == root && item.scope != 0 &&
             covered.scopes.contains({root, item.scope});
    });
    if (has_same_names && !known->second.contains(stage.stage)) renamed.insert(root);
  }
  std::vector<Item> result;
  std::set<Scope> own;
  for (Item item : lane.items) {
    if (item.root == 0 || item.kind == EventKind::Note) continue;
    if (renamed.contains(item.root))
      item.root = interner.text(fmt::format("{} of rank {}", interner.text(item.root), lane.rank));
    if (covered.scopes.contains({item.root, item.scope}) && item.io != Io::Loss) continue;
    own.insert({item.root, item.scope});
    result.push_back(item);
  }
  covered.scopes.insert(own.begin(), own.end());
  for (const auto& [root, stage] : stages_of(lane, interner)) covered.stages[root].insert(stage.stage);
  return result;
}

// In each step, which of the calls of the outermost module a call belongs to: by how many of them have begun.
class Passes {
 public:
  std::size_t of(const Item& item) {
    if (item.step != step_) {
      step_ = item.step;
      begun_ = 0;
      depth_ = 0;
    }
    if (item.kind == EventKind::Enter && depth_++ == 0) ++begun_;
    if (item.kind == EventKind::Exit && depth_ > 0) --depth_;
    return begun_;
  }
  bool is_at_end() const { return depth_ == 0; }

 private:
  std::int64_t step_ = -1;
  std::size_t begun_ = 0;
  int depth_ = 0;
};

}  // namespace

Lane merge_lanes(const std::vector<Timeline>& lanes, std::size_t first, Interner& interner) {
  const Lane& base = lanes[first].lanes.front();
  Lane merged{.rank = base.rank, .ordinal = 0, .items = {}};
  Covered covered;
  covered.add(base, interner);
  // Of the others: initial values; forwards by step and pass; backwards, gradients and updates by step.
  std::vector<Item> initial;
  std::map<std::pair<std::int64_t, std::size_t>, std::vector<Item>> forwards;
  std::map<std::int64_t, std::vector<Item>> backwards, gradients, updates;
  for (std::size_t i = 0; i < lanes.size(); ++i) {
    if (i == first) continue;
    const std::vector<Item> own = own_items(lanes[i].lanes.front(), covered, interner);
    std::map<std::pair<TextId, std::int64_t>, std::map<std::int64_t, std::size_t>> calls;  // by module and step
    std::map<std::int64_t, std::vector<Item>> backward;
    for (const Item& item : own) {
      if (is_initial(item)) {
        initial.push_back(item);
      } else if (is_of_forward(item)) {
        auto& of_module = calls[{item.scope, item.step}];
        const std::size_t pass = of_module.try_emplace(item.call, of_module.size() + 1).first->second;
        forwards[{item.step, pass}].push_back(item);
      } else if (is_inner_backward(item)) {
        backward[item.step].push_back(item);
      } else {
        (item.io == Io::Grad ? gradients : updates)[item.step].push_back(item);
      }
    }
    for (auto& [step, items] : backward) backwards[step].insert(backwards[step].begin(), items.begin(), items.end());
  }
  if (initial.empty() && forwards.empty()) {
    merged.items = base.items;
    return merged;
  }
  const auto put = [&](std::vector<Item>& items) {
    merged.items.insert(merged.items.end(), items.begin(), items.end());
    items.clear();
  };
  Passes passes;
  for (const Item& item : base.items) {
    const std::size_t pass = is_call(item) ? passes.of(item) : 0;
    if (is_of_forward(item) || is_inner_backward(item) || item.io == Io::Grad) put(initial);
    if (item.kind == EventKind::Exit && passes.is_at_end()) put(forwards[{item.step, pass}]);
    if (is_inner_backward(item)) put(backwards[item.step]);
    if (item.io == Io::Grad) put(gradients[item.step]);
    if (item.io == Io::Param && item.phase == Phase::Optimizer) put(updates[item.step]);
    merged.items.push_back(item);
  }
  return merged;
}

}  // namespace tenscope::compare
