#pragma once

#include <string>

#include "compare/checkpoint_diff.hpp"

namespace tenscope::report {

struct CheckpointStyle {
  bool color = false;
  std::size_t top = 10;    // how many findings of each kind are shown; 0: all
  std::size_t width = 80;  // of the terminal
};

// The first line of the report, and how much of both was paired.
std::string checkpoint_answer(const compare::CheckpointDiff& diff);
std::string checkpoint_coverage(const compare::CheckpointDiff& diff);

// The answer in the first lines, then what is wrong, then the rules by which names follow from each other.
std::string checkpoint_diff_text(const compare::CheckpointDiff& diff, const CheckpointStyle& style = {});

// The pairs alone, as a table.
std::string checkpoint_map_text(const compare::CheckpointDiff& diff, const CheckpointStyle& style = {});

// The document that docs/checkpoints.md describes.
std::string checkpoint_diff_json(const compare::CheckpointDiff& diff);

}  // namespace tenscope::report
