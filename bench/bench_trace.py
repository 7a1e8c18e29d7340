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
LEAST_ROUNDS, MOST_ROUNDS = 4, 12


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


class Best:
    """The least time by the clock and the least CPU time of all threads, in seconds."""

    def __init__(self):
        self.wall = self.cpu = float("inf")

    def add(self, wall, cpu):
        self.wall, self.cpu = min(self.wall, wall), min(self.cpu, cpu)


def best_times(variants, seldom=(), budget_s=60.0):
    """The best of some rounds for each; the rounds are interleaved, so that a busy machine is unfair to all alike.

    Each work returns its seconds by the clock and of CPU. Those in `seldom` are slow and run in the first round only.
    """
    best = {name: Best() for name in variants}
    began = time.perf_counter()
    for number in range(MOST_ROUNDS):
        for name, work in variants.items():
            if number == 0 or name not in seldom:
                best[name].add(*work())
        if number + 1 >= LEAST_ROUNDS and time.perf_counter() - began > budget_s:
            break
    return best


def timed(work):
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - cpu


def added(best, name, which):
    """What a variant costs above the untraced model; no less than a millisecond, for machines that are too noisy."""
    return max(getattr(best[name], which) - getattr(best["untraced"], which), 1e-3)


def main():
    model = make_model()
    folder = Path(tempfile.mkdtemp())
    runs = {values: tenscope.Run(folder, name=values, rank=0) for values in ("full", "stats")}
    time.sleep(2)  # how the runs were made is noted in the background

    def new_ids():
        return torch.randint(0, 256, (BATCH, TOKENS))  # others each time: equal bytes would be stored once

    def seconds_of(work):
        ids = new_ids()
        with torch.no_grad():
            return timed(lambda: work(ids))

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
        import torch.utils._debug_mode

        variants["DebugMode with hashes"] = debug_mode
    except ImportError as error:
        print(f"torch's DebugMode with hashes is not to be had here: {type(error).__name__}: {error}")
    untraced()
    best = best_times(variants, seldom={"DebugMode with hashes"})
    threads = torch.get_num_threads()
    print(f"GPT of {LAYERS} layers, d={DIM}, batch {BATCH} x {TOKENS}, torch {torch.__version__}, {threads} threads")
    for name, times in best.items():
        print(f"  {name:24} {times.wall * 1e3:8.1f} ms  CPU {times.cpu * 1e3:8.1f} ms")

    def ratio(label, of, to, goal):
        wall, cpu = best[of].wall / best[to].wall, best[of].cpu / best[to].cpu
        print(f"{label:38} {wall:6.3f}  (goal {goal}; by CPU time {cpu:.3f})")

    ratio("outputs in full / hook that clones", "outputs in full", "hook that clones", "<= 1.15")
    ratio("statistics / untraced", "statistics", "untraced", "<= 1.15")
    if "DebugMode with hashes" in best:
        for name in ("statistics", "outputs in full"):
            wall, cpu = (added(best, "DebugMode with hashes", t) / added(best, name, t) for t in ("wall", "cpu"))
            print(f"{'added by DebugMode / by ' + name:38} {wall:6.1f}  (goal >= 5; by CPU time {cpu:.1f})")
    spy_outside()
    for run in runs.values():
        run.close()
    shutil.rmtree(folder)


def spy_outside(calls=1_000_000):
    def empty(name, value, module):
        pass

    def time_of(function):
        for _ in range(calls):
            function("q", None, None)

    best = best_times(
        {"empty": lambda: timed(lambda: time_of(empty)), "spy": lambda: timed(lambda: time_of(tenscope.spy))},
        budget_s=10,
    )
    wall, cpu = best["spy"].wall / best["empty"].wall, best["spy"].cpu / best["empty"].cpu
    print(f"{'spy outside / an empty function':38} {wall:6.3f}  (goal <= 1; by CPU time {cpu:.3f})")


if __name__ == "__main__":
    main()
