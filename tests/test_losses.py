"""What a run lost is said by everyone who reads it, and a limit that the user set is told from trouble."""

import json
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest
import tenscope
from hand_written_run import HandWrittenRun
from hand_written_run import tenscope as cli
from hand_written_run import tenscope_json as cli_json

TENSORS, ELEMENTS = 20, 100_000

RECORD = f"""
import os, resource, signal, sys, warnings
import numpy as np
import tenscope

warnings.simplefilter("ignore")
end = sys.argv[2]
run = tenscope.Run(sys.argv[1], name="r")
if "file limit" in end:
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_500_000, resource.RLIM_INFINITY))
for i in range({TENSORS}):
    run.record("x", np.arange({ELEMENTS}, dtype=np.float32) + i, step=i)
if "killed" in end:
    os.kill(os.getpid(), signal.SIGKILL)
dropped = run.dropped
run.close()
print(dropped)
"""


def record(folder, end):
    return subprocess.run(
        [sys.executable, "-c", RECORD, str(folder), end], capture_output=True, text=True, check=False, timeout=120
    )


@pytest.fixture
def small_disk(tmp_path):
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "none", folder], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip("a file system cannot be mounted here")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


def check_told(run, lost, is_exact):
    """Every reader says that `lost` events are missing, and no one that all is well."""
    back = tenscope.open(run)
    assert len(back.steps("x")) == TENSORS - lost
    (loss,) = back.losses
    assert (loss.writer, loss.tensors, loss.is_limit, loss.is_exact) == ("rank-0", 0, False, is_exact)
    assert loss.events == lost if is_exact else lost / 2 <= loss.events <= lost
    assert back.writers[0].dropped == loss.events
    (problem,) = back.problems
    assert problem.is_loss and str(loss.events) in problem.reason
    assert str(loss) in repr(back) and str(loss) in back._repr_html_()
    with pytest.raises(tenscope.Error, match=f"{loss.events} event"):
        back["y"]

    verified = cli("verify", run, "--json", check=1)
    reasons = [problem["reason"] for problem in json.loads(verified.stdout)["runs"][0]["problems"]]
    assert str(loss) in reasons
    assert str(loss) in cli("verify", run, check=1).stdout
    assert f"{loss.events} event" in cli("ls", run).stdout
    assert f"{loss.events} event" in cli("ls", run.parent).stdout
    (said,) = cli_json("ls", run)["losses"]
    assert (said["events"], said["limit"], said["exact"]) == (loss.events, False, is_exact)
    assert f"{loss.events} event" in cli("show", run, "y", check=2).stderr
    assert cli("diff", run, run, check=1).stdout.startswith("unknown: what was compared agrees, but parts of a run are")
    assert cli("check", run, check=1).stdout.splitlines()[-1].startswith("not known to be healthy: parts of the run")
    for verb in (["show", run, "x"], ["tree", run], ["export", run, run.parent / "out.npz"]):
        assert str(loss) in cli(*verb).stderr, verb


@pytest.mark.parametrize("end", ["closed", "file limit"])
def test_a_full_disk_is_told(small_disk, tmp_path, end):
    folder = small_disk if end == "closed" else tmp_path
    done = record(folder, end)
    assert done.returncode == 0, done.stderr
    lost = int(done.stdout)
    assert 0 < lost < TENSORS
    check_told(folder / "r", lost, is_exact=True)


@pytest.mark.parametrize("end", ["killed", "killed, file limit"])
def test_a_full_disk_is_told_although_the_process_died(small_disk, tmp_path, end):
    folder = small_disk if end == "killed" else tmp_path
    assert record(folder, end).returncode == -signal.SIGKILL
    run = folder / "r"
    lost = TENSORS - len(tenscope.open(run).steps("x"))
    assert 0 < lost < TENSORS
    check_told(run, lost, is_exact=False)
    if folder == tmp_path:  # repair needs room on the disk
        cli("repair", run)
        assert tenscope.open(run).state == "repaired"
        check_told(run, lost, is_exact=False)


