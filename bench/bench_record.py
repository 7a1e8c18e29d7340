"""What recording costs in Python, each figure beside what it is compared with, taken in turn in one process.

python bench/bench_record.py [--folder DIR] [--gigabytes 20] [--json]
"""

import argparse
import gc
import io
import json
import os
import shutil
import sys
import tempfile
import time
import timeit
from pathlib import Path

import numpy as np
import tenscope
import torch
from tenscope import _core

MB64 = 64 << 20


def best_ns(statement, names, number=500, repeat=200):
    """The fastest of many short batches: what others do on the machine disturbs few of them."""
    return min(timeit.repeat(statement, globals=names, number=number, repeat=repeat)) / number * 1e9


def empty(name, value):
    pass


def small_calls(folder):
    """Nanoseconds per call."""
    tensor = torch.rand(256)  # 1 KB
    names = {
        "record": tenscope.record,
        "empty": empty,
        "tensor": tensor,
        "torch": torch,
        "io": io,
        "folder": folder,
        "step": tenscope.step,
    }
    run = tenscope.init(folder, metadata=False)
    results = {"number": best_ns("record('loss', 1.5)", names)}
    results["1 KB tensor, unchanged"] = best_ns("record('x', tensor)", names)
    results["1 KB tensor, changed"] = best_ns("tensor.add_(1); record('x', tensor)", names) - best_ns(
        "tensor.add_(1)", names
    )
    results["torch.save of 1 KB to a file"] = best_ns(
        "torch.save(tensor, folder / 'x.pt')", names, number=10, repeat=50
    )
    results["torch.save of 1 KB to memory"] = best_ns("torch.save(tensor, io.BytesIO())", names, number=10, repeat=50)
    tenscope.disable()
    results["disabled"] = best_ns("record('x', tensor)", names)
    results["an empty Python function"] = best_ns("empty('x', tensor)", names)
    tenscope.close()
    shutil.rmtree(run.path)
    return results


def drop(path):
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def timed(body):
    """Seconds by the clock, and of CPU: on a busy machine only the latter tells."""
    began, began_cpu = time.perf_counter(), time.process_time()
    body()
    return np.array([time.perf_counter() - began, time.process_time() - began_cpu])


