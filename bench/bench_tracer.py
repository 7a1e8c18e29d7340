"""Watching variables: ns per line and change against a plain loop, PySnooper, ztrace's method, a no-op trace function.

python bench/bench_tracer.py [--json]

Each figure is the best of several runs, of CPU time of the process, above the same loop without any tracing.
"""

# ruff: noqa: B007  (what is assigned is watched)

from __future__ import annotations

import argparse
import copy
import inspect
import io
import json
import platform
import sys
import tempfile
import time
import types

import tenscope
from tenscope import _core
from tenscope.lines.watch import watch


def quiet_loop(n):
    a, b = 1, 2.0
    for i in range(n):
        c = i
        d = c
    return a, b, d


def busy_loop(n):
    a, b = 0, 0.0
    for i in range(n):
        a = i
        b = i * 0.5
    return a, b


def calling_loop(n):
    a = 0
    for i in range(n):
        a = callee(i)
    return a


def callee(i):
    x = i
    for _ in range(5000):  # so long that the caller's own lines do not count
        x = x + 1
    return x


def tensor_loop(n, t):
    for i in range(n):
        c = i
        d = c
    return d


def clone(function):
    """The same code in a code object of its own, so that watching one does not touch the other."""
    return types.FunctionType(function.__code__.replace(), function.__globals__, function.__name__)


def best(function, *args, repeat=7):
    times = []
    for _ in range(repeat):
        start = time.process_time_ns()
        function(*args)
        times.append(time.process_time_ns() - start)
    return min(times)


def traced(function, *args, tracer):
    before = sys.gettrace()
    sys.settrace(tracer)
    try:
        return function(*args)
    finally:
        sys.settrace(before)


def noop(frame, event, arg):
    return noop


def repr_and_deepcopy(names, function, log):
    """ztrace's method: after each line, unless it carries the ignore mark, a deep copy of each variable that is there,
    and its repr against the last one's."""
    last = {}
    lines, first = inspect.getsourcelines(function)
    line = first

    def local(frame, event, arg):
        nonlocal line
        values = frame.f_locals
        ignored = "ztrace: ignore" in lines[line - first]
        for name in names:
            if name in values:
                now = copy.deepcopy(values[name])
                if name not in last or repr(last[name]) != repr(now):
                    last[name] = now
                    if not ignored:
                        log.append((name, now))
        line = frame.f_lineno
        return local

    return lambda frame, event, arg: local if frame.f_code is function.__code__ else None


def lines_and_changes(n):
    plain, watched = clone(quiet_loop), watch("a", "b")(clone(quiet_loop))
    base = best(plain, n)
    per_line = (best(watched, n) - base) / (3 * n)
    noop_line = (best(lambda: traced(plain, n, tracer=noop)) - base) / (3 * n)

    plain, watched = clone(busy_loop), watch("a", "b", max_changes=-1)(clone(busy_loop))
    busy_base = best(plain, n)
    watched_busy = best(watched, n)
    ztrace_busy = best(lambda: traced(plain, n // 20, tracer=repr_and_deepcopy(["a", "b"], plain, [])), repeat=3) * 20
    return {
        "untraced line": base / (3 * n),
        "line, nothing changed": per_line,
        "line, no-op sys.settrace": noop_line,
        "recorded change of a number": (watched_busy - busy_base) / (2 * n),
        "loop of two watched variables, per iteration": watched_busy / n,
        "the same by ztrace's method": ztrace_busy / n,
        "times faster than ztrace's method": ztrace_busy / watched_busy,
        **snooper(plain, n, watched_busy),
        "recorded change of a number, written into a run": (in_a_run(n // 5) - busy_base / 5) / (2 * (n // 5)),
    }


def in_a_run(n):
    watched = watch("a", "b", max_changes=-1)(clone(busy_loop))
    with tempfile.TemporaryDirectory() as folder:
        tenscope.init(folder, metadata=False)
        try:
            return best(watched, n, repeat=3)
        finally:
            tenscope.close()


def snooper(plain, n, watched_busy):
    try:
        import pysnooper
    except ImportError:
        return {}
    few = max(n // 200, 200)
    snooped = pysnooper.snoop(io.StringIO(), watch=("a", "b"))(busy_loop)
    cost = best(snooped, few, repeat=3) / few
    return {"the same by PySnooper": cost, "times faster than PySnooper": cost / (watched_busy / n)}


def callees(n):
    plain, watched = clone(calling_loop), watch("a", max_changes=0)(clone(calling_loop))
    return {"callees, watched caller against plain": best(watched, n) / best(plain, n)}


def tensors():
    try:
        import torch
    except ImportError:
        return {}
    tensor = torch.zeros(1 << 20)
    n = 20_000
    plain, watched = clone(tensor_loop), watch("t")(clone(tensor_loop))
    entry = best(watched, 1, tensor) - best(plain, 1, tensor)  # its content is read once, when the call begins
    quiet = best(watched, n, tensor) - entry - best(plain, n, tensor)

    def calling(n, t):
        for i in range(n):
            len(t)
        return i

    trusting, careful = watch("t", trust_version=True)(clone(calling)), watch("t")(clone(calling))
    trusted = best(trusting, n, tensor) - entry - best(calling, n, tensor)
    return {
        "4 MB tensor, line that cannot write": quiet / (3 * n),
        "4 MB tensor, line with a call, version trusted": trusted / n,
        "4 MB tensor, line with a call, content read": (best(careful, 50, tensor, repeat=3) - entry) / 50,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--iterations", type=int, default=100_000)
    options = parser.parse_args()
    results = {**lines_and_changes(options.iterations), **callees(options.iterations // 1000), **tensors()}
    if options.json:
        print(json.dumps({"python": platform.python_version(), "door": _core.tracer_door(), **results}))
        return
    print(f"Python {platform.python_version()}, {_core.tracer_door()}")
    for name, value in results.items():
        unit = "x" if "times" in name or "against" in name else "ns"
        print(f"  {name:<52} {value:>12.2f} {unit}")


if __name__ == "__main__":
    main()
