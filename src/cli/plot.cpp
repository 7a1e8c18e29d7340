#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "cli/commands.hpp"
#include "cli/dot_program.hpp"
#include "cli/open_run.hpp"
#include "cli/print.hpp"
#include "cli/terminal.hpp"
#include "core/json_writer.hpp"
#include "report/chart.hpp"
#include "report/curve.hpp"
#include "report/series.hpp"
#include "report/table.hpp"
#include "report/values.hpp"
#include "tenscope/error.hpp"
#include "tenscope/glob.hpp"

namespace tenscope::cli {
namespace {

namespace fs = std::filesystem;
using namespace report;

struct Options {
  std::string run, against, out, statistic, steps;
  std::vector<std::string> patterns;
  std::optional<int> rank;
  bool is_log = false;
};

// The numbers of one run that a pattern means.
std::vector<Series> find_series(const Reader& reader, const std::string& pattern, const Options& options) {
  const Statistic statistic = options.statistic.empty() ? Statistic::Value : *parse_statistic(options.statistic);
  const StepRange steps = options.steps.empty() ? StepRange{} : parse_step_range(options.steps);
  std::vector<std::pair<std::string, std::vector<EventId>>> found;  // of the lowest rank that has it
  std::map<std::string_view, std::size_t> places;
  bool is_any_named = false;
  for (const EventId id : reader.find({.rank = options.rank})) {
    if (reader.kind(id) != EventKind::Value && reader.kind(id) != EventKind::Change) continue;
    const std::string_view name = reader.name(id);
    if (name != pattern && !matches_glob(name, pattern)) continue;
    is_any_named = true;
    if (!steps.contains(reader.step(id))) continue;
    const auto [place, is_new] = places.emplace(name, found.size());
    if (is_new) found.emplace_back(name, std::vector<EventId>());
    std::vector<EventId>& ids = found[place->second].second;
    if (ids.empty() || reader.writer_index(ids.front()) == reader.writer_index(id)) ids.push_back(id);
  }
  if (!is_any_named) find_name(reader, pattern);  // throws, with a suggestion
  std::vector<Series> all;
  std::size_t tensors = 0;
  for (const auto& [name, ids] : found) {
    Series series = read_series(reader, ids, statistic);
    if (!series.points.empty())
      all.push_back(std::move(series));
    else if (reader.is_tensor(ids.front()))
      ++tensors;
  }
  if (all.empty())
    throw Error(ErrorCode::InvalidArgument,
                tensors > 0 ? fmt::format("'{}' is a tensor of several elements: --stat mean, std, min, max, l2 or "
                                          "absmax draws that of it: {}",
                                          pattern, reader.path().string())
                            : fmt::format("'{}' has no numbers in these steps: {}", pattern, reader.path().string()));
  if (tensors > 0)
    warn("{} of {} names that match '{}' are tensors of several elements and left out; --stat draws one number of them",
         tensors, found.size(), pattern);
  return all;
}

struct Drawn {
  std::string pattern;
  std::vector<Series> first, second;  // of the run, and of the one it is compared with

