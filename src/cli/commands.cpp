#include "cli/commands.hpp"

namespace tenscope::cli {
namespace {

constexpr Command kCommands[] = {
    {"completion", "Print the completion script of a shell",
     "  tenscope completion bash > ~/.local/share/bash-completion/completions/tenscope\n"
     "  source <(tenscope completion zsh)",
     prepare_completion},
};

}  // namespace

std::span<const Command> commands() { return kCommands; }

}  // namespace tenscope::cli
