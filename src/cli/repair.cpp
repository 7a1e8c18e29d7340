#include <fmt/format.h>

#include <memory>

#include "cli/commands.hpp"
#include "cli/open_run.hpp"
#include "core/json_writer.hpp"

namespace tenscope::cli {

Action prepare_repair(CLI::App& app) {
  auto path = std::make_shared<std::string>();
  app.add_option("path", *path, "A run, or a folder of runs: then all in it")->required();
  return [path](const Output& output) {
    std::string text;
    JsonWriter json(text);
    json.begin_object().key("runs").begin_array();
    for (const auto& run : find_runs(*path)) {
      const std::vector<std::string> actions = repair(run);
      json.begin_object().key("path").text(run.string()).key("actions").begin_array();
      for (const std::string& action : actions) json.text(action);
      json.end_array().end_object();
      if (output.json) continue;
      fmt::print("{}: {}\n", run.string(), actions.empty() ? "nothing to repair" : "repaired");
      for (const std::string& action : actions) fmt::print("  {}\n", action);
    }
    json.end_array().end_object();
    if (output.json) fmt::print("{}\n", text);
    return kFine;
  };
}

}  // namespace tenscope::cli
