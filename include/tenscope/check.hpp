#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tenscope/diff.hpp"

namespace tenscope {

// A sign of ill health that `check` looks for.
struct CheckRule {
  std::string_view code;  // "nan"
  std::string_view summary;
  double threshold = 0;  // what can be set; its meaning is in `unit`
  std::string_view unit;
};

std::span<const CheckRule> check_rules();

struct CheckOptions {
  std::map<std::string, double> thresholds;  // by code, in place of the rule's own
  std::vector<std::string> only;             // codes; empty: all
  std::vector<std::string> ignore;           // codes
};

struct CheckFinding {
  std::string code;
  DiffPlace place;  // the first event at which it holds
  std::string message;
  double value = 0;
  std::size_t count = 1;  // events, or parameters, for which it holds
};

// Looks a recording over. Statistics suffice but for dead units, which need the tensors' bytes.
// Throws Error where the run cannot be read or a code is unknown.
std::vector<CheckFinding> check_run(const std::filesystem::path& run, const CheckOptions& options = {});

}  // namespace tenscope
