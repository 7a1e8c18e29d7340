#include <fmt/format.h>

#include <memory>
#include <string>

#include "cli/commands.hpp"

namespace tenscope::cli {
namespace {

std::string verb_names() {
  std::string names;
  for (const Command& command : commands()) names += (names.empty() ? "" : " ") + std::string(command.name);
  return names;
}

std::string bash_script() { return fmt::format("complete -W '{}' -o default tenscope\n", verb_names()); }

}  // namespace

Action prepare_completion(CLI::App& app) {
  auto shell = std::make_shared<std::string>();
  app.add_option("shell", *shell, "bash or zsh")->required()->check(CLI::IsMember({"bash"}));
  return [shell](const Output&) {
    fmt::print("{}", bash_script());
    return kFine;
  };
}

}  // namespace tenscope::cli
