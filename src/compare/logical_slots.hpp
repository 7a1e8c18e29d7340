#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "compare/lane_match.hpp"
#include "compare/module_tree.hpp"
#include "compare/timeline.hpp"

namespace tenscope::compare {

// A tensor as the program means it, whichever ranks have parts of it and in how many passes through the model a step is
// made: in the modules of the lane that everything is told by (SlotTable::skeleton).
struct SlotKey {
  int node = -1;  // of the skeleton's tree; -1: recorded with no module around it, then `tail` is the whole name
  TextId tail = 0;
  Io io = Io::None;
  Phase phase = Phase::None;  // of parameters and buffers, of which there are several in a step
  std::int64_t step = 0;
  std::int64_t call = 0;  // within the step
  auto operator<=>(const SlotKey&) const = default;
};

// What one run has of it.
struct SlotParts {
  std::vector<int> ranks;
  std::size_t passes = 0;
  std::vector<const Item*> items;  // rank by rank, pass by pass

  bool is_missing() const { return items.empty(); }
};

struct Slot {
  std::array<SlotParts, 2> runs;
};

// One process of each rank of a run; each with a timeline of its own, since modules are matched process by process.
struct RunLanes {
  std::vector<Timeline> lanes;
  Contents wholes;  // of parameters of which ranks say which parts they have
};

// Splits a timeline. Of the processes of a rank the first is taken.
RunLanes split_lanes(Timeline timeline, const Reader& reader, Interner& interner);

// A place of the skeleton: an enter, an exit or a tensor, in the order of execution.
struct Place {
  const Item* item = nullptr;  // of the lane that it was taken from; its texts are that lane's
  int node = -1;               // of the skeleton's tree
  std::optional<SlotKey> key;  // of a tensor or number
  std::int64_t call = 0;       // within the step
};

// Which tensors of two runs belong together, when each is spread over ranks and passes in its own way.
class SlotTable {
 public:
  // `are_passes_joined`: all passes of a step make one; else passes are compared one by one.
  SlotTable(const std::array<RunLanes, 2>& runs, Interner& interner, const std::vector<std::string>& map,
            bool are_passes_joined);

  int skeleton_run() const { return skeleton_run_; }
  const ModuleTree& tree() const { return tree_; }
  const std::vector<Place>& places() const { return places_; }
  const std::map<SlotKey, Slot>& slots() const { return slots_; }
  // Whether a module of the skeleton is called in a step of that run.
  bool is_called(int run, int node, std::int64_t step) const {
    return called_[static_cast<std::size_t>(run)].contains({node, step});
  }
  // A module of the skeleton as that run has it in the first of its lanes that does; nothing where none has.
  std::optional<ModuleOfRun> module_of(int run, int node) const;
  // Ranks of a run that lack modules which others of its ranks have: stages of a pipeline, say.
  const std::set<int>& partial_ranks(int run) const { return partial_[static_cast<std::size_t>(run)]; }
  std::size_t most_passes(int run) const { return most_passes_[static_cast<std::size_t>(run)]; }

 private:
  struct LaneMap {
    const Lane* lane = nullptr;
    ModuleTree tree;
    std::vector<int> to_skeleton;
  };
  class CallNumbers;  // which of the calls of a module in a step a call is, and how many passes the step has
  class Keys;

  void choose_skeleton(const std::array<RunLanes, 2>& runs, Interner& interner);
  void map_lanes(const std::array<RunLanes, 2>& runs, const std::vector<std::string>& map, Interner& interner);
  void find_partial_ranks();
  void collect(int run, const LaneMap& lane, bool are_passes_joined);
  void complete(int run);
  void list_places(bool are_passes_joined);

  int skeleton_run_ = 0;
  std::unique_ptr<Timeline> skeleton_;
  ModuleTree tree_;
  std::array<std::vector<LaneMap>, 2> lanes_;
  std::map<SlotKey, Slot> slots_;
  // While collecting: by run and key, of each rank the items by pass.
  std::array<std::map<SlotKey, std::map<int, std::map<std::size_t, const Item*>>>, 2> found_;
  std::array<std::set<std::pair<int, std::int64_t>>, 2> called_;
  std::array<std::set<int>, 2> partial_;
  std::array<std::size_t, 2> most_passes_{1, 1};
  std::vector<Place> places_;
};

}  // namespace tenscope::compare
