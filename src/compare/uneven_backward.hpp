#pragma once

#include "compare/align.hpp"

namespace tenscope::compare {

// The gradients of one step may be made by one backward() in one run and by several in the other. The losses and the
// gradients in between are other things then, and lose their partners; the gradients after the last backward() of the
// step are the same, and are paired. Not in a step in the midst of which one run ends.
void match_uneven_backwards(const Alignment& alignment, LanePair& pair);

}  // namespace tenscope::compare
