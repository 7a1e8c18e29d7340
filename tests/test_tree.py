"""@tree: what a call looks like, nesting, classes and modules, and what is recorded of it."""

import asyncio
import io
import re
import types

import numpy as np
import pytest
import tenscope
from tenscope import tree


def shown(stream):
    """Lines without durations and call chains."""
    text = re.sub(r" [\d.e+-]+ ms$", "", stream.getvalue(), flags=re.M)
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
    events = [(e.kind, e.name) for e in tenscope.open(tmp_path / "runs").events()]
    assert [event for event in events if event[1].startswith(("f", "y"))] == [
        ("enter", "f"),
        ("value", "f.x"),
        ("change", "y"),
        ("value", "f.output"),
        ("exit", "f"),
    ]
