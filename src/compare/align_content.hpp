#pragma once

#include <vector>

#include "compare/align.hpp"

namespace tenscope::compare {

// Pairs by content (content_match.hpp) what has no partner in a lane yet, and notes what is odd about it.
// `weight_errors`: how far parameters are apart that names have paired, and that lie in another order.
void align_by_content(Alignment& alignment, LanePair& pair, const Interner& interner, const ContentSource& source,
                      std::vector<double> weight_errors);

}  // namespace tenscope::compare
