"""@watch: what counts as a change, at which line, and which expressions there are."""

import time

import numpy as np
import pytest
from tenscope.lines.expressions import parse
from tenscope.lines.watch import watch
from watched import seen, values


def test_numbers_and_text():
    @watch("t", "res")
    def f(t):
        res = 0
        for i in range(t):
            res += i
        res *= 2
        res = ""
        for i in range(t):
            res += str(i)
        return res

    assert f(3) == "012"
    assert seen(f, "t") == [("t", 0, 3)]
    assert seen(f, "res") == [
        ("res", 2, 0),
        ("res", 4, 1),
        ("res", 4, 3),
        ("res", 5, 6),
        ("res", 6, ""),
        ("res", 8, "0"),
        ("res", 8, "01"),
        ("res", 8, "012"),
    ]
    change = f.changes[2]
    assert (change.old, change.new, change.first, change.call) == (0, 1, False, 0)
    assert change.function.endswith("f") and change.file == __file__


def test_containers_by_structure_and_paths():
    @watch("arr", "obj", "arr[1]", 'obj["a"]["b"]', "cls.a", "arr[i]")
    def f():
        arr = [None, None]
        obj = {"a": {"b": None}}

        class Cls:
            a = None

        cls = Cls()
        for i in range(2):
            arr[1] = i
            obj["a"]["b"] = i
            cls.a = i

    f()
    assert values(f, "arr") == [[None, None], [None, 0], [None, 1]]
    assert values(f, "arr[1]") == [None, 0, 1]
    assert values(f, 'obj["a"]["b"]') == [None, 0, 1]
    assert values(f, "obj") == [{"a": {"b": None}}, {"a": {"b": 0}}, {"a": {"b": 1}}]
    assert values(f, "cls.a") == [None, 0, 1]
    assert values(f, "arr[i]") == [None, 0, 1]


def test_middle_of_a_large_array_and_aliases():
    @watch("a", values="full")
    def f():
        a = np.zeros(100_000)
        alias = a[40_000:]
        alias[10_000] = 7
        alias = None
        a[0] = 0
        return a

    f()
    assert [c.line - f.__code__.co_firstlineno for c in f.changes] == [2, 4]
    after = np.frombuffer(f.changes[1].new.data)
    assert after[50_000] == 7 and after.sum() == 7
    assert f.changes[1].new.shape == (100_000,) and f.changes[1].new.max == 7


def test_nan_equals_nan_and_type_counts():
    @watch("x")
    def f():
        x = float("nan")
        x = float("nan") * 2
        x = 0.0
        x = -0.0
        x = 0
        x = False
        return x

    f()
    assert [c.line - f.__code__.co_firstlineno for c in f.changes] == [2, 4, 5, 6, 7]


def test_ignored_lines():
    @watch("x")
    def f():
        x = 0
        for i in range(3):
            x += i  # tenscope: ignore
        x *= 2
        x = (
            1 + 2  # tenscope: ignore
        )
        x = 9

    f()
    assert values(f, "x") == [0, 6, 9]


def test_any_level():
    class Layer:
        def __init__(self):
            self.w = 0

    class Net:
        def __init__(self):
            self.a, self.b = Layer(), Layer()

    @watch("self.*.w", "cache.*.k", "parts[*]")
    def f(self):
        self.b.w = 5
        cache = {"l0": {"k": 1}}
        cache["l1"] = {"k": 2}
        parts = [1]
        parts.append(2)

    f(Net())
    assert [(c.name, c.new) for c in f.changes] == [
        ("self.a.w", 0),
        ("self.b.w", 0),
        ("self.b.w", 5),
        ("cache.l0.k", 1),
        ("cache.l1.k", 2),
        ("parts.0", 1),
        ("parts.1", 2),
    ]


@pytest.mark.parametrize("text", ["", "1x", "x.", "x[", "x[f()]", "x y", "*.a"])
def test_bad_expressions(text):
    with pytest.raises(ValueError):
        parse(text)


def test_parsed():
    assert parse('a.b["]"][0, 1][i].*[1:]') == (
        'a.b["]"][0, 1][i].*[1:]',
        "a",
        (
            ("attr", "b"),
            ("item", "]"),
            ("item", (0, 1)),
            ("var", "i"),
            ("any", None),
            ("item", slice(1, None, None)),
        ),
    )


def test_times():
    @watch("x", "t")
    def f():
        x = 1
        time.sleep(0.01)
        x = 2
        t = time.time_ns()
        x = 3
        return x, t

    started = time.time_ns()
    f()
    ended = time.time_ns()
    times = {(c.name, c.new if c.name == "x" else None): c.time_ns for c in f.changes}
    slack = 1_000_000  # the wall clock may be adjusted meanwhile
    assert started - slack <= times["x", 1] and times["x", 3] <= ended + slack
    assert times["x", 2] - times["x", 1] >= 9_000_000
    assert abs(times["t", None] - values(f, "t")[0]) < 5_000_000
    assert [c.time_ns for c in f.changes] == sorted(c.time_ns for c in f.changes) == [c.time_ns for c in f.changes]


def test_changes_as_numbers_and_as_a_frame():
    pandas = pytest.importorskip("pandas")

    @watch("loss", "flag", "count", "w")
    def train():
        for count in range(3):
            loss = np.float32(1 / (count + 1))
            flag = np.array(count > 1)
            w = np.arange(3) + count
        return loss, flag, w

    assert list(train.changes.frame().columns)[:3] == ["name", "old", "new"] and len(train.changes.frame()) == 0
    train()
    changes = train.changes
    assert [float(change.new) for change in changes["loss"]] == [float(np.float32(1 / n)) for n in (1, 2, 3)]
    assert [change.new.item() for change in changes["flag"]] == [False, True]
    assert int(changes["flag"][-1].new) == 1
    with pytest.raises(ValueError, match="only a tensor of one element is a number"):
        float(changes["w"][0].new)
    frame = changes.frame()
    assert len(frame) == len(changes) and isinstance(frame, pandas.DataFrame)
    of_loss = changes["loss"].frame()
    assert (
        list(of_loss.new) == [float(np.float32(1 / n)) for n in (1, 2, 3)]
        and list(of_loss.old)[1:] == list(of_loss.new)[:-1]
    )
    assert list(frame[frame.name == "w"]["mean"]) == [1, 2, 3]
    assert [change.name for change in changes[:2]] == [changes[0].name, changes[1].name]


def test_a_number_without_its_bytes():
    @watch("x", values="stats")
    def f():
        x = np.array(2.5)
        x = np.array(-7)
        x = np.array(np.nan)
        x = np.array(np.inf)
        x = np.array(2**60 + 1)
        return x

    f()
    numbers = f.changes["x"]
    assert numbers[0].new.item() == 2.5 and numbers[1].new.item() == -7 and np.isnan(float(numbers[2].new))
    for inexact in numbers[3:5]:
        with pytest.raises(ValueError, match="only statistics were kept"):
            float(inexact.new)
