// Overview. Two runs of one model may be laid out differently: over other ranks, in other micro-batches. Each tensor
// that the program means (a slot) is then recorded in parts. One lane, that with the most modules, is the
// skeleton: its modules name everything, and its order of execution is that of the comparison. Modules of all other
// lanes, of both runs, are matched with the skeleton's, process by process (lane_match.cpp).
#include "compare/logical_slots.hpp"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "compare/align.hpp"
#include "compare/skeleton.hpp"

namespace tenscope::compare {
namespace {

bool is_gradient(const Item& item) { return item.io == Io::GradInput || item.io == Io::GradOutput; }

std::size_t count_owners(const ModuleTree& tree) {
  return static_cast<std::size_t>(
      std::ranges::count_if(tree.nodes, [](const ModuleNode& node) { return node.own != 0; }));
}

// A loss is one number; a stage of a pipeline also calls backward() on what it handed on.
bool is_loss_of_model(const Item& item, const Interner& interner) {
  return item.is_number() || interner.text(item.shape).empty() || interner.text(item.shape) == "1";
}

}  // namespace

RunLanes split_lanes(Timeline timeline, const Reader& reader, Interner& interner) {
  RunLanes result;
  for (Lane& lane : timeline.lanes)
    if (lane.ordinal == 0) result.lanes.emplace_back().lanes.push_back(std::move(lane));
  result.wholes = whole_contents(result.lanes, reader, interner);
  return result;
}

class SlotTable::CallNumbers {
 public:
  explicit CallNumbers(const LaneMap& map) : tree_(map.tree) {
    for (const Item& item : map.lane->items) {
      if (item.kind != EventKind::Enter || item.root == 0) continue;
      const int node = tree_.find(item.root, item.scope);
      std::vector<std::int64_t>& calls = calls_[{node, item.step}];
      if (calls.empty() || calls.back() != item.call) calls.push_back(item.call);
    }
  }

  std::size_t passes(int node, std::int64_t step) const {
    while (node >= 0 && tree_.nodes[static_cast<std::size_t>(node)].parent >= 0)
      node = tree_.nodes[static_cast<std::size_t>(node)].parent;
    const auto found = calls_.find({node, step});
    return found == calls_.end() ? 1 : found->second.size();
  }

  struct Number {
    std::size_t pass = 0;
    std::int64_t call = 0;
  };

  // A module that is called several times in each pass has the calls of one pass behind each other.
  Number of(int node, const Item& item, bool are_passes_joined) const {
    const auto found = calls_.find({node, item.step});
    if (found == calls_.end()) return {};
    const std::vector<std::int64_t>& calls = found->second;
    const auto at = std::ranges::find(calls, item.call);
    const auto index = static_cast<std::int64_t>(at == calls.end() ? 0 : at - calls.begin());
    if (!are_passes_joined) return {0, index};
    const auto passes = static_cast<std::int64_t>(this->passes(node, item.step));
    const auto count = std::ssize(calls);
    const std::int64_t in_one = passes > 0 && count % passes == 0 ? count / passes : count;
    return {static_cast<std::size_t>(index / in_one), index % in_one};
  }

  std::size_t most_passes() const {
    std::size_t most = 1;
    for (const auto& [key, calls] : calls_)
      if (tree_.nodes[static_cast<std::size_t>(key.first)].parent < 0) most = std::max(most, calls.size());
    return most;
  }

  const std::map<std::pair<int, std::int64_t>, std::vector<std::int64_t>>& all() const { return calls_; }

