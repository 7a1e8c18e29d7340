"""Recording every torch operation of a small GPT (docs/zoom.md): microseconds an operation, beside torch's DebugMode.

CPU time, each call with inputs of its own; the first call, in which whatever is looked up once is looked up, and the
best of the later ones. DebugMode in the same run: as it is, which keeps names and shapes; with stack traces, without
which it knows no lines; and with hashes of what goes in and comes out besides, which is the nearest to a recording of
statistics.
"""

import contextlib
import shutil
import tempfile
import time
from pathlib import Path

import tenscope
import torch
from torch import nn
from torch.utils._debug_mode import DebugMode
from torch.utils._python_dispatch import TorchDispatchMode

DIM, LAYERS, HEADS, BATCH, TOKENS = 32, 4, 4, 2, 16
ROUNDS, CALLS = 8, 8


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.qkv, self.proj = nn.Linear(DIM, 3 * DIM), nn.Linear(DIM, DIM)
        self.up, self.down = nn.Linear(DIM, 4 * DIM), nn.Linear(4 * DIM, DIM)

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = (z.view(b, t, HEADS, -1).transpose(1, 2) for z in self.qkv(self.norm1(x)).chunk(3, -1))
        scores = q @ k.transpose(-2, -1) / 3
        y = (scores.softmax(-1) @ v).transpose(1, 2).reshape(b, t, DIM)
        x = x + self.proj(y)
        return x + self.down(torch.relu(self.up(self.norm2(x))))


class Counting(TorchDispatchMode):
    """The least that a mode can cost."""

    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += 1
        return func(*args, **(kwargs or {}))


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = nn.Sequential(*(Block() for _ in range(LAYERS))).eval()
    inputs = [torch.randn(BATCH, TOKENS, DIM) for _ in range(CALLS)]
    folder = Path(tempfile.mkdtemp(prefix="tenscope-ops-"))

    def call(x):
        model(x).sum().backward()

    call(inputs[0])  # makes the gradients, to which the others add
    with Counting() as counting:
        call(inputs[0])
    operations = counting.count

    def timed(context):
        """CPU time of each call."""
        times = []
        with context:
            for x in inputs:
                began = time.process_time()
                call(x)
                times.append(time.process_time() - began)
        return times

    def with_debug_mode(hashes=False, **options):
        with contextlib.ExitStack() as stack:
            stack.enter_context(DebugMode(record_torchfunction=False, **options))
            return timed(DebugMode.log_tensor_hashes(hash_inputs=True) if hashes else contextlib.nullcontext())

    def with_trace(**options):
        shutil.rmtree(folder / "r", ignore_errors=True)
        with tenscope.Run(folder, name="r") as run:
            return timed(tenscope.trace(model, inputs=False, outputs=False, run=run, **options))

    variants = {
        "plain": lambda: timed(contextlib.nullcontext()),
        "a mode that does nothing": lambda: timed(Counting()),
        "module calls alone": with_trace,
        "DebugMode": with_debug_mode,
        "DebugMode, lines": lambda: with_debug_mode(record_stack_trace=True),
        "DebugMode, lines and hashes": lambda: with_debug_mode(hashes=True, record_stack_trace=True),
        "tenscope, statistics": lambda: with_trace(ops="*", values="stats"),
        "tenscope, full": lambda: with_trace(ops="*"),
    }
    first, later = ({name: float("inf") for name in variants} for _ in range(2))
    for _ in range(ROUNDS):
        for name, work in variants.items():
            times = work()
            first[name] = min(first[name], times[0])
            later[name] = min(later[name], *times[1:])
    shutil.rmtree(folder)
    print(f"{operations} operations in a call, {CALLS} calls, best of {ROUNDS} rounds: us an operation")
    peer = later["DebugMode"] - later["plain"]
    print(f"{'':28} {'first call':>12} {'later calls':>12} {'DebugMode = 1':>14}")
    for name, seconds in later.items():
        of_first, extra = first[name] - later["plain"], seconds - later["plain"]
        costs = [1e6 * each / operations for each in (of_first, extra)]
        print(f"{name:28} {costs[0]:12.1f} {costs[1]:12.1f} {extra / peer:14.2f}")


if __name__ == "__main__":
    main()
