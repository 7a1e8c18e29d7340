"""The call of record: an event's fields, on and off, trouble that stays inside, threads."""

import sys
import threading
import warnings

import numpy as np
import pytest
import tenscope


@pytest.fixture
def run(tmp_path):
    with tenscope.Run(tmp_path) as run:
        yield run


def reread(run):
    run.close()
    return tenscope.open(run.path)


# The event's fields.


def test_fields_of_an_event(run):
    tenscope.record("x", 1, kind="change", step=7, call=3, site="f.py:1", scope="s", io="local", phase="forward",
                    root="R#0", cls="C",
                    task="T", meta={"k": [1]})  # fmt: skip
    tenscope.record("enter", kind="enter", scope="s")
    back = reread(run)
    event = back.event("x", 7, 3)
    told = [
        getattr(event, f)
        for f in ("kind", "step", "call", "site", "scope", "io", "phase", "root", "cls", "task", "meta")
    ]
    assert told == ["change", 7, 3, "f.py:1", "s", "local", "forward", "R#0", "C", "T", {"k": [1]}]
    assert [e.scope for e in back.find(kind="enter")] == ["s"]


def test_the_site_is_the_line_that_calls(run):
    tenscope.record("x", 1)
    line = sys._getframe().f_lineno - 1
    assert reread(run).event("x").site.endswith(f"test_record_calls.py:{line}")


def test_steps_and_calls_are_counted(run):
    tenscope.record("x", "a")
    tenscope.record("x", "b")
    assert tenscope.step() == 1
    tenscope.record("x", "c")
    assert tenscope.step(9) == 9 and run.current_step == 9
    tenscope.record("x", "d")
    back = reread(run)
    assert [(e.step, e.call, e.value) for e in back.find("x")] == [(0, 0, "a"), (0, 1, "b"), (1, 0, "c"), (9, 0, "d")]


def test_statistics_only(run):
    tenscope.record("x", np.ones(3), values="stats")
    back = reread(run)
    assert back.event("x").stats.mean == 1 and not back.event("x").stored
    with pytest.raises(tenscope.NotFoundError):
        back["x"]


@pytest.mark.parametrize("wrong", [{"kind": "no"}, {"values": "no"}, {"no": 1}, {"scope": 3}])
def test_a_wrong_call_raises(run, wrong):
    with pytest.raises((TypeError, ValueError)):
        tenscope.record("x", 1, **wrong)
    with pytest.raises(TypeError):
        tenscope.record("x")


# On and off.


def test_nothing_is_recorded_before_init_or_while_disabled(tmp_path):
    assert tenscope.current() is None
    tenscope.record("x", 1)
    run = tenscope.init(tmp_path)
    assert tenscope.current() is run
    tenscope.disable()
    tenscope.record("x", 2)
    tenscope.enable()
    tenscope.record("x", 3)
    tenscope.close()
    tenscope.record("x", 4)
    assert tenscope.current() is None and [e.value for e in tenscope.open(tmp_path).find("x")] == [3]


def test_run_as_a_context_is_current_inside_and_notes_an_exception(tmp_path):
    with pytest.raises(ZeroDivisionError), tenscope.Run(tmp_path / "a") as outer:
        with tenscope.Run(tmp_path / "b") as inner:
            tenscope.record("x", "inner")
        tenscope.record("x", "outer")
        _ = 1 / 0
    assert tenscope.open(inner.path)["x"] == "inner"
    back = tenscope.open(outer.path)
    assert back["x"] == "outer" and back.closed
    assert back.find("exception")[0].value == "ZeroDivisionError: division by zero"


# Trouble.


class Hostile(dict):
    class Key:
        def __str__(self):
            raise ValueError("no name")

    def __init__(self):
        super().__init__({self.Key(): 1})


def test_an_error_inside_the_recorder_stays_there(run):
    with pytest.warns(tenscope.RecordingWarning, match="no name"):
        tenscope.record("x", Hostile())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tenscope.record("x", Hostile())
    tenscope.record("y", 1)
    assert run.dropped == 2 and reread(run)["y"] == 1


def test_a_warning_made_an_error_stays_there_too(run, capsys):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tenscope.record("x", Hostile())
    assert "no name" in capsys.readouterr().err


def test_strict_raises(tmp_path):
    with tenscope.Run(tmp_path, strict=True), pytest.raises(ValueError, match="no name"):
        tenscope.record("x", Hostile())


def test_the_recorder_does_not_record_itself(run):
    class Key:
        def __str__(self):
            tenscope.record("inner", 1)
            return "key"

    tenscope.record("outer", {Key(): 2})
    assert reread(run).names() == ["outer.key"]


def test_a_folder_that_cannot_be_made_is_warned_of(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.warns(tenscope.RecordingWarning, match="recording is off"):
        tenscope.init(tmp_path / "file" / "runs")
    tenscope.record("x", 1)
    tenscope.close()


def test_nothing_of_the_users_is_kept(run):
    array = np.ones(300_000)
    before = sys.getrefcount(array)
    for _ in range(3):
        tenscope.record("x", {"a": array})
    assert sys.getrefcount(array) == before


def test_threads(run):
    arrays = [np.full(200_000, i, "f8") for i in range(4)]  # large enough to be read without the GIL

    def work(i):
        for n in range(20):
            tenscope.record(f"t{i}", arrays[i])
            tenscope.record(f"n{i}", n)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    back = reread(run)
    assert len(back.find("t?")) == 80 and [e.value for e in back.find("n2")] == list(range(20))
    assert all(back[f"t{i}"][0] == i for i in range(4))
    assert len({e.thread for e in back.find("n?")}) == 4
