#pragma once

#include <string>

#include "core/json_writer.hpp"
#include "report/run_diff.hpp"
#include "tenscope/diff.hpp"

namespace tenscope::report {

// What each module adds to the error: a table, and below it what leaves the model and what could not be told. The diff
// has a budget.
void add_budget(Document& document, const RunDiff& diff, const RunDiffTextOptions& options);

// The member `budget` of the diff's document (docs/budget.md).
void put_budget(JsonWriter& json, const DiffBudget& budget);

}  // namespace tenscope::report
