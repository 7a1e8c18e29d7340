#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "tenscope/diff.hpp"
#include "tenscope/reader.hpp"

namespace tenscope {

// An operation that a run recorded, and the source line that it belongs to.
struct OpPlace {
  std::string op;        // "softmax"
  std::string full_op;   // "aten._softmax.default"
  std::string args;      // what is no tensor: "dim=-1"
  std::string site;      // "model.py:31"
  std::string function;  // the function of that line
  std::string text;      // the statement
  std::string assigns;   // the variables that it assigns: "att"
  std::string module, phase;
  std::int64_t step = 0;
  EventId event = 0;
  std::string inside;  // the line is that of a module's call: where in it the operation itself is made
};

enum class OpVerdict : std::uint8_t {
  Nothing,    // one of the runs has no operation to compare
  Same,       // every operation has its equal
  Noise,      // but for rounding noise
  Differs,    // the same operation, of the same inputs, has another result
  Other,      // of the same inputs, another operation is made
  OnlyInA,    // of the same inputs, one operation more is made
  OnlyInB,    //
  OtherInput  // an input that no recorded operation has made differs
};
std::string_view to_string(OpVerdict verdict) noexcept;  // "nothing", "same", ..., "other_input"

struct OpDiffOptions {
  std::optional<std::int64_t> step;  // only operations of this step
  std::optional<int> rank;
  // The paths in both runs of a module that is called with another input: operations in its calls have the line that
  // makes the call.
  std::optional<std::string> called_a, called_b;
};

// An option of an optimizer, or its count of steps, as JSON has it; empty: that run has none.
struct OptimizerOption {
  std::string name, a, b;
};

struct OpDiff {
  OpVerdict verdict = OpVerdict::Nothing;
  std::optional<OpPlace> a, b;            // where they part; a run that lacks the operation has none
  std::optional<OpPlace> next_a, next_b;  // OnlyInA, OnlyInB: what the run that lacks it makes of the same inputs
  std::optional<DiffMetrics> metrics;     // of the two results
  std::vector<OptimizerOption> options;   // an optimizer's operation: what differs in its settings
  bool are_inputs_equal = true;           // bit for bit, else but for rounding noise
  bool are_inputs_exchanged = false;      // Differs: made of other values, which both runs have
  bool is_compiled_a = false;             // operations of compiled code were not seen
  bool is_compiled_b = false;
  std::size_t total_a = 0, total_b = 0;  // operations

  bool has_divergence() const noexcept { return verdict > OpVerdict::Noise; }
};

// Compares the operations of two runs (event_item.hpp) by their values: names the first whose inputs agree and whose
// result does not, or that one run has and the other has not. Throws Error where a run cannot be read.
OpDiff diff_operations(const std::filesystem::path& a, const std::filesystem::path& b,
                       const OpDiffOptions& options = {});

}  // namespace tenscope
