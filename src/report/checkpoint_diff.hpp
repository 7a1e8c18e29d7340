#pragma once

#include <string>

#include "compare/checkpoint_diff.hpp"

namespace tenscope::report {

// The answer in the first lines, then what is wrong, then the rules by which names follow from each other.
std::string checkpoint_diff_text(const compare::CheckpointDiff& diff, bool color = false, std::size_t top = 10);

// The pairs alone, as a table.
std::string checkpoint_map_text(const compare::CheckpointDiff& diff, bool color = false);

// The document that docs/checkpoints.md describes.
std::string checkpoint_diff_json(const compare::CheckpointDiff& diff);

}  // namespace tenscope::report
