#pragma once

#include <string>

#include "compare/op_diff.hpp"

namespace tenscope::report {

// The operation where two runs part, with the source lines of both: "first divergence: softmax at model.py:31 in ...".
std::string op_diff_text(const OpDiff& diff, bool color = false);

// {"verdict", "line": {"a": {"file", "line", "function", "op", "text", ...} or null, "b": ...}, ...}
std::string op_diff_json(const OpDiff& diff);

}  // namespace tenscope::report
