"""What `tenscope view` can be given: a run and its health, one that did not end well, files, a list, statistics."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from urllib.parse import quote

import numpy as np
import pytest
import tenscope
from hand_written_run import HandWrittenRun
from hand_written_run import tenscope as tenscope_cli
from viewed_runs import STEPS, network, play, record_runs, relative, rows_of
from viewer_client import Viewer, viewing


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return record_runs(tmp_path_factory.mktemp("runs"))


# One run: its health. Runs that did not end well.


def test_a_run_with_a_nan(tmp_path):
    with tenscope.Run(tmp_path, name="run") as run:
        for step in range(4):
            x = np.linspace(1, 2, 12, dtype=np.float32).reshape(3, 4)
            if step == 2:
                x[1, 3] = np.nan
            run.record("activation", x, step=step)
            run.record("loss", 1.0 / (step + 1), step=step)
    with viewing(tmp_path / "run") as viewer:
        answer = viewer.answer()
        said = tenscope_cli("check", tmp_path / "run", check=1).stdout
        assert (answer["of"], answer["verdict"]) == ("check", "unhealthy")
        place = answer["places"][0]
        assert place["title"] in said and (place["name"], place["step"]) == ("activation", 2)
        assert place["title"] in answer["headline"]
        event = viewer.json("event", event=place["event_a"])
        assert (event["name"], event["step"], event["tensor"]["stats"]["nan"]) == ("activation", 2, 1)
        assert viewer.json("find", event=place["event_a"], what="nan")["index"] == [1, 3]
        timeline = viewer.json("timeline")
        assert {cell["verdict"] for cell in rows_of(timeline["cells"])} == {-1}
        bad = [(timeline["modules"][c["module"]]["path"], c["step"]) for c in rows_of(timeline["cells"]) if c["bad"]]
        assert bad == [("activation", 2)]
        row = rows_of(viewer.json("names"))[0]
        assert (row["name"], row["bad"], row["first_b"]) == ("activation", 1, None)
        assert shlex.split(answer["command"])[:2] == ["tenscope", "check"]
        assert viewer.refusal("events", side="b", name="loss")[0] == 404


def test_a_healthy_run(runs):
    with viewing(runs / "good") as viewer:
        answer = viewer.answer()
        assert (answer["of"], answer["verdict"], answer["places"]) == ("check", "healthy", [])
        session = viewer.json("session")
        assert session["kind"] == "runs" and session["title"] == "good" and session["has_calls"]
        assert session["has_modules"] and not session["has_changes"]
        (side,) = session["sides"]
        assert (side["state"], side["kind"], side["label"]) == ("closed", "run", "good")
        assert side["steps"] == list(range(STEPS)) and side["problems"] == []
        assert side["events"] == len(tenscope.open(runs / "good"))
        calls = viewer.json("calls", step=1)["calls"]
        assert [call["name"] for call in calls[:3]] == ["Net#0", "first", "blocks"]
        assert [call["depth"] for call in calls[:5]] == [0, 1, 1, 2, 3]
        assert all(call["duration"] >= 0 and call["exception"] is None for call in calls)


def run_script(folder, script: str) -> int:
    code = f"import tenscope, numpy as np\nrun = tenscope.init({str(folder)!r}, name='run')\n{script}"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60, check=False).returncode


def test_a_run_that_failed(tmp_path):
    assert run_script(tmp_path, "run.record('x', np.ones(3))\nraise ValueError('no')") == 1
    with viewing(tmp_path / "run") as viewer:
        (side,) = viewer.json("session")["sides"]
        assert side["state"] == "failed" and side["writers"][0]["exception"] == "ValueError"
        assert viewer.json("live", revision=0)["sides"][0]["state"] == "failed"
        assert viewer.elements(event=viewer.event("x")) == [["1.0", "1.0", "1.0"]]


def test_a_run_that_crashed(tmp_path):
    assert run_script(tmp_path, "run.record('x', np.ones(3))\nimport os\nos.kill(os.getpid(), 9)") == -9
    with viewing(tmp_path / "run") as viewer:
        (side,) = viewer.json("session")["sides"]
        assert side["state"] == "crashed" and side["state_text"]
        assert viewer.elements(event=viewer.event("x")) == [["1.0", "1.0", "1.0"]]


# Files.


def test_two_files(tmp_path):
    rng = np.random.default_rng(0)
    first = {name: rng.normal(size=(4, 5)).astype(np.float32) for name in ("same", "little", "much")}
    second = {name: array.copy() for name, array in first.items()}
    second["little"][1, 2] += 0.5
    second["much"] *= -3
    second["new"] = np.ones(2, np.float32)
    np.savez(tmp_path / "a.npz", **first)
    np.savez(tmp_path / "b.npz", **second)
    with viewing(tmp_path / "a.npz", tmp_path / "b.npz") as viewer:
        session = viewer.json("session")
        assert session["kind"] == "files" and [side["kind"] for side in session["sides"]] == ["file", "file"]
        answer = viewer.answer()
        assert (answer["of"], answer["verdict"]) == ("files", "differs")
        places = {place["name"]: place for place in answer["places"]}
        assert set(places) == {"little", "much", "new"} and "same" not in places
        order = [place["name"] for place in answer["places"]]
        assert order.index("much") < order.index("little"), "the worst first"
        assert places["much"]["rel_l2"] == pytest.approx(relative(first["much"], second["much"]))
        assert places["new"]["event_a"] is None and places["new"]["event_b"] is not None
        assert set(viewer.json("names")["name"]) == set(second)
        for name in first:
            event = viewer.event(name)
            tile = viewer.tile(event=event, of="diff")
            expected = second[name].astype("f8") - first[name].astype("f8")
            np.testing.assert_array_equal(tile.value, expected.astype(np.float32))
        assert viewer.json("find", event=viewer.event("little"), what="worst") == {"index": [1, 2], "count": 1}


@pytest.mark.parametrize(
    "change, verdict",
    [(lambda x: x, "equal"), (lambda x: x * np.float32(1 + 1e-7), "noise"), (lambda x: x + 1, "differs")],
)
def test_the_verdict_on_two_files(tmp_path, change, verdict):
    array = np.linspace(1, 2, 50, dtype=np.float32)
    np.save(tmp_path / "a.npy", array)
    np.save(tmp_path / "other.npy", change(array))
    with viewing(tmp_path / "a.npy", tmp_path / "other.npy") as viewer:
        assert viewer.answer()["verdict"] == verdict
        changed = int((change(array) != array).sum())
        assert viewer.json("find", event=0, what="differs")["count"] == changed
        assert shlex.split(viewer.answer()["command"])[:2] == ["tenscope", "diff"]


def test_one_file(tmp_path):
    np.save(tmp_path / "weights.npy", np.arange(6.0).reshape(2, 3))
    with viewing(tmp_path / "weights.npy") as viewer:
        assert viewer.answer()["of"] == "files"
        assert viewer.json("names")["name"] == ["weights"]
        assert viewer.elements(event=0) == [["0.0", "1.0", "2.0"], ["3.0", "4.0", "5.0"]]
        assert viewer.json("session")["title"] == "weights.npy"
        assert eval(viewer.json("event", event=0)["python"], {"tenscope": tenscope}).tolist() == [[0, 1, 2], [3, 4, 5]]


def test_a_run_beside_a_file(tmp_path, runs):
    np.savez(tmp_path / "weights.npz", **{"first.weight": tenscope.open(runs / "good")["first.weight"] + 1})
    with viewing(runs / "good", tmp_path / "weights.npz") as viewer:
        assert viewer.answer()["state"] == "ready"
        event = viewer.event("first.weight")
        assert viewer.json("event", event=event)["partner"] is not None
        assert viewer.json("find", event=event, what="differs")["count"] == 8


# A list of runs.


def test_a_list_of_runs(runs):
    with Viewer(runs) as viewer:
        session = viewer.json("session")
        assert session["kind"] == "list" and session["sides"] == [] and session["title"] == runs.name
        listed = viewer.json("runs")["runs"]
        assert {run["name"] for run in listed} == {"good", "same", "bad", "renamed"}
        started = [run["started"] for run in listed]
        assert started == sorted(started, reverse=True) and listed[-1]["name"] == "good"
        for run in listed:
            size = sum(file.stat().st_size for file in (runs / run["name"]).rglob("*") if file.is_file())
            assert run["size_bytes"] == size and run["state"] == "closed" and run["steps"] == STEPS
            assert run["events"] == len(tenscope.open(runs / run["name"]))
        assert viewer.answer(run="good")["of"] == "check"
        assert viewer.answer(run="good", against="bad")["places"][0]["module"] == "blocks.1.mlp"
        assert viewer.json("session", run="good", against="bad")["title"] == "good → bad"
        for _ in range(2):  # more than are held open at a time
            for name in ("good", "same", "bad", "renamed"):
                for other in ("good", "bad"):
                    said = viewer.answer(run=name, against=other)
                    assert (said["verdict"] == "equal") is ((name == "bad") is (other == "bad"))
        viewer.answer(run="bad")
        weights = viewer.json("events", run="bad", name="first.weight")["events"][0]["id"]
        assert viewer.tile(run="bad", event=weights).header["shape"] == [8]
        for what in ("answer", "names", "timeline", "live", "tile"):
            status, sentence = viewer.refusal(what, event=0)
            assert status == 400 and "run" in sentence


@pytest.mark.parametrize(
    "name", ["../x", "..", ".", "", "/etc", "good/rank-0", "good/../bad", "good\0", "GOOD", "%2e%2e"]
)
def test_a_name_that_is_not_in_the_list_is_404(runs, list_viewer, name):
    (runs.parent / "x").mkdir(exist_ok=True)
    for parameters in ({"run": name}, {"run": "good", "against": name or "../x"}, {"run": name, "against": "good"}):
        for what in ("session", "answer", "names", "live", "event", "tile"):
            query = "&".join(f"{key}={quote(value, safe='')}" for key, value in parameters.items())
            status, body = list_viewer.ask(f"/api/{what}?{query}&event=0")
            assert status == 404 and json.loads(body)["error"], (what, query, body)


@pytest.fixture(scope="module")
def list_viewer(runs):
    with Viewer(runs) as viewer:
        yield viewer


def test_new_runs_appear_in_the_list(tmp_path):
    play(tmp_path / "one", network(), 1)
    with Viewer(tmp_path) as viewer:
        assert [run["name"] for run in viewer.json("runs")["runs"]] == ["one"]
        play(tmp_path / "two", network(), 1)
        assert [run["name"] for run in viewer.json("runs")["runs"]] == ["two", "one"]
        assert viewer.answer(run="one", against="two")["verdict"] == "equal"


# Statistics only.


def test_statistics_without_bytes(tmp_path):
    a = np.linspace(-1, 1, 20, dtype=np.float32)
    for name, array, kept in (("a", a, True), ("b", a + 1, False)):
        run = HandWrittenRun(tmp_path / name)
        run.tensor("both", a)
        run.tensor("half", array, keep=kept)
        run.close()
    with viewing(tmp_path / "a", tmp_path / "b") as viewer:
        half = viewer.event("half")
        assert viewer.tile(event=half).header["shape"] == [20]
        status, sentence = viewer.refusal("tile", event=half, of="b")
        assert status == 404 and sentence
        assert viewer.refusal("tile", event=half, of="diff")[0] == 404
        other = viewer.event("half", "b")
        said = viewer.json("event", side="b", event=other)["tensor"]
        assert said["has_bytes"] is False and said["stats"]["max"] == 2.0
        for what in ("tile", "elements", "histogram", "tolerance"):
            assert viewer.refusal(what, side="b", event=other, of="b")[0] == 404
        assert viewer.json("histograms", event=half)["steps"][0]["b"] is None
    with viewing(tmp_path / "b", tmp_path / "a") as viewer:
        # The second side's bytes are there, whichever side names the pair.
        own = viewer.event("half", "b")
        np.testing.assert_array_equal(viewer.tile(side="b", event=own, of="b").value[0], a)
        assert viewer.refusal("tile", side="b", event=own, of="diff")[0] == 404
        assert viewer.refusal("tile", side="b", event=own, of="a")[0] == 404
