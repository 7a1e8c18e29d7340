#include <fmt/format.h>

#include <memory>
#include <optional>

#include "cli/commands.hpp"
#include "cli/open_run.hpp"
#include "cli/print.hpp"
#include "cli/progress.hpp"
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
      std::optional<Progress> progress(std::in_place, output.progress,
                                       fmt::format("repairing {}", run.filename().string()));
      const std::vector<std::string> actions = repair(run);
      progress.reset();
      json.begin_object().key("path").text(run.string()).key("actions").begin_array();
      for (const std::string& action : actions) json.text(action);
      json.end_array().end_object();
      if (output.json) continue;
      print("{}: {}\n", run.string(), actions.empty() ? "nothing to repair" : "repaired");
      for (const std::string& action : actions) print("  {}\n", action);
    }
    json.end_array().end_object();
    if (output.json) print_json(text);
    return kFine;
  };
}

}  // namespace tenscope::cli
