"""tenscope.compare and diff of two equal 256 MB float32 arrays against numpy, torch and a plain read, in one run."""

import time

import numpy as np
import tenscope

ROUNDS = 5
COUNT = 64 << 20


def best(function):
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


def main():
    a = np.random.default_rng(0).random(COUNT, dtype=np.float32)
    b = a.copy()
    near = a * np.float32(1 + 1e-7)
    rows = {
        "plain read of both (numpy max)": lambda: (a.max(), b.max()),
        "tenscope.compare": lambda: tenscope.compare(a, b),
        "tenscope.diff, equal": lambda: tenscope.diff(a, b),
        "tenscope.diff, all but equal": lambda: tenscope.diff(a, near),
        "np.allclose": lambda: np.allclose(a, b),
    }
    try:
        import torch

        x, y = torch.from_numpy(a), torch.from_numpy(b)
        rows["torch.allclose"] = lambda: torch.allclose(x, y)
        rows["tenscope.compare of torch tensors"] = lambda: tenscope.compare(x, y)
    except ImportError:
        pass
    seconds = {name: best(function) for name, function in rows.items()}
    mine = seconds["tenscope.compare"]
    print(f"{'2 x 256 MB float32':36} {'ms':>8}  {'GB/s':>6}  compare is")
    for name, value in seconds.items():
        print(f"{name:36} {value * 1e3:8.1f}  {8 * COUNT / value * 1e-9:6.1f}  {value / mine:5.2f} x faster")


if __name__ == "__main__":
    main()
