#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tenscope/diff.hpp"

namespace tenscope::report {

class Document;

struct RunDiffTextOptions {
  bool color = false;
  std::size_t top = 10;    // rows of each table
  bool strict = false;     // renamed and one-sided modules are differences too
  std::size_t width = 80;  // of tables, in columns of a terminal
};

// A report for people: the answer in the first line, then the evidence, then a short table.
std::string run_diff_text(const RunDiff& diff, const RunDiffTextOptions& options = {});

// The same for a notebook: as Document::html.
std::string run_diff_html(const RunDiff& diff, const RunDiffTextOptions& options = {});

// The document that docs/diff.md describes.
std::string run_diff_json(const RunDiff& diff);

// Do the runs differ for the caller's purpose? With `strict` renamed and one-sided modules are differences too.
bool is_difference(const RunDiff& diff, bool strict);

// ---- the words of both, and of the viewer (run_diff_words.cpp)

// The first line of the report.
std::string run_diff_answer(const RunDiff& diff, bool strict = false);

// "160 of 183 compared: 27 equal in bits, 1 start a difference, 132 follow from it".
std::string coverage_in_words(const RunDiff& diff);

// "12 modules", "87 tensors": what has another name in the second run.
std::string renamed_in_words(const RunDiff& diff);

// "the model" for the empty path.
std::string module_in_words(const std::string& path);

// The module that is blamed: its path, "the model", or the class of what is called by itself and has no parameters.
std::string blamed_in_words(const DiffPlace& place);

// "output of blocks.0.attn", "parameter blocks.0.norm.weight", "loss": a tensor in words.
std::string tensor_in_words(const DiffOrigin& origin);

// "step 3, call 0, rank 1, forward".
std::string moment_in_words(const DiffPlace& place);

// "blocks.0.norm.output (step 3, call 0, forward)".
std::string place_in_words(const DiffPlace& place);

// A sentence: why the place is blamed.
std::string reason_in_words(const DiffOrigin& origin);

// All that speaks for a place, a row each: "why", "confidence", "difference", ... An empty name goes on with the row
// before it.
std::vector<std::pair<std::string, std::string>> evidence_in_words(const RunDiff& diff, const DiffOrigin& origin);

// How sure the answer is, and why: "high: what it depends on agrees bit for bit".
std::string confidence_in_words(const DiffOrigin& origin);

// "std 0.02 became 0.056 (2.8 times), mean 1e-05 became -3e-05".
std::string distribution_in_words(const DiffDistribution& distribution);

// "by Lion: b's update is -1 times a's (median), 128 of 1024 elements move the other way".
std::string update_in_words(const DiffUpdate& update);

// "everything is within bfloat16's rounding", or what is not.
std::string rounding_in_words(const DiffRounding& rounding);

// Commands that show the tensor in each run that has it.
std::vector<std::string> show_commands(const RunDiff& diff, const DiffOrigin& origin);

// "max |b-a| 0.31 (42 % of the largest |a|), 36 of 1536 elements, worst at [0, 3, 5]: 0.1 became 0.41"
std::string metrics_in_words(const DiffMetrics& metrics);

// "the shapes differ"; empty where nothing keeps the values from being compared.
std::string obstacle_in_words(DiffObstacle obstacle);

// "weights 0.54 % apart, other tensors up to 7.3 % (ffn_out-1)".
std::string engine_noise_in_words(const DiffEngineNoise& noise);
std::string measured_noise_in_words(const RunDiff& diff);

// "28 rows, of 36 in the first run and 28 in the second".
std::string row_coverage_in_words(const DiffRows& rows);
// The same with keys, padding, and what was left out; a line each.
std::vector<std::string> rows_in_words(const DiffRows& rows);
// "logprobs, row by row: mean |b-a| 0.001, largest 0.3, ...".
std::string row_summary_in_words(const DiffRowTable& table);
// The summary of each table of rows, and its worst rows where the runs differ; no wider than the options say, where
// that can be.
void add_row_tables(Document& document, const RunDiff& diff, const RunDiffTextOptions& options);

// Runs that are laid out differently (run_diff_layouts.cpp): how the tensor was put together, "b: 2 joined along axis
// 0"; which parts are off, "rank 1's part is that of rank 0"; a line each.
std::vector<std::string> assembly_in_words(const DiffMetrics& metrics);
std::vector<std::string> parts_in_words(const DiffMetrics& metrics);
std::string layout_note_in_words(const DiffNote& note);

std::string note_in_words(const DiffNote& note);
std::string setting_in_words(const DiffSetting& setting);

// The code of a blamed module (run_diff_code.cpp), a row each: where it is, whether it differs, which attributes do.
std::vector<std::pair<std::string, std::string>> code_in_words(const RunDiff& diff, const DiffOrigin& origin);
// "eps 1e-05 → 1e-06".
std::string attribute_in_words(const DiffAttribute& attribute);
// A file of a library as one imports it: "torch/nn/modules/linear.py:12".
std::string site_in_words(const std::string& site);
// Of modules other than the blamed one, a line each, and a last one that counts the rest; nothing where there are none.
std::vector<std::string> other_attributes_in_words(const RunDiff& diff, std::size_t most);

// "3 tensors", "1 tensor".
std::string plural(std::size_t count, std::string_view one);

}  // namespace tenscope::report
