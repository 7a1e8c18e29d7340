#include "cli/run_diff.hpp"

#include <fmt/format.h>

#include <fstream>
#include <optional>
#include <set>

#include "cli/print.hpp"
#include "cli/progress.hpp"
#include "cli/python.hpp"
#include "compare/partial_diff.hpp"
#include "core/json_writer.hpp"
#include "report/run_diff.hpp"
#include "tenscope/diff.hpp"
#include "tenscope/error.hpp"
#include "viewer/export.hpp"

namespace tenscope::cli {
namespace {

std::vector<std::string> read_map_file(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw Error(ErrorCode::NotFound, fmt::format("cannot read the map: no such file: {}", path));
  std::vector<std::string> rules;
  for (std::string line; std::getline(file, line);) {
    const auto begin = line.find_first_not_of(" \t\r"), end = line.find_last_not_of(" \t\r");
    if (begin != std::string::npos && line[begin] != '#') rules.push_back(line.substr(begin, end - begin + 1));
  }
  return rules;
}

// The words between commas; one empty word of an empty text.
std::vector<std::string> separated(const std::string& text) {
  std::vector<std::string> words;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    words.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return words;
}

// Python knows the cluster; what it hands back is merged, and not yet an answer.
RunDiff diff_on_dask(const std::string& a, const std::string& b, const RunDiffOptions& options,
                     const RunDiffFlags& flags, const Output& output) {
  if (!options.rows.empty())
    throw Error(ErrorCode::InvalidArgument, "--rows compares all ranks in one process: it does not go with --dask");
  std::vector<std::string> words = {flags.dask, a, b};
  for (const std::string& rule : options.map) words.push_back("--map=" + rule);
  if (options.tolerance) words.push_back(fmt::format("--tolerance={}", *options.tolerance));
  if (!options.noise) words.emplace_back("--no-noise");
  if (options.noise && !options.noise->empty()) words.push_back("--noise=" + options.noise->string());
  if (options.allow_prefix) words.emplace_back("--prefix");
  if (output.progress) words.emplace_back("--progress");
  return compare::PartialDiff::from_bytes(output_of_python("tenscope.comparing.dask_cluster", words)).result();
}

// The viewer compares the runs, too, and knows the partner of each tensor besides.
RunDiff diff_on_page(const std::string& a, const std::string& b, RunDiffOptions settings, const std::string& path,
                     const Output& output) {
  viewer::Viewer viewer(a, b, {.diff = std::move(settings), .shown_paths = {output.url_of(a), output.url_of(b)}});
  const std::shared_ptr<const RunDiff> diff = viewer.diff();
  if (diff == nullptr) throw Error(ErrorCode::InvalidArgument, "--html shows two runs, and these are not");
  viewer::write_page(viewer, path);
  return *diff;
}

}  // namespace

void write_map(const std::vector<std::pair<std::string, std::string>>& names, const std::string& path) {
  std::ofstream file(path, std::ios::binary);
  std::set<std::pair<std::string, std::string>> written;
  for (const auto& one : names)
    if (written.insert(one).second) file << one.first << '=' << one.second << '\n';
  if (!file.flush()) throw Error(ErrorCode::Io, fmt::format("cannot write the map: {}", path));
}

std::vector<std::string> read_map(const RunDiffFlags& options) {
  std::vector<std::string> rules = options.map;
  if (!options.map_file.empty())
    for (std::string& rule : read_map_file(options.map_file)) rules.push_back(std::move(rule));
  return rules;
}

void write_map(const RunDiff& diff, const std::string& path) {
  std::set<std::pair<std::string, std::string>> parts;
  for (const DiffContentPair& one : diff.content_pairs)
    if (one.is_part) parts.emplace(one.a, one.b);
  std::vector<std::pair<std::string, std::string>> names;
  for (const DiffRenamed& one : diff.renamed)
    if (!parts.contains({one.a, one.b})) names.emplace_back(one.a, one.b);
  write_map(names, path);
}

std::optional<std::filesystem::path> noise_of(const RunDiffFlags& options) {
  if (options.ignores_noise && !options.noise.empty())
    throw Error(ErrorCode::InvalidArgument, "--noise and --no-noise exclude each other");
  return options.ignores_noise ? std::nullopt : std::optional<std::filesystem::path>(options.noise);
}

void add_run_diff_options(CLI::App& app, RunDiffFlags& options) {
  app.add_option("--map", options.map,
                 "Runs: modules of A that are modules of B under another name, 'blocks.*=layers.*'; files: tensors")
      ->take_all()
      ->expected(1);
  app.add_option("--map-file", options.map_file, "A file with such a map on each line");
  app.add_option("--write-map", options.write_map,
                 "Runs: write the names that were found to belong together to this file, for --map-file");
  app.add_option("--tolerance", options.tolerance,
                 "Runs: largest harmless difference, as a part of a tensor's largest value (default: by dtype)");
  app.add_option(
      "--noise", options.noise,
      "Runs: the measured noise of each place, as tenscope noise writes it: a profile, or a run that has one "
      "(default: those of both runs)");
  app.add_flag("--no-noise", options.ignores_noise, "Runs: do not look for measured noise beside the runs");
  app.add_option("--html", options.html, "Runs: write what tenscope view shows as one page to this file");
  app.add_flag("--strict", options.strict, "Runs: renamed modules, and what is on one side only, are differences too");
  app.add_flag("--prefix", options.prefix, "Runs: one that ends earlier than the other is no difference");
  app.add_option(
      "--rows", options.rows,
      "Runs: pair rows (tokens) by these integers that both recorded, 'request,position'; 'request=id' where "
      "the second run has another name");
  app.add_option("--dask", options.dask,
                 "Runs: compare ranks on the Dask cluster whose scheduler has this address, 'tcp://node1:8786'");
  app.add_flag("--zoom", options.zoom,
               "Runs: run both programs again and name the source line where they part, as tenscope zoom");
  app.add_flag("--budget", options.budget, "Runs: what each module adds to the error, as a table");
  app.add_flag("--ranks", options.ranks, "One run: what should be equal across its ranks and is not");
}

int diff_run_folders(const std::string& a, const std::string& b, const RunDiffFlags& options, const Output& output) {
  RunDiffOptions settings{.map = read_map(options),
                          .tolerance = options.tolerance,
                          .rows = options.rows ? separated(*options.rows) : std::vector<std::string>(),
                          .allow_prefix = options.prefix,
                          .noise = noise_of(options),
                          .with_budget = options.budget};
  if (options.budget && !options.dask.empty())
    throw Error(ErrorCode::InvalidArgument, "--budget compares all ranks in one process: it does not go with --dask");
  std::optional<Progress> progress(std::in_place, output.progress && options.dask.empty(), "comparing");
  settings.on_progress = [&](double done) { progress->show(done); };
  const bool is_on_page = !options.html.empty() && options.dask.empty();
  const RunDiff diff = !options.dask.empty() ? diff_on_dask(a, b, settings, options, output)
                       : is_on_page          ? diff_on_page(a, b, settings, options.html, output)
                                             : diff_runs(a, b, settings);
  if (!options.html.empty() && !is_on_page) diff_on_page(a, b, settings, options.html, output);
  progress.reset();
  if (!options.write_map.empty()) write_map(diff, options.write_map);
  if (output.json)
    print_json(report::run_diff_json(diff));
  else
    print_text(report::run_diff_text(
        diff, {.color = output.color, .top = options.top, .strict = options.strict, .width = output.width}));
  if (diff.verdict == DiffVerdict::Nothing) return kTrouble;
  return report::is_difference(diff, options.strict) ? kDifferent : kFine;
}

int diff_run_ranks(const std::string& run, const RunDiffFlags& options, const Output& output) {
  RankCoverage coverage;
  const std::vector<RankDifference> differences = diff_ranks(run, &coverage);
  const std::size_t parts = coverage.not_compared.size();
  if (output.json) {
    std::string text;
    JsonWriter json(text);
    json.begin_object().key("equal").boolean(coverage.compared > 0 && differences.empty()).key("compared");
    json.number(static_cast<std::int64_t>(coverage.compared)).key("not_compared").begin_array();
    for (const std::string& name : coverage.not_compared) json.text(name);
    json.end_array().key("differences").begin_array();
    for (const RankDifference& one : differences) {
      json.begin_object()
          .key("name")
          .text(one.place.name)
          .key("module")
          .text(one.place.module)
          .key("io")
          .text(one.place.io);
      json.key("step").number(one.place.step).key("call").number(one.place.call).key("ranks").begin_array();
      for (const int rank : one.ranks) json.number(rank);
      json.end_array().key("rel_max").number(one.rel_max).end_object();
    }
    json.end_array().end_object();
    print_json(text);
  } else if (coverage.compared == 0) {
    print("nothing was compared: no two ranks have the same parameter, buffer or gradient\n");
  } else if (differences.empty()) {
    print("the ranks are in step: parameters, buffers and gradients agree bit for bit\n");
  } else {
    print("the ranks part at step {}: {} on rank {}\n", differences[0].place.step, differences[0].place.name,
          differences[0].ranks[0]);
    for (std::size_t i = 0; i < differences.size() && i < options.top; ++i)
      print("  {:<40} {:<8} step {:<6} {:.2g}\n", differences[i].place.name, differences[i].place.io,
            differences[i].place.step, differences[i].rel_max);
    if (differences.size() > options.top) print("  ... {} more\n", differences.size() - options.top);
  }
  if (!output.json && parts > 0)
    print("{} not compared, shards or pipeline stages that one rank alone has: {}{}\n",
          parts == 1 ? "1 tensor" : fmt::format("{} tensors", parts), coverage.not_compared[0],
          parts > 1 ? ", ..." : "");
  if (coverage.compared == 0) return kTrouble;
  return differences.empty() ? kFine : kDifferent;
}

}  // namespace tenscope::cli
