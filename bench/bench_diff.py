"""Comparing two runs: of 1,000,000 events next to opening both, of differing tensors next to the compare kernel over
the same bytes in memory, of equal ones by their fingerprints alone.

python bench/bench_diff.py [--events 1000000] [--gigabytes 4] [--folder DIR]
"""

import argparse
import shutil
import tempfile
import time
from pathlib import Path

import numpy as np
import tenscope

ROUNDS = 3
LAYERS = 24
TENSOR_BYTES = 32 << 20


def write_events(folder, name, count, differs):
    """A training of a model of 24 layers: calls with an input and an output, gradients, parameters."""
    run = tenscope.Run(folder, name=name, metadata=False)
    values = np.random.default_rng(0).normal(size=(count // 6, 4)).astype(np.float32)
    if differs:
        values[-1] += 1
    step = done = at = 0
    while done < count:
        for layer in range(LAYERS):
            path = f"blocks.{layer}.fc"
            where = {"root": "Net#0", "scope": path, "cls": "Linear", "call": step}
            forward = {**where, "phase": "forward"}
            run.record(path, kind="enter", **forward)
            for role, tail in (("input", "input.0"), ("output", "output")):
                run.record(f"{path}.{tail}", values[at % len(values)], io=role, **forward)
                at += 1
            run.record(path, kind="exit", **forward)
            run.record(f"{path}.weight.grad", values[(at + 1) % len(values)], io="grad", phase="backward", **where)
            run.record(f"{path}.weight", values[(at + 2) % len(values)], io="param", phase="optimizer", **where)
            done += 6
        step += 1
        run.step(step)
    run.close()
    return folder / name


def write_tensors(folder, name, count, factor):
    run = tenscope.Run(folder, name=name, metadata=False)
    values = np.random.default_rng(1).normal(size=TENSOR_BYTES // 4).astype(np.float32)
    for i in range(count):
        values[i] += 1
        run.record(f"tensor.{i}", values * np.float32(factor) if factor != 1 else values)
    run.close()
    return folder / name


def best(function):
    """Seconds by the clock and of the processor, the best of each."""
    wall, cpu = [], []
    for _ in range(ROUNDS):
        start, start_cpu = time.perf_counter(), time.process_time()
        function()
        wall.append(time.perf_counter() - start)
        cpu.append(time.process_time() - start_cpu)
    return min(wall), min(cpu)


def show(name, seconds, note=""):
    print(f"{name:46} {seconds[0]:8.3f} s {seconds[1]:8.3f} s CPU  {note}", flush=True)


def events(folder, count):
    a, b = write_events(folder, "events-a", count, False), write_events(folder, "events-b", count, True)
    opening = best(lambda: (tenscope.open(a), tenscope.open(b)))
    diffing = best(lambda: tenscope.diff(a, b))
    show(f"opening two runs of {count:,} events", opening)
    ratio = f"{diffing[0] / opening[0]:.2f} x ({diffing[1] / opening[1]:.2f} x in CPU time) of opening; goal: at most 3"
    show("tenscope.diff of them", diffing, ratio)


def tensors(folder, gigabytes):
    count = max(1, int(gigabytes * 1e9) // (2 * TENSOR_BYTES))
    size = 2 * count * TENSOR_BYTES
    # A difference of rounding's size, so that each pair is measured and none follows from another.
    a, b = write_tensors(folder, "tensors-a", count, 1), write_tensors(folder, "tensors-b", count, 1 + 1.2e-7)
    x = tenscope.open(a)["tensor.0"].copy()
    y = tenscope.open(b)["tensor.0"].copy()
    kernel = best(lambda: tenscope.diff(x, y))
    diffing = best(lambda: tenscope.diff(a, b))
    speed, own = 2 * TENSOR_BYTES / kernel[0] / 1e9, size / diffing[0] / 1e9
    show(f"the compare kernel on {2 * TENSOR_BYTES >> 20} MB in memory", kernel, f"{speed:.1f} GB/s")
    show(f"tenscope.diff of runs with {size / 1e9:.1f} GB", diffing, f"{own:.1f} GB/s: {own / speed:.2f} x; goal: 0.5")
    equal = best(lambda: tenscope.diff(a, a))
    show("tenscope.diff where all of it is equal", equal, "by fingerprints: no bytes are read")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--gigabytes", type=float, default=4, help="of differing tensors, in both runs together")
    parser.add_argument("--folder", help="where the runs are made (default: a temporary folder)")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="tenscope-bench-", dir=options.folder))
    try:
        events(folder, options.events)
        tensors(folder, options.gigabytes)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