 private:
  const ModuleTree& tree_;
  std::map<std::pair<int, std::int64_t>, std::vector<std::int64_t>> calls_;  // by node and step, in their order
};

SlotTable::SlotTable(const std::array<RunLanes, 2>& runs, Interner& interner, const std::vector<std::string>& map,
                     bool are_passes_joined) {
  choose_skeleton(runs, interner);
  map_lanes(runs, map, interner);
  find_partial_ranks();
  for (const int run : {0, 1}) {
    for (const LaneMap& lane : lanes_[static_cast<std::size_t>(run)]) collect(run, lane, are_passes_joined);
    complete(run);
  }
  list_places(are_passes_joined);
  // What is not a loss of the whole model is none.
  std::erase_if(slots_, [&](const auto& entry) {
    const auto& [key, slot] = entry;
    return key.io == Io::Loss && std::ranges::any_of(slot.runs, [&](const SlotParts& parts) {
             return !parts.is_missing() && !is_loss_of_model(*parts.items.front(), interner);
           });
  });
}

// The run of the lane that has the most modules with parameters; of several the one with the fewest ranks, and the
// first run.
void SlotTable::choose_skeleton(const std::array<RunLanes, 2>& runs, Interner& interner) {
  std::optional<std::tuple<std::size_t, std::int64_t>> best;
  std::size_t first = 0;
  for (const int run : {0, 1}) {
    const std::vector<Timeline>& lanes = runs[static_cast<std::size_t>(run)].lanes;
    for (std::size_t i = 0; i < lanes.size(); ++i) {
      const std::tuple quality(count_owners(build_module_tree(lanes[i], interner)), -std::ssize(lanes));
      if (best && quality <= *best) continue;
      best = quality;
      skeleton_run_ = run;
      first = i;
    }
  }
  const RunLanes& run = runs[static_cast<std::size_t>(skeleton_run_)];
  // Stages stand in the order of their ranks.
  const bool is_stage = std::ranges::any_of(run.lanes[first].lanes.front().items, [&](const Item& item) {
    return item.kind == EventKind::Note && interner.text(item.name) == "pipeline_stage";
  });
  skeleton_ = std::make_unique<Timeline>();
  skeleton_->lanes.push_back(merge_lanes(run.lanes, is_stage ? 0 : first, interner));
  tree_ = build_module_tree(*skeleton_, interner);
}

void SlotTable::map_lanes(const std::array<RunLanes, 2>& runs, const std::vector<std::string>& map,
                          Interner& interner) {
  const LaneModules skeleton{&skeleton_->lanes.front(), &tree_, &runs[static_cast<std::size_t>(skeleton_run_)].wholes};
  for (const int run : {0, 1}) {
    for (const Timeline& lane : runs[static_cast<std::size_t>(run)].lanes) {
      LaneMap& entry = lanes_[static_cast<std::size_t>(run)].emplace_back();
      entry.lane = &lane.lanes.front();
      entry.tree = build_module_tree(lane, interner);
      const LaneModules other{entry.lane, &entry.tree, &runs[static_cast<std::size_t>(run)].wholes};
      const bool is_second =
          skeleton_run_ == 0 && run == 1;  // a map tells the first run's modules in the second's names
      entry.to_skeleton = match_lane(skeleton, other, is_second ? map : std::vector<std::string>());
    }
  }
}

void SlotTable::find_partial_ranks() {
  for (const int run : {0, 1}) {
    const auto& lanes = lanes_[static_cast<std::size_t>(run)];
    std::map<int, std::set<int>> owned;  // by rank: nodes with parameters
    std::set<int> all;
    for (const LaneMap& lane : lanes)
      for (std::size_t i = 0; i < lane.tree.nodes.size(); ++i)
        if (lane.tree.nodes[i].own != 0 && lane.to_skeleton[i] >= 0) {
          owned[lane.lane->rank].insert(lane.to_skeleton[i]);
          all.insert(lane.to_skeleton[i]);
        }
    for (const auto& [rank, nodes] : owned)
      if (nodes.size() < all.size()) partial_[static_cast<std::size_t>(run)].insert(rank);
  }
}

// The slot of each tensor of a lane, in the order in which they are asked for.
class SlotTable::Keys {
 public:
  struct Keyed {
    SlotKey key;
    std::size_t pass = 0;
  };

  Keys(const LaneMap& map, const CallNumbers& numbers, bool are_passes_joined)
      : map_(map), numbers_(numbers), are_passes_joined_(are_passes_joined) {}

  // Nothing for what is no tensor or number, or belongs to a module that the skeleton does not have.
  std::optional<Keyed> of(const Item& item) {
    if (!is_value(item) || item.value == ValueKind::None) return std::nullopt;
    SlotKey key{.tail = item.tail, .io = item.io, .step = item.step};
    if (item.io == Io::Loss) {
      const std::size_t nth = seen_[{item.name, item.step}]++;
      if (are_passes_joined_) return Keyed{key, nth};
      key.call = static_cast<std::int64_t>(nth);
      return Keyed{key, 0};
    }
    if (item.root == 0) {
      key.tail = item.name;
      key.call = static_cast<std::int64_t>(seen_[{item.name, item.step}]++);
      return Keyed{key, 0};
    }
    const int own = map_.tree.find(item.root, item.scope);
    key.node = own < 0 ? -1 : map_.to_skeleton[static_cast<std::size_t>(own)];
    if (key.node < 0) return std::nullopt;
    if (item.io == Io::Param || item.io == Io::Buffer) {
      key.phase = item.phase;
      return Keyed{key, 0};
    }
    if (item.io == Io::Grad) return Keyed{key, 0};
    const auto number = numbers_.of(own, item, are_passes_joined_);
    key.call = number.call;
    return Keyed{key, number.pass};
  }

