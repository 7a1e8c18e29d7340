"""`tenscope view` on a recording that is being written: it follows, tells of NaN, and notices the end."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import tenscope
from viewer_client import Viewer

# Two events a step, a hundred steps a second; at step 60 a NaN. Ends when it is told to.
PROGRAM = """
import sys, time, threading
import numpy as np
import tenscope

run = tenscope.init(sys.argv[1], name="run")
told = []
threading.Thread(target=lambda: told.append(sys.stdin.readline()), daemon=True).start()
start = time.monotonic()
step = 0
while not told:
    x = np.full(8, step, np.float32)
    if step == 60:
        x[3] = np.nan
    run.record("x", x, step=step)
    run.record("loss", 1.0 / (step + 1), step=step)
    if step == 5:
        print("under way", flush=True)
    step += 1
    time.sleep(max(0, start + step / 100 - time.monotonic()))
if told[0].strip() == "fail":
    raise RuntimeError("told to")
"""


@pytest.fixture
def child(tmp_path):
    """A program that records; it is under way."""
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=os.environ | {"TENSCOPE_METADATA": "0"},
    )
    assert process.stdout.readline() == "under way\n"
    yield process
    process.kill()
    process.communicate()


class Follower:
    """What the page does: asks with the revision that it knows, again and again."""

    def __init__(self, viewer: Viewer):
        self.viewer, self.revision, self.told = viewer, 0, []

    def look(self) -> dict:
        said = self.viewer.json("live", revision=self.revision)
        assert said["revision"] >= self.revision
        if said["revision"] == self.revision:
            assert said["bad"] == [], "nothing has come since"
        self.revision = said["revision"]
        self.told += [bad for bad in said["bad"] if bad not in self.told]
        return said

    def until(self, is_enough, seconds: float = 20) -> dict:
        return Viewer.until(self.look, is_enough, seconds)


def test_it_follows_a_program_that_records(tmp_path, child):
    with Viewer(tmp_path / "run") as viewer:
        follower = Follower(viewer)
        first = follower.until(lambda said: said["sides"][0]["last_step"] is not None)
        assert first["sides"][0]["state"] == "running" and first["sides"][0]["events"] >= 12
        assert viewer.json("session")["sides"][0]["state"] == "running"
        seen = [follower.look()]
        end = time.monotonic() + 1.5
        while time.monotonic() < end:
            time.sleep(0.1)
            seen.append(follower.look())
        revisions = [said["revision"] for said in seen]
        steps = [said["sides"][0]["last_step"] for said in seen]
        events = [said["sides"][0]["events"] for said in seen]
        assert revisions == sorted(revisions) and revisions[-1] > revisions[0] + 3
        assert steps == sorted(steps) and events == sorted(events) and steps[-1] > steps[0] + 50
        # The NaN of step 60 is told once it is there.
        follower.until(lambda _: follower.told)
        bad = [(one["side"], one["name"], one["step"]) for one in follower.told]
        assert bad == [("a", "x", 60)]
        assert viewer.json("find", event=follower.told[0]["event"], what="nan")["index"] == [3]
        # Events that are new are found by all requests, and old ones keep their numbers.
        before = viewer.json("events", name="x", step=7)["events"][0]["id"]
        step = follower.look()["sides"][0]["last_step"]
        event = viewer.json("events", name="x", step=step - 1)["events"][0]["id"]
        assert viewer.elements(event=event) == [[f"{step - 1}.0"] * 8]
        assert viewer.json("events", name="x", step=7)["events"][0]["id"] == before
        assert viewer.json("series", stat="max", names=0, points=10000)["series"][0]["a"][7] == [7, 7.0]
        assert viewer.json("timeline")["steps"][-1] >= step - 1
        child.stdin.write("end\n")
        child.stdin.flush()
        last = follower.until(lambda said: said["sides"][0]["state"] != "running")
        assert child.wait(20) == 0 and last["sides"][0]["state"] == "closed"
        run = tenscope.open(tmp_path / "run")
        assert last["sides"][0]["events"] == len(run) and last["sides"][0]["last_step"] == run.steps()[-1]
        # Once more at the end its health is looked at.
        answer = viewer.until(viewer.answer, lambda found: f"{len(run.steps())} steps" in found["coverage"])
        assert answer["verdict"] == "unhealthy" and answer["places"][0]["name"] == "x"
        assert len(viewer.json("series", stat="l2", names=1, points=10000)["series"][0]["a"]) == len(run.steps())


def test_what_is_new_is_seen_within_a_second(tmp_path):
    with tenscope.Run(tmp_path, name="run") as run:
        run.record("x", np.zeros(3), step=0)
        with Viewer(tmp_path / "run") as viewer:
            follower = Follower(viewer)
            follower.until(lambda said: said["sides"][0]["last_step"] == 0)
            waits = []
            for step in range(1, 9):
                start = time.monotonic()
                run.record("x", np.full(3, step), step=step)
                follower.until(lambda said, step=step: said["sides"][0]["last_step"] == step)
                waits.append(time.monotonic() - start)
            print(f"new events are seen after {np.median(waits):.3f} s (median), {max(waits):.3f} s at most")
            run.close()
            assert follower.until(lambda said: said["sides"][0]["state"] == "closed")["sides"][0]["last_step"] == 8


def test_a_program_that_is_killed_while_it_is_viewed(tmp_path, child):
    with Viewer(tmp_path / "run") as viewer:
        follower = Follower(viewer)
        follower.until(lambda said: (said["sides"][0]["last_step"] or 0) >= 10)
        child.send_signal(signal.SIGKILL)
        child.wait(20)
        last = follower.until(lambda said: said["sides"][0]["state"] != "running")
        assert last["sides"][0]["state"] == "crashed" and last["sides"][0]["state_text"]
        assert viewer.json("session")["sides"][0]["state"] == "crashed"
        run = tenscope.open(tmp_path / "run")
        assert last["sides"][0]["last_step"] == run.steps("x")[-1]
        step = run.steps("x")[-1]
        event = viewer.json("events", name="x", step=step)["events"][0]["id"]
        assert viewer.elements(event=event) == [[str(x) for x in run["x", step].tolist()]]
        assert viewer.answer()["state"] == "ready"


def test_a_program_that_fails_while_it_is_viewed(tmp_path, child):
    with Viewer(tmp_path / "run") as viewer:
        follower = Follower(viewer)
        follower.until(lambda said: said["sides"][0]["last_step"] is not None)
        child.stdin.write("fail\n")
        child.stdin.flush()
        assert follower.until(lambda said: said["sides"][0]["state"] != "running")["sides"][0]["state"] == "failed"
        assert viewer.json("session")["sides"][0]["writers"][0]["exception"] == "RuntimeError"


def test_a_running_program_against_one_that_has_ended(tmp_path, child):
    with tenscope.Run(tmp_path, name="before") as run:
        for step in range(30):
            run.record("x", np.full(8, step, np.float32) + (step == 20), step=step)
            run.record("loss", 1.0 / (step + 1), step=step)
    with Viewer(tmp_path / "before", tmp_path / "run") as viewer:
        follower = Follower(viewer)
        follower.until(lambda said: (said["sides"][1]["last_step"] or 0) >= 25)
        child.stdin.write("end\n")
        child.stdin.flush()
        follower.until(lambda said: said["sides"][1]["state"] == "closed")
        # What was said while it ran, that it ends, stands until the two are compared once more.
        answer = viewer.until(viewer.answer, lambda found: found.get("places") and found["places"][0]["step"] == 20)
        assert answer["places"][0]["name"] == "x"
        # That answer may be of a comparison that was made a moment before the end: the last one pairs every step.
        ran = tenscope.open(tmp_path / "run").steps()
        viewer.until(
            lambda: [e["step"] for e in viewer.json("events", name="x")["events"] if e["partner"] is None],
            lambda alone: not set(alone) & set(ran),
        )


def test_a_run_that_is_deleted_while_it_is_written(tmp_path, child):
    with Viewer(tmp_path / "run") as viewer:
        follower = Follower(viewer)
        seen = follower.until(lambda said: (said["sides"][0]["last_step"] or 0) >= 10)
        shutil.rmtree(tmp_path / "run", ignore_errors=True)
        end = time.monotonic() + 0.5
        while time.monotonic() < end:
            assert follower.look()["sides"][0]["events"] >= seen["sides"][0]["events"]
            time.sleep(0.05)
        assert viewer.json("names")["name"] == ["x", "loss"]
        assert viewer.refusal("tile", event=viewer.event("x", step=2))[0] == 404, "its bytes are gone"