  const Series* partner(const Series& series) const {
    const auto found = std::ranges::find(second, series.name, &Series::name);
    return found == second.end() ? nullptr : &*found;
  }
};

void write_series(JsonWriter& json, const std::string& run, const Series& series) {
  const Extent extent = extent_of(series);
  const auto number = [&](std::string_view key, double value) {
    json.key(key);
    extent.is_empty ? json.null() : json.number(value);
  };
  json.begin_object().key("run").text(run).key("name").text(series.name);
  number("min", extent.least);
  number("max", extent.most);
  json.key("last").number(series.points.back().value).key("points").begin_array();
  for (const Series::Point& point : series.points)
    json.begin_object()
        .key("step")
        .number(point.step)
        .key("call")
        .number(point.call)
        .key("value")
        .number(point.value)
        .end_object();
  json.end_array().end_object();
}

std::string as_json(const std::vector<Drawn>& all, const Options& options, const std::string& run,
                    const std::string& against) {
  std::string text;
  JsonWriter json(text);
  json.begin_object().key("run").text(run).key("against");
  against.empty() ? json.null() : json.text(against);
  json.key("file");
  options.out.empty() ? json.null() : json.text(options.out);
  json.key("charts").begin_array();
  for (const Drawn& one : all) {
    json.begin_object().key("pattern").text(one.pattern).key("series").begin_array();
    for (const Series& series : one.first) write_series(json, run, series);
    for (const Series& series : one.second) write_series(json, against, series);
    json.end_array().end_object();
  }
  json.end_array().end_object();
  return text;
}

// Step by step, where both have a number.
std::string largest_difference(const Series& a, const Series& b) {
  std::map<std::pair<std::int64_t, std::int64_t>, double> of_a;
  for (const Series::Point& point : a.points) of_a[{point.step, point.call}] = point.value;
  std::optional<Series::Point> worst;
  double largest = -1;
  for (const Series::Point& point : b.points) {
    const auto found = of_a.find({point.step, point.call});
    if (found == of_a.end()) continue;
    const double by = std::abs(point.value - found->second);
    if (by > largest) {
      largest = by;
      worst = point;
    }
  }
  if (!worst) return "no step in common";
  return largest == 0 ? "equal" : fmt::format("{} at step {}", tick_text(largest), worst->step);
}

void print_legend(const Drawn& one, const Output& output) {
  constexpr std::size_t kMost = 12;
  const bool is_compared = !one.second.empty();
  Table table({{"name", Align::Left, Fit::Middle},
               {"", Align::Left},
               {"last", Align::Right},
               {"min", Align::Right, Fit::Whole, 2},
               {"max", Align::Right, Fit::Whole, 3},
               {"points", Align::Right, Fit::Whole, 1},
               {is_compared ? "largest |b-a|" : "", Align::Left}});
  const auto add = [&](const Series& series, const char* side, Tone tone, const std::string& difference) {
    const Extent extent = extent_of(series);
    table.add({Cell(series.name, tone), side, fmt::format("{:.6g}", series.points.back().value),
               extent.is_empty ? "-" : number_text(extent.least), extent.is_empty ? "-" : number_text(extent.most),
               std::to_string(series.points.size()), difference});
  };
  for (std::size_t i = 0; i < one.first.size() && i < kMost; ++i) {
    const Series* partner = one.partner(one.first[i]);
    add(one.first[i], is_compared ? "a" : "", kName, "");
    if (partner != nullptr) add(*partner, "b", kDoubt, largest_difference(one.first[i], *partner));
  }
  print_text(table.text(output.color, output.fitting()));
  if (one.first.size() > kMost) print("... {} more\n", one.first.size() - kMost);
}

void print_charts(const std::vector<Drawn>& all, const Options& options, const Output& output) {
  bool is_first = true;
  for (const Drawn& one : all) {
    if (!std::exchange(is_first, false)) print_text("\n");
    const std::string count = one.first.size() > 1 ? fmt::format("  ×{}", one.first.size()) : "";
    print("{}{}{}\n", toned(one.pattern, kHeading, output.color), count, options.is_log ? "  (logarithmic)" : "");
    std::vector<ToneSeries> curves;
    for (const Series& series : one.second) curves.push_back({&series, kDoubt});
    for (const Series& series : one.first) curves.push_back({&series, kName});
    const std::string text = curve_text(curves, {.width = std::min<std::size_t>(output.width, 120),
                                                 .height = all.size() == 1 ? 14u : 8u,
                                                 .is_log = options.is_log,
                                                 .is_utf8 = is_utf8_terminal(),
                                                 .color = output.color});
    print_text(text.empty() ? "no finite number to draw\n" : text);
    print_legend(one, output);
  }
}

void write_picture(const std::vector<Drawn>& all, const Options& options, const std::string& run,
                   const std::string& against) {
  const std::string ending = fs::path(options.out).extension().string();
  if (ending != ".svg" && ending != ".png")
    throw Error(ErrorCode::InvalidArgument,
                fmt::format("cannot draw the curves: the name must end in .svg or .png: {}", options.out));
  std::vector<Chart> charts;
  for (const Drawn& one : all) {
    Chart chart{.title = one.pattern, .curves = {}, .is_log = options.is_log};
    if (!options.statistic.empty()) chart.title += ", " + options.statistic;
    for (const Series& series : one.first) {
      chart.curves.push_back({series, against.empty() ? series.name : fmt::format("{}, a", series.name), false});
      if (const Series* partner = one.partner(series))
        chart.curves.push_back({*partner, fmt::format("{}, b", series.name), true});
    }
    charts.push_back(std::move(chart));
  }
  const std::string title = against.empty() ? run : fmt::format("a: {}    b (dashed): {}", run, against);
  if (ending == ".png") {
    draw_with_dot(chart_dot(charts, title), "png", options.out, DotLayout::Given);
    return;
  }
  std::ofstream file(options.out, std::ios::binary);
  if (!(file << chart_svg(charts, title)).flush())
    throw Error(ErrorCode::Io, fmt::format("cannot write the picture: {}", options.out));
}

int plot(const Options& options, const Output& output) {
  const Reader reader = open_run(options.run);
  warn_of_problems(reader);
  std::optional<Reader> other;
  if (!options.against.empty()) {
    other.emplace(open_run(options.against));
    warn_of_problems(*other);
  }
  std::vector<Drawn> all;
  for (const std::string& pattern : options.patterns) {
    Drawn one{pattern, find_series(reader, pattern, options), {}};
    if (other) one.second = find_series(*other, pattern, options);
    all.push_back(std::move(one));
  }
  const std::string run = reader.path().string(), against = other ? other->path().string() : "";
  if (!options.out.empty()) write_picture(all, options, run, against);
  if (output.json)
    print_json(as_json(all, options, run, against));
  else if (options.out.empty())
    print_charts(all, options, output);
  else
    print("{}: {} curve{}\n", options.out,
          std::accumulate(all.begin(), all.end(), std::size_t{0},
                          [](std::size_t sum, const Drawn& one) { return sum + one.first.size() + one.second.size(); }),
          all.size() == 1 && all[0].first.size() + all[0].second.size() == 1 ? "" : "s");
  return kFine;
}

}  // namespace

Action prepare_plot(CLI::App& app) {
  auto options = std::make_shared<Options>();
  app.add_option("run", options->run, "A run, or a folder of runs: then the newest")->required();
  app.add_option("names", options->patterns, "Names of numbers, or patterns of names: a chart each")
      ->required()
      ->expected(1, 1000);
  app.add_option("--against", options->against, "A second run, whose curves are drawn too: b");
  app.add_option("-o,--out", options->out, "Draw into this file: .svg, or .png (which needs Graphviz's dot)");
  app.add_option("--stat", options->statistic, "Of tensors: this number of each")
      ->check(CLI::IsMember({"mean", "std", "min", "max", "l2", "absmax"}));
  app.add_option("--step", options->steps, "A range of steps like 2:5");
  app.add_option("--rank", options->rank, "The rank (default: the lowest that has it)");
  app.add_flag("--log", options->is_log, "A logarithmic axis of values");
  return [options](const Output& output) { return plot(*options, output); };
}

}  // namespace tenscope::cli