 private:
  const LaneMap& map_;
  const CallNumbers& numbers_;
  const bool are_passes_joined_;
  std::map<std::pair<TextId, std::int64_t>, std::size_t> seen_;  // plain values and losses in a step
};

void SlotTable::collect(int run, const LaneMap& map, bool are_passes_joined) {
  const auto side = static_cast<std::size_t>(run);
  const CallNumbers numbers(map);
  most_passes_[side] = std::max(most_passes_[side], numbers.most_passes());
  for (const auto& [key, calls] : numbers.all())
    if (const int node = map.to_skeleton[static_cast<std::size_t>(key.first)]; node >= 0)
      called_[side].emplace(node, key.second);
  Keys keys(map, numbers, are_passes_joined);
  for (const Item& item : map.lane->items) {
    const auto keyed = keys.of(item);
    if (!keyed) continue;
    const Item*& place = found_[side][keyed->key][map.lane->rank][keyed->pass];
    // Of gradients the last counts, that which the optimizer is given; of parameters the last in a phase.
    const bool is_last_wanted =
        item.io == Io::Grad || item.io == Io::Param || item.io == Io::Buffer || is_gradient(item);
    if (place == nullptr || is_last_wanted) place = &item;
  }
}

// Parameters are recorded where they have changed: on a rank that has no event, the last value holds.
void SlotTable::complete(int run) {
  const auto side = static_cast<std::size_t>(run);
  std::map<std::tuple<int, TextId, Io>, std::map<int, const Item*>> latest;  // by parameter and rank
  // In the order of steps and phases, whatever the order of the keys.
  std::vector<std::pair<SlotKey, std::map<int, std::map<std::size_t, const Item*>>*>> ordered;
  for (auto& [key, ranks] : found_[side]) ordered.emplace_back(key, &ranks);
  std::ranges::stable_sort(ordered, {},
                           [](const auto& entry) { return std::pair(entry.first.step, entry.first.phase); });
  for (auto& [key, ranks] : ordered) {
    if (key.io == Io::Param) {
      auto& known = latest[{key.node, key.tail, key.io}];
      for (const auto& [rank, item] : known) ranks->try_emplace(rank).first->second.try_emplace(0, item);
      for (const auto& [rank, passes] : *ranks) known[rank] = passes.begin()->second;
    }
    SlotParts& parts = slots_[key].runs[side];
    for (const auto& [rank, passes] : *ranks) parts.passes = std::max(parts.passes, passes.rbegin()->first + 1);
    const bool is_even =
        std::ranges::all_of(*ranks, [&](const auto& entry) { return entry.second.size() == parts.passes; });
    if (!is_even) {  // no grid: this run is taken not to have it
      parts = {};
      continue;
    }
    for (const auto& [rank, passes] : *ranks) {
      parts.ranks.push_back(rank);
      for (const auto& [pass, item] : passes) parts.items.push_back(item);
    }
  }
  found_[side].clear();
}

std::optional<ModuleOfRun> SlotTable::module_of(int run, int node) const {
  for (const LaneMap& lane : lanes_[static_cast<std::size_t>(run)])
    for (std::size_t i = 0; i < lane.to_skeleton.size(); ++i)
      if (lane.to_skeleton[i] == node && lane.tree.nodes[i].is_called)
        return ModuleOfRun{&lane.tree, &lane.tree.nodes[i]};
  return std::nullopt;
}

void SlotTable::list_places(bool are_passes_joined) {
  LaneMap map{.lane = &skeleton_->lanes.front(), .tree = tree_, .to_skeleton = std::vector<int>(tree_.nodes.size())};
  std::iota(map.to_skeleton.begin(), map.to_skeleton.end(), 0);
  const CallNumbers numbers(map);
  Keys keys(map, numbers, are_passes_joined);
  std::set<SlotKey> listed;
  for (const Item& item : map.lane->items) {
    const int node = item.root == 0 ? -1 : tree_.find(item.root, item.scope);
    if (item.kind == EventKind::Enter || item.kind == EventKind::Exit) {
      const auto number = numbers.of(node, item, are_passes_joined);
      if (number.pass == 0) places_.push_back({.item = &item, .node = node, .key = {}, .call = number.call});
      continue;
    }
    const auto keyed = keys.of(item);
    if (keyed && listed.insert(keyed->key).second)
      places_.push_back({.item = &item, .node = node, .key = keyed->key, .call = keyed->key.call});
  }
}

}  // namespace tenscope::compare
