"""`tenscope view` on recordings that mean no good, are damaged, or go away while they are looked at."""

from __future__ import annotations

import json
import os
import random
import shutil
import time

import numpy as np
import pytest
import tenscope
from hand_written_run import HandWrittenRun, _xxhash, dump, sealed
from viewer_client import Viewer, viewing

ODD_NAMES = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    'quote"quote',
    "apostrophe'apostrophe",
    "new\nline",
    "tab\tand\rreturn",
    "zero\0byte",
    "\x1b[31mred\x1b[0m",
    "\x7f\x80\x9f",
    "back\\slash",
    "../../etc/passwd",
    "ends with a space ",
    "umlaut ä, snow ☃, face 😀, right to left \u202e",
    "\u2028\u2029",
    "%00%2e&a=b?c#d+e",
    "x" * 10_000,
    "__proto__",
    "-rf",
    "$(touch x) `touch y`; touch z",
]


def check_names(viewer, names: list[str]) -> None:
    """Every name comes back as it is, and its tensor is found by it."""
    listed = viewer.json("names")
    assert listed["name"] == names
    for i, name in enumerate(names):
        event = viewer.event(name)
        assert event == listed["first"][i]
        said = viewer.json("event", event=event)
        assert said["name"] == name
        assert viewer.elements(event=event) == [[str(i)]]
        assert eval(said["python"], {"tenscope": tenscope}).tolist() == [i]


def test_names_that_mean_no_good(tmp_path):
    with tenscope.Run(tmp_path, name="run") as run:
        for i, name in enumerate(ODD_NAMES):
            run.record(name, np.array([i]), scope=name, root=name, cls=name)
    with viewing(tmp_path / "run") as viewer:
        check_names(viewer, ODD_NAMES)
        for what in ("session", "answer", "timeline", "modules", "names"):
            body = viewer.get(what)
            json.loads(body)
            assert not any(byte < 0x20 for byte in body), "a control character is not escaped"
        paths = {(module["root"], module["path"]) for module in viewer.json("timeline")["modules"]}
        assert paths == {(name, name) for name in ODD_NAMES}


def test_names_that_mean_no_good_in_a_pair(tmp_path):
    for side in range(2):
        with tenscope.Run(tmp_path, name=f"run{side}") as run:
            for i, name in enumerate(ODD_NAMES):
                run.record(name, np.array([i + (side if name == ODD_NAMES[4] else 0)]))
    with viewing(tmp_path / "run0", tmp_path / "run1") as viewer:
        assert viewer.answer()["places"][0]["name"] == ODD_NAMES[4]
        names = viewer.json("names")
        assert [name for name, error in zip(names["name"], names["error"], strict=True) if error] == [ODD_NAMES[4]]


def test_names_that_are_not_unicode(tmp_path):
    """A journal with bytes that are no UTF-8: damaged or not, whatever comes is UTF-8 and JSON."""
    run = HandWrittenRun(tmp_path / "run")
    run.tensor("good", np.arange(3.0))
    run.tensor("odd-name", np.arange(3.0))
    line = json.loads(run.lines[1])
    del line["sum"]
    text = dump(line).replace("odd-name", "odd\udcff\udcfename")
    start = text[:-1].encode("utf-8", "surrogateescape")
    run.lines[1] = start + b',"sum":"%016x"}\n' % _xxhash.XXH3_64bits(start, len(start))
    run.close()
    with viewing(tmp_path / "run") as viewer:
        assert "good" in viewer.json("names")["name"]
        for what in ("session", "answer", "timeline", "modules", "names"):
            viewer.get(what).decode("utf-8")
        assert viewer.elements(event=viewer.event("good")) == [["0.0", "1.0", "2.0"]]


def test_metadata_that_means_no_good(tmp_path):
    run = HandWrittenRun(tmp_path / "<b>run", command=["x.py", "<script>", "'\"", "\n", 5, None], host={"a": []})
    run.add("value", name="deep", step=0, call=0, value="[" * 5000)
    run.tensor("far", np.arange(3.0), step=2**62)
    run.tensor("before", np.arange(3.0), step=0, call=2**40)
    run.close()
    with viewing(tmp_path / "<b>run") as viewer:
        (side,) = viewer.json("session")["sides"]
        assert side["label"] == "<b>run" and "<script>" in side["command"]
        assert viewer.json("names")["name"] == ["deep", "far", "before"]
        assert viewer.json("events", name="far")["events"][0]["step"] == 2**62
        assert viewer.json("timeline")["steps"] == [0, 2**62]
        assert viewer.json("events", name="before")["events"][0]["call"] == 2**40


