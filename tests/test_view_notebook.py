"""What a notebook shows of recordings, diffs and tensors: the viewer's page in a frame, with its answers inside."""

import html
import re

import exported_page
import numpy as np
import pytest
import tenscope


@pytest.fixture
def runs(tmp_path):
    values = np.arange(12, dtype=np.float32).reshape(3, 4)
    for name, factor in (("good", 1), ("bad", 2)):
        with tenscope.Run(tmp_path, name=name, metadata=False) as run:
            run.record("x", values)
            run.record("<b>y</b>", values * factor)
    return tmp_path / "good", tmp_path / "bad"


def page_of(value):
    bundle = value._repr_mimebundle_()
    frame = bundle["text/html"]
    assert frame.count("<iframe ") == 1 and 'sandbox="allow-scripts"' in frame
    assert bundle["text/plain"]
    page = html.unescape(re.search(r'srcdoc="([^"]*)"', frame)[1])
    assert exported_page.fetched(page) == []
    assert len(frame) < 1 << 20
    return exported_page.answers(page)


def test_a_recording(runs):
    answers = page_of(tenscope.open(runs[0]))
    assert answers["/api/answer"]["verdict"] == "healthy"
    assert answers["/api/names"]["name"] == ["x", "<b>y</b>"]
    assert answers["/api/session"]["sides"][0]["label"] == "good"


def test_a_diff(runs):
    diff = tenscope.diff(*runs)
    answers = page_of(diff)
    assert answers["/api/answer"]["headline"] == str(diff).splitlines()[0]
    place = answers["/api/answer"]["places"][0]
    assert place["name"] == "<b>y</b>"
    assert answers[f"/api/tile?event={place['event_a']}&h=512&of=diff&w=512"].startswith(b"TST1")


def test_a_diff_with_options(runs):
    answers = page_of(tenscope.diff(*runs, tolerance=10.0))
    assert answers["/api/answer"]["verdict"] == "noise"


@pytest.mark.parametrize("dtype", ["float32", "int64", "bool", "complex64"])
def test_a_tensor(tmp_path, dtype):
    values = np.random.default_rng(0).normal(size=(6, 7)).astype(dtype)
    with tenscope.Run(tmp_path, name="run", metadata=False) as run:
        run.record("x", values)
    answers = page_of(tenscope.open(tmp_path / "run")["x"])
    assert answers["/api/event?event=0"]["tensor"]["shape"] == [6, 7]
    assert answers["/api/tile?event=0&h=512&of=a&w=512"].startswith(b"TST1")


def test_what_cannot_be_shown_is_text(tmp_path):
    with tenscope.Run(tmp_path, name="run", metadata=False) as run:
        run.record("scalar", np.float32(3))
        run.record("empty", np.zeros((0, 3)))
    recording = tenscope.open(tmp_path / "run")
    assert recording["empty"]._repr_mimebundle_().keys() == {"text/plain"}


def test_a_run_that_is_gone_is_still_text(runs, capsys):
    import shutil

    recording = tenscope.open(runs[0])
    shutil.rmtree(runs[0])
    bundle = recording._repr_mimebundle_()
    assert bundle.keys() == {"text/plain"}
    assert "cannot show the page" in capsys.readouterr().err
