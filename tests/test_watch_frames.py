"""@watch and watching() in every kind of function: generators, coroutines, threads, methods, closures, blocks."""

# ruff: noqa: B007, F841, RUF015, SIM113  (what is assigned is watched)

import asyncio
import gc
import sys
import threading

import pytest
from tenscope.lines.watch import make_watcher, watch, watching
from watched import values


def test_generators_recursion_and_exceptions():
    @watch("x")
    def numbers(n):
        x = 0
        for _ in range(n):
            x += 1
            yield x

    first, second = numbers(3), numbers(2)
    assert [next(first), next(second)] == [1, 1]
    assert list(first) == [2, 3] and values(numbers, "x") == [0, 1, 2, 3]
    assert list(second) == [2] and values(numbers, "x") == [0, 1, 2]

    @watch("n", "below")
    def down(n):
        below = down(n - 1) if n else 0
        return below + 1

    assert down(2) == 3
    assert values(down, "n") == [2] and values(down, "below") == [2]

    @watch("x")
    def fails():
        x = 1
        try:
            x = 2
            raise KeyError(x)
        except KeyError:
            x = 3
        x = 4
        raise ValueError(x)

    with pytest.raises(ValueError):
        fails()
    assert values(fails, "x") == [1, 2, 3, 4]
    assert fails.changes.raised


def test_closed_generators_are_finished():
    @watch("x")
    def g():
        x = 1
        try:
            yield x
        finally:
            x = 2

    it = g()
    next(it)
    it.close()
    assert values(g, "x") == [1, 2]

    @watch("x")
    def plain():
        x = 5
        yield x

    it = plain()
    next(it)
    del it
    gc.collect()
    plain_again = plain()
    list(plain_again)
    assert values(plain, "x") == [5]


def test_coroutines_do_not_mix():
    @watch("x")
    async def worker(start):
        x = start
        for _ in range(3):
            await asyncio.sleep(0)
            x += 1
        return x

    async def main():
        return await asyncio.gather(worker(10), worker(20))

    assert asyncio.run(main()) == [13, 23]
    assert values(worker, "x") == [20, 21, 22, 23]
    assert worker.changes[0].task

    @watch("x")
    async def agen():
        x = 0
        while x < 2:
            x += 1
            yield x

    async def drain():
        return [v async for v in agen()]

    assert asyncio.run(drain()) == [1, 2]
    assert values(agen, "x") == [0, 1, 2]


def test_threads_do_not_mix():
    logs = []

    @watch("x", hook=lambda c: logs.append((c.thread, c.new)))
    def f(start):
        x = start
        for _ in range(50):
            x += 1
        return x

    barrier = threading.Barrier(4)

    def run(start):
        barrier.wait()
        f(start)
        barrier.wait()

    threads = [threading.Thread(target=run, args=(1000 * i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    by_thread = {}
    for thread, value in logs:
        by_thread.setdefault(thread, []).append(value)
    assert sorted(v[0] for v in by_thread.values()) == [0, 1000, 2000, 3000]
    assert all(v == list(range(v[0], v[0] + 51)) for v in by_thread.values())


def test_methods_and_lambdas():
    class Box:
        def __init__(self):
            self.total = 0

        @watch("self.total", "n")
        def add(self, n):
            self.total += n
            return self

        @staticmethod
        @watch("n")
        def static(n):
            n += 1
            return n

        @watch("n")
        @classmethod
        def build(cls, n):
            n *= 2
            return n

    assert Box().add(4).total == 4
    assert values(Box.add, "self.total") == [0, 4]
    assert Box.static(1) == 2 and values(Box.static, "n") == [1, 2]
    assert Box.build(3) == 6 and values(Box.build, "n") == [3, 6]
    twice = watch("v")(lambda v: v * 2)
    assert twice(4) == 8 and values(twice, "v") == [4]


def test_cells_and_globals():
    @watch("x")
    def outer():
        x = 1

        def inner():
            nonlocal x
            x += 1

        inner()
        inner()
        return x

    assert outer() == 3
    assert values(outer, "x") == [1, 2, 3]

    @watch("COUNTER")
    def counts():
        global COUNTER
        COUNTER = 1
        COUNTER = 2

    counts()
    assert values(counts, "COUNTER") == [1, 2]


def test_depth_and_max_changes():
    def inner(x):
        x += 1
        return x

    def middle(x):
        return inner(x * 10)

    @watch("x", depth=2)
    def two(x):
        x = middle(x)
        return x

    assert two(1) == 11
    assert values(two, "x") == [1, 1, 11]

    @watch("x", depth=0)
    def everything(x):
        x = middle(x)
        return x

    assert everything(1) == 11
    assert values(everything, "x") == [1, 1, 10, 11, 11]

    @watch("i", max_changes=5)
    def many():
        for i in range(20):
            pass
        return i

    many()
    assert len(many.changes) == 5 and many.changes.left_out == 15


def test_block():
    def f():
        loss = 1
        with watching("loss") as watched:
            loss = 2
            loss = 3
        loss = 4
        return loss, watched.changes

    loss, changes = f()
    assert loss == 4 and [c.new for c in changes] == [1, 2, 3]

    def leaves():
        x = 0
        with watching("x") as watched:
            for i in range(5):
                x = i
                if i == 2:
                    return watched

    assert [c.new for c in leaves().changes] == [0, 1, 2]
    assert sys.gettrace() is None

    def generator():
        x = 0
        with watching("x") as watched:
            for i in range(3):
                x = i
                yield watched

    assert [c.new for c in list(generator())[0].changes] == [0, 1, 2]
    assert sys.gettrace() is None


def test_functions_that_share_code():
    def make(k):
        @watch("v")
        def inner(v):
            v += k
            return v

        return inner

    functions = [make(k) for k in (1, 2, 3)]
    assert [f(10) for f in functions] == [11, 12, 13]
    assert [values(f, "v") for f in functions] == [[10, 11], [10, 12], [10, 13]]


def test_stacked():
    seen = []

    @watch("a", hook=lambda c: seen.append(c.name))
    @watch("b", hook=lambda c: seen.append(c.name))
    def f():
        a = 1
        b = a
        return b

    f()
    assert sorted(seen) == ["a", "b"]


def test_inner_interface_of_other_probes():
    class Layer:
        def forward(self, x):
            y = x + 1
            y = y * 2
            return y

    wanted, other = Layer(), Layer()
    asked, seen = [], []

    def on_enter(code, instance):
        asked.append(code.co_name)
        return "layer" if instance is wanted else None

    watcher = make_watcher(
        ["x", "y", "self"], on_enter=on_enter, on_value=lambda *what: seen.append(what), keep=False, record=False
    )
    watcher.add(Layer.forward.__code__)
    assert (wanted.forward(1), other.forward(5)) == (4, 12)
    first = Layer.forward.__code__.co_firstlineno
    assert asked == ["forward", "forward"]
    assert [(tag, name, value, line - first) for tag, name, value, line, _ in seen] == [
        ("layer", "x", 1, 0),
        ("layer", "self", wanted, 0),
        ("layer", "y", 2, 1),
        ("layer", "y", 4, 2),
    ]
    watcher.close()
    wanted.forward(1)
    assert len(asked) == 2 and len(seen) == 4
