"""ztrace's document, snippet by snippet, and what its drop-in must do right where the old tool did not."""

# ruff: noqa: F841  (what is assigned is watched)

import importlib
import json
import os
import sys
import threading

import numpy as np
import pytest


@pytest.fixture
def ztrace(tmp_path, monkeypatch):
    """A fresh import, as in a new program, working in an empty folder."""
    monkeypatch.chdir(tmp_path)
    for name in [n for n in sys.modules if n.startswith("tenscope.compat.ztrace")]:
        monkeypatch.delitem(sys.modules, name)
    return importlib.import_module("tenscope.compat.ztrace").ztrace


def records(folder=None):
    (file,) = (os.path.join(where, name) for where, _, names in os.walk(folder or "ztrace_logs") for name in names)
    with open(file) as text:
        return json.load(text)


def data(key, index=-1):
    return records()[key][index]["data"]


def test_document_file(ztrace):
    @ztrace(["variable_a", "variable_b"])
    def func_a(t):
        variable_a, variable_b = 0, 0
        for i in range(t):
            variable_a = i
            variable_b = i * 2

    @ztrace(["variable_a"])
    def func_b(t):
        variable_a = ""
        for i in range(t):
            variable_a += str(i)

    func_a(3)
    func_a(4)
    func_b(3)
    content = records()
    assert list(content) == ["func_a()", "func_b()"]
    assert [r["data"] for r in content["func_a()"]] == [
        {"variable_a": [0, 1, 2], "variable_b": [0, 2, 4]},
        {"variable_a": [0, 1, 2, 3], "variable_b": [0, 2, 4, 6]},
    ]
    assert [r["data"] for r in content["func_b()"]] == [{"variable_a": ["", "0", "01", "012"]}]
    assert all(len(r["time"]) == 14 and r["time"].isdigit() for rs in content.values() for r in rs)
    (day,) = os.listdir("ztrace_logs")
    (name,) = os.listdir(f"ztrace_logs/{day}")
    assert len(day) == 8 and day.isdigit() and len(name) == 11 and name.endswith(".json")


def test_document_immutable(ztrace):
    @ztrace(["t", "res"])
    def trace_basic_immutable_data(t):
        res = 0
        for i in range(t):
            res += i
        res *= 2

        res = ""
        for i in range(t):
            res += str(i)
        res *= 2

    trace_basic_immutable_data(3)
    assert data("trace_basic_immutable_data()") == {"t": 3, "res": [0, 1, 3, 6, "", "0", "01", "012", "012012"]}


def test_document_mutable(ztrace):
    @ztrace(["arr", "obj"])
    def trace_basic_mutable_data(t):
        arr = []
        obj = {}
        for i in range(t):
            arr += [i]
            obj[str(i)] = i

    trace_basic_mutable_data(3)
    assert data("trace_basic_mutable_data()") == {
        "arr": [[], [0], [0, 1], [0, 1, 2]],
        "obj": [{}, {"0": 0}, {"0": 0, "1": 1}, {"0": 0, "1": 1, "2": 2}],
    }


def test_document_attributes(ztrace):
    @ztrace(["arr[1]", 'obj["a"]["b"]', "cls.a"])
    def trace_attr(t):
        arr = [None for _ in range(t)]
        obj = {"a": {"b": None}}

        class Cls:
            a = None

        cls = Cls()

        for i in range(t):
            arr[1] = i
            obj["a"]["b"] = i
            cls.a = i

    trace_attr(3)
    expected = [None, 0, 1, 2]
    assert data("trace_attr()") == {"arr[1]": expected, 'obj["a"]["b"]': expected, "cls.a": expected}


def test_document_arrays(ztrace):
    torch = pytest.importorskip("torch")

    @ztrace(["arr", "arr[1]", "tensor", "tensor[1]"])
    def trace_special_array(t):
        arr = np.zeros((t,))
        tensor = torch.zeros((t,))

        for i in range(t):
            arr[i] = i
            tensor[i] = i

        tensor = torch.cat([tensor, torch.from_numpy(arr).float()])

    trace_special_array(3)
    assert data("trace_special_array()") == {
        "arr": [[0, 0, 0], [0, 1, 0], [0, 1, 2]],
        "arr[1]": [0, 1],
        "tensor": [[0, 0, 0], [0, 1, 0], [0, 1, 2], [0, 1, 2, 0, 1, 2]],
        "tensor[1]": [0, 1],
    }


def test_document_ignore(ztrace):
    @ztrace(["t", "res"])
    def trace_with_ignoring(t):
        res = 0
        for i in range(t):
            res += i  # ztrace: ignore
        res *= 2

        res = ""  # ztrace: ignore
        for i in range(t):
            res += str(i)
        res *= 2

    trace_with_ignoring(3)
    assert data("trace_with_ignoring()") == {"t": 3, "res": [0, 6, "0", "01", "012", "012012"]}


def test_document_training_loss(ztrace):
    @ztrace(["training_loss"])
    def train(epochs, losses):
        for _ in range(epochs):
            training_loss = 0.0  # ztrace: ignore
            for loss in losses:
                training_loss += loss  # ztrace: ignore
            training_loss /= len(losses)
            losses = [loss / 2 for loss in losses]

    train(3, [1.0, 3.0])
    assert data("train()") == {"training_loss": [2.0, 1.0, 0.5]}


def test_ignored_last_line_does_not_reach_the_next_call(ztrace):
    @ztrace(["x"])
    def f(x):
        x = x + 1  # ztrace: ignore

    f(1)
    f(5)
    assert [r["data"] for r in records()["f()"]] == [{"x": 1}, {"x": 5}]


