#include <fmt/format.h>

#include <memory>
#include <string>

#include "cli/commands.hpp"
#include "cli/open_run.hpp"
#include "cli/python.hpp"

// Python knows the stores: this verb finds the run and becomes `python -m tenscope.remote.push ...`.

namespace tenscope::cli {

Action prepare_push(CLI::App& app) {
  struct Options {
    std::string run, url;
    double interval = 10;
    bool follow = false, verify = false;
  };
  auto options = std::make_shared<Options>();
  app.add_option("run", options->run, "A run's folder, or a folder of runs: the newest in it")->required();
  app.add_option("url", options->url, "Where to: the run's own place, or, with a / at the end, the folder to put it in")
      ->required();
  app.add_flag("--follow", options->follow, "A running run: push what is new, again and again, until it has ended");
  app.add_option("--interval", options->interval, "With --follow: seconds between two looks")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_flag("--verify", options->verify, "Read everything back, also where the store's own checksum is right");
  return [options](const Output& output) -> int {
    std::vector<std::string> words = {find_runs(options->run).back().string(), options->url,
                                      fmt::format("--interval={}", options->interval)};
    if (options->follow) words.emplace_back("--follow");
    if (options->verify) words.emplace_back("--verify");
    if (output.json) words.emplace_back("--json");
    if (output.progress) words.emplace_back("--progress");
    become_python("tenscope.remote.push", words);
  };
}

}  // namespace tenscope::cli