def large_tensors(folder, rounds):
    """Seconds per 64 MB, each method for as many tensors as make up some GB. Those that write begin with nothing left
    to be written to the disk and write to new files, which are deleted afterwards; the better of two passes counts."""
    source = torch.rand(MB64 // 4)
    array = source.numpy()
    target = array.copy()
    files = folder / "files"
    methods = {
        "memcpy": lambda i: np.copyto(target, array),
        "record, changed": lambda i: tenscope.record("x", source),
        "np.save": lambda i: np.save(files / f"{i}.npy", array),
        "torch.save": lambda i: torch.save(source, files / f"{i}.pt"),
    }
    best = {name: np.full(2, np.inf) for name in methods}
    for _ in range(2):
        for name, method in methods.items():
            files.mkdir()
            run = tenscope.init(folder, metadata=False)
            os.sync()
            total = np.zeros(2)
            for i in range(rounds):
                array[:: 4096 // 4] = i  # every page, so that nothing is what it was
                total += timed(lambda method=method, i=i: method(i))
            best[name] = np.minimum(best[name], total)
            tenscope.close()
            drop(run.path)
            drop(files)
    best |= unchanged_tensor(folder, source, rounds)
    return {name: (total / rounds).tolist() for name, total in best.items()}


def unchanged_tensor(folder, source, rounds):
    """In turn, of the same memory: another piece of it may be faster, or slower, by a half."""
    run = tenscope.init(folder, metadata=False)
    tenscope.record("y", source)
    tenscope.record("y", source)
    total = {"XXH3-128": np.zeros(2), "record, unchanged": np.zeros(2)}
    for _ in range(rounds):
        total["XXH3-128"] += timed(lambda: _core.fingerprint(source))
        total["record, unchanged"] += timed(lambda: tenscope.record("y", source))
    tenscope.close()
    drop(run.path)
    return total


def anonymous_bytes():
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    return 0


def memory_growth(folder, gigabytes):
    """Anonymous memory after recording so much, above that after the first tensors; a ring keeps the disk small."""
    tensor = torch.rand(MB64 // 4)
    run = tenscope.init(folder, metadata=False, max_bytes=2 << 30, keep="last")
    for i in range(4):
        tensor[:: 4096 // 4] = i
        tenscope.record("x", tensor)
    gc.collect()
    before = highest = anonymous_bytes()
    for i in range(gigabytes << 30 >> 26):
        tensor[:: 4096 // 4] = i + 10
        tenscope.record("x", tensor)
        highest = max(highest, anonymous_bytes())
    tenscope.close()
    drop(run.path)
    return highest - before


def report(small, large, growth, gigabytes):
    rate = {name: MB64 / wall / 1e9 for name, (wall, _) in large.items()}
    cpu = {name: MB64 / busy / 1e9 for name, (_, busy) in large.items()}

    def against(ours, peer):
        ratio, by_cpu = rate[ours] / rate[peer], cpu[ours] / cpu[peer]
        return ratio, f"{rate[ours]:.2f} / {rate[peer]:.2f} GB/s = {ratio:.2f} × (by CPU time {by_cpu:.2f} ×)"

    changed = small["1 KB tensor, changed"]
    rows = [
        ("record of a number", f"{small['number']:.0f} ns", "at most 1 µs", small["number"] <= 1000),
        ("record of a 1 KB torch tensor, changed", f"{changed:.0f} ns", "at most 5 µs", changed <= 5000),
        ("record of a 1 KB torch tensor, unchanged", f"{small['1 KB tensor, unchanged']:.0f} ns", "", None),
    ]  # fmt: skip
    save = small["torch.save of 1 KB to a file"] / small["1 KB tensor, changed"]
    rows.append(("… against torch.save to a file", f"{save:.0f} × faster", "at least 20 ×", save >= 20))
    off = small["disabled"] / small["an empty Python function"]
    rows.append(
        (
            "disabled, against an empty function",
            f"{small['disabled']:.0f} / {small['an empty Python function']:.0f} ns",
            "at most 1 ×",
            off <= 1,
        )
    )
    for name, floor in (("memcpy", 0.4), ("torch.save", 4), ("np.save", 0.8)):
        ratio, told = against("record, changed", name)
        rows.append((f"64 MB changed, against {name}", told, f"at least {floor} ×", ratio >= floor))
    ratio, told = against("record, unchanged", "XXH3-128")
    rows.append(("64 MB unchanged, against XXH3-128", told, "at least 0.8 ×", ratio >= 0.8))
    rows.append(
        (f"anonymous memory over {gigabytes} GB", f"+{growth / 2**20:.1f} MB", "at most 64 MB", growth <= 64 << 20)
    )
    print("| | measured | goal | |\n|---|---|---|---|")
    for name, measured, goal, met in rows:
        print(f"| {name} | {measured} | {goal} | {'' if met is None else 'met' if met else 'not met'} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", default=None, help="where to write; a folder of its own is made in it")
    parser.add_argument("--rounds", type=int, default=64, help="tensors of 64 MB a method")
    parser.add_argument("--gigabytes", type=int, default=20, help="how much to record while watching memory")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    folder = Path(tempfile.mkdtemp(prefix="tenscope-bench-", dir=options.folder))
    try:
        small = small_calls(folder)
        large = large_tensors(folder, options.rounds)
        growth = memory_growth(folder, options.gigabytes)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if options.json:
        json.dump(
            {"small_ns": small, "large_s_per_64mb": large, "growth_bytes": growth, "cpus": os.cpu_count()},
            sys.stdout,
            indent=2,
        )
    else:
        report(small, large, growth, options.gigabytes)


if __name__ == "__main__":
    main()
