#include "cli/zoom.hpp"

#include <fmt/format.h>

#include <memory>
#include <string>

#include "cli/commands.hpp"
#include "cli/open_run.hpp"
#include "cli/python.hpp"
#include "tenscope/error.hpp"

// The two programs are run again in Python, so Python leads; the comparison is the core's.

namespace tenscope::cli {

void become_zoom(const std::string& a, const std::string& b, const RunDiffFlags& diff, const Output& output,
                 std::vector<std::string> words) {
  if (diff.rows || !diff.html.empty() || !diff.dask.empty() || !diff.write_map.empty())
    throw Error(ErrorCode::InvalidArgument,
                "--zoom does not go with --rows, --html, --dask and --write-map: run diff with these by itself");
  words.insert(words.begin(), {find_run_folder(a).string(), find_run_folder(b).string()});
  for (const std::string& rule : read_map(diff)) words.insert(words.end(), {"--map", rule});
  if (diff.tolerance) words.insert(words.end(), {"--tolerance", fmt::format("{}", *diff.tolerance)});
  if (!diff.noise.empty()) words.insert(words.end(), {"--noise", diff.noise});
  if (diff.ignores_noise) words.emplace_back("--no-noise");
  if (diff.strict) words.emplace_back("--strict");
  if (diff.prefix) words.emplace_back("--prefix");
  words.insert(words.end(), {"--top", std::to_string(diff.top)});
  if (output.json) words.emplace_back("--json");
  if (output.color) words.emplace_back("--color");
  if (output.is_fitted) words.insert(words.end(), {"--width", std::to_string(output.width)});
  become_python("tenscope.launch.zoom", words);
}

Action prepare_zoom(CLI::App& app) {
  struct Options {
    std::string a, b, a_command, b_command, keep;
    bool shows_output = false, is_eager = false, asks_oracle = false;
    RunDiffFlags diff;
  };
  auto options = std::make_shared<Options>();
  options->diff.top = 1;
  app.add_option("a", options->a, "A run's folder: the reference")->required();
  app.add_option("b", options->b, "A run's folder: what became of it")->required();
  app.add_option("--a-command", options->a_command, "How to run A, where it is not as recorded");
  app.add_option("--b-command", options->b_command, "The same for B");
  app.add_flag("--eager", options->is_eager, "Run what torch.compile compiles as plain Python");
  app.add_option("--keep", options->keep, "Keep the recordings of operations in this folder");
  app.add_flag("--output", options->shows_output, "Show what the programs print, on stderr");
  app.add_flag("--oracle", options->asks_oracle,
               "Make the blamed call once more in a wider type and say how far each run is from that");
  app.add_option("--map", options->diff.map, "As diff: modules with other names, 'blocks.*=layers.*'")
      ->take_all()
      ->expected(1);
  app.add_option("--map-file", options->diff.map_file, "A file with such a map on each line");
  app.add_option("--tolerance", options->diff.tolerance, "As diff: largest harmless difference");
  app.add_option("--noise", options->diff.noise, "As diff: the measured noise of each place");
  app.add_flag("--no-noise", options->diff.ignores_noise, "As diff: do not look for measured noise beside the runs");
  app.add_flag("--prefix", options->diff.prefix, "As diff: a run that ends earlier is no difference");
  return [options](const Output& output) -> int {
    std::vector<std::string> words;
    if (!options->a_command.empty()) words.insert(words.end(), {"--a-command", options->a_command});
    if (!options->b_command.empty()) words.insert(words.end(), {"--b-command", options->b_command});
    if (options->is_eager) words.emplace_back("--eager");
    if (!options->keep.empty()) words.insert(words.end(), {"--keep", options->keep});
    if (options->shows_output) words.emplace_back("--output");
    if (options->asks_oracle) words.emplace_back("--oracle");
    become_zoom(options->a, options->b, options->diff, output, std::move(words));
  };
}

}  // namespace tenscope::cli
