#pragma once

#include <string>

#include "compare/checkpoint_diff.hpp"
#include "report/document.hpp"

namespace tenscope::report {

// The first line of the report, and how much of both was paired.
std::string checkpoint_answer(const compare::CheckpointDiff& diff);
std::string checkpoint_coverage(const compare::CheckpointDiff& diff);

// The answer in the first lines, then what is wrong, then the rules by which names follow from each other; `top`
// findings of each kind, 0 for all.
Document checkpoint_diff_report(const compare::CheckpointDiff& diff, std::size_t top = 10);

// The pairs alone, as a table, and how many they are.
Document checkpoint_map_report(const compare::CheckpointDiff& diff);

// The document that docs/checkpoints.md describes.
std::string checkpoint_diff_json(const compare::CheckpointDiff& diff);

}  // namespace tenscope::report
