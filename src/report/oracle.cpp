#include "report/oracle.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "core/json_writer.hpp"
#include "report/style.hpp"

namespace tenscope::report {
namespace {

std::string units(const std::optional<double>& value) {
  if (!value) return "an unknown number of units";
  if (!std::isfinite(*value)) return "infinitely many units";
  return *value < 10 ? fmt::format("{:.2g} units", *value) : fmt::format("{:.3g} units", *value);
}

std::string wide(const OracleDiff& diff) {
  const std::string_view a = to_string(*diff.a.wide), b = to_string(*diff.b.wide);
  return a == b ? std::string(a) : fmt::format("{} (A) and {} (B)", a, b);
}

std::string what_a_unit_is(const OracleDiff& diff) {
  const std::string_view a = to_string(*diff.a.dtype), b = to_string(*diff.b.dtype);
  const std::string dtype = a == b ? std::string(a) : fmt::format("{} (A) or {} (B)", a, b);
  return fmt::format("  a unit is the roundoff of {} at the largest value of {}; up to {:.0f} are rounding\n", dtype,
                     diff.b.output, diff.limit);
}

void side(JsonWriter& json, std::string_view name, const OracleSide& side) {
  const auto number = [&](std::string_view key, const std::optional<double>& value) {
    json.key(key);
    value ? json.number(*value) : json.null();
  };
  const auto dtype = [&](std::string_view key, const std::optional<DType>& value) {
    json.key(key);
    value ? json.text(to_string(*value)) : json.null();
  };
  json.key(name).begin_object();
  number("units", side.units);
  number("from_a", side.from_a);
  dtype("dtype", side.dtype);
  dtype("wide", side.wide);
  json.key("output").text(side.output).key("reason");
  side.reason.empty() ? json.null() : json.text(side.reason);
  json.end_object();
}

Tone tone_of(OracleVerdict verdict) {
  switch (verdict) {
    case OracleVerdict::Rounding:
      return Tone::BoldGreen;
    case OracleVerdict::AIsWrong:
    case OracleVerdict::BIsWrong:
    case OracleVerdict::Neither:
    case OracleVerdict::Different:
      return Tone::BoldRed;
    default:
      return Tone::BoldYellow;
  }
}

}  // namespace

std::string oracle_text(const OracleDiff& diff, bool color) {
  if (diff.verdict == OracleVerdict::Unknown) {
    const bool is_a = !diff.a.reason.empty();
    return toned(fmt::format("who is right is not known: {}'s call of {} cannot be widened: {}", is_a ? "A" : "B",
                             diff.module, is_a ? diff.a.reason : diff.b.reason),
                 tone_of(diff.verdict), color) +
           '\n';
  }
  const std::string begin = fmt::format("{} widened to {}: ", diff.module, wide(diff));
  const std::string both = fmt::format("A {}, B {}", units(diff.a.units), units(diff.b.units));
  std::string text = begin, more;
  switch (diff.verdict) {
    case OracleVerdict::Rounding:
      text += fmt::format("both within {}: rounding ({})", units(std::max(*diff.a.units, *diff.b.units)), both);
      break;
    case OracleVerdict::AIsWrong:
      text += both + ": A is wrong";
      break;
    case OracleVerdict::BIsWrong:
      text += both + ": B is wrong";
      break;
    case OracleVerdict::Neither:
      text += both + ": neither is near to it";
      break;
    case OracleVerdict::Unclear:
      text += both + ": not clear";
      break;
    default:
      text += fmt::format("not rounding: the two versions compute different things, also in {}", wide(diff));
      more = fmt::format("  from A's widened call A is {} away, B {}; from its own B is {} away\n",
                         units(diff.a.from_a), units(diff.b.from_a), units(diff.b.units));
  }
  text = toned(text, tone_of(diff.verdict), color) + '\n' + more;
  if (!diff.are_inputs_equal) text += "  the inputs or parameters of the two calls are not equal in bits\n";
  return text + what_a_unit_is(diff);
}

std::string oracle_json(const OracleDiff& diff) {
  std::string out;
  JsonWriter json(out);
  json.begin_object().key("verdict").text(to_string(diff.verdict)).key("module").text(diff.module);
  side(json, "a", diff.a);
  side(json, "b", diff.b);
  json.key("apart");
  diff.apart ? json.number(*diff.apart) : json.null();
  json.key("are_inputs_equal").boolean(diff.are_inputs_equal).key("limit").number(diff.limit).end_object();
  return out;
}

}  // namespace tenscope::report
