#include "cli/commands.hpp"

namespace tenscope::cli {
namespace {

constexpr Command kCommands[] = {
    {"run", "Record a PyTorch script with no change to it",
     "  tenscope run train.py --epochs 1\n"
     "  tenscope run --out runs --name baseline --steps 0:3 train.py\n"
     "  tenscope run --stats -m package.train",
     prepare_run},
    {"repro", "Tell how to run a recording again, or what differs from here and now",
     "  tenscope repro runs/20261115_201530\n"
     "  tenscope repro runs --check\n"
     "  tenscope repro runs --into again && again/run.sh",
     prepare_repro},
    {"completion", "Print the completion script of a shell",
     "  tenscope completion bash > ~/.local/share/bash-completion/completions/tenscope\n"
     "  source <(tenscope completion zsh)",
     prepare_completion},
};

}  // namespace

std::span<const Command> commands() { return kCommands; }

}  // namespace tenscope::cli
