#include "tenscope/check.hpp"

#include <fmt/format.h>

#include <charconv>
#include <memory>
#include <string>
#include <vector>

#include "cli/commands.hpp"
#include "core/json_writer.hpp"
#include "tenscope/error.hpp"

namespace tenscope::cli {
namespace {

struct Options {
  std::string run;
  std::vector<std::string> only, ignore, thresholds;
  bool rules = false;
};

std::pair<std::string, double> parse_threshold(const std::string& text) {
  const auto equals = text.find('=');
  if (equals != std::string::npos) {
    const char* const end = text.data() + text.size();
    double value = 0;
    const auto [stopped, error] = std::from_chars(text.data() + equals + 1, end, value);
    if (error == std::errc() && stopped == end) return {text.substr(0, equals), value};
  }
  throw Error(ErrorCode::InvalidArgument,
              fmt::format("cannot use the threshold '{}': it must be of the form CODE=NUMBER", text));
}

void print_rules(const Output& output) {
  if (!output.json) {
    for (const CheckRule& rule : check_rules())
      fmt::print("{:<20} {} (threshold {:g}: {})\n", rule.code, rule.summary, rule.threshold, rule.unit);
    return;
  }
  std::string text;
  JsonWriter json(text);
  json.begin_array();
  for (const CheckRule& rule : check_rules())
    json.begin_object()
        .key("code")
        .text(rule.code)
        .key("summary")
        .text(rule.summary)
        .key("threshold")
        .number(rule.threshold)
        .key("unit")
        .text(rule.unit)
        .end_object();
  json.end_array();
  fmt::print("{}\n", text);
}

void print_json(const std::vector<CheckFinding>& findings) {
  std::string text;
  JsonWriter json(text);
  json.begin_object().key("healthy").boolean(findings.empty()).key("findings").begin_array();
  for (const CheckFinding& finding : findings) {
    const DiffPlace& place = finding.place;
    json.begin_object()
        .key("code")
        .text(finding.code)
        .key("message")
        .text(finding.message)
        .key("value")
        .number(finding.value);
    json.key("count")
        .number(static_cast<std::uint64_t>(finding.count))
        .key("root")
        .text(place.root)
        .key("module")
        .text(place.module);
    json.key("name")
        .text(place.name)
        .key("io")
        .text(place.io)
        .key("phase")
        .text(place.phase)
        .key("step")
        .number(place.step);
    json.key("call").number(place.call).key("rank").number(place.rank).end_object();
  }
  json.end_array().end_object();
  fmt::print("{}\n", text);
}

void print_text(const std::vector<CheckFinding>& findings, const Output& output) {
  if (findings.empty()) fmt::print("healthy: no rule holds\n");
  for (const CheckFinding& finding : findings) {
    const DiffPlace& place = finding.place;
    const std::string code = output.color ? fmt::format("\x1b[1;31m{}\x1b[0m", finding.code) : finding.code;
    fmt::print("{}: {}\n", code, finding.message);
    fmt::print("  first at step {}, call {}, rank {}{}{}{}\n", place.step, place.call, place.rank,
               place.phase.empty() ? "" : ", " + place.phase, place.site.empty() ? "" : ", " + place.site,
               finding.count > 1 ? fmt::format("; {} more", finding.count - 1) : "");
  }
}

}  // namespace

Action prepare_check(CLI::App& app) {
  auto options = std::make_shared<Options>();
  app.add_option("RUN", options->run, "A run's folder, or a folder of runs: the newest in it");
  app.add_option("--set", options->thresholds, "Set a rule's threshold, CODE=NUMBER")->take_all()->expected(1);
  app.add_option("--only", options->only, "Only these rules")->take_all()->expected(1);
  app.add_option("--ignore", options->ignore, "Not these rules")->take_all()->expected(1);
  app.add_flag("--rules", options->rules, "List the rules and their thresholds");
  return [options](const Output& output) {
    if (options->rules) {
      print_rules(output);
      return kFine;
    }
    if (options->run.empty()) throw Error(ErrorCode::InvalidArgument, "check needs a run's folder");
    CheckOptions settings{.only = options->only, .ignore = options->ignore};
    for (const std::string& text : options->thresholds) settings.thresholds.insert(parse_threshold(text));
    const std::vector<CheckFinding> findings = check_run(options->run, settings);
    output.json ? print_json(findings) : print_text(findings, output);
    return findings.empty() ? kFine : kDifferent;
  };
}

}  // namespace tenscope::cli
