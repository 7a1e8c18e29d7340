#pragma once

#include <vector>

#include "compare/timeline.hpp"
#include "tenscope/diff.hpp"

namespace tenscope::compare {

// Seeds, determinism settings, versions that were noted and differ.
std::vector<DiffSetting> compare_settings(const Timeline& a, const Timeline& b, const Interner& interner);

}  // namespace tenscope::compare
