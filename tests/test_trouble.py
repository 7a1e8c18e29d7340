"""What goes wrong in the recorder, or is cut off by a limit, is said; and raised where it is strict."""

# ruff: noqa: F841  (what is assigned is watched)

import sys

import pytest
import tenscope
from tenscope import _core
from tenscope.lines.watch import watch
from tenscope.recording import registry


class Converted:
    pass


@pytest.fixture(autouse=True)
def clean():
    yield
    tenscope.close()
    for table in (registry._entries, registry._to_value):
        table.clear()


# Limits are said.


def test_what_a_digest_leaves_out_is_noted_in_the_run(tmp_path):
    run = tenscope.init(tmp_path, metadata=False)

    @watch("deep", "many", max_changes=5)
    def f():
        deep = [0]
        for _ in range(70):
            deep = [deep]
        many = list(range(1_000_001))
        many[-1] = -1

    f()
    tenscope.close()
    notes = {note.meta["name"]: note.meta["reason"] for note in tenscope.open(run.path).find("not_seen", kind="note")}
    assert "deeper than 64" in notes["deep"] and "unseen" in notes["deep"]
    assert "1000000 items" in notes["many"]


def test_what_a_digest_leaves_out_is_warned_of_without_a_run():
    @watch("many")
    def f():
        many = set(range(1_000_001))

    with pytest.warns(tenscope.RecordingWarning, match=r"many in .*unseen"):
        f()


def test_a_snapshot_marks_what_it_lacks():
    long = _core.snapshot(list(range(70_000)))
    assert len(long) == 65_537 and repr(long[-1]) == "… 4464 more" and long[-1].count == 4464
    named = _core.snapshot({i: i for i in range(65_539)})
    assert repr(named["…"]) == "… 3 more"
    loop = [1]
    loop.append({"loop": loop})
    assert "a cycle" in _core.snapshot(loop)[1]["loop"]
    deep = []
    for _ in range(100):
        deep = [deep]
    assert "nested deeper than 64 levels" in repr(_core.snapshot(deep))


def test_a_long_list_is_shown_with_its_length(capsys):
    @tenscope.tree
    def f(x):
        return x

    f(list(range(70_000)))
    assert "list of 70000: int" in capsys.readouterr().err


# TENSCOPE_STRICT has one meaning.


@pytest.mark.parametrize("value, strict", [("", False), ("0", False), ("1", True), ("yes", True), (None, False)])
def test_strict_by_environment(tmp_path, monkeypatch, value, strict):
    monkeypatch.delenv("TENSCOPE_STRICT", raising=False)
    if value is not None:
        monkeypatch.setenv("TENSCOPE_STRICT", value)
    assert _core.is_strict() is strict
    assert tenscope.Run(tmp_path, metadata=False).strict is strict


def test_a_strict_run_is_strict(tmp_path, monkeypatch):
    monkeypatch.delenv("TENSCOPE_STRICT", raising=False)
    assert not _core.is_strict()
    with tenscope.Run(tmp_path, strict=True):
        assert _core.is_strict()
    assert not _core.is_strict()


def hook_that_fails(change):
    raise LookupError("hook is broken")


def test_strict_raises_what_goes_wrong_in_a_hook(monkeypatch):
    monkeypatch.setenv("TENSCOPE_STRICT", "1")
    reached = []

    @watch("x", hook=hook_that_fails)
    def f():
        x = [1]
        reached.append(1)
        return x

    with pytest.raises(LookupError, match="hook is broken"):
        f()
    assert not reached

    @watch("y", hook=hook_that_fails)
    def at_the_end():
        y = [1]

    with pytest.raises(LookupError, match="hook is broken"):
        at_the_end()

    @watch("z", hook=hook_that_fails)
    def generator():
        z = [1]
        yield z
        yield 2

    with pytest.raises(LookupError, match="hook is broken"):
        list(generator())
    monkeypatch.setenv("TENSCOPE_STRICT", "0")
    assert f() == [1]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_strict_lets_the_programs_own_error_go_first(monkeypatch):
    monkeypatch.setenv("TENSCOPE_STRICT", "1")
    unraisable = []
    monkeypatch.setattr(sys, "unraisablehook", lambda told: unraisable.append(told.exc_value))

    @watch("x", hook=lambda change: change.first or hook_that_fails(change))
    def f(x):
        x[0] = 1 / (x.append(1) or 0)

    with pytest.raises(ZeroDivisionError):
        f([0])
    assert [str(error) for error in unraisable] == ["hook is broken"]


def test_strict_raises_what_goes_wrong_in_recording_a_change(tmp_path, monkeypatch):
    monkeypatch.setenv("TENSCOPE_STRICT", "1")
    tenscope.register(Converted, to_value=lambda c: 1 / 0)
    tenscope.init(tmp_path, metadata=False)

    @watch("x")
    def f():
        x = {"a": Converted()}
        return x

    with pytest.raises(ZeroDivisionError):
        f()
    with pytest.raises(ZeroDivisionError):
        tenscope.record("x", Converted())


def test_strict_in_a_tree(monkeypatch):
    monkeypatch.setenv("TENSCOPE_STRICT", "yes")

    class Broken:
        def write(self, text):
            raise LookupError("broken stream")

    @tenscope.tree(show=Broken())
    def f():
        return 1

    with pytest.raises(LookupError):
        f()
