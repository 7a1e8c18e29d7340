"""Tracing a GPT of 12 layers, d=512, batch 4 x 128 tokens: each row is a ratio against a peer in the same run."""

import shutil
import tempfile
import time
from pathlib import Path

import tenscope
import torch
import torch.nn.functional as F
from torch import nn

DIM, LAYERS, HEADS, BATCH, TOKENS = 512, 12, 8, 4, 128
ROUNDS = 7


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.qkv, self.proj = nn.Linear(DIM, 3 * DIM), nn.Linear(DIM, DIM)
        self.up, self.act, self.down = nn.Linear(DIM, 4 * DIM), nn.GELU(), nn.Linear(4 * DIM, DIM)

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = (z.view(b, t, HEADS, -1).transpose(1, 2) for z in self.qkv(self.norm1(x)).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, DIM)
        x = x + self.proj(y)
        return x + self.down(self.act(self.up(self.norm2(x))))


def make_model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Embedding(256, DIM), *(Block() for _ in range(LAYERS)), nn.Linear(DIM, 256)).eval()


def best_times(variants, seldom=()):
    """The best of some rounds for each; the rounds are interleaved, so that a busy machine is unfair to all alike.

    A work that measures itself returns its seconds. Those in `seldom` are slow and run in the first two rounds only.
    """
    best = dict.fromkeys(variants, float("inf"))
    for number in range(ROUNDS):
        for name, work in variants.items():
            if name in seldom and number >= 2:
                continue
            started = time.perf_counter()
            seconds = work()
            best[name] = min(best[name], seconds or time.perf_counter() - started)
    return best


def main():
    model = make_model()
    folder = Path(tempfile.mkdtemp())
    runs = {values: tenscope.Run(folder, name=values, rank=0) for values in ("full", "stats")}
    time.sleep(2)  # how the runs were made is noted in the background

    def new_ids():
        return torch.randint(0, 256, (BATCH, TOKENS))  # others each time: equal bytes would be stored once

    def seconds_of(work):
        ids = new_ids()
        started = time.perf_counter()
        with torch.no_grad():
            work(ids)
        return time.perf_counter() - started

    def untraced():
        return seconds_of(model)

    def cloned():
        kept = []
        handles = [m.register_forward_hook(lambda m, i, o: kept.append(o.clone())) for m in model.modules()]
        seconds = seconds_of(model)
        for handle in handles:
            handle.remove()
        return seconds

    def traced(values):
        def work():
            with tenscope.trace(model, inputs=False, values=values, run=runs[values]):
                return seconds_of(model)

        return work

    def debug_mode():
        from torch.utils._debug_mode import DebugMode

        with DebugMode() as mode, mode.log_tensor_hashes():
            return seconds_of(model)

    variants = {
        "untraced": untraced,
        "hook that clones": cloned,
        "outputs in full": traced("full"),
        "statistics": traced("stats"),
    }
    try:
        debug_mode()
        variants["DebugMode with hashes"] = debug_mode
    except Exception as error:
        print(f"torch's DebugMode with hashes is not to be had here: {type(error).__name__}: {error}")
    untraced()
    best = best_times(variants, seldom={"DebugMode with hashes"})
    threads = torch.get_num_threads()
    print(f"GPT of {LAYERS} layers, d={DIM}, batch {BATCH} x {TOKENS}, torch {torch.__version__}, {threads} threads")
    for name, seconds in best.items():
        print(f"  {name:24} {seconds * 1e3:8.1f} ms")
    print(
        f"outputs in full / hook that clones   {best['outputs in full'] / best['hook that clones']:.3f}  (goal <= 1.15)"
    )
    print(f"statistics / untraced                {best['statistics'] / best['untraced']:.3f}  (goal <= 1.15)")
    if "DebugMode with hashes" in best:
        added = best["statistics"] - best["untraced"]
        ratio = (
            f"{(best['DebugMode with hashes'] - best['untraced']) / added:.1f}" if added > 0 else "too noisy to tell"
        )
        print(f"added by DebugMode / by statistics   {ratio}  (goal >= 5)")
    spy_outside()
    for run in runs.values():
        run.close()
    shutil.rmtree(folder)


def spy_outside(calls=1_000_000):
    def empty(name, value, module):
        pass

    def time_of(function):
        started = time.perf_counter()
        for _ in range(calls):
            function("q", None, None)
        return time.perf_counter() - started

    best = best_times({"empty": lambda: time_of(empty), "spy": lambda: time_of(tenscope.spy)})
    print(f"spy outside / an empty function      {best['spy'] / best['empty']:.2f}  (goal <= 1)")


if __name__ == "__main__":
    main()
