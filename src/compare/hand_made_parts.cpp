// Overview. A program that cuts its parameters by hand, as tensor parallel ones do, has parts of one name and shape on
// all ranks, and so has one whose copies differ by mistake. Ranks that begin with the same values are one group. Groups
// are taken to have parts of their own where they are equally large, and where the gradients that the optimizer is
// given are never the same in two of them; where no gradients were recorded, where all ranks are given the same inputs.
// A copy that was initialised otherwise has gradients that were averaged with the others', or a batch of its own.
// Zeros, as a bias begins with, do not tell one rank's part from another's: those of a module that has another
// parameter in parts are in the same parts where their gradients say so, too.
#include "compare/hand_made_parts.hpp"

#include <optional>
#include <utility>
#include <vector>

namespace tenscope::compare {
namespace {

using Content = std::pair<std::uint64_t, std::uint64_t>;

Content content_of(const Item& item) { return {item.fingerprint.low, item.fingerprint.high}; }

struct OfLane {
  std::optional<Content> first;               // as it is initialised
  std::map<std::int64_t, Content> gradients;  // by step, the last one of each; without those that are zero
  bool is_declared = false;
  bool begins_as_zeros = false;
};

using OfLanes = std::map<std::size_t, OfLane>;

// Whether all ranks are given the same, as far as it was recorded.
bool are_inputs_same(const Timeline& timeline) {
  std::map<std::tuple<TextId, TextId, std::int64_t, std::int64_t>, const Item*> first;
  std::size_t compared = 0, same = 0;
  for (const Lane& lane : timeline.lanes)
    for (const Item& item : lane.items) {
      if (item.io != Io::Input || item.scope != 0 || !item.is_tensor()) continue;
      const auto [place, is_new] = first.try_emplace({item.root, item.name, item.step, item.call}, &item);
      if (is_new) continue;
      ++compared;
      same += is_same_value(*place->second, item) ? 1 : 0;
    }
  return compared > 0 && compared == same;
}

using Groups = std::map<Content, std::vector<std::size_t>>;  // lanes by what they begin with

bool are_equally_large(const Groups& groups) {
  for (const auto& [content, lanes] : groups)
    if (lanes.size() != groups.begin()->second.size()) return false;
  return true;
}

// Of the groups, from each lane: whether there are gradients at all, and whether two groups have one in common.
struct Gradients {
  bool are_there = false, are_shared = false;
};

Gradients look_at_gradients(const Groups& groups, const OfLanes& lanes) {
  Gradients result;
  std::map<std::pair<std::int64_t, Content>, const Content*> owners;  // by step and gradient: the group
  for (const auto& [content, members] : groups)
    for (const std::size_t lane : members)
      for (const auto& [step, gradient] : lanes.at(lane).gradients) {
        result.are_there = true;
        const auto [owner, is_new] = owners.try_emplace({step, gradient}, &content);
        if (!is_new && *owner->second != content) result.are_shared = true;
      }
  return result;
}

std::pair<TextId, TextId> module_of(const ParameterName& parameter) {
  return {std::get<0>(parameter), std::get<1>(parameter)};
}

// Whether all lanes of the groups have the parameter, and it is zero on each at first.
bool are_zeros_of(const Groups& groups, const OfLanes& lanes) {
  for (const auto& [content, members] : groups)
    for (const std::size_t lane : members) {
      const auto own = lanes.find(lane);
      if (own == lanes.end() || !own->second.begins_as_zeros || own->second.is_declared) return false;
    }
  return true;
}

}  // namespace

HandMadeParts find_hand_made_parts(const Timeline& timeline) {
  std::map<ParameterName, OfLanes> parameters;
  for (std::size_t lane = 0; lane < timeline.lanes.size(); ++lane)
    for (const Item& item : timeline.lanes[lane].items) {
      if (!item.is_tensor() || (item.io != Io::Param && item.io != Io::Grad)) continue;
      OfLane& own = parameters[parameter_of(item)][lane];
      own.is_declared |= item.part != 0;
      if (item.io == Io::Param && item.phase == Phase::Init && !own.first) {
        own.first = content_of(item);
        own.begins_as_zeros = item.abs_max == 0;
      }
      if (item.io == Io::Grad && item.abs_max != 0) own.gradients[item.step] = content_of(item);
    }
  HandMadeParts parts;
  std::map<std::pair<TextId, TextId>, Groups> groups_of_module;
  const auto set_parts = [&](const ParameterName& parameter, const Groups& groups) {
    std::size_t number = 0;
    for (const auto& [content, members] : groups) {
      for (const std::size_t lane : members) parts[{lane, parameter}] = number;
      ++number;
    }
  };
  std::optional<bool> are_given_the_same;
  for (const auto& [parameter, lanes] : parameters) {
    Groups groups;
    bool is_told = true;
    for (const auto& [lane, own] : lanes) {
      is_told &= own.first.has_value() && !own.is_declared;
      if (own.first) groups[*own.first].push_back(lane);
    }
    if (!is_told || groups.size() < 2 || !are_equally_large(groups)) continue;
    const Gradients gradients = look_at_gradients(groups, lanes);
    if (!gradients.are_there && !are_given_the_same) are_given_the_same = are_inputs_same(timeline);
    if (gradients.are_there ? gradients.are_shared : !*are_given_the_same) continue;
    set_parts(parameter, groups);
    groups_of_module.try_emplace(module_of(parameter), std::move(groups));
  }
  for (const auto& [parameter, lanes] : parameters) {
    const auto module = groups_of_module.find(module_of(parameter));
    if (module == groups_of_module.end() || !are_zeros_of(module->second, lanes)) continue;
    const Gradients gradients = look_at_gradients(module->second, lanes);
    if (gradients.are_there && !gradients.are_shared) set_parts(parameter, module->second);
  }
  return parts;
}

}  // namespace tenscope::compare
