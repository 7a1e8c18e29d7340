#include "tenscope/check.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/commands.hpp"
#include "cli/open_run.hpp"
#include "cli/print.hpp"
#include "cli/progress.hpp"
#include "core/json_writer.hpp"
#include "core/printable.hpp"
#include "report/style.hpp"
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
      print("{:<20}  {} (threshold {:g}: {})\n", rule.code, rule.summary, rule.threshold, rule.unit);
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
  print_json(text);
}

std::string counted(std::size_t number, std::string_view noun) {
  return fmt::format("{} {}{}", grouped(static_cast<std::int64_t>(number)), noun, number == 1 ? "" : "s");
}

void write_place(JsonWriter& json, const DiffPlace& place) {
  json.key("root").text(place.root).key("module").text(place.module).key("class").text(place.cls);
  json.key("name").text(place.name).key("io").text(place.io).key("phase").text(place.phase);
  json.key("site");
  place.site.empty() ? json.null() : json.text(place.site);
  json.key("step").number(place.step).key("call").number(place.call).key("rank").number(place.rank);
}

void write_texts(JsonWriter& json, const std::vector<std::string>& texts) {
  json.begin_array();
  for (const std::string& text : texts) json.text(text);
  json.end_array();
}

void print_report(const CheckReport& report) {
  const auto number = [](std::size_t value) { return static_cast<std::uint64_t>(value); };
  std::string text;
  JsonWriter json(text);
  json.begin_object().key("healthy").boolean(report.is_healthy());
  json.key("looked_at").begin_object();
  json.key("tensors").number(number(report.tensors)).key("numbers").number(number(report.numbers));
  json.key("parameters").number(number(report.parameters)).key("steps").number(number(report.steps));
  json.key("rules").begin_object();
  for (const CheckCoverage& rule : report.rules) json.key(rule.code).number(number(rule.looked_at));
  json.end_object().end_object();
  json.key("findings").begin_array();
  for (const CheckFinding& finding : report.findings) {
    json.begin_object().key("code").text(finding.code).key("message").text(finding.message);
    json.key("value").number(finding.value).key("count").number(number(finding.count));
    json.key("again").number(number(finding.again)).key("others");
    write_texts(json, finding.others);
    write_place(json, finding.place);
    json.end_object();
  }
  json.end_array().key("failures");
  write_texts(json, report.failures);
  json.key("missing");
  write_texts(json, report.missing);
  json.key("notes");
  write_texts(json, report.notes);
  json.end_object();
  print_json(text);
}

void print_finding(const CheckFinding& finding, const Output& output) {
  const DiffPlace& place = finding.place;
  const bool is_chain = finding.code == "nan" || finding.code == "inf";
  const std::string code = report::toned(finding.code, report::Tone::BoldRed, output.color);
  print("{}: {}\n  ", code, printable(finding.message));
  if (!is_chain) print("first at step {}, call {}, ", place.step, place.call);
  print("rank {}", place.rank);
  for (const std::string& detail : {place.phase, place.root, place.site})
    if (!detail.empty()) print(", {}", printable(detail));
  print("\n");
  if (finding.count == 1) return;
  const std::size_t others = finding.count - 1;
  if (is_chain)
    print("  and {} after it", counted(others, "tensor"));
  else
    print("  {} more", grouped(static_cast<std::int64_t>(others)));
  if (!finding.others.empty())
    print(": {}{}", printable(fmt::format("{}", fmt::join(finding.others, ", "))),
          others > finding.others.size() ? ", ..." : "");
  print("\n");
}

// What was looked at: all of the run, or by the rules that were asked for.
std::string coverage(const CheckReport& report, bool has_selection) {
  if (has_selection) {
    std::vector<std::string> rules;
    for (const CheckCoverage& rule : report.rules)
      if (rule.looked_at > 0)
        rules.push_back(fmt::format("{} by {}", grouped(static_cast<std::int64_t>(rule.looked_at)), rule.code));
    return fmt::format("{} looked at", fmt::join(rules, ", "));
  }
  std::vector<std::string> parts{counted(report.tensors, "tensor")};
  if (report.numbers > 0) parts.push_back(counted(report.numbers, "number"));
  if (report.parameters > 0) parts.push_back(counted(report.parameters, "parameter"));
  return fmt::format("{} over {} looked at", fmt::join(parts, ", "), counted(report.steps, "step"));
}

void print_text(const CheckReport& report, const Output& output, bool has_selection) {
  constexpr std::size_t kMostFindings = 30;
  for (std::size_t i = 0; i < std::min(report.findings.size(), kMostFindings); ++i)
    print_finding(report.findings[i], output);
  if (report.findings.size() > kMostFindings)
    print("and {} (--json lists all)\n", counted(report.findings.size() - kMostFindings, "more finding"));
  for (const std::string& sentence : report.failures) print("{}\n", printable(sentence));
  for (const std::string& sentence : report.missing) print("missing: {}\n", printable(sentence));
  for (const std::string& sentence : report.notes) print("note: {}\n", printable(sentence));
  if (has_selection)
    for (const CheckCoverage& rule : report.rules)
      if (rule.looked_at == 0) print("note: {} had nothing to look at\n", rule.code);
  if (!report.has_looked())
    print("nothing was looked at: the run has nothing that {} about\n",
          has_selection ? "these rules are" : "a rule is");
  else if (!report.findings.empty())
    print("{}; {}\n", counted(report.findings.size(), "finding"), coverage(report, has_selection));
  else if (!report.failures.empty())
    print("not healthy: the program failed; {}, no rule holds\n", coverage(report, has_selection));
  else if (!report.missing.empty())
    print("not known to be healthy: parts of the run are missing; {}, nothing found in them\n",
          coverage(report, has_selection));
  else
    print("healthy: {}, nothing found\n", coverage(report, has_selection));
}

}  // namespace

Action prepare_check(CLI::App& app) {
  auto options = std::make_shared<Options>();
  app.add_option("run", options->run, "A run's folder, or a folder of runs: the newest in it");
  app.add_option("--set", options->thresholds, "Set a rule's threshold")->take_all()->expected(1);
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
    std::optional<Progress> progress(std::in_place, output.progress, "looking it over");
    const CheckReport report = check_run(find_run_folder(options->run), settings);
    progress.reset();
    output.json ? print_report(report) : print_text(report, output, !settings.only.empty() || !settings.ignore.empty());
    if (!report.has_looked()) return kTrouble;
    return report.is_healthy() ? kFine : kDifferent;
  };
}

}  // namespace tenscope::cli
