#pragma once

#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "compare/module_tree.hpp"
#include "compare/timeline.hpp"
#include "tenscope/reader.hpp"

namespace tenscope::compare {

// The initial numbers of a parameter: fingerprint, shape and dtype.
using Content = std::tuple<std::uint64_t, std::uint64_t, TextId, DType>;
using Contents = std::map<std::pair<TextId, TextId>, Content>;  // by root and name
// Those of the whole parameters of a run of which ranks have said which parts they have.
Contents whole_contents(const std::vector<Timeline>& lanes, const Reader& reader, Interner& interner);

// One process of a run: what it recorded, its modules, and the parameters of its run.
struct LaneModules {
  const Lane* lane = nullptr;
  const ModuleTree* tree = nullptr;
  const Contents* wholes = nullptr;
};

// For each module of a process that may have a part of the model only, or parts of its weights, the module of the
// skeleton that it is; -1: none. See the source for how.
std::vector<int> match_lane(const LaneModules& skeleton, const LaneModules& other, const std::vector<std::string>& map);

}  // namespace tenscope::compare
