"""explain of two tensors of 100 M float32 against a plain read of both: CPU time of all threads, and wall time.

Best of two, taken in one run; the CPU time is what a busy machine shows best.
"""

import os
import sys
import time

import numpy as np
import tenscope

SIZE = 10_000
ROUNDS = 2


def best(function):
    results = []
    for _ in range(ROUNDS):
        wall, cpu = time.perf_counter(), time.process_time()
        function()
        results.append((time.perf_counter() - wall, time.process_time() - cpu))
    return [min(column) for column in zip(*results, strict=True)]


def main():
    rng = np.random.default_rng(0)
    a = rng.standard_normal((SIZE, SIZE), dtype=np.float32)
    order = rng.permutation(SIZE)
    vector = rng.standard_normal(SIZE, dtype=np.float32)
    makers = {
        "equal": a.copy,
        "scaled": lambda: a * np.float32(4),
        "affine": lambda: a * 4 - 2,
        "transposed": lambda: np.ascontiguousarray(a.T),
        "flipped": lambda: np.ascontiguousarray(a[:, ::-1]),
        "rolled": lambda: np.roll(a, 16, 1),
        "heads exchanged": lambda: a.reshape(100, 100, SIZE).transpose(1, 0, 2).reshape(SIZE, SIZE),
        "interleaved": lambda: a.reshape(SIZE, SIZE // 2, 2).swapaxes(1, 2).reshape(SIZE, SIZE),
        "rows permuted": lambda: a[order],
        "columns permuted": lambda: a[:, order],
        "slice": lambda: a[100:9000, 7:9999],
        "rounded to float16": lambda: a.astype(np.float16),
        "scaled by axis": lambda: a * (1 + np.arange(SIZE, dtype=np.float32) / SIZE),
        "masked": lambda: np.tril(a),
        "rank one": lambda: a + np.outer(vector, vector[::-1]),
        "sine: nothing": lambda: np.sin(a),
        "unrelated: nothing": lambda: rng.standard_normal(a.shape, dtype=np.float32),
    }
    wanted = sys.argv[1:] or list(makers)
    read_wall, read_cpu = best(lambda: (a.max(), a.max()))
    print(f"# {os.cpu_count()} CPUs; 2 x {a.nbytes / 1e6:.0f} MB float32")
    print(f"{'':22} {'ms':>7} {'CPU ms':>7} {'reads':>6}")
    print(f"{'plain read of both':22} {read_wall * 1e3:7.0f} {read_cpu * 1e3:7.0f} {1:6.1f}")
    for name in wanted:
        b = makers[name]()
        found = tenscope.explain(a, b)
        assert bool(found) == ("nothing" not in name), found.words
        wall, cpu = best(lambda b=b: tenscope.explain(a, b))
        print(f"{name:22} {wall * 1e3:7.0f} {cpu * 1e3:7.0f} {cpu / read_cpu:6.1f}   {found.words[:70]}", flush=True)


if __name__ == "__main__":
    main()
