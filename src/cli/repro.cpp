#include <memory>
#include <optional>
#include <string>

#include "cli/commands.hpp"
#include "cli/open_run.hpp"
#include "cli/python.hpp"

// What differs "here and now" is a matter of this machine's Python and its packages, so Python answers.

namespace tenscope::cli {

Action prepare_repro(CLI::App& app) {
  struct Options {
    std::string run, into, repo, output;
    std::optional<std::string> call;  // empty: the outermost module
    std::optional<std::int64_t> step, call_index, rank;
    bool check = false;
  };
  auto options = std::make_shared<Options>();
  app.add_option("run", options->run, "A run's folder, or a folder of runs: the newest in it")->required();
  auto* check =
      app.add_flag("--check", options->check, "Say what differs from here and now; exit 1 where something does");
  auto* into =
      app.add_option("--into", options->into, "Make the checkout with the patch applied, requirements.txt and run.sh");
  auto* repo = app.add_option("--repo", options->repo, "With --into: clone from there instead of the recorded folder");
  auto* call = app.add_option("--call", options->call, "Make a folder that makes one call of this module again")
                   ->excludes(check)
                   ->excludes(into)
                   ->excludes(repo);
  app.add_option("--step", options->step, "With --call: a call of this step (default: the first)")->needs(call);
  app.add_option("--call-index", options->call_index, "With --call: the call of this number, as diff says")
      ->needs(call);
  app.add_option("--rank", options->rank, "With --call: as this rank recorded it")->needs(call);
  app.add_option("-o,--output", options->output, "With --call: the folder to make")->needs(call);
  return [options](const Output& output) -> int {
    std::vector<std::string> words = {find_run_folder(options->run).string()};
    const auto add = [&words](const char* word, const std::optional<std::int64_t>& number) {
      if (number) words.insert(words.end(), {word, std::to_string(*number)});
    };
    if (options->check) words.emplace_back("--check");
    if (output.json) words.emplace_back("--json");
    if (!options->into.empty()) words.insert(words.end(), {"--into", options->into});
    if (!options->repo.empty()) words.insert(words.end(), {"--repo", options->repo});
    if (options->call) words.push_back("--call=" + *options->call);
    add("--step", options->step);
    add("--call-index", options->call_index);
    add("--rank", options->rank);
    if (!options->output.empty()) words.insert(words.end(), {"--output", options->output});
    become_python("tenscope.metadata.repro", words);
  };
}

}  // namespace tenscope::cli
