#pragma once

#include <map>
#include <string>
#include <vector>

#include "compare/timeline.hpp"
#include "tenscope/diff.hpp"

namespace tenscope::compare {

// Settings that a run noted, "seeds.torch" -> "0", each value as JSON: seeds, determinism, the optimizer, versions.
using Settings = std::map<std::string, std::string>;
Settings settings_of(const Timeline& timeline, const Interner& interner);

// Those that both runs noted and that differ.
std::vector<DiffSetting> compare_settings(const Settings& a, const Settings& b);

}  // namespace tenscope::compare
