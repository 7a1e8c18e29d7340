#pragma once

#include "compare/value_diff.hpp"
#include "report/document.hpp"

namespace tenscope::report {

// How two things differ: the answer, then every difference with its measures, the worst first; `top` of them, 0 for
// all. Of two single tensors every measure.
Document value_diff_report(const ValueDiff& diff, int top = 10);

}  // namespace tenscope::report
