#pragma once

#include <string>
#include <vector>

#include "compare/timeline.hpp"

namespace tenscope::compare {

// Seeds, determinism settings, versions that were noted and differ, a sentence each.
std::vector<std::string> compare_settings(const Timeline& a, const Timeline& b, const Interner& interner);

}  // namespace tenscope::compare
