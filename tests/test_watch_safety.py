"""Watching does not disturb: other tracers, errors, lives of objects, metadata of functions."""

# ruff: noqa: B007, F841  (what is assigned is watched)

import functools
import gc
import inspect
import os
import pickle
import signal
import sys
import weakref

import numpy as np
import pytest
from tenscope.lines.watch import watch
from watched import values


def test_trace_function_is_exactly_restored():
    calls = []

    def tracer(frame, event, arg):
        calls.append((frame.f_code.co_name, event))
        return tracer

    @watch("x")
    def f():
        assert sys.gettrace() is tracer
        x = 1
        x = helper(x)
        raise ValueError

    def helper(x):
        assert sys.gettrace() is tracer
        return x + 1

    before = sys.gettrace()
    sys.settrace(tracer)
    try:
        with pytest.raises(ValueError):
            f()
        assert sys.gettrace() is tracer
    finally:
        sys.settrace(before)
    assert values(f, "x") == [1, 2]
    assert ("f", "line") in calls and ("helper", "line") in calls and ("helper", "return") in calls


def test_a_tracer_set_inside_stays():
    def tracer(frame, event, arg):
        return None

    def install():
        sys.settrace(tracer)

    @watch("x")
    def f():
        x = 1
        install()
        x = 2
        x = 3

    before = sys.gettrace()
    try:
        f()
        assert sys.gettrace() is tracer
    finally:
        sys.settrace(before)
    assert values(f, "x") == [1, 2, 3]


def test_errors_stay_inside(capfd):
    class Nasty:
        @property
        def broken(self):
            raise RuntimeError("no")

        def __eq__(self, other):
            raise RuntimeError("no")

        __hash__ = None

        def __repr__(self):
            raise RuntimeError("no")

    def hook(change):
        raise RuntimeError("hook is broken")

    @watch("x", "x.broken", "x[0]", "y", hook=hook)
    def f():
        x = Nasty()
        y = [x, {1: x}]
        y.append(y)
        return len(y)

    assert f() == 3
    assert capfd.readouterr().err.count("hook is broken") == 1


def test_nothing_is_retained():
    class Big:
        pass

    @watch("x", "y")
    def f():
        x = Big()
        y = [Big()]
        refs = weakref.ref(x), weakref.ref(y[0])
        return refs

    refs = f()
    gc.collect()
    assert [r() for r in refs] == [None, None]

    @watch("x")
    def g():
        x = np.zeros(3)
        y = x.sum()
        return sys.getrefcount(x) + y, weakref.getweakrefcount(x)

    assert g() == (2, 0)


def test_default_dict_does_not_grow():
    from collections import defaultdict

    @watch('d["missing"]')
    def f():
        d = defaultdict(list)
        return len(d)

    assert f() == 0
    assert len(f.changes) == 0


def test_changes_do_not_stop_pickling():
    @watch("x")
    def f():
        x = 1
        return x

    f()
    assert len(f.changes) == 1
    assert pickle.loads(pickle.dumps(f.__dict__["changes"])) == ()


def test_a_tracer_set_and_removed_by_the_function_itself():
    events = []

    def tracer(frame, event, arg):
        events.append((frame.f_code.co_name, event))
        return tracer

    def helper():
        return 1

    @watch("x")
    def f():
        x = 1
        sys.settrace(tracer)
        x = helper() + 1
        x = 3
        sys.settrace(None)
        x = 4

    before = sys.gettrace()
    try:
        f()
        assert sys.gettrace() is None
    finally:
        sys.settrace(before)
    assert values(f, "x") == [1, 2, 3, 4]
    assert events == [("helper", "call"), ("helper", "line"), ("helper", "return")]


def test_hostile_attributes():
    class Hostile:
        def __init__(self):
            self.asked = 0

        @property
        def counts(self):
            self.asked += 1
            return 7

        @property
        def leaves(self):
            raise SystemExit(3)

        def __getattr__(self, name):
            return getattr(self, name + "_")  # for ever

    @watch("x.counts", "x.leaves", "x.deep", "x.*.deep", 'x["k"]')
    def f():
        x = Hostile()
        y = len("two")
        return y

    assert f() == 3
    assert values(f, "x.counts") == [7] and {c.name for c in f.changes} == {"x.counts"}


