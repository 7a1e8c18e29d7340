#include "cli/commands.hpp"
#include "cli/python.hpp"

// The program is run again by its own Python: this verb finds it and becomes `python -m tenscope.launch.noise ...`.

namespace tenscope::cli {

Action prepare_noise(CLI::App& app) {
  app.prefix_command();  // what follows may be a script with words of its own; tenscope.launch.noise answers --help
  app.set_help_flag();
  return [&app](const Output& output) -> int {
    std::vector<std::string> words = app.remaining();
    if (output.json) words.insert(words.begin(), "--json");
    become_python("tenscope.launch.noise", words);
  };
}

}  // namespace tenscope::cli
