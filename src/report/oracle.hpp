#pragma once

#include <string>

#include "compare/oracle.hpp"

namespace tenscope::report {

// Which run is right, in a sentence or two: "widened to float64: A 0.8 units, B 2100 units: B is wrong".
std::string oracle_text(const OracleDiff& diff, bool color = false);

// {"verdict", "module", "a": {"units", "from_a", "dtype", "wide", "output", "reason"}, "b": ..., "apart", ...}
std::string oracle_json(const OracleDiff& diff);

}  // namespace tenscope::report
