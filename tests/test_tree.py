"""@tree: what a call looks like, nesting, classes and modules, and what is recorded of it."""

import asyncio
import contextlib
import io
import os
import pty
import re
import subprocess
import time
import types

import numpy as np
import pytest
import tenscope
from hand_written_run import tenscope as program
from hand_written_run import tenscope_program
from tenscope import tree, watch


def shown(stream):
    """Lines without durations and call chains."""
    text = re.sub(r" \([\d.e+-]+ ms\)$", "", stream.getvalue(), flags=re.M)
    return [re.sub(r" \[\S+\] from .*", "", line) for line in text.splitlines()]


def test_inputs_outputs_nesting_and_watch():
    out = io.StringIO()

    @tree(show=out)
    def inner(x, flag=True):
        return x * 2

    @tree(show=out, watch=["x"])
    def outer(x, *rest, **more):
        x = inner(x)
        x = inner(x)
        return {"x": x, "n": 1}

    outer(np.ones((2, 3), np.float32), 5, name="n")
    first = outer.__wrapped__.__code__.co_firstlineno
    tensor = "float32[2, 3] mean {0} min {0} max {0}"
    assert shown(out) == [
        "┌─ outer",
        f"│  x: {tensor.format(1)}",
        "│  rest: (5,)",
        "│  more: {'name': 'n'}",
        f"│  ├─ {first:>4}  x: {tensor.format(1)}",
        "│  ┌─ inner",
        f"│  │  x: {tensor.format(1)}",
        f"│  └─ {tensor.format(2)}",
        f"│  ├─ {first + 2:>4}  x: {tensor.format(1)} → {tensor.format(2)}",
        "│  ┌─ inner",
        f"│  │  x: {tensor.format(2)}",
        f"│  └─ {tensor.format(4)}",
        f"│  ├─ {first + 3:>4}  x: {tensor.format(2)} → {tensor.format(4)}",
        "└─ dict of 2: x: float32[2, 3], n: int",
    ]
    assert "test_tree.py" in out.getvalue() and "from outer:" in out.getvalue()


def test_exceptions_pass_through():
    out = io.StringIO()

    @tree(show=out)
    def fails(n):
        raise ValueError("no")

    with pytest.raises(ValueError):
        fails(1)
    assert shown(out)[-1].startswith("└─ ValueError: no")
    with pytest.raises(TypeError):
        fails()


def test_classes_and_modules():
    out = io.StringIO()

    class Data:
        def __init__(self, n):
            self.n = n

        def get(self, i):
            return self.n + i

        @staticmethod
        def build():
            return Data(3)

        @classmethod
        def name(cls):
            return cls.__name__

    tree(Data, show=out)
    assert Data.build().get(2) == 5 and Data.name() == "Data"
    names = [line.split("┌─ ")[1] for line in shown(out) if "┌─" in line]
    assert names == ["Data.build", "Data.__init__", "Data.get", "Data.name"]

    module = types.ModuleType("transforms")
    exec("def double(x):\n    return x * 2\n", module.__dict__)
    out2 = io.StringIO()
    tree(module, show=out2)
    assert module.double(4) == 8
    assert shown(out2)[0] == "┌─ double"


def test_coroutines():
    out = io.StringIO()

    @tree(show=out)
    async def work(x):
        await asyncio.sleep(0)
        return x + 1

    assert asyncio.run(work(1)) == 2
    assert shown(out)[-1] == "└─ 2"


def test_recorded(tmp_path):
    @tree(show=False, watch="y")
    def f(x):
        y = x + 1
        return y

    tenscope.init(tmp_path / "runs")
    try:
        f(np.arange(3))
    finally:
        tenscope.close()
    run = tenscope.open(tmp_path / "runs")
    (left,) = [e for e in run.events() if e.kind == "exit"]
    assert left.meta["duration_ns"] > 0
    events = [(e.kind, e.name) for e in run.events()]
    assert [event for event in events if event[1].startswith(("f", "y"))] == [
        ("enter", "f"),
        ("value", "f.x"),
        ("change", "y"),
        ("value", "f.output"),
        ("exit", "f"),
    ]


