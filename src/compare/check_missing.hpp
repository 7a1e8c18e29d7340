#pragma once

#include "tenscope/check.hpp"
#include "tenscope/reader.hpp"

namespace tenscope::compare {

// Adds to the report what of the run is lost (`missing`), and what was not seen or is not finished (`notes`).
void find_missing(const Reader& reader, CheckReport& report);

}  // namespace tenscope::compare
