#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "cli/commands.hpp"
#include "cli/open_run.hpp"
#include "cli/print.hpp"
#include "cli/progress.hpp"
#include "cli/run_diff.hpp"
#include "compare/checkpoint_diff.hpp"
#include "compare/run_diff.hpp"
#include "core/json_writer.hpp"
#include "report/checkpoint_diff.hpp"
#include "report/table.hpp"
#include "tenscope/diff.hpp"
#include "tenscope/error.hpp"

namespace tenscope::cli {
namespace {

struct Options {
  std::string a, b, write;
  std::vector<std::string> map;
};

std::string as_json(const RunDiff& diff) {
  std::string text;
  JsonWriter json(text);
  json.begin_object().key("a").text(diff.a).key("b").text(diff.b);
  json.key("renamed").begin_array();
  for (const DiffRenamed& one : diff.renamed)
    json.begin_object().key("a").text(one.a).key("b").text(one.b).end_object();
  json.end_array().key("content_pairs").begin_array();
  for (const DiffContentPair& one : diff.content_pairs) {
    json.begin_object().key("a").text(one.a).key("b").text(one.b).key("step").number(one.step);
    json.key("call").number(one.call).key("how").text(one.how).key("layout").text(one.layout);
    json.key("error").number(one.error).end_object();
  }
  json.end_array().key("compared").number(static_cast<std::uint64_t>(diff.compared));
  json.key("first_run").number(static_cast<std::uint64_t>(diff.total_a));
  json.key("second_run").number(static_cast<std::uint64_t>(diff.total_b)).end_object();
  return text;
}

void print_table(const RunDiff& diff, const Output& output) {
  using report::Align, report::Fit;
  report::Table table({{"first run", Align::Left, Fit::Middle},
                       {"second run", Align::Left, Fit::Middle},
                       {"by", Align::Left, Fit::Whole, 1},
                       {"error", Align::Right},
                       {"layout", Align::Left, Fit::Words}});
  std::set<std::pair<std::string, std::string>> shown;
  for (const DiffContentPair& one : diff.content_pairs)
    if (shown.emplace(one.a, one.b).second)
      table.add({one.a, one.b, one.how, one.error == 0 ? "0" : fmt::format("{:.1e}", one.error), one.layout});
  for (const DiffRenamed& one : diff.renamed)
    if (shown.emplace(one.a, one.b).second) table.add({one.a.empty() ? "the model" : one.a, one.b, "module", "", ""});
  if (!shown.empty()) print_text(table.text(output.color, output.fitting()));
  print("{} of {} tensors and other values of the first run have a partner among {} of the second; {}\n", diff.compared,
        diff.total_a, diff.total_b,
        shown.empty() ? "none under another name" : fmt::format("{} under another name", shown.size()));
}

int map_runs(const Options& options, const Output& output) {
  std::optional<Progress> progress(std::in_place, output.progress, "pairing");
  const RunDiff diff =
      diff_runs(options.a, options.b,
                {.map = options.map, .tolerance = {}, .on_progress = [&](double done) { progress->show(done); }});
  progress.reset();
  if (!options.write.empty()) write_map(diff, options.write);
  if (output.json)
    print_json(as_json(diff));
  else
    print_table(diff, output);
  return diff.compared == 0 ? kTrouble : kFine;
}

int map_checkpoints(const Options& options, const Output& output) {
  std::optional<Progress> progress(std::in_place, output.progress, "pairing");
  const compare::CheckpointDiff diff = compare::diff_checkpoints(
      options.a, options.b, {.map = options.map, .on_progress = [&](double done) { progress->show(done); }});
  progress.reset();
  if (!options.write.empty()) {
    std::vector<std::pair<std::string, std::string>> names;
    for (const compare::WeightPair& pair : diff.pairs)
      if (pair.how != "part" && pair.a.name != pair.b.name) names.emplace_back(pair.a.name, pair.b.name);
    write_map(names, options.write);
  }
  if (output.json)
    print_json(report::checkpoint_diff_json(diff));
  else
    print_text(report::checkpoint_map_report(diff).text(output.color, output.width));
  return diff.paired_a == 0 ? kTrouble : kFine;
}

}  // namespace

Action prepare_map(CLI::App& app) {
  auto options = std::make_shared<Options>();
  app.add_option("a", options->a,
                 "The reference: a run's folder, or a checkpoint (.safetensors .gguf .pt, a folder of shards)")
      ->required();
  app.add_option("b", options->b, "Another one")->required();
  app.add_option("--map", options->map, "What is known: 'blocks.*=layers.*', names of modules or tensors")
      ->take_all()
      ->expected(1);
  app.add_option("--write", options->write, "Write the map to this file, for `tenscope diff --map-file`");
  return [options](const Output& output) -> int {
    for (std::string* path : {&options->a, &options->b}) *path = find_run(*path).string();
    const bool are_runs = compare::is_run_folder(options->a) && compare::is_run_folder(options->b);
    const bool is_any_file =
        std::filesystem::is_regular_file(options->a) || std::filesystem::is_regular_file(options->b);
    return !are_runs && (is_any_file || compare::are_checkpoints(options->a, options->b))
               ? map_checkpoints(*options, output)
               : map_runs(*options, output);
  };
}

}  // namespace tenscope::cli
