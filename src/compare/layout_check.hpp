#pragma once

#include "compare/timeline.hpp"

namespace tenscope::compare {

// Whether two runs are laid out alike, so that each rank can be compared with itself: by what one rank that both have
// recorded in its first step. `world_a`, `world_b`: how many ranks took part.
bool are_laid_out_alike(const Timeline& a, const Timeline& b, int world_a, int world_b, const Interner& interner);

}  // namespace tenscope::compare
