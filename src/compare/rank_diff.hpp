#pragma once

#include <vector>

#include "tenscope/diff.hpp"
#include "tenscope/reader.hpp"

namespace tenscope::compare {

// tenscope::diff_ranks of a run that is open already.
std::vector<RankDifference> diff_ranks(const Reader& reader, RankCoverage& coverage);

}  // namespace tenscope::compare
