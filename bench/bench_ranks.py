"""A run of many ranks: what listing, checking, verifying, comparing and opening it costs from 8 ranks to 512.

Every rank trains a small GPT for three steps on batches of its own, its gradients averaged as DDP does, all of it
recorded. The exponent is the slope of CPU time over ranks, both as logarithms: 1 is linear. A command's first
milliseconds do not grow with the run, so ranks and costs are those beyond a run of two ranks.

python bench/bench_ranks.py [--ranks 8 32 128 512] [--folder DIR] [--open-files 256] [--only COMMAND]
"""

import argparse
import copy
import math
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import tenscope
import torch
import torch.nn.functional as F
from torch import nn

WIDTH, LAYERS, HEADS, TOKENS, BATCH, WORDS, STEPS = 32, 2, 4, 16, 2, 64, 3
ROUNDS = 3  # of which the one with the least CPU time counts
AVERAGED = 4  # batches that the averaged gradients are made of


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.act, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = (z.view(b, t, HEADS, -1).transpose(1, 2) for z in self.qkv(self.norm1(x)).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, WIDTH)
        x = x + self.proj(y)
        return x + self.down(self.act(self.up(self.norm2(x))))


def new_model(eps):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(WORDS, WIDTH), *(Block() for _ in range(LAYERS)), nn.Linear(WIDTH, WORDS))
    model[LAYERS].norm2.eps = eps
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


def backward(model, rank, step):
    words = torch.randint(0, WORDS, (BATCH, TOKENS + 1), generator=torch.Generator().manual_seed(rank * STEPS + step))
    F.cross_entropy(model(words[:, :-1]).flatten(0, 1), words[:, 1:].flatten()).backward()


def averaged_gradients(eps):
    """What the all-reduce gives every rank, by step."""
    model, optimizer = new_model(eps)
    gradients = []
    for step in range(STEPS):
        optimizer.zero_grad()
        for rank in range(AVERAGED):
            backward(model, rank, step)
        gradients.append([p.grad.clone() / AVERAGED for p in model.parameters()])
        for p, gradient in zip(model.parameters(), gradients[-1], strict=True):
            p.grad.copy_(gradient)
        optimizer.step()
    return gradients


def record(folder, name, ranks, eps=1e-5):
    gradients = averaged_gradients(eps)
    model, optimizer = new_model(eps)
    initial = copy.deepcopy(model.state_dict())
    for rank in range(ranks):
        model.load_state_dict(initial)
        options = {"name": name, "rank": rank, "world_size": ranks, "join": rank > 0, "metadata": False}
        with tenscope.Run(folder, **options), tenscope.trace(model, grads=True, param_grads=True, params=True):
            for step in range(STEPS):
                optimizer.zero_grad()
                backward(model, rank, step)
                for p, gradient in zip(model.parameters(), gradients[step], strict=True):
                    p.grad.copy_(gradient)
                optimizer.step()
                tenscope.step()
    return folder / name


class Watch(threading.Thread):
    """The most memory resident and mapped, and the most files open, as the system tells of a process while it runs."""

    def __init__(self, process):
        super().__init__(daemon=True)
        self.process, self.resident, self.mapped, self.files = process, 0, 0, 0
        self.start()

    def run(self):
        proc = Path(f"/proc/{self.process.pid}")
        try:
            while True:
                self.files = max(self.files, len(os.listdir(proc / "fd")))
                status = (proc / "status").read_text()
                if not status.startswith("Name:\tsh\n"):
                    self.mapped, self.resident = (
                        int(status.split(k)[1].split()[0]) * 1024 for k in ("VmPeak:", "VmHWM:")
                    )
                time.sleep(0.002)
        except (OSError, IndexError):
            return  # it has ended


class Cost:
    def __init__(self, command, open_files):
        limited = ["sh", "-c", f'ulimit -n {open_files}; exec "$@"', "sh", *command]
        began = time.perf_counter()
        process = subprocess.Popen(limited, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        watch = Watch(process)
        trouble = process.stderr.read().decode()
        _, status, used = os.wait4(process.pid, 0)
        self.wall = time.perf_counter() - began
        self.cpu = used.ru_utime + used.ru_stime
        watch.join()
        self.resident, self.mapped, self.files = watch.resident, watch.mapped, watch.files
        if os.waitstatus_to_exitcode(status) not in (0, 1):
            sys.exit(f"{' '.join(map(str, command))} failed: {trouble}")


def commands(folder, ranks):
    a, same, other = (folder / f"{name}-{ranks}" for name in ("a", "same", "other"))
    program = [Path(sys.executable).with_name("tenscope")]
    read = f"import tenscope; tenscope.open({str(a)!r})['3.output']"
    return {
        "ls": [*program, "ls", a],
        "ls NAMES": [*program, "ls", a, "1.qkv.*"],
        "check": [*program, "check", a],
        "verify": [*program, "verify", a],
        "diff, equal": [*program, "diff", a, same],
        "diff, all ranks differ": [*program, "diff", a, other],
        "diff --ranks": [*program, "diff", a, "--ranks"],
        'tenscope.open(run)["3.output"]': [sys.executable, "-c", read],
    }


def exponent(counts, costs):
    """The slope of the least squares through the logarithms of what is more than in the smallest run."""
    least = counts[0]
    points = [(math.log(n - least), math.log(max(costs[n].cpu - costs[least].cpu, 1e-3))) for n in counts[1:]]
    x0, y0 = (sum(values) / len(points) for values in zip(*points, strict=True))
    return sum((x - x0) * (y - y0) for x, y in points) / sum((x - x0) ** 2 for x, _ in points)


def make_runs(folder, ranks):
    for name, eps in (("a", 1e-5), ("same", 1e-5), ("other", 1e-2)):
        if not (folder / f"{name}-{ranks}").exists():
            record(folder, f"{name}-{ranks}", ranks, eps)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, nargs="+", default=[8, 32, 128, 512])
    parser.add_argument("--folder", type=Path, help="where the runs are kept; default: a temporary folder")
    parser.add_argument("--open-files", type=int, default=256, help="how many a process may have; default: %(default)s")
    parser.add_argument("--only", default="", help="only commands that begin like this")
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp())
    counts = [2, *options.ranks]
    torch.set_num_threads(1)  # of such small tensors more would only wait for each other
    try:
        for ranks in counts:
            make_runs(folder, ranks)
        events = len(tenscope.open(folder / "a-2")) // 2
        print(f"{events} events a rank, {os.cpu_count()} cores, at most {options.open_files} open files")
        print(f"{'':32} {'ranks':>5} {'CPU s':>8} {'s':>8} {'resident':>9} {'mapped':>9} {'files':>5}  exponent")
        for name in commands(folder, counts[0]):
            if not name.startswith(options.only):
                continue
            costs = {}
            for ranks in counts:
                tries = [Cost(commands(folder, ranks)[name], options.open_files) for _ in range(ROUNDS)]
                cost = costs[ranks] = min(tries, key=lambda one: one.cpu)
                slope = f"{exponent(counts, costs):.2f}" if ranks == counts[-1] and len(counts) > 2 else ""
                print(
                    f"{name:32} {ranks:5} {cost.cpu:8.2f} {cost.wall:8.2f} {cost.resident / 1e6:6.0f} MB"
                    f" {cost.mapped / 1e6:6.0f} MB {cost.files:5}  {slope}",
                    flush=True,
                )
    finally:
        if options.folder is None:
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()