def test_a_tensor_that_claims_to_be_huge(tmp_path):
    """Bytes that are not there, sizes that overflow."""
    run = HandWrittenRun(tmp_path / "run")
    run.tensor("good", np.arange(4.0))
    for i, shape in enumerate(([2**31, 2**31], [2**62, 8], [2**63 - 1], [1] * 70)):
        line = json.loads(run.lines[0])
        del line["sum"]
        line["seq"] = len(run.lines)
        line["name"] = f"huge{i}"
        line["tensor"]["shape"] = shape
        run.lines.append(sealed(dump(line)))
    run.close()
    with viewing(tmp_path / "run") as viewer:
        assert viewer.elements(event=viewer.event("good")) == [["0.0", "1.0", "2.0", "3.0"]]
        for name in viewer.json("names")["name"]:
            if not name.startswith("huge"):
                continue
            event = viewer.event(name)
            for what in ("tile", "elements", "histogram", "histograms", "profile", "find"):
                status, body = viewer.ask(f"/api/{what}?event={event}&axis=0&what=nan")
                assert status in (400, 404, 500) and json.loads(body)["error"]
        assert viewer.json("session")["sides"][0]["events"] >= 1


def test_a_hundred_thousand_names(tmp_path):
    count = 100_000
    run = HandWrittenRun(tmp_path / "run")
    for i in range(count):
        run.add("value", name=f"module.{i // 10}.layer.{i % 10}.value", step=0, call=0, value=float(i))
    run.close()
    start = time.perf_counter()
    with viewing(tmp_path / "run") as viewer:
        ready = time.perf_counter()
        listed = viewer.json("names")
        named = time.perf_counter()
        cells = viewer.json("timeline")["cells"]
        drawn = time.perf_counter()
        assert len(listed["name"]) == count and listed["name"][-1] == "module.9999.layer.9.value"
        assert len(cells["module"]) == count
        assert viewer.json("series", stat="l2", names=count - 1)["series"][0]["a"] == [[0, count - 1]]
    print(f"{count} names: ready {ready - start:.2f} s, names {named - ready:.2f} s, timeline {drawn - named:.2f} s")


# Damage.


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    run = HandWrittenRun(tmp_path_factory.mktemp("whole") / "run")
    for step in range(4):
        run.tensor("w", np.arange(300, dtype=np.float32).reshape(10, 30) + step, step=step)
        run.tensor("v", np.linspace(0, 1, 40) * (step + 1), step=step)
        run.add("value", name="loss", step=step, call=0, value=1.0 / (step + 1))
    return run.close()


def look_at_everything(viewer) -> int:
    """Asks for all there is; right or refused, and never by a crash. How many tensors were shown."""
    answer = viewer.answer()
    assert answer["state"] in ("ready", "failed")
    session = viewer.json("session")
    assert len(session["sides"]) >= 1
    for what in ("timeline", "modules", "variables", "calls"):
        viewer.json(what)
    shown = 0
    for name in viewer.json("names")["name"]:
        for event in viewer.json("events", name=name)["events"]:
            if "tensor" not in event:
                continue
            for what in ("histogram", "find", "histograms"):
                status, body = viewer.ask(f"/api/{what}?event={event['id']}&what=bad")
                assert status in (200, 404, 500) and json.loads(body)
            status, body = viewer.ask(f"/api/tile?event={event['id']}&h=4096&w=4096")
            assert status in (200, 404, 500), body
            if status != 200:
                assert json.loads(body)["error"]
                continue
            shown += 1
            value = viewer.tile(event=event["id"], h=4096, w=4096).value
            step = event["step"]
            expected = {
                "w": np.arange(300, dtype=np.float32).reshape(10, 30) + step,
                "v": (np.linspace(0, 1, 40) * (step + 1)).astype(np.float32).reshape(1, -1),
            }
            if name in expected:
                np.testing.assert_array_equal(value, expected[name])
    return shown


def test_all_of_it_is_there_where_nothing_is_damaged(whole):
    with viewing(whole) as viewer:
        assert look_at_everything(viewer) == 8
        assert viewer.json("session")["sides"][0]["problems"] == []


@pytest.mark.parametrize("seed", range(8))
def test_a_journal_with_flipped_bytes(whole, tmp_path, seed):
    run = shutil.copytree(whole, tmp_path / "run")
    journal = run / "rank-0" / "journal.jsonl"
    data = bytearray(journal.read_bytes())
    rng = random.Random(seed)
    for _ in range(rng.choice([1, 3, 30])):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    journal.write_bytes(bytes(data))
    with Viewer(run) as viewer:
        look_at_everything(viewer)
        assert viewer.json("session")["sides"][0]["problems"], "damage is told"