def test_coroutines_stand_below_their_caller():
    out = io.StringIO()

    @tree(show=out)
    async def inner(x):
        await asyncio.sleep(0)
        return x

    @tree(show=out)
    async def outer(x):
        return await inner(x) + 1

    async def both():
        return await asyncio.gather(outer(1), outer(5))

    assert asyncio.run(both()) == [2, 6]
    assert sorted(shown(out)) == sorted(
        [line for x in (1, 5) for line in ["┌─ outer", f"│  x: {x}", "│  ┌─ inner", f"│  │  x: {x}"]]
        + ["│  └─ 1", "└─ 2", "│  └─ 5", "└─ 6"]
    )


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """A run of watched functions below functions of a tree."""
    folder = tmp_path_factory.mktemp("tree") / "runs"

    @watch("w", "loss")
    def train():
        w = np.zeros((2, 2), np.float32)
        loss = 1.0
        w = w.astype(np.float64)[0]
        w[1] = np.nan
        loss = float("nan")
        return loss

    @watch("rate")
    def adjust(rate):
        rate = rate / 2
        return rate

    @tree(show=False)
    def epoch(number):
        train()
        adjust(0.5)
        if number:
            raise ValueError("no more")

    tenscope.init(folder)
    try:
        epoch(0)
        tenscope.step()
        time.sleep(0.05)
        with pytest.raises(ValueError):
            epoch(1)
    finally:
        tenscope.close()
    return folder, train.__code__.co_firstlineno


def told(recorded, *filters):
    """The lines of `tenscope tree` without times, durations and the file's name."""
    text = program("tree", recorded[0], *filters).stdout
    text = re.sub(r"  [\d.]+ (ns|µs|ms)", "", re.sub(r"\S*test_tree.py:", ":", text))
    return [line[13:] for line in text.splitlines()]


def test_command_line_shows_changes_and_calls(recorded):
    first = recorded[1]
    assert told(recorded, "--step", "0") == [
        f"→ epoch  :{first + 14}",
        "  epoch.number = 0",
        f"  w: float32[2, 2]  min 0  max 0  mean 0  :{first + 2}",
        f"  loss: 1.0  :{first + 3}",
        f"  w: <float32[2, 2] mean 0 min 0 max 0> → float64[2]  min 0  max 0  mean 0  other shape, dtype  :{first + 4}",
        f"  w: <float64[2] mean 0 min 0 max 0> → float64[2]  min 0  max 0  mean 0  NaN 1  :{first + 5}",
        f"  loss: 1.0 → nan  :{first + 6}",
        f"  rate: 0.5  :{first + 9}",
        f"  rate: 0.5 → 0.25  :{first + 11}",
        "← epoch",
    ]
    assert told(recorded, "--step", "1")[-2:] == ["← epoch  raised ValueError: no more", "note closed"]


def test_command_line_filters(recorded):
    first = recorded[1]
    assert told(recorded, "--function", "adjust", "--step", "0") == [
        f"→ epoch  :{first + 14}",
        f"  rate: 0.5  :{first + 9}",
        f"  rate: 0.5 → 0.25  :{first + 11}",
        "← epoch",
    ]
    losses = [f"  loss: 1.0  :{first + 3}", f"  loss: 1.0 → nan  :{first + 6}"]
    assert [line for line in told(recorded, "--variable", "lo*") if "epoch" not in line] == losses * 2
    for line in (first + 6, f"test_tree.py:{first + 6}"):
        assert [text for text in told(recorded, "--line", line) if "epoch" not in text] == losses[1:] * 2
    assert len(told(recorded, "--line", "test_tree.py")) > 10 and told(recorded, "--line", "other.py") == []
    first_epoch, second_epoch = told(recorded, "--until", 0.04), told(recorded, "--since", 0.04)
    assert "← epoch" in first_epoch and "← epoch  raised ValueError: no more" not in first_epoch
    assert [line for line in second_epoch if line.startswith("←")] == ["← epoch  raised ValueError: no more"]


def test_command_line_colours(recorded):
    ours, theirs = pty.openpty()
    environment = {**os.environ, "NO_COLOR": "", "TERM": "xterm"}
    command = [tenscope_program(), "tree", str(recorded[0]), "--step", "0"]
    with subprocess.Popen(command, stdout=theirs, env=environment):
        os.close(theirs)
        text = ""
        with contextlib.suppress(OSError):  # the terminal's end
            while piece := os.read(ours, 65536):
                text += piece.decode()
    os.close(ours)
    assert "\033[31mnan\033[0m" in text and "\033[31m  NaN 1\033[0m" in text
    assert "\033[33m  other shape, dtype\033[0m" in text
