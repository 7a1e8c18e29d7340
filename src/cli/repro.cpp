#include <memory>
#include <string>

#include "cli/commands.hpp"
#include "cli/python.hpp"

// What differs "here and now" is a matter of this machine's Python and its packages, so Python answers.

namespace tenscope::cli {

Action prepare_repro(CLI::App& app) {
  struct Options {
    std::string run, into, repo;
    bool check = false;
  };
  auto options = std::make_shared<Options>();
  app.add_option("run", options->run, "A run's folder, or a folder of runs: the newest in it")->required();
  app.add_flag("--check", options->check, "Say what differs from here and now; exit 1 where something does");
  app.add_option("--into", options->into, "Make the checkout with the patch applied, requirements.txt and run.sh");
  app.add_option("--repo", options->repo, "With --into: clone from there instead of the recorded folder");
  return [options](const Output& output) -> int {
    std::vector<std::string> words = {options->run};
    if (options->check) words.emplace_back("--check");
    if (output.json) words.emplace_back("--json");
    if (!options->into.empty()) words.insert(words.end(), {"--into", options->into});
    if (!options->repo.empty()) words.insert(words.end(), {"--repo", options->repo});
    become_python("tenscope.metadata.repro", words);
  };
}

}  // namespace tenscope::cli
