"""What Python code that runs in the middle of a record or a look may do: close the run, open another, fork, throw, end
the watch."""

# ruff: noqa: F841  (what is assigned is watched)

import dataclasses
import gc
import os
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest
import tenscope
from tenscope import _core
from tenscope.lines.watch import watch, watching
from tenscope.recording import registry


class Acts:
    """An object that does something when it is turned into text: as a name, a key or an old value."""

    def __init__(self, act):
        self.act = act

    def __str__(self):
        self.act()
        return "acted"

    __repr__ = __str__


class Converted:
    def __init__(self, act):
        self.act = act


class ActsAsInt(int):
    """A scalar, so that it is kept and its repr is asked for when it changes."""

    act = None

    def __repr__(self):
        if self.act is not None:
            self.act()
        return "acted"


@pytest.fixture(autouse=True, scope="module")
def frozen():
    """What earlier tests have imported is not looked at by the many collections of garbage in these."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def clean():
    tenscope.register(Converted, to_value=lambda c: (c.act(), {"x": 1})[1])
    yield
    tenscope.close()
    for table in (registry._entries, registry._to_value):
        table.clear()


def drop_the_run():
    """Ends the current run with its last reference."""
    tenscope.close()
    gc.collect()


def reopen(folder):
    def act():
        drop_the_run()
        tenscope.init(folder, metadata=False)

    return act


def closes(folder):
    return tenscope.close


def drops(folder):
    return drop_the_run


def does_so_in_a_thread(folder):
    def act():
        thread = threading.Thread(target=reopen(folder))
        thread.start()
        thread.join()

    return act


WAYS = {
    "name": lambda act: tenscope.record(Acts(act), 1),
    "key": lambda act: tenscope.record("x", {"a": 1, Acts(act): np.ones(3), "b": [2.5]}),
    "converter": lambda act: tenscope.record("x", [Converted(act), np.ones(300_000), "text"]),
    "property": lambda act: tenscope.record("x", with_property(act)),
    "meta": lambda act: tenscope.record("x", 1, meta=JsonLike(act)),
    "change": lambda act: change(act),
    "hook": lambda act: hooked(act),
}


class JsonLike(dict):
    def __init__(self, act):
        super().__init__(a=1)
        self.act = act

    def items(self):
        self.act()
        return super().items()


def with_property(act):
    @dataclasses.dataclass
    class Has:
        first: int
        second: int = 2

        def __getattribute__(self, name):
            if name == "first":
                act()
            return object.__getattribute__(self, name)

    return Has(1)


def change(act):
    @watch("x", "y")
    def f():
        x = ActsAsInt(1)
        x.act = act
        x = np.arange(3)
        y = {"k": Converted(act)}
        x = 5

    f()


def hooked(act):
    @watch("x", hook=lambda change: act())
    def f():
        x = 1
        x = [2]
        x = 3

    f()


@pytest.mark.parametrize("does", [closes, drops, reopen, does_so_in_a_thread])
@pytest.mark.parametrize("way", WAYS)
def test_the_run_may_end_in_the_middle(tmp_path, way, does):
    for _ in range(5):
        tenscope.init(tmp_path, metadata=False)
        WAYS[way](does(tmp_path))
        tenscope.close()
    for run in _core.list_runs(tmp_path):
        assert not tenscope.open(run).problems
    tenscope.init(tmp_path, metadata=False)
    tenscope.record("after", 1)
    path = tenscope.current().path
    tenscope.close()
    assert tenscope.open(path)["after"] == 1


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's")
def test_the_same_where_freed_memory_is_overwritten():
    what = "end_in_the_middle or last_reference or many_threads"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider", __file__, "-k", what]
    environment = os.environ | {"MALLOC_PERTURB_": "165"}
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


def test_a_run_of_its_own_may_lose_its_last_reference(tmp_path):
    runs = [tenscope.Run(tmp_path, metadata=False)]
    record = runs[0].record
    record({Acts(runs.clear): 1, "name": 2}, 1)
    del record
    _core.Run(tmp_path).record("x", [Converted(gc.collect), Acts(gc.collect)])


def test_a_run_that_was_not_made_is_said():
    with pytest.raises(RuntimeError, match="__init__"):
        _core.Run.__new__(_core.Run).record("x", 1)


def test_records_of_many_threads_while_runs_come_and_go(tmp_path):
    stop = threading.Event()
    large = np.ones(200_000)

    def work(n):
        while not stop.is_set():
            tenscope.record(f"w{n}", {"large": large, "c": Converted(lambda: None), Acts(lambda: None): n})

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(30):
        tenscope.init(tmp_path, metadata=False)
        drop_the_run()
    stop.set()
    for thread in threads:
        thread.join()
    for run in _core.list_runs(tmp_path):
        assert not tenscope.open(run).problems


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_fork_in_the_middle(tmp_path):
    children = []

    def fork():
        children.append(os.fork())

    run = tenscope.init(tmp_path, metadata=False)
    tenscope.record("before", 1)
    tenscope.record("x", {Acts(fork): 1, "b": np.ones(2)})
    if children[0] == 0:
        tenscope.close()
        os._exit(0)
    assert os.waitpid(children[0], 0)[1] == 0
    tenscope.close()
    back = tenscope.open(run.path)
    assert not back.problems
    assert sorted(e.rank for e in back.find("x.acted")) == [0, 0] and len(back.find("x.b")) == 2


def test_interrupting_a_record_interrupts_the_program(tmp_path):
    def interrupt():
        signal.raise_signal(signal.SIGINT)
        for _ in range(1000):  # the handler runs here
            pass

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    tenscope.init(tmp_path, metadata=False)
    try:
        with pytest.raises(KeyboardInterrupt):
            tenscope.record("x", {Acts(interrupt): 1})
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_converter_that_gives_its_own_kind_ends(tmp_path):
    tenscope.register(Converted, to_value=lambda c: Converted(c.act))
    run = tenscope.init(tmp_path, metadata=False)
    tenscope.record("x", Converted(None))
    tenscope.close()
    assert "Converted" in tenscope.open(run.path)["x"]


def test_a_converter_may_replace_itself(tmp_path):
    class Once:
        def __init__(self, n):
            self.n = n

        def __call__(self, c):
            tenscope.register(Converted, to_value=Once(self.n + 1))
            gc.collect()
            return self.n

    tenscope.register(Converted, to_value=Once(1))
    run = tenscope.init(tmp_path, metadata=False)
    tenscope.record("x", [Converted(None), Converted(None)])
    tenscope.close()
    assert tenscope.open(run.path)["x"] == [1, 2]


def test_what_failed_is_counted_and_said_in_the_run(tmp_path):
    def fail():
        raise RuntimeError("no text")

    run = tenscope.init(tmp_path, metadata=False)
    with pytest.warns(tenscope.RecordingWarning, match="no text"):
        tenscope.record("x", {"a": 1, Acts(fail): 2})
    assert run.dropped == 1
    tenscope.close()
    (note,) = tenscope.open(run.path).find("not_seen")
    assert note.meta["name"] == "x" and "no text" in note.meta["reason"]


def test_a_dict_that_changes_while_it_is_recorded(tmp_path):
    grows = {}
    grows.update({"a": 1, Acts(lambda: grows.update({f"new{i}": i for i in range(100)})): 2})
    run = tenscope.init(tmp_path, metadata=False)
    tenscope.record("x", grows)
    tenscope.close()
    reasons = [note.meta["reason"] for note in tenscope.open(run.path).find("not_seen")]
    assert any("changed while" in reason for reason in reasons)


def test_a_field_that_cannot_be_read_is_said(tmp_path):
    def fail():
        raise ValueError("broken field")

    run = tenscope.init(tmp_path, metadata=False)
    tenscope.record("x", with_property(fail))
    tenscope.close()
    back = tenscope.open(run.path)
    assert back["x.second"] == 2
    assert ["broken field" in note.meta["reason"] for note in back.find("not_seen")] == [True]


# The watch itself may end in the middle of a look.


@pytest.mark.parametrize("again", [False, True])
def test_a_hook_may_end_its_own_block(again):
    seen = []

    def hook(change):
        seen.append(change.new)
        if change.new == 2:
            block.__exit__(None, None, None)
            if again:
                with watching("change"):  # a hook is not watched
                    change = None
            gc.collect()

    x = [0]
    block = watching("x", "y", hook=hook)
    block.__enter__()
    y = 1
    x = 2
    y = 3
    x = [4]
    assert seen[-1] == 2 and 3 not in seen and [4] not in seen


def test_hooks_end_all_blocks_of_a_frame_at_once():
    blocks = []

    def hook(change):
        while blocks:
            blocks.pop().__exit__(None, None, None)

    for _ in range(3):
        blocks.append(watching("x", hook=hook))
        blocks[-1].__enter__()
    x = [1]
    x = [2]
    x = [3]
    assert not blocks
