#include "compare/oracle.hpp"

#include <simdjson.h>

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <variant>
#include <vector>

#include "compare/measure.hpp"
#include "compare/noise.hpp"
#include "compare/thresholds.hpp"
#include "tenscope/event.hpp"
#include "tenscope/reader.hpp"

// Overview. Beside the blamed call a run has `<module>:computed`, what the call returned, and `<module>:oracle`, what a
// copy of the module returned in a wider type, of the same inputs. How far a run is from its own oracle is the call's
// own rounding, whatever noise its inputs carry. That is an answer only where the two oracles agree: else the runs
// compute different things, and the first run's oracle is the reference.

namespace tenscope {
namespace {

constexpr std::string_view kOracle = ":oracle", kComputed = ":computed";

using Outputs = std::map<std::string, EventId, std::less<>>;  // by their names below the call's: ".0"; "": a single one

struct Side {
  Reader reader;
  std::string module;
  Outputs oracle, computed;
  std::string inputs;  // the content of what went in
  std::string reason;  // why there is no oracle
};

std::string member(const Event& event, std::string_view name) {
  simdjson::dom::parser parser;
  std::string_view found;
  if (event.meta.empty() || parser.parse(event.meta)[name].get(found) != simdjson::SUCCESS) return {};
  return std::string(found);
}

void take(Side& side, const Event& event, EventId id) {
  side.module = event.scope.empty() ? event.root : event.scope;
  if (std::string inputs = member(event, "inputs"); !inputs.empty()) side.inputs = std::move(inputs);
  if (std::string reason = member(event, "reason"); !reason.empty()) side.reason = std::move(reason);
  if (!std::holds_alternative<TensorRecord>(event.value)) return;
  const std::string_view rest = std::string_view(event.name).substr(std::min(event.scope.size(), event.name.size()));
  if (rest.starts_with(kOracle)) side.oracle.emplace(rest.substr(kOracle.size()), id);
  if (rest.starts_with(kComputed)) side.computed.emplace(rest.substr(kComputed.size()), id);
}

Side read_side(const std::filesystem::path& path, std::optional<int> rank) {
  const std::vector<int> ranks = rank ? std::vector{*rank} : std::vector<int>{};
  Side side{.reader = Reader(path, {.check_fingerprints = true, .ranks = ranks}),
            .module = {},
            .oracle = {},
            .computed = {},
            .inputs = {},
            .reason = {}};
  for (EventId id = 0; id < side.reader.event_count(); ++id) {
    if (side.reader.kind(id) != EventKind::Value || side.reader.name(id).find(':') == std::string_view::npos) continue;
    const Event event = side.reader.event(id);
    if (event.io == Io::Oracle) take(side, event, id);
  }
  if (side.reason.empty() && side.oracle.empty()) side.reason = "the call was not made, or returned no tensor";
  return side;
}

bool is_half(DType dtype) { return compare::unit_roundoff(dtype) > compare::unit_roundoff(DType::F32); }

// How far outputs are from those of another call, at the worst of them.
struct Distance {
  std::optional<double> units;
  std::string output;
  DType dtype = DType::F32, wide = DType::F64;
};

// `dtype_of`: whose dtype the unit is of, by output; that of `x` where it has none.
Distance distance(const Side& side, const Outputs& x, const Side& from, const Outputs& reference,
                  const std::map<std::string, DType, std::less<>>& dtype_of) {
  Distance found;
  for (const auto& [name, id] : x) {
    const auto other = reference.find(name);
    if (other == reference.end()) continue;
    const TensorData a = from.reader.tensor(other->second), b = side.reader.tensor(id);
    const auto known = dtype_of.find(name);
    const DType dtype = known == dtype_of.end() ? b.view.dtype : known->second;
    if (compare::is_exact(dtype)) continue;
    const compare::PairError error = compare::measure(a.view, b.view);
    double units = std::numeric_limits<double>::infinity();
    if (error.is_comparable && !error.has_other_finite) {
      const double unit = compare::unit_roundoff(dtype) * error.scale;
      if (error.max_abs == 0)
        units = 0;
      else if (unit > 0)
        units = error.max_abs / unit;
    }
    if (!found.units || units > *found.units) found = {units, name, dtype, a.view.dtype};
  }
  return found;
}

OracleSide told(const Side& side, const Distance& own) {
  OracleSide result;
  result.reason = side.reason;
  if (!own.units) return result;
  result.units = own.units;
  result.output = own.output.empty() ? std::string("output") : "output" + own.output;
  result.dtype = own.dtype;
  result.wide = own.wide;
  return result;
}

double limit_of(DType dtype) {
  return is_half(dtype) ? compare::thresholds::kOracleUnitsHalf : compare::thresholds::kOracleUnits;
}

OracleVerdict judge(const OracleDiff& diff) {
  using namespace compare::thresholds;
  const bool is_a_near = *diff.a.units <= limit_of(*diff.a.dtype), is_b_near = *diff.b.units <= limit_of(*diff.b.dtype);
  if (!diff.apart || *diff.apart > (diff.are_inputs_equal ? kOracleSame : diff.limit)) return OracleVerdict::Different;
  if (is_a_near && is_b_near) return OracleVerdict::Rounding;
  if (is_a_near && *diff.b.units > kOracleRatio * *diff.a.units) return OracleVerdict::BIsWrong;
  if (is_b_near && *diff.a.units > kOracleRatio * *diff.b.units) return OracleVerdict::AIsWrong;
  return is_a_near || is_b_near ? OracleVerdict::Unclear : OracleVerdict::Neither;
}

}  // namespace

std::string_view to_string(OracleVerdict verdict) noexcept {
  constexpr std::array<std::string_view, 7> kNames = {"unknown", "rounding", "a_is_wrong", "b_is_wrong",
                                                      "neither", "unclear",  "different"};
  return kNames[static_cast<std::size_t>(verdict)];
}

OracleDiff judge_by_oracle(const std::filesystem::path& a, const std::filesystem::path& b, std::optional<int> rank) {
  const Side x = read_side(a, rank), y = read_side(b, rank);
  OracleDiff diff;
  diff.module = x.module.empty() ? y.module : x.module;
  diff.a = told(x, distance(x, x.computed, x, x.oracle, {}));
  diff.b = told(y, distance(y, y.computed, y, y.oracle, {}));
  for (OracleSide* side : {&diff.a, &diff.b})
    if (side->reason.empty() && !side->units) side->reason = "the call returns no floating-point numbers";
  diff.a.from_a = diff.a.units;
  diff.b.from_a = distance(y, y.computed, x, x.oracle, {}).units;
  diff.are_inputs_equal = !x.inputs.empty() && x.inputs == y.inputs;
  if (!diff.a.reason.empty() || !diff.b.reason.empty()) return diff;
  // The coarser of the two dtypes is the measure of how far the widened calls are apart.
  std::map<std::string, DType, std::less<>> coarser;
  for (const auto& [name, id] : x.computed) {
    coarser[name] = x.reader.tensor(id).view.dtype;
    const auto other = y.computed.find(name);
    if (other == y.computed.end()) continue;
    const DType dtype = y.reader.tensor(other->second).view.dtype;
    if (compare::unit_roundoff(dtype) > compare::unit_roundoff(coarser[name])) coarser[name] = dtype;
  }
  diff.apart = distance(y, y.oracle, x, x.oracle, coarser).units;
  diff.limit = std::max(limit_of(*diff.a.dtype), limit_of(*diff.b.dtype));
  diff.verdict = judge(diff);
  return diff;
}

}  // namespace tenscope
