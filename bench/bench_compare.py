"""compare and diff of two 256 MB float32 arrays against a plain read, NumPy and torch: ratios of best times in one run.

Taken in turn, so that a busy machine is busy for all. CPU time is that of all threads: what a busy machine shows best.
"""

import os
import time

import numpy as np
import tenscope
import torch

ROUNDS = 5
COUNT = 64 << 20


def measured(rows):
    best = {name: [float("inf"), float("inf")] for name in rows}
    for _ in range(ROUNDS):
        for name, function in rows.items():
            wall, cpu = time.perf_counter(), time.process_time()
            function()
            taken = time.perf_counter() - wall, time.process_time() - cpu
            best[name] = [min(pair) for pair in zip(best[name], taken, strict=True)]
    return best


def main():
    a = np.random.default_rng(0).random(COUNT, dtype=np.float32)
    b = a.copy()
    near = a * np.float32(1 + 3e-7)
    x, y = torch.from_numpy(a), torch.from_numpy(b)
    assert tenscope.compare(a, b) and tenscope.diff(a, near, atol=0, rtol=0)
    best = measured(
        {
            "plain read of both": lambda: (a.max(), b.max()),
            "compare": lambda: tenscope.compare(a, b),
            "compare, torch tensors": lambda: tenscope.compare(x, y),
            "compare, some ULPs apart": lambda: tenscope.compare(a, near),
            "diff, equal": lambda: tenscope.diff(a, b),
            "diff, some ULPs apart": lambda: tenscope.diff(a, near),
            "diff, each beyond the tolerance": lambda: tenscope.diff(a, near, atol=0, rtol=0),
            "np.allclose": lambda: np.allclose(a, b),
            "torch.allclose": lambda: torch.allclose(x, y),
        }
    )
    print(f"# {os.cpu_count()} CPUs, torch {torch.__version__} with {torch.get_num_threads()} threads")
    print(f"{'2 x 256 MB float32':34} {'ms':>7} {'CPU ms':>7} {'GB/s':>6}")
    for name, (wall, cpu) in best.items():
        print(f"{name:34} {wall * 1e3:7.1f} {cpu * 1e3:7.1f} {8e-9 * COUNT / wall:6.1f}")
    goals = [
        ("compare", "plain read of both", 0.7),
        ("compare", "np.allclose", 8),
        ("compare", "torch.allclose", 15),
        ("diff, equal", "plain read of both", 0.3),
        ("diff, some ULPs apart", "plain read of both", 0.3),
        ("diff, each beyond the tolerance", "plain read of both", 0.3),
    ]
    for ours, peer, goal in goals:
        wall, cpu = (theirs / mine for theirs, mine in zip(best[peer], best[ours], strict=True))
        verdict = "met" if wall >= goal else "MISSED"
        print(f"{ours:34} {wall:6.2f} x {peer} (CPU {cpu:.2f} x)   goal {goal} x: {verdict}")


if __name__ == "__main__":
    main()
