#include <memory>
#include <string>

#include "cli/commands.hpp"
#include "cli/python.hpp"

// The two programs are run again in Python, so Python leads; the comparison is the core's.

namespace tenscope::cli {

Action prepare_zoom(CLI::App& app) {
  struct Options {
    std::string a, b, a_command, b_command, keep;
    bool shows_output = false;
  };
  auto options = std::make_shared<Options>();
  app.add_option("a", options->a, "A run's folder: the reference")->required();
  app.add_option("b", options->b, "A run's folder: what became of it")->required();
  app.add_option("--a-command", options->a_command, "How to run A, where it is not as recorded");
  app.add_option("--b-command", options->b_command, "The same for B");
  app.add_option("--keep", options->keep, "Keep the recordings of operations in this folder");
  app.add_flag("--output", options->shows_output, "Show what the programs print, on stderr");
  return [options](const Output& output) -> int {
    std::vector<std::string> words = {options->a, options->b};
    if (!options->a_command.empty()) words.insert(words.end(), {"--a-command", options->a_command});
    if (!options->b_command.empty()) words.insert(words.end(), {"--b-command", options->b_command});
    if (!options->keep.empty()) words.insert(words.end(), {"--keep", options->keep});
    if (options->shows_output) words.emplace_back("--output");
    if (output.json) words.emplace_back("--json");
    become_python("tenscope.launch.zoom", words);
  };
}

}  // namespace tenscope::cli