def test_a_budget_is_a_limit_and_no_trouble(tmp_path):
    with pytest.warns(tenscope.RecordingWarning), tenscope.Run(tmp_path, name="r", max_bytes=1_000_000) as run:
        for i in range(5):
            run.record("x", np.arange(ELEMENTS, dtype=np.float32) + i, step=i)
        run.record("asked for", np.arange(9.0), values="stats")
    back = tenscope.open(tmp_path / "r")
    cut = [event.step for event in back.find("x") if not event.stored]
    assert cut and len(cut) < 5
    (loss,) = back.losses
    assert (loss.events, loss.tensors, loss.reason, loss.is_limit) == (0, len(cut), "budget", True)
    assert back.problems == [] and back.state == "closed"
    assert str(loss) in repr(back)
    verified = cli("verify", tmp_path / "r")
    assert "every checksum" in verified.stdout and str(loss) in verified.stdout
    assert cli_json("verify", tmp_path / "r")["runs"][0]["losses"][0]["limit"] is True
    assert "limited" in cli("ls", tmp_path / "r").stdout
    assert "budget" in cli("show", tmp_path / "r", "x", "--step", cut[0]).stdout
    assert "budget" not in cli("show", tmp_path / "r", "asked for").stdout
    with pytest.raises(tenscope.Error, match="budget"):
        back["x", cut[0]]


def test_a_ring_says_what_it_let_go(tmp_path):
    with tenscope.Run(tmp_path, name="r", max_bytes=4_000_000, keep="last") as run:
        for i in range(200):
            run.record("x", np.arange(25_000, dtype=np.float32) + i, step=i)
    back = tenscope.open(tmp_path / "r")
    gone = 0
    for event in back.find("x"):
        try:
            event.tensor()
        except tenscope.NotFoundError:
            gone += 1
    assert gone > 0
    assert sum(loss.tensors for loss in back.losses) == gone
    assert all(loss.is_limit for loss in back.losses) and back.problems == []
    assert cli("verify", tmp_path / "r").returncode == 0


def test_a_value_that_could_not_be_read_is_told(tmp_path):
    class Bad:
        pass

    tenscope.register(Bad, to_value=lambda bad: 1 / 0)
    with pytest.warns(tenscope.RecordingWarning), tenscope.Run(tmp_path, name="r") as run:
        run.record("x", Bad())
        run.record("x", Bad())
        run.record("y", 1)
        dropped = run.dropped
    assert dropped == 2
    back = tenscope.open(tmp_path / "r")
    assert sum(loss.events for loss in back.losses) == 2 and len(back.problems) == 1


@pytest.mark.parametrize(
    ("note", "state"),
    [
        (None, "closed"),
        ({"value": "ValueError: bad: shape"}, "failed (ValueError)"),
        ({"value": "a.B: c", "meta": {"class": "a.B", "message": "c", "site": "x.py:3"}}, "failed (a.B)"),
    ],
)
def test_the_end_of_the_program_is_told(tmp_path, note, state):
    run = HandWrittenRun(tmp_path / "r")
    run.add("value", name="x", step=0, call=0, value=1)
    if note:
        run.add("note", name="exception", step=0, **note)
    path = run.close()
    back = tenscope.open(path)
    assert back.state == state
    assert state in repr(back)
    assert state in cli("ls", path).stdout and state in cli("ls", tmp_path).stdout
    said = cli_json("ls", path)
    assert said["state"] == state.split()[0]
    assert said["exception"] == (None if note is None else note["value"].split(":")[0])
    assert back.writers[0].failed == (note is not None)


def test_a_block_that_raised_has_failed(tmp_path):
    with pytest.raises(ValueError, match="bad"), tenscope.Run(tmp_path, name="r") as run:
        run.record("x", 1)
        raise ValueError("bad")
    back = tenscope.open(tmp_path / "r")
    assert back.state == "failed (ValueError)"
    assert back.writers[0].exception_message == "bad"
    assert back.closed


# What else must not be passed over.


def test_a_run_without_any_writer_is_not_fine(tmp_path):
    path = HandWrittenRun(tmp_path / "r").close()
    shutil.rmtree(path / "rank-0")
    assert "nothing was recorded" in cli("verify", path, check=1).stdout
    assert cli_json("ls", path)["state"] == "empty"
    assert "empty" in cli("tree", path).stderr
    back = tenscope.open(path)
    assert back.state == "empty" and not back.closed


