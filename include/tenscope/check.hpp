#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tenscope/diff.hpp"
#include "tenscope/span.hpp"

#pragma GCC visibility push(default)
namespace tenscope {

// A sign of ill health that `check` looks for.
struct CheckRule {
  std::string_view code;  // "nan"
  std::string_view summary;
  double threshold = 0;  // what can be set; its meaning is in `unit`
  std::string_view unit;
};

Span<const CheckRule> check_rules();  // the most important first

struct CheckOptions {
  std::map<std::string, double> thresholds;  // by code, in place of the rule's own
  std::vector<std::string> only;             // codes; empty: all
  std::vector<std::string> ignore;           // codes
};

// Of the rules `nan` and `inf`: one place where a NaN or an infinity arises, with everything that follows from it. Of
// the other rules: the first place at which the rule holds, with a count of the others.
struct CheckFinding {
  std::string code;
  DiffPlace place;  // of a NaN or an infinity, place.module is the module to blame
  std::string message;
  double value = 0;
  std::size_t count = 1;  // tensors, numbers or parameters for which it holds, the one at `place` included
  std::size_t again = 0;  // how often the same NaN or infinity arose anew in later calls, with no sound one in between
  std::vector<std::string> others;  // the first few of the others: what follows, in its order; or the other places
};

// What a rule had to look at. A rule that had nothing to look at says nothing of the run's health.
struct CheckCoverage {
  std::string code;
  std::size_t looked_at = 0;  // tensors and numbers, or parameters, or gradients: what the rule is about
};

struct CheckReport {
  std::vector<CheckFinding> findings;                               // the most important first
  std::vector<CheckCoverage> rules;                                 // those that were asked for
  std::size_t tensors = 0, numbers = 0, parameters = 0, steps = 0;  // in the run
  std::vector<std::string> failures;  // exceptions and signals by which the program ended, a sentence each
  std::vector<std::string> missing;   // parts of the run that are lost, a sentence each: what they held is unknown
  std::vector<std::string> notes;     // what was not seen or is not finished, a sentence each

  bool has_looked() const noexcept;  // at least one rule had something to look at
  bool is_healthy() const noexcept;  // it has looked and found nothing, nothing is missing, nothing failed
};

// Looks a recording over. Statistics suffice but for dead units, which need the tensors' bytes.
// Throws Error where the run cannot be read or a code is unknown.
CheckReport check_run(const std::filesystem::path& run, const CheckOptions& options = {});

}  // namespace tenscope
#pragma GCC visibility pop
