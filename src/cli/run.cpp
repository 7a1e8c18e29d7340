#include "cli/commands.hpp"
#include "cli/python.hpp"

// Recording happens in the script's own Python: this verb finds it and becomes `python -m tenscope.run ...`.

namespace tenscope::cli {

Action prepare_run(CLI::App& app) {
  app.prefix_command();  // what is not ours is passed on as it stands: tenscope.run parses it, and its --help answers
  app.set_help_flag();
  return [&app](const Output&) -> int { become_python("tenscope.run", app.remaining()); };
}

}  // namespace tenscope::cli