@pytest.mark.parametrize("cut", [0, 5, 4096, 4096 + 700, -1])
def test_a_truncated_segment(whole, tmp_path, cut):
    run = shutil.copytree(whole, tmp_path / "run")
    segment = run / "rank-0" / "000000.safetensors"
    segment.write_bytes(segment.read_bytes()[:cut])
    with Viewer(run) as viewer:
        assert look_at_everything(viewer) < 8
        assert viewer.json("series", stat="l2", names=0)["series"][0]["a"], "statistics stand in the journal"


def test_a_damaged_run_among_others(whole, tmp_path):
    shutil.copytree(whole, tmp_path / "good")
    shutil.copytree(whole, tmp_path / "bad")
    (tmp_path / "bad" / "run.json").write_bytes(b"{")
    with Viewer(tmp_path) as viewer:
        states = {run["name"]: run["state"] for run in viewer.json("runs")["runs"]}
        assert states["good"] != "damaged"
        assert viewer.answer(run="good")["state"] == "ready"
        status, body = viewer.ask("/api/session?run=bad")
        assert status in (200, 400, 404, 500) and json.loads(body)


def test_a_damaged_partner(whole, tmp_path):
    run = shutil.copytree(whole, tmp_path / "run")
    segment = run / "rank-0" / "000000.safetensors"
    segment.write_bytes(segment.read_bytes()[:5000])
    with Viewer(whole, run) as viewer:
        assert look_at_everything(viewer) == 8, "the first side is whole"
        event = viewer.json("events", name="v", step=3)["events"][0]["id"]
        status, body = viewer.ask(f"/api/tile?event={event}&of=diff")
        assert status in (404, 500) and json.loads(body)["error"]


# Gone while it is looked at.


@pytest.mark.parametrize("how", ["folder", "segment", "journal"])
def test_a_run_that_is_deleted_while_it_is_viewed(whole, tmp_path, how):
    run = shutil.copytree(whole, tmp_path / "run")
    with viewing(run) as viewer:
        assert look_at_everything(viewer) == 8
        if how == "folder":
            shutil.rmtree(run)
        else:
            (run / "rank-0" / {"segment": "000000.safetensors", "journal": "journal.jsonl"}[how]).unlink()
        look_at_everything(viewer)
        assert viewer.json("live", revision=0)["sides"][0]["events"] == 13
        assert viewer.answer()["state"] == "ready"


def test_a_listed_run_that_is_deleted(whole, tmp_path):
    for name in ("one", "two"):
        shutil.copytree(whole, tmp_path / name)
    with Viewer(tmp_path) as viewer:
        assert viewer.answer(run="two")["state"] == "ready"
        shutil.rmtree(tmp_path / "one")
        assert [run["name"] for run in viewer.json("runs")["runs"]] == ["two"]
        assert viewer.refusal("session", run="one")[0] == 404
        assert viewer.refusal("session", run="two", against="one")[0] == 404
        shutil.rmtree(tmp_path / "two")
        assert viewer.json("runs")["runs"] == []
        assert viewer.json("names", run="two")["name"] == ["w", "v", "loss"]


def test_a_segment_that_is_cut_short_while_it_is_viewed(whole, tmp_path):
    """What was mapped of it is gone, and reading it would end the program by a signal."""
    with tenscope.Run(tmp_path, name="large") as run:
        run.record("w", np.arange(1 << 20, dtype=np.float32))
    with viewing(tmp_path / "large") as viewer:
        event = viewer.event("w")
        assert viewer.tile(event=event, h=4, w=4).max[0, -1] == (1 << 20) - 1
        for segment in (tmp_path / "large" / "rank-0").glob("*.safetensors"):
            os.truncate(segment, segment.stat().st_size // 4)
        for what in ("tile", "histogram", "histograms", "profile"):
            assert "cut short" in viewer.refusal(what, event=event, axis=0)[1]
        assert viewer.json("session")["sides"][0]["events"] > 0
    shutil.copytree(whole, tmp_path / "a")
    shutil.copytree(whole, tmp_path / "b")
    with viewing(tmp_path / "a", tmp_path / "b") as viewer:
        event = viewer.event("v", step=3)
        before = viewer.elements(event=event)
        segment = tmp_path / "b" / "rank-0" / "000000.safetensors"
        os.truncate(segment, segment.stat().st_size - 8)  # the rest of the page reads as zeros, and no signal tells
        assert viewer.elements(event=event, of="a") == before, "the other side is whole"
        status, sentence = viewer.refusal("tile", event=event, of="diff")
        assert status == 500 and "cut short" in sentence
