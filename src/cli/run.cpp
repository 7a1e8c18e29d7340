#include "cli/commands.hpp"
#include "cli/python.hpp"

// Recording happens in the script's own Python: this verb finds it and becomes `python -m tenscope.run ...`.

namespace tenscope::cli {

Action prepare_run(CLI::App& app) {
  app.prefix_command();  // what is not ours is passed on as it stands: tenscope.run parses it, and its --help answers
  app.set_help_flag();
  auto python = std::make_shared<std::string>();
  app.add_option("--python", *python, "The interpreter to use; before all other options");
  return [&app, python](const Output&) -> int { become_python("tenscope.run", app.remaining(), *python); };
}

}  // namespace tenscope::cli
