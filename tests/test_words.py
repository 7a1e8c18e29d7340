"""The words of events are one contract: what Python writes is what event.hpp names and docs/format.md tells."""

import ast
import pathlib

import numpy as np
import pytest
import tenscope
from tenscope import _core

PACKAGE = pathlib.Path(tenscope.__file__).parent
DOCS = pathlib.Path(__file__).parent.parent / "docs"


def calls():
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                yield path, node


def texts(keyword):
    for path, call in calls():
        for given in call.keywords:
            if given.arg == keyword and isinstance(given.value, ast.Constant) and isinstance(given.value.value, str):
                yield path, given.value.value


def notes():
    """Names given to Probe.note, Probe.note_once and record(..., kind="note")."""
    for path, call in calls():
        method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        is_note = any(
            k.arg == "kind" and isinstance(k.value, ast.Constant) and k.value.value == "note" for k in call.keywords
        )
        is_probe = method in ("note", "note_once") and path.name != "tree.py"
        if (is_note or is_probe) and call.args and isinstance(call.args[0], ast.Constant):
            yield path, call.args[0].value


@pytest.mark.parametrize(
    ("written", "known", "at_least"),
    [
        (lambda: texts("io"), _core.IO_WORDS, {"input", "output", "loss", "buffer", "local"}),
        (lambda: texts("phase"), _core.PHASE_WORDS, {"init", "forward", "backward"}),
        (notes, _core.NOTE_NAMES, {"exception", "not_seen", "out_of_sync", "recomputed"}),
    ],
    ids=["io", "phase", "notes"],
)
def test_python_writes_no_other_word(written, known, at_least):
    found = list(written())
    assert {word for _, word in found} >= at_least
    assert [(path.name, word) for path, word in found if word not in known] == []


def test_settings_are_known_notes():
    pytest.importorskip("torch")
    from tenscope.launch.autoprobe import settings_in_force

    assert set(settings_in_force()) <= set(_core.NOTE_NAMES)


def test_every_word_is_documented():
    text = (DOCS / "format.md").read_text() + (DOCS / "trace.md").read_text()
    words = [*_core.IO_WORDS, *_core.PHASE_WORDS, *_core.NOTE_NAMES, _core.GRADIENT_SUFFIX, _core.CHANGED_INPUT_SUFFIX]
    assert [word for word in words if f"`{word}`" not in text] == []


def test_a_word_of_the_program_s_own_is_kept(tmp_path):
    with tenscope.Run(tmp_path, name="r") as run:
        run.record("x", np.ones(2), io="router_logits", phase="decode")
        run.record("y", 1, io="grad_input", phase="backward")
        run.record("z", 1)
    events = {e.name: e for e in tenscope.open(tmp_path / "r") if e.kind == "value"}
    assert (events["x"].io, events["x"].phase) == ("router_logits", "decode")
    assert (events["y"].io, events["y"].phase) == ("grad_input", "backward")
    assert (events["z"].io, events["z"].phase) == ("", "")


def test_suffixes_are_those_of_a_trace(tmp_path):
    torch = pytest.importorskip("torch")

    class Doubles(torch.nn.Module):
        def forward(self, x):
            x.mul_(2)
            return x.sum()

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = torch.nn.Linear(2, 2)
            self.doubles = Doubles()

        def forward(self, x):
            return self.doubles(self.fc(x))

    model = Model()
    with tenscope.Run(tmp_path, name="r"), tenscope.trace(model, grads=True, param_grads=True):
        model(torch.ones(1, 2)).backward()
    names = set(tenscope.open(tmp_path / "r").names())
    assert f"fc.weight{_core.GRADIENT_SUFFIX}" in names
    assert f"doubles.input.0{_core.CHANGED_INPUT_SUFFIX}" in names