def test_a_hook_that_wants_to_leave(capfd):
    def leaves(change):
        raise SystemExit(3)

    @watch("x", hook=leaves)
    def f():
        x = 1
        return x

    assert f() == 1
    assert "SystemExit" in capfd.readouterr().err


def test_interrupting_a_hook_interrupts_the_program():
    def interrupted(change):
        if change.new == 2:
            signal.raise_signal(signal.SIGINT)
            for _ in range(1000):  # the handler runs here, inside the hook
                pass

    @watch("x", hook=interrupted)
    def f():
        for x in range(10_000):
            pass

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background may ignore it
    try:
        with pytest.raises(KeyboardInterrupt):
            f()
    finally:
        signal.signal(signal.SIGINT, before)
    assert f.changes.raised and 3 <= len(f.changes) < 100


def test_deep_recursion_and_its_end():
    @watch("n", "below")
    def down(n):
        below = down(n - 1) if n else 0
        return below + 1

    assert down(600) == 601 and values(down, "below") == [600]

    @watch("n")
    def endless(n):
        n += 1
        return endless(n)

    with pytest.raises(RecursionError):
        endless(0)
    assert values(endless, "n") == [0, 1] and endless.changes.raised
    assert down(3) == 4 and values(down, "below") == [3]


def test_objects_that_call_watched_functions_as_they_die():
    @watch("y")
    def inner():
        y = 1
        return y

    class Dies:
        def __del__(self):
            inner()

    @watch("x")
    def f():
        x = Dies()
        x = 1
        x = Dies()
        del x
        x = 2
        return x

    assert f() == 2
    assert [value for value in values(f, "x") if isinstance(value, int)] == [1, 2]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_forked_children_watch_on():
    @watch("x")
    def f(child):
        x = "before"
        if child:
            ours, theirs = os.pipe()
            if os.fork() == 0:
                x = "in the child"
                f(False)
                os.write(theirs, repr(values(f, "x")).encode())
                os._exit(0)
            os.wait()
            x = os.read(ours, 100).decode()
        return x

    assert f(True) == "['before']"
    assert values(f, "x") == ["before", "['before']"]


def test_other_decorators():
    def plus_one(function):
        @functools.wraps(function)
        def wrapper(*args):
            return function(*args) + 1

        return wrapper

    @plus_one
    @watch("x")
    def below(x):
        """Doubles."""
        x *= 2
        return x

    @watch("x")
    @functools.lru_cache
    @plus_one
    def above(x):
        x *= 2
        return x

    assert below.changes == () == above.changes and len(below.changes) == 0
    for f in (below, above):
        assert f(2) == 5 and values(f, "x") == [2, 4]
        assert f(3) == 7 and values(f, "x") == [3, 6] and f.changes.call == 1
    assert below.__name__ == "below" and below.__doc__ == "Doubles."
    assert str(inspect.signature(below)) == "(x)"
    assert pickle.loads(pickle.dumps(below.changes)) == ()


@watch("x")
def at_module_level(x):
    x += 1
    return x


def test_the_function_stays_itself():
    assert at_module_level(1) == 2 and values(at_module_level, "x") == [1, 2]
    assert pickle.loads(pickle.dumps(at_module_level)) is at_module_level
    assert not hasattr(at_module_level, "__wrapped__")


def test_a_compiled_function_runs_on():
    torch = pytest.importorskip("torch")

    @torch.compile(backend="eager")
    def square(t):
        return t * t

    @watch("t", "u")
    def f(t):
        u = square(t)
        t = u + 1
        return t

    @torch.compile(backend="eager")
    @watch("v")
    def whole(t):
        v = t + 1
        return v * 2

    assert torch.equal(f(torch.arange(3)), torch.tensor([1, 2, 5]))
    assert [c.name for c in f.changes] == ["t", "u", "t"]
    assert torch.equal(whole(torch.arange(3)), torch.tensor([2, 4, 6]))
    assert torch.equal(whole(torch.arange(3)), torch.tensor([2, 4, 6]))