def test_a_missing_segment_is_told_by_every_reader(tmp_path):
    run = HandWrittenRun(tmp_path / "r")
    run.tensor("x", np.arange(6.0))
    run.add("value", name="n", step=0, call=0, value=1)
    path = run.close()
    (segment,) = path.glob("rank-0/*.safetensors*")
    segment.unlink()
    assert cli("verify", path, check=1).stdout.count("is missing") == 1
    assert "bytes of 1 tensor lost" in cli("ls", path).stdout
    assert "is missing" in cli("show", path, "n").stderr
    assert "no longer there" in cli("export", path, tmp_path / "x.npz", check=2).stderr
    back = tenscope.open(path)
    assert [loss.tensors for loss in back.losses] == [1] and back.problems[0].is_loss


def test_segments_alone_are_still_a_run(tmp_path):
    run = HandWrittenRun(tmp_path / "r")
    run.tensor("x", np.arange(6.0))
    path = run.close()
    (path / "run.json").unlink()
    (path / "rank-0" / "journal.jsonl").unlink()
    assert "damaged" in cli("ls", tmp_path).stdout
    problems = json.loads(cli("verify", path, "--json", check=1).stdout)["runs"][0]["problems"]
    reasons = [f"{problem['file']}: {problem['reason']}" for problem in problems]
    assert any("journal.jsonl" in reason for reason in reasons) and any("run.json" in reason for reason in reasons)


def test_a_rank_without_a_folder_is_told(tmp_path):
    for rank in range(3):
        with tenscope.Run(tmp_path, name="r", rank=rank, world_size=3) as run:
            run.record("x", rank)
    assert tenscope.open(tmp_path / "r").problems == []
    shutil.rmtree(tmp_path / "r" / "rank-1")
    assert "rank-1" in cli("verify", tmp_path / "r", check=1).stdout
    assert "a rank is missing" in cli("ls", tmp_path / "r").stdout
    assert [loss.writer for loss in tenscope.open(tmp_path / "r").losses] == ["rank-1"]


def test_a_crash_is_told_by_every_reader(tmp_path):
    run = HandWrittenRun(tmp_path / "r")
    run.tensor("x", np.arange(6.0))
    path = run.crash()
    for verb in (["show", path, "x"], ["tree", path], ["export", path, tmp_path / "x.npz"]):
        assert "ends in a crash" in cli(*verb).stderr, verb


def test_no_exported_file_replaces_another(tmp_path):
    names = ["a/b", "a_b", "l" * 300, "l" * 299 + "m"]
    with tenscope.Run(tmp_path, name="r") as run:
        for i, name in enumerate(names):
            run.record(name, np.full(3, i))
    files = cli_json("export", tmp_path / "r", tmp_path / "out")["files"]
    assert len(set(files)) == len(names)
    assert sorted(int(np.load(file)[0]) for file in files) == [0, 1, 2, 3]


def test_what_is_not_exported_is_counted(tmp_path):
    with tenscope.Run(tmp_path, name="r") as run:
        run.record("x", np.arange(3.0))
        run.record("s", np.arange(3.0), values="stats")
        run.record("none", None)
        run.record("empty", [])
    said = cli_json("export", tmp_path / "r", tmp_path / "x.h5")
    assert said["keys"] == ["x"]
    assert sorted(said["left_out"].values()) == [1, 2]


def test_journals_without_segments(tmp_path):
    """What the journals have suffices to compare: fingerprints, statistics and sketches."""
    for name, factor in [("a", 1), ("same", 1), ("twice", 2), ("other", 1)]:
        with tenscope.Run(tmp_path, name=name) as run:
            x = np.arange(12, dtype=np.float32) * factor
            run.record("x", x[::-1].copy() if name == "other" else x, io="output", step=0)
        (segment,) = (tmp_path / name / "rank-0").glob("*.safetensors")
        if name != "a":
            segment.unlink()
    for name, verdict in [("same", "equal"), ("twice", "differs"), ("other", "differs")]:
        for pair in [("a", name), (name, "a"), (name, name)]:
            diff = tenscope.diff(*(tmp_path / part for part in pair))
            assert diff.verdict == ("equal" if pair[0] == pair[1] else verdict), pair
            assert f"{segment.name} is missing" in str(diff)
    run = tmp_path / "twice"
    shown = cli("show", run, "x", check=2)
    assert "max 22" in shown.stdout and "its bytes are not there: segment 0 is missing" in shown.stdout
    assert cli_json("show", run, "x", check=2)["values"] is None
    assert "are not there" in cli("show", run, "x", "--slice", "0", check=2).stderr
    assert "lost" in cli("ls", run).stdout
    assert f"{segment.name} is missing" in cli("check", run, check=1).stdout
