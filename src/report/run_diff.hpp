#pragma once

#include <string>

#include "tenscope/diff.hpp"

namespace tenscope::report {

struct RunDiffTextOptions {
  bool color = false;
  std::size_t top = 10;  // rows of each table
  bool strict = false;   // renamed and one-sided modules are differences too
};

// A report for people: the answer in the first line, then the evidence, then a short table.
std::string run_diff_text(const RunDiff& diff, const RunDiffTextOptions& options = {});

// The document that docs/diff.md describes.
std::string run_diff_json(const RunDiff& diff);

// One page that needs nothing else.
std::string run_diff_html(const RunDiff& diff);

// "output of blocks.0.attn", "parameter blocks.0.norm.weight", "loss": a tensor in words.
std::string tensor_in_words(const DiffOrigin& origin);

// The first line of the report.
std::string run_diff_answer(const RunDiff& diff, bool strict = false);

// "max |b-a| 0.31 (42 % of the largest |a|), 36 of 1536 elements, worst at [0, 3, 5]: 0.1 became 0.41"
std::string metrics_in_words(const DiffMetrics& metrics);

}  // namespace tenscope::report
