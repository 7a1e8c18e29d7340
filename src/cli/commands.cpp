#include "cli/commands.hpp"

namespace tenscope::cli {
namespace {

// As python/tenscope/launch/command.py has them.
constexpr std::string_view kRunOptions =
    "--help --out --name --replace --stats --include --exclude --every --steps --max-bytes "
    "--no-sources --ops --ops-steps --ops-call --ops-stats --ops-values --eager --oracle --oracle-call "
    "--end-after --noise --move --other-kernels --against --stop --pdb --keep-going --prefix --tolerance "
    "--onnx --inputs --chunk --optimised";

constexpr Command kCommands[] = {
    {"run", "Record", "Record a PyTorch script with no change to it",
     "  tenscope run train.py --epochs 1\n"
     "  tenscope run --out runs --name baseline --steps 0:3 train.py\n"
     "  tenscope run --stats -m package.train",
     prepare_run, false, kRunOptions},
    {"ls", "Look", "List runs, or the tensors and values of a run",
     "  tenscope ls\n"
     "  tenscope ls runs/20261115_201530\n"
     "  tenscope ls runs/20261115_201530 'blocks.*.attn.*' --all",
     prepare_ls, true},
    {"show", "Look", "Show a tensor's values, statistics and histogram, or a number's curve over steps",
     "  tenscope show runs loss\n"
     "  tenscope show runs blocks.0.attn.q --step 3\n"
     "  tenscope show runs blocks.0.attn.q --step 3 --call 1 --slice '0,:,3:7'\n"
     "  tenscope show runs --source model.py",
     prepare_show, true},
    {"plot", "Look", "Draw numbers over steps: in the terminal, or to an .svg or .png file",
     "  tenscope plot runs loss\n"
     "  tenscope plot runs loss 'blocks.*.grad_norm' -o curves.svg\n"
     "  tenscope plot runs/good loss --against runs/bad\n"
     "  tenscope plot runs 'blocks.*.mlp.output' --stat std --log",
     prepare_plot, true},
    {"tree", "Look", "Show what happened, in order, as a tree of calls, values and changes",
     "  tenscope tree runs\n"
     "  tenscope tree runs --function 'Attention*' --step 0\n"
     "  tenscope tree runs --variable loss --since 1.5 --until 2",
     prepare_tree, true},
    {"check", "Look", "Look a run over: NaN, overflow, dead units, gradients, ranks out of step",
     "  tenscope check runs\n"
     "  tenscope check runs --set exploding-gradient=100 --ignore dead-units\n"
     "  tenscope check --rules",
     prepare_check, true},
    {"graph", "Look", "Draw a run's modules and their calls, coloured by time, NaN or how another run differs",
     "  tenscope graph runs -o graph.svg\n"
     "  tenscope graph runs/good --against runs/bad -o graph.png\n"
     "  tenscope graph runs --color time --depth 3 -o graph.svg\n"
     "  tenscope graph trace.txt --merge name -o graph.dot",
     prepare_graph, true},
    {"view", "Look", "Look at runs and files of tensors in the browser: the answer first, down to every element",
     "  tenscope view runs\n"
     "  tenscope view runs/good runs/bad\n"
     "  tenscope view a.pt b.npy\n"
     "  tenscope view s3://bucket/runs/baseline runs/new\n"
     "  tenscope view runs/20261115_201530 --port 9000 --no-open",
     prepare_view, true},
    {"diff", "Compare",
     "Compare two runs, files or folders of tensors: how and where does the second differ from the first",
     "  tenscope diff runs/good runs/bad\n"
     "  tenscope diff runs/torch runs/jax --map 'blocks.*=layers.*' --html diff.html\n"
     "  tenscope diff runs/ddp --ranks\n"
     "  tenscope diff runs/good runs/bad --dask tcp://node1:8786\n"
     "  tenscope diff a.pt b.npy\n"
     "  tenscope diff before/ after/ --rtol 1e-3 --top 5\n"
     "  tenscope diff a.safetensors b.safetensors --ulp 2 --json\n"
     "  tenscope diff model.safetensors model.gguf",
     prepare_diff, true},
    {"zoom", "Compare", "Run two recorded programs again and name the operation and source line where they part",
     "  tenscope zoom runs/good runs/bad\n"
     "  tenscope zoom runs/good runs/bad --b-command 'python train.py --fast'\n"
     "  tenscope zoom runs/good runs/bad --json",
     prepare_zoom},
    {"noise", "Compare",
     "Run a program again with harmless changes and measure how much rounding moves each of its values",
     "  tenscope noise runs/good\n"
     "  tenscope noise --name good train.py --epochs 1\n"
     "  tenscope diff runs/good runs/new",
     prepare_noise, false, "--help --runs --output"},
    {"map", "Compare",
     "Show which tensor of one run or checkpoint is which of another: by modules and names, else by content",
     "  tenscope map runs/torch runs/engine\n"
     "  tenscope map runs/torch runs/engine --write engine.map\n"
     "  tenscope diff runs/torch runs/engine --map-file engine.map\n"
     "  tenscope map model.safetensors model.gguf",
     prepare_map, true},
    {"explain", "Compare", "Say how one tensor follows from another, in words and as a NumPy expression",
     "  tenscope explain a.npy b.npy\n"
     "  tenscope explain a.safetensors:q_proj.weight b.gguf:blk.0.attn_q.weight\n"
     "  tenscope explain runs/good:attn.output runs/bad:attn.output --step 3 --json",
     prepare_explain, true},
    {"verify", "Look after", "Check every checksum and fingerprint of a run",
     "  tenscope verify runs/20261115_201530\n"
     "  tenscope verify runs --json",
     prepare_verify, true},
    {"repair", "Look after", "Seal what a crash left open",
     "  tenscope repair runs/20261115_201530 && tenscope verify runs/20261115_201530", prepare_repair},
    {"export", "Look after",
     "Write tensors to .npy, .npz, .safetensors or .h5, events to a table, curves to TensorBoard",
     "  tenscope export runs q.npy --name blocks.0.attn.q --step 3\n"
     "  tenscope export runs all.npz\n"
     "  tenscope export runs attn.safetensors --name 'blocks.*.attn.*' --step 2:5\n"
     "  tenscope export runs folder/ --step 0\n"
     "  tenscope export runs events.parquet\n"
     "  tenscope export runs losses.csv --name 'loss*'\n"
     "  tenscope export runs --tensorboard tb --name 'blocks.*' --stat std,absmax",
     prepare_export, true},
    {"push", "Look after", "Copy a finished or a running run to an object store, or to wherever fsspec reaches",
     "  tenscope push runs/20261115_201530 s3://bucket/runs/\n"
     "  tenscope push runs s3://bucket/runs/baseline --follow\n"
     "  tenscope diff s3://bucket/runs/baseline runs/new",
     prepare_push},
    {"repro", "Look after",
     "Tell how to run a recording again, what differs from here and now, or make one call of it again",
     "  tenscope repro runs/20261115_201530\n"
     "  tenscope repro runs --check\n"
     "  tenscope repro runs --into again && again/run.sh\n"
     "  tenscope repro runs --call blocks.3.attn -o case && python case/repro.py",
     prepare_repro},
    {"completion", "Shell", "Print the completion script of a shell",
     "  tenscope completion bash > ~/.local/share/bash-completion/completions/tenscope\n"
     "  source <(tenscope completion zsh)",
     prepare_completion},
};

}  // namespace

std::string Output::url_of(const std::string& path) const {
  for (const auto& [folder, url] : mirrors)
    if (path == folder) return url;
  return "";
}

std::span<const Command> commands() { return kCommands; }

}  // namespace tenscope::cli
