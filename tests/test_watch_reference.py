"""Python's own semantics as the judge: a slow reference tracer must see the same changes at the same lines.

The reference is sys.settrace and a deep copy of every watched variable at every line. It runs over a corpus of
functions and over programs that hypothesis makes.
"""

import ast
import copy
import math
import sys
import textwrap

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tenscope.lines.watch import watch

MISSING = object()


def equal(a, b):
    """Deep equality in which type counts, NaN equals NaN and arrays are compared by content."""
    if type(a) is not type(b):
        return False
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, float):
        return (math.isnan(a) and math.isnan(b)) or (a == b and math.copysign(1, a) == math.copysign(1, b))
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(equal, a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(equal(a[k], b[k]) for k in a)
    return a == b


def reference(function, names, args):
    """(name, line, value) for every change in the function's own frames, one list per frame in the order they ended."""
    code = function.__code__
    frames, ended = {}, []

    def look(frame, state):
        for name in names:
            value = frame.f_locals.get(name, MISSING)
            if value is MISSING:
                continue
            known = state["known"].get(name, MISSING)
            if known is MISSING or not equal(known, value):
                state["known"][name] = copy.deepcopy(value)
                state["changes"].append((name, state["line"], copy.deepcopy(value)))

    def local(frame, event, arg):
        state = frames[id(frame)]
        if event in ("line", "return"):
            look(frame, state)
        if event == "line":
            state["line"] = frame.f_lineno
        return local

    def tracer(frame, event, arg):
        if frame.f_code is not code or event != "call":
            return None
        if id(frame) not in frames:
            frames[id(frame)] = {"line": code.co_firstlineno, "known": {}, "changes": [], "frame": frame}
            ended.append(frames[id(frame)])
        return local

    before = sys.gettrace()
    sys.settrace(tracer)
    try:
        outcome = run(function, args)
    finally:
        sys.settrace(before)
    return outcome, [state["changes"] for state in ended]


def run(function, args):
    try:
        result = function(*args)
        return ("value", list(result) if hasattr(result, "send") else result)
    except Exception as error:
        return ("error", type(error), str(error))


def watched(function, names, args):
    logs = {}

    def hook(change):
        value = change.new
        if hasattr(value, "dtype"):
            value = value.numpy()
        logs.setdefault(change.call, []).append((change.name, change.line, value))

    watch(*names, hook=hook, values="full")(function)
    outcome = run(function, args)
    return outcome, [logs[call] for call in sorted(logs)]


class AsGenerators(ast.NodeTransformer):
    """Comprehensions as generators, at the same place: since Python 3.12 a comprehension runs in its function's frame,
    where sys.settrace sees its variables among the function's; a generator's are its own."""

    def _call(self, name, node, item):
        self.generic_visit(node)
        generator = ast.GeneratorExp(item(node), node.generators)
        call = ast.Call(ast.Name(name, ast.Load()), [ast.copy_location(generator, node)], [])
        return ast.fix_missing_locations(ast.copy_location(call, node))

    def visit_ListComp(self, node):
        return self._call("list", node, lambda n: n.elt)

    def visit_SetComp(self, node):
        return self._call("set", node, lambda n: n.elt)

    def visit_DictComp(self, node):
        return self._call("dict", node, lambda n: ast.Tuple([n.key, n.value], ast.Load()))


def check(source, names, args=()):
    source = textwrap.dedent(source)
    functions = []
    for is_reference in (True, False):
        tree = ast.parse(source)
        if is_reference and sys.version_info >= (3, 12):
            tree = AsGenerators().visit(tree)
        space = {"np": np}
        exec(compile(tree, "<program>", "exec"), space)
        functions.append(space["f"])
    expected_outcome, expected = reference(functions[0], names, copy.deepcopy(args))
    outcome, got = watched(functions[1], names, copy.deepcopy(args))
    assert equal(outcome, expected_outcome), source
    expected = [changes for changes in expected if changes]
    assert len(got) == len(expected), (source, got, expected)
    for one, other in zip(got, expected, strict=True):
        assert [c[:2] for c in one] == [c[:2] for c in other], source
        assert all(equal(a[2], b[2]) for a, b in zip(one, other, strict=True)), source


CORPUS = {
    "loop": """
        def f(n):
            x, y = 0, []
            for i in range(n):
                x += i
                if i % 2:
                    continue
                y.append(x)
            else:
                x = -1
            return y
    """,
    "one line loop": """
        def f(n):
            x = 0
            for i in range(n): x += i
            while x > 3: x -= 1
            return x
    """,
    "semicolons": """
        def f(n):
            x = 1; y = 2; x = 3
            y = None; y = [x]
            return y
    """,
    "exceptions": """
        def f(n):
            x = 0
            try:
                x = 1
                y = [x]
                raise ValueError(n)
            except ValueError as error:
                x = 2
                y.append(x)
            finally:
                x = 3
            x = 1 / 0
    """,
    "early return": """
        def f(n):
            x = 0
            for i in range(10):
                x = i
                if i == n:
                    return x
    """,
    "with and finally": """
        import contextlib
        def f(n):
            x = []
            with contextlib.suppress(KeyError):
                x.append(1)
                x.append({}["no"])
                x.append(3)
            try:
                return x
            finally:
                x.append(4)
    """,
    "recursion": """
        def f(n):
            x = n
            y = f(n - 1) if n else 0
            x = y + 1
            return x
    """,
    "generator": """
        def f(n):
            x = 0
            for i in range(n):
                x += i
                y = yield x
            x = "done"
    """,
    "closure": """
        def f(n):
            x = 0
            def g():
                nonlocal x
                x += 1
                return x
            y = [g() for _ in range(n)]
            return y
    """,
    "delete and set again": """
        def f(n):
            x = 1
            del x
            x = 1
            del x
            x = 2
            return x
    """,
    "aliases": """
        def f(n):
            x = {"a": [1, 2]}
            y = x["a"]
            y.append(3)
            x["b"] = y
            y = None
            return x
    """,
    "arrays": """
        def f(n):
            x = np.zeros(5000)
            y = x[1000:2000].reshape(10, 100)
            y[3, 4] = 7
            y += 1
            x = x.astype(np.float32)
            x = x.reshape(50, 100)
            return float(x.sum())
    """,
    "walrus and unpacking": """
        def f(n):
            x, *y = range(n)
            if (x := len(y)) > 1:
                (x, y) = (y, x)
            return x, y
    """,
    "multi-line statement": """
        def f(n):
            x = [
                n,
                n + 1,
            ]
            y = dict(
                a=x.pop(),
                b=x.append(5),
            )
            return x, y
    """,
    "comprehensions": """
        def f(n):
            x = "outer"
            y = [x * 2 for x in range(n)]
            y = {
                x: [x for x in range(i)]
                for i, x in enumerate(range(n))
                if [y for y in (x,)]
            }
            i = {i for i in range(n)}
            try:
                y = [
                    1 // x
                    for x in (1, 0)
                ]
            except ZeroDivisionError:
                x = "caught"
            for x in [x for x in "ab"]: y = [y for x in "cd"]
            y = [1 // x for x in (1, 0)]
            return x
    """,
    "match and while": """
        def f(n):
            x = 0
            while True:
                match x:
                    case 3:
                        break
                    case _:
                        x += 1
            y = x if x else None
            return y
    """,
    "try in loop": """
        def f(n):
            y = []
            for x in range(n):
                try:
                    y.append(1 // (x - 1))
                except ZeroDivisionError:
                    y.append(None)
                    continue
                finally:
                    y.append("f")
            return y
    """,
}


@pytest.mark.parametrize("name", CORPUS)
def test_corpus(name):
    check(CORPUS[name], ["x", "y", "n", "i"], (4,))


# --- programs by hypothesis: statements over x, y, z (numbers), s (a list), d (a dict), a (an array)

NUMBERS = st.sampled_from(["x", "y", "z"])
ATOMS = st.one_of(NUMBERS, st.integers(-2, 300).map(str), st.sampled_from(["0.5", "True", "None", "len(s)", "'t'"]))
SIMPLE = st.one_of(
    st.tuples(NUMBERS, ATOMS).map(lambda t: f"{t[0]} = {t[1]}"),
    st.tuples(NUMBERS, ATOMS, ATOMS).map(lambda t: f"{t[0]} = [{t[1]}, {t[2]}]"),
    st.tuples(NUMBERS, st.sampled_from(["+", "-", "*"]), ATOMS).map(lambda t: f"{t[0]} {t[1]}= {t[2]}"),
    st.tuples(NUMBERS, NUMBERS).map(lambda t: f"{t[0]}, {t[1]} = {t[1]}, {t[0]}"),
    st.tuples(NUMBERS, ATOMS).map(lambda t: f"{t[0]} = None; {t[0]} = {t[1]}"),
    ATOMS.map(lambda v: f"s.append({v})"),
    ATOMS.map(lambda v: f"d[{v}] = {v}"),
    st.just("s = s + s[:2]"),
    st.just("s.pop()"),
    st.just("a[1] += 1"),
    st.just("b = a[2:]; b[0] = len(s)"),
    st.just("a = a * 2"),
    st.just("z = [i for i in s if i]"),
    st.just("z = [x for x in s\n    if x]"),
    st.just("d = {i: y for i, y in enumerate(s)}"),
    st.just("z = [1 // x for x in (2, 0)]"),
    st.just("del y"),
    st.just("y = helper(s)"),
    st.just("pass"),
)


def indented(block):
    return "\n".join("    " + line for line in "\n".join(block).split("\n"))


def compound(blocks):
    body = st.lists(blocks, min_size=1, max_size=3).map(indented)
    return st.one_of(
        st.tuples(st.integers(0, 3), body).map(lambda t: f"for i in range({t[0]}):\n{t[1]}"),
        st.tuples(ATOMS, body, body).map(lambda t: f"if {t[0]}:\n{t[1]}\nelse:\n{t[2]}"),
        st.tuples(body, body, body).map(lambda t: f"try:\n{t[0]}\nexcept Exception:\n{t[1]}\nfinally:\n{t[2]}"),
        st.tuples(st.integers(0, 3), SIMPLE.filter(lambda s: ";" not in s)).map(
            lambda t: f"for i in range({t[0]}): {t[1]}"
        ),
        body.map(lambda b: f"k = 2\nwhile k:\n    k -= 1\n{b}"),
    )


PROGRAMS = st.lists(st.recursive(SIMPLE, compound, max_leaves=8), min_size=1, max_size=8)
HELPER = "def helper(s):\n    s.append(1)\n    return len(s)\n\n"


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(PROGRAMS, st.booleans())
def test_programs(statements, is_generator):
    body = ["x, y, z, s, d, a = 0, 1.5, 'z', [], {}, np.zeros(4)", *statements]
    if is_generator:
        body = [line for statement in body for line in (statement, "yield x")]
    check(HELPER + "def f():\n" + indented(body) + "\n", ["x", "y", "z", "s", "d", "a", "i"])
