#pragma once

#include "tenscope/diff.hpp"
#include "tenscope/reader.hpp"

namespace tenscope::compare {

// diff_runs for options.rows.
RunDiff diff_by_rows(const Reader& a, const Reader& b, const RunDiffOptions& options);

}  // namespace tenscope::compare
