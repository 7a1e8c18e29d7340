#pragma once

#include "compare/align.hpp"

namespace tenscope::compare {

// Pairs what is left of parameters and their gradients once events were paired by their names. Overview in the source.
void match_parameters(const Alignment& alignment, LanePair& pair);

}  // namespace tenscope::compare
