"""A run of many ranks: read with few open files, and shown in few words."""

import json
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tenscope

RANKS = 40
TENSCOPE = Path(sys.executable).with_name("tenscope")


def record(folder, name, wrong=()):
    for rank in range(RANKS):
        with tenscope.Run(folder, name=name, rank=rank, world_size=RANKS, join=rank > 0, metadata=False) as run:
            for step in range(3):
                run.record("x", np.full(4, 100 * rank + step + (0.5 if rank in wrong else 0), np.float32))
                run.record("w", np.full(4, step, np.float32), io="param", phase="optimizer")
                run.step(step + 1)
    return folder / name


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return record(tmp_path_factory.mktemp("many"), "run")


def limited():
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))


def tenscope_says(*command, code=0):
    done = subprocess.run([TENSCOPE, *map(str, command)], capture_output=True, text=True, preexec_fn=limited)
    assert done.returncode == code, done.stderr
    return done.stdout + done.stderr


def crash(run, *ranks):
    """Takes away the last line of their journals, as if they had been killed."""
    for rank in ranks:
        journal = run / f"rank-{rank}" / "journal.jsonl"
        lines = journal.read_bytes().splitlines(keepends=True)
        assert b'"closed"' in lines[-1]
        journal.write_bytes(b"".join(lines[:-1]))


def test_few_open_files_suffice(run, tmp_path):
    other = record(tmp_path, "other", wrong=[17])
    assert "rank-0 … rank-39: closed" in tenscope_says("ls", run)
    assert "right" in tenscope_says("verify", run)
    tenscope_says("check", run)
    assert "in step" in tenscope_says("diff", "--ranks", run)
    assert "equal" in tenscope_says("diff", run, run)
    diff = json.loads(tenscope_says("diff", "--json", run, other, code=1))
    assert diff["first_divergence"]["rank"] == 17
    script = f"import tenscope; r = tenscope.open({str(run)!r}); print(r.stack('x')[:, 1, 0].tolist(), r.problems)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, preexec_fn=limited)
    assert done.stdout.strip() == f"{[100.0 * rank + 1 for rank in range(RANKS)]} []", done.stderr


def test_where_all_ranks_of_many_differ_no_wholes_are_put_together(tmp_path):
    in_module = {"io": "output", "phase": "forward", "scope": "fc", "root": "Net#0", "cls": "Linear"}
    for name, wrong in (("a", 0), ("b", 1)):
        for rank in range(17):
            with tenscope.Run(tmp_path, name=name, rank=rank, world_size=17, join=rank > 0, metadata=False) as run:
                run.record("fc.output", np.full(4, rank + wrong, np.float32), **in_module)
    told = tenscope_says("diff", tmp_path / "a", tmp_path / "b", code=1)
    assert "note: ranks were compared one by one, and no whole tensors, as is done for up to 16 ranks" in told
    assert "ranks 1-16 differ from the same step and phase on" in " ".join(told.split())


def test_events_know_their_rank(run):
    recording = tenscope.open(run)
    assert [event.rank for event in recording.find("x", step=2)] == list(range(RANKS))
    assert recording.rank(31)["x", 2].tolist() == [3102] * 4
    assert recording["x", 2].tolist() == [2] * 4


def test_crashed_and_missing_ranks_are_folded(tmp_path):
    run = record(tmp_path, "run")
    crash(run, 3, 7)
    for rank in (20, 21):
        (run / f"rank-{rank}").rename(tmp_path / f"taken-{rank}")
    listed = tenscope_says("ls", run)
    assert "\n  ranks 3, 7 of 40: crashed\n  ranks 0-2, 4-6, 8-19, 22-39 of 40: closed\n" in listed
    assert "ranks 3, 7 of 40 end in a crash: their last events may be missing" in listed
    assert all(len(line) <= 80 for line in listed.splitlines() if line.startswith("  ra"))
    gone = "ranks 20, 21 of 40: everything was lost: there is no such folder, but 40 ranks took part"
    assert f"missing: {gone}\n" in tenscope_says("check", run, code=1)
    assert "missing: ranks 3, 7 of 40 were cut off by a crash" in tenscope_says("check", run, code=1)
    verified = tenscope_says("verify", run, code=1)
    assert ": 4 problems\n" in verified
    assert f"  {gone}\n  journal.jsonl of ranks 3, 7 of 40: it ends without having been closed" in verified
    problems = json.loads(tenscope_says("verify", "--json", run, code=1))["runs"][0]["problems"]
    assert [Path(problem["file"]).parts[-2:] for problem in problems] == [
        ("run", "rank-20"),
        ("run", "rank-21"),
        ("rank-3", "journal.jsonl"),
        ("rank-7", "journal.jsonl"),
    ]