def test_values_json_lacks(ztrace):
    torch = pytest.importorskip("torch")

    class Text(str):
        pass

    @ztrace(["a", "b", "c", "d", "e", "f", "g", "h", "missing", "i", "not a path"])
    def odd(*args, **kwargs):
        a = {1, 2}
        b = threading.Lock()
        c = (torch.ones(2, requires_grad=True) * 2).sum()
        d = torch.tensor([True, False])
        e = torch.tensor([1.5, 2.5], dtype=torch.bfloat16)
        f = np.bool_(True)
        g = float("nan")
        h = {Text("k"): Text("v"), (1, 2): np.int64(3)}
        i = [np.float32(0.5), None, b"x"]
        return a, b, c, d, e, f, g, h, i

    odd()
    odd()
    got = data("odd()")
    assert got["a"] == "{1, 2}" and "lock" in got["b"]
    assert got["c"] == 4 and got["d"] == [True, False] and got["e"] == [1.5, 2.5] and got["f"] is True
    assert got["g"] != got["g"] and got["h"] == {"k": "v", "(1, 2)": 3} and got["missing"] == []
    assert got["i"] == [0.5, None, "b'x'"] and got["not a path"] == []
    assert list(got) == ["a", "b", "c", "d", "e", "f", "g", "h", "missing", "i", "not a path"]
    assert len(records()["odd()"]) == 2


def test_arguments_and_custom_repr(ztrace):
    class Meter:
        total = 0

        def __repr__(self):
            return f"Meter({self.total})"

    @ztrace(["args", "kwargs", "meter", "n"])
    def f(*args, n=7, **kwargs):
        meter = Meter()
        meter.total = 3
        return args

    assert f(1, 2, k=3) == (1, 2)
    assert data("f()") == {"args": [1, 2], "kwargs": {"k": 3}, "meter": ["Meter(0)", "Meter(3)"], "n": 7}


def test_recursion_nesting_threads_and_exceptions(ztrace):
    @ztrace(["n", "r"])
    def fact(n):
        r = 1 if n == 0 else n * fact(n - 1)
        return r

    assert fact(3) == 6
    assert [r["data"] for r in records()["fact()"]] == [{"n": n, "r": r} for n, r in [(0, 1), (1, 1), (2, 2), (3, 6)]]

    @ztrace(["x"])
    def outer():
        x = 1
        x = fact(2)
        return x

    outer()
    assert data("outer()") == {"x": [1, 2]}

    @ztrace(["v"])
    def work(v):
        for _ in range(30):
            v += 1
        return v

    threads = [threading.Thread(target=work, args=(100 * i,)) for i in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    rows = sorted(r["data"]["v"] for r in records()["work()"])
    assert rows == [list(range(100 * i, 100 * i + 31)) for i in range(4)]

    @ztrace(["x"])
    def fails():
        x = 1
        raise KeyError(x)

    before = sys.gettrace()
    with pytest.raises(KeyError):
        fails()
    assert sys.gettrace() is before


def test_generators_wraps_and_return_value(ztrace):
    import functools

    @ztrace(["x"])
    def gen():
        x = 1
        yield x
        yield x + 1

    assert list(gen()) == [1, 2]

    def deco(f):
        @functools.wraps(f)
        def inner(*a):
            return f(*a)

        return inner

    @ztrace(["x"])
    @deco
    def below(x):
        """Doc."""
        x += 1
        return x

    assert below(1) == 2 and below.__name__ == "below" and below.__doc__ == "Doc." and below.__wrapped__
    assert data("below()") == {"x": [1, 2]}


def test_change_of_folder(ztrace, tmp_path):
    @ztrace(["x"])
    def f(x):
        return x

    f(1)
    (tmp_path / "elsewhere").mkdir()
    os.chdir(tmp_path / "elsewhere")
    f(2)
    assert not os.path.exists("ztrace_logs")
    assert [r["data"]["x"] for r in records(tmp_path / "ztrace_logs")["f()"]] == [1, 2]


def test_functions_of_one_name_have_lists_of_their_own(ztrace):
    source = "def train(x):\n    return x\n"
    for number, module in enumerate(("first", "second")):
        for _ in range(2):  # as a function that is made anew by its factory, or by a cell that is run again
            space = {"__name__": module}
            exec(source, space)
            ztrace(["x"])(space["train"])(number)

    class Model:
        @ztrace(["x"])
        def train(self, x):
            return x

    Model().train(2)
    found = {key: [record["data"]["x"] for record in kept] for key, kept in records().items()}
    assert found == {"train()": [0, 0], "second.train()": [1, 1], "Model.train()": [2]}


def test_hooks_and_details(ztrace):
    seen = []

    @ztrace(["x"], hook=lambda change: seen.append((change.name, change.new)), details=True)
    def f():
        x = 1
        x = 2
        return x

    f()
    first = f.__wrapped__.__code__.co_firstlineno
    assert seen == [("x", 1), ("x", 2)]
    assert records()["f()"][0]["lines"] == {"x": [first + 2, first + 3]}


def test_disabled_by_environment(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ZEXPER_DISABLED", "1")
    for name in [n for n in sys.modules if n.startswith("tenscope.compat.ztrace")]:
        monkeypatch.delitem(sys.modules, name)
    ztrace = importlib.import_module("tenscope.compat.ztrace").ztrace

    def f():
        return 1

    assert ztrace(["x"])(f) is f
    assert not os.path.exists("ztrace_logs")
