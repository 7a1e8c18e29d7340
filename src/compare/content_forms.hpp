#pragma once

#include <utility>
#include <vector>

#include "compare/content_pairs.hpp"

namespace tenscope::compare {

// Takes apart pairs of parameters that an engine keeps in another form: a batch norm folded into the convolution before
// it, -exp(A_log) instead of A_log, a norm's weight with 1 added. Nothing agrees in them but what is made with them.
// Returns the items of both runs of which that is known.
std::vector<std::pair<std::size_t, std::size_t>> drop_other_forms(ContentPairs& pairs, const Interner& interner);

}  // namespace tenscope::compare
