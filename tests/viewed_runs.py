"""Runs of a small network, as the viewer's tests look at them."""

from __future__ import annotations

import numpy as np
import tenscope
from test_rundiff import Module, Recorder

STEPS = 3
EQUAL, NOISE, FOLLOWS, STARTS, ALONE = 0, 2, 4, 5, 6


def network(wrong: str = "", blocks: str = "blocks") -> Module:
    """A stack of three blocks alike, between two layers; `wrong` is the path of one whose result is off."""

    def leaf(path: str, seed: int) -> Module:
        return Module(path.rpartition(".")[2], seed=seed, cls="Linear", scale=1.25 if path == wrong else 1.0)

    stack = [
        Module(str(i), [leaf(f"blocks.{i}.attn", 10 * i + 1), leaf(f"blocks.{i}.mlp", 10 * i + 2)], cls="Block")
        for i in range(3)
    ]
    return Module("", [leaf("first", 91), Module(blocks, stack, cls="Stack"), leaf("last", 92)], cls="Net")


def play(folder, model: Module, steps: int):
    with tenscope.Run(folder.parent, name=folder.name, strict=True) as run:
        recorder = Recorder(run, model)
        for step in range(steps):
            run.step(step)
            recorder.calls.clear()  # calls are counted within a step
            recorder.forward(np.random.default_rng(100 + step).normal(size=(4, 8)).astype(np.float32))
    return folder


def record_runs(folder):
    """A good run, the same again, one with a mistake in blocks.1.mlp, and one with other names."""
    play(folder / "good", network(), STEPS)
    play(folder / "same", network(), STEPS)
    play(folder / "bad", network("blocks.1.mlp"), STEPS)
    play(folder / "renamed", network(blocks="layers"), STEPS)
    return folder


def relative(a, b) -> float:
    wide_a, wide_b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    return float(np.linalg.norm(wide_b - wide_a) / np.linalg.norm(wide_a))


def rows_of(columns: dict) -> list[dict]:
    """Columns as rows; all must be of one length."""
    lists = {key: column for key, column in columns.items() if isinstance(column, list)}
    return [dict(zip(lists, row, strict=True)) for row in zip(*lists.values(), strict=True)]
