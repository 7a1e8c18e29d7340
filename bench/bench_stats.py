"""Training a GPT of 10.9M parameters, 8 x 128 tokens a step, under `tenscope run`: what a step costs, as a ratio of the
same step without it, in turn with it. CPU time of all threads, and time by the clock; the best step of each run."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

STEPS, ROUNDS = 10, 3

PROGRAM = """
import json, sys, time
import torch, torch.nn.functional as F
from torch import nn
DIM, LAYERS, HEADS, BATCH, TOKENS, VOCABULARY = 384, 6, 6, 8, 128, 256
class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.proj = (nn.Linear(DIM, DIM) for _ in range(4))
    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = (f(x).view(b, t, HEADS, -1).transpose(1, 2) for f in (self.q, self.k, self.v))
        return self.proj(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, DIM))
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2, self.attn = nn.LayerNorm(DIM), nn.LayerNorm(DIM), Attention()
        self.mlp = nn.Sequential(nn.Linear(DIM, 4 * DIM), nn.GELU(), nn.Linear(4 * DIM, DIM))
    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))
class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok, self.pos = nn.Embedding(VOCABULARY, DIM), nn.Embedding(TOKENS, DIM)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(DIM), nn.Linear(DIM, VOCABULARY, bias=False)
    def forward(self, ids):
        x = self.tok(ids) + self.pos(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))
torch.manual_seed(0)
model = GPT()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
steps = []
for _ in range(int(sys.argv[1])):
    clock, cpu = time.perf_counter(), time.process_time()
    ids = torch.randint(0, VOCABULARY, (BATCH, TOKENS))
    loss = F.cross_entropy(model(ids).flatten(0, 1), ids.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    steps.append((time.perf_counter() - clock, time.process_time() - cpu))
print(json.dumps([min(one) for one in zip(*steps[2:])]))
"""


def train(folder: Path, threads: int, options: list[str] | None) -> list[float]:
    """Seconds by the clock and of CPU time of the best step."""
    words = [folder / "train.py", str(STEPS)]
    if options is not None:
        words = ["-m", "tenscope.run", "--out", folder, "--name", "run", "--replace", *options, *words]
    environment = os.environ | {"OMP_NUM_THREADS": str(threads)}
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=True, env=environment)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "train.py").write_text(PROGRAM)
        print(f"{'':34} {'clock':>8} {'CPU':>8}   against the step alone")
        for threads in dict.fromkeys((1, os.cpu_count() or 1)):
            best: dict[str, list[float]] = {}
            for _ in range(ROUNDS):
                for what, options in (("alone", None), ("--stats", ["--stats"]), ("all values", [])):
                    took = train(folder, threads, options)
                    best[what] = [min(pair) for pair in zip(best.get(what, took), took, strict=True)]
            clock, cpu = best.pop("alone")
            print(f"a step alone, {threads} threads: {clock * 1e3:.0f} ms, {cpu * 1e3:.0f} ms of CPU time")
            for what, (own_clock, own_cpu) in best.items():
                print(f"  tenscope run, {what:18} {own_clock / clock:8.2f} {own_cpu / cpu:8.2f}")


if __name__ == "__main__":
    main()
