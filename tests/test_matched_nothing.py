"""A selector that matches nothing is told: one warning, one note in the run, and the nearest thing that there is."""

import gc
import warnings

import numpy as np
import pytest
import tenscope
from launched import notes, warm_run, write

torch = pytest.importorskip("torch")
nn = torch.nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attn = nn.Linear(2, 2)

    def forward(self, x):
        scores = self.attn(x)
        return scores * 2


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(2))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


SCORES = "blocks.*.forward.scores"


@pytest.fixture
def run(tmp_path):
    with tenscope.Run(tmp_path, name="run", strict=True) as run:
        yield run


def told(run):
    run.flush()
    return [tuple(e.meta.values()) for e in notes(tenscope.open(run.path), "matched_nothing")]


def test_the_nearest_is_a_name_and_the_warning_stands_at_the_programs_line(run):
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    with pytest.warns(tenscope.RecordingWarning) as caught, tenscope.trace(model, include="linear*"):
        model(torch.ones(1, 2))
    assert told(run)[0][2] in ("0", "1")
    assert [warning.filename for warning in caught] == [__file__]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"include": "blok.*"}, [("blok.*", "trace(include=)", "blocks.*")]),
        ({"include": ["blocks.0", "blocks.*.atn"]}, [("blocks.*.atn", "trace(include=)", "blocks.*.attn")]),
        ({"exclude": "blocks.0.atn"}, [("blocks.0.atn", "trace(exclude=)", "blocks.0.attn")]),
        ({"classes": (nn.Linear, nn.Conv2d)}, [("Conv2d", "trace(classes=)", None)]),
        ({"locals": "blocks.*.forward.scoers"}, [("blocks.*.forward.scoers", "trace(locals=)", SCORES)]),
        ({"locals": ["blocks.0.forwrd"]}, [("blocks.0.forwrd", "trace(locals=)", "blocks.0.forward")]),
        ({"mode": "eval"}, [("eval", "trace(mode=)", "train")]),
        ({"include": "blocks.*.attn", "exclude": "blocks.1*", "classes": nn.Linear, "locals": ["forward.x"]}, []),
        ({"mode": "train", "every": 5, "locals": ["forward.block", "blocks.1.forward"]}, []),
    ],
)
def test_trace(run, options, expected):
    model = Model()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with tenscope.trace(model, **options):
            model(torch.ones(1, 2))
    found = told(run)
    assert [(s, w) for s, w, _ in found] == [(s, w) for s, w, _ in expected]
    assert all(near in (None, other) for (_, _, near), (_, _, other) in zip(expected, found, strict=True))
    lines = [str(w.message) for w in caught if issubclass(w.category, tenscope.RecordingWarning)]
    assert len(lines) == len(expected)
    for line, (selector, where, near) in zip(lines, found, strict=True):
        assert line == f"{where}: {selector!r} matched nothing; the nearest that exists is {near!r}"


def test_a_trace_without_a_call_knows_only_what_cannot_be(run):
    trace = tenscope.trace(Model(), locals=["forward.x", "nowhere.forward"])
    with pytest.warns(tenscope.RecordingWarning, match="nowhere") as caught, trace:
        pass
    assert len(caught) == 1 and [entry[0] for entry in told(run)] == ["nowhere.forward"]


def test_a_trace_that_an_exception_leaves_does_not_guess(run):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(RuntimeError), tenscope.trace(Model(), locals=["blocks.1.forward.scores"]) as trace:
            trace.model(torch.ones(1, 3))
    assert told(run) == []


def test_a_decorated_function_is_told_once(run):
    model = Model()

    @tenscope.trace(model, include="bloks*")
    def step():
        model(torch.ones(1, 2))

    with pytest.warns(tenscope.RecordingWarning) as caught:
        step(), step(), step()
    assert len(caught) == len(told(run)) == 1


def test_gather(run):
    model = Model()
    gather = tenscope.gather(model, ["forward.x", "blocks.*.forward.scroes"])
    with pytest.warns(tenscope.RecordingWarning, match="gather") as caught, gather:
        model(torch.ones(1, 2))
    assert len(caught) == 1
    assert told(run) == [("blocks.*.forward.scroes", "gather(paths)", "blocks.*.forward.scores")]


def test_watch(tmp_path):
    with pytest.warns(tenscope.RecordingWarning) as caught, tenscope.Run(tmp_path, name="run") as run:

        @tenscope.watch("lss", "loss", "cfg['lr']", "cfg['rate']", "late")
        def train():
            cfg = {"lr": 0.1}
            loss = np.float64(3)
            if not cfg:
                late = 1
                return late
            return loss

        train()
        assert told(run) == []
    assert told(run) == [
        ("lss", "watch", "loss"),
        ("cfg['rate']", "watch", "cfg"),
        ("late", "watch", "late"),
    ]
    assert told_lines(caught) == [
        "watch: 'lss' matched nothing; the nearest that exists is 'loss'",
        "watch: \"cfg['rate']\" matched nothing; the nearest that exists is 'cfg'",
    ]


def told_lines(caught):
    return [str(warning.message) for warning in caught]


def test_a_watched_function_that_dies_or_was_never_called(run):
    def make():
        @tenscope.watch("vlaue")
        def inner():
            value = 1
            return value

        return inner

    never = make()
    del never
    gc.collect()
    assert told(run) == []
    function = make()
    function()
    with pytest.warns(tenscope.RecordingWarning, match="vlaue"):
        del function
        gc.collect()
    assert told(run) == [("vlaue", "watch", "value")]


def test_watching_and_tree(run, capsys):
    loss = 1
    with pytest.warns(tenscope.RecordingWarning, match="watching: 'lss'"), tenscope.watching("lss", "loss") as watched:
        loss = 2
    assert len(watched.changes) == 2 and loss == 2

    @tenscope.tree(watch=["vdeo"], show=False)
    def show(video):
        return video

    show(1)
    with pytest.warns(tenscope.RecordingWarning, match="vdeo"):
        del show
        gc.collect()
    assert told(run) == [("lss", "watching", "loss"), ("vdeo", "tree(watch=)", "video")]


SCRIPT = """
import torch
model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())
for _ in range(3):
    model(torch.ones(1, 2))
"""


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--include", "linear*"], ("linear*", "tenscope run --include", None)),
        (["--exclude", "3"], ("3", "tenscope run --exclude", None)),
        (["--steps", "7:9"], ("7:9", "tenscope run --steps", "0:3")),
        (["--steps", "1:2", "--include", "0", "--exclude", "1"], None),
    ],
)
def test_tenscope_run(tmp_path, words, expected):
    done = warm_run(tmp_path, "--name", "run", *words, write(tmp_path, SCRIPT))
    assert done.returncode == 0
    found = [tuple(e.meta.values()) for e in notes(tenscope.open(tmp_path / "runs" / "run"), "matched_nothing")]
    if expected is None:
        assert found == [] and done.stderr == ""
    else:
        ((selector, where, near),) = found
        assert (selector, where) == expected[:2] and expected[2] in (None, near)
        line = f"tenscope: {where}: {selector!r} matched nothing; the nearest that exists is {near!r}\n"
        assert done.stderr == line
