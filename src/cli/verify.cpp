#include <fmt/format.h>

#include <memory>

#include "cli/commands.hpp"
#include "cli/open_run.hpp"
#include "core/json_writer.hpp"
#include "report/table.hpp"

namespace tenscope::cli {

using namespace report;

Action prepare_verify(CLI::App& app) {
  auto path = std::make_shared<std::string>();
  app.add_option("path", *path, "A run, or a folder of runs: then all in it")->required();
  return [path](const Output& output) {
    std::string text;
    JsonWriter json(text);
    json.begin_object().key("runs").begin_array();
    bool is_fine = true;
    for (const auto& run : find_runs(*path)) {
      if (output.progress) fmt::print(stderr, "checking {} ...\r", run.string());
      const std::vector<Problem> problems = verify(run);
      if (output.progress) fmt::print(stderr, "\033[K");
      is_fine &= problems.empty();
      json.begin_object().key("path").text(run.string()).key("problems").begin_array();
      for (const Problem& problem : problems) {
        json.begin_object().key("file").text(problem.file.string()).key("offset").number(problem.offset);
        json.key("reason").text(problem.reason).end_object();
      }
      json.end_array().end_object();
      if (output.json) continue;
      fmt::print("{}: {}\n", run.string(),
                 problems.empty() ? toned("every checksum and fingerprint is right", Tone::Green, output.color)
                                  : toned(fmt::format("{} problem{}", problems.size(), problems.size() == 1 ? "" : "s"),
                                          Tone::Red, output.color));
      for (const Problem& problem : problems) {
        fmt::print("  {} at {}: {}\n", problem.file.lexically_proximate(run).string(), problem.offset, problem.reason);
      }
    }
    json.end_array().end_object();
    if (output.json) fmt::print("{}\n", text);
    return is_fine ? kFine : kDifferent;
  };
}

}  // namespace tenscope::cli
