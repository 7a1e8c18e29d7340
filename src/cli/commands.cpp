#include "cli/commands.hpp"

namespace tenscope::cli {
namespace {

constexpr Command kCommands[] = {
    {"run", "Record a PyTorch script with no change to it",
     "  tenscope run train.py --epochs 1\n"
     "  tenscope run --out runs --name baseline --steps 0:3 train.py\n"
     "  tenscope run --stats -m package.train",
     prepare_run},
    {"completion", "Print the completion script of a shell",
     "  tenscope completion bash > ~/.local/share/bash-completion/completions/tenscope\n"
     "  source <(tenscope completion zsh)",
     prepare_completion},
};

}  // namespace

std::span<const Command> commands() { return kCommands; }

}  // namespace tenscope::cli
