#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "tenscope/dtype.hpp"

namespace tenscope {

// Two runs differ in a module's call. Each has made it once more in a wider type (`tenscope run --oracle`): which of
// them is near to that?
enum class OracleVerdict : std::uint8_t {
  Unknown,   // a run has no widened call, and says why
  Rounding,  // both are near to theirs
  AIsWrong,  // B is near, A is not
  BIsWrong,  //
  Neither,   // none is near
  Unclear,   // one is near, and the other not much farther away
  Different  // the two widened calls differ themselves: no matter of rounding
};
std::string_view to_string(OracleVerdict verdict) noexcept;  // "unknown", "rounding", "a_is_wrong", ..., "different"

// Distances are in units: the unit roundoff of the output's dtype times the largest value of what it is compared with.
// Infinite where a NaN or an infinity stands on one side only.
struct OracleSide {
  std::string reason;                // why there is no widened call; empty: there is one
  std::optional<DType> dtype, wide;  // of the output that is farthest off
  std::optional<double> units;       // from its own widened call, of the same inputs
  std::optional<double> from_a;      // from that of A
  std::string output;                // the name of the output that is farthest off
};

struct OracleDiff {
  OracleVerdict verdict = OracleVerdict::Unknown;
  std::string module;
  OracleSide a, b;
  std::optional<double> apart;    // the two widened calls
  bool are_inputs_equal = false;  // bit for bit, parameters and buffers too
  double limit = 0;               // up to how many units it is rounding
};

// Reads what both runs recorded with `io` "oracle". Throws Error where a run cannot be read.
OracleDiff judge_by_oracle(const std::filesystem::path& a, const std::filesystem::path& b,
                           std::optional<int> rank = std::nullopt);

}  // namespace tenscope
