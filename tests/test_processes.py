"""One process or many: how a run ends, forks, workers and ranks."""

import json
import os
import subprocess
import sys

import pytest
import tenscope

torch = pytest.importorskip("torch") if sys.version_info[:2] == (3, 11) else None
needs_torch = pytest.mark.skipif(torch is None, reason="torch is installed for CPython 3.11 only")


# Processes.


def python(code, *args, **env):
    environ = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE")} | env
    return subprocess.run([sys.executable, "-c", code, *map(str, args)], env=environ, capture_output=True, text=True)


@pytest.mark.parametrize(
    ("end", "code"),
    [
        ("pass", 0),
        ("raise KeyError(3)", 1),
        ("sys.exit(3)", 3),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", -15),
    ],
)
def test_runs_are_closed_at_the_end_of_the_process(tmp_path, end, code):
    done = python(f"import sys, tenscope\ntenscope.init(sys.argv[1])\ntenscope.record('x', 1)\n{end}", tmp_path)
    assert done.returncode == code
    back = tenscope.open(tmp_path)
    assert back["x"] == 1 and back.closed


def test_what_was_recorded_survives_sigkill(tmp_path):
    code = """
import os, sys, tenscope, numpy
tenscope.init(sys.argv[1])
tenscope.record('x', numpy.arange(5))
os.kill(os.getpid(), 9)
"""
    assert python(code, tmp_path).returncode == -9
    back = tenscope.open(tmp_path)
    assert back["x"].tolist() == [0, 1, 2, 3, 4] and not back.closed


def test_torch_is_not_needed_and_not_imported(tmp_path):
    code = """
import sys
sys.modules["torch"] = None
import numpy, tenscope
tenscope.init(sys.argv[1])
tenscope.record("x", {"a": numpy.ones(3), "b": 2})
tenscope.close()
run = tenscope.open(sys.argv[1])
assert run["x.a"].tolist() == [1, 1, 1] and run["x"]["b"] == 2
try:
    run["x.a"].torch()
except ImportError:
    print("fine")
"""
    done = python(code, tmp_path)
    assert done.stdout == "fine\n", done.stderr
    assert "torch" not in python("import sys, tenscope; print(*sys.modules)").stdout.split()


def test_forked_children_record_into_folders_of_their_own(tmp_path):
    code = """
import multiprocessing, sys, tenscope
tenscope.init(sys.argv[1])
tenscope.record("x", "parent")
def work(i):
    tenscope.record("x", f"child {i}")
context = multiprocessing.get_context("fork")
children = [context.Process(target=work, args=(i,)) for i in range(2)]
[c.start() for c in children]
[c.join() for c in children]
tenscope.record("y", "parent")
"""
    done = python(code, tmp_path)
    assert done.returncode == 0, done.stderr
    back = tenscope.open(tmp_path)
    assert len(back.writers) == 3 and back.closed and not back.problems
    assert sorted(e.value for e in back.find("x")) == ["child 0", "child 1", "parent"]
    assert back["x"] == back["y"] == "parent"


@needs_torch
def test_dataloader_workers_record(tmp_path):
    code = """
import sys, tenscope, torch
class Data(torch.utils.data.Dataset):
    def __len__(self): return 8
    def __getitem__(self, i):
        tenscope.record("sample", i)
        return i
tenscope.init(sys.argv[1])
for batch in torch.utils.data.DataLoader(Data(), batch_size=2, num_workers=2):
    tenscope.record("batch", batch)
"""
    done = python(code, tmp_path)
    assert done.returncode == 0, done.stderr
    back = tenscope.open(tmp_path)
    assert sorted(e.value for e in back.find("sample")) == list(range(8)) and len(back.find("batch")) == 4
    assert len({e.writer for e in back.find("sample")}) == 2


# Ranks.


def test_ranks_of_a_launcher_share_a_run(tmp_path):
    code = "import sys, tenscope\ntenscope.init(sys.argv[1])\ntenscope.record('rank', tenscope.current().rank)"
    for rank in range(2):
        done = python(code, tmp_path, RANK=str(rank), WORLD_SIZE="2", LOCAL_WORLD_SIZE="2")
        assert done.returncode == 0, done.stderr
    back = tenscope.open(tmp_path)
    assert back.ranks == [0, 1] and [back.rank(r)["rank"] for r in range(2)] == [0, 1]
    assert back.stack("rank").tolist() == [[0], [1]]
    assert json.loads((back.path / "run.json").read_text())["world_size"] == 2


def test_tenscope_run_names_the_folder(tmp_path):
    code = "import tenscope\ntenscope.init('elsewhere')\ntenscope.record('x', 1)"
    assert python(code, TENSCOPE_RUN=str(tmp_path / "mine"), SLURM_PROCID="3", SLURM_NTASKS="4").returncode == 0
    assert tenscope.open(tmp_path / "mine").ranks == [3]


@pytest.mark.parametrize(
    ("environ", "name"),
    [
        ({"SLURM_PROCID": "1", "SLURM_JOB_ID": "77", "SLURM_STEP_ID": "2"}, "slurm-77.2"),
        ({"SLURM_PROCID": "1", "SLURM_JOB_ID": "77", "SLURM_RESTART_COUNT": "1"}, "slurm-77.0_restart-1"),
        ({"LOCAL_WORLD_SIZE": "1", "TORCHELASTIC_RUN_ID": "my/job"}, "my-job"),
        ({"LOCAL_WORLD_SIZE": "1", "MASTER_ADDR": "node0", "MASTER_PORT": "29500"}, "node0_29500"),
    ],
)
def test_a_jobs_name_comes_from_its_launcher(environ, name):
    from tenscope.recording.ranks import job_name

    assert job_name(environ, 2) == name


@needs_torch
def test_ranks_agree_by_torch_distributed(tmp_path):
    code = """
import os, sys, tenscope, torch, torch.distributed as dist
import torch.multiprocessing as mp
def main(rank, folder, port):
    dist.init_process_group("gloo", init_method=f"file://{port}", rank=rank, world_size=2)
    tenscope.init(folder)
    tenscope.record("x", torch.full((2,), float(rank)))
    tenscope.close()
    dist.destroy_process_group()
if __name__ == "__main__":
    context = mp.get_context("fork")
    children = [context.Process(target=main, args=(r, *sys.argv[1:])) for r in range(2)]
    [c.start() for c in children]
    [c.join() for c in children]
    sys.exit(max(c.exitcode for c in children))
"""
    done = python(code, tmp_path / "runs", tmp_path / "store")
    assert done.returncode == 0, done.stderr
    assert len(list((tmp_path / "runs").iterdir())) == 1
    assert tenscope.open(tmp_path / "runs").stack("x").tolist() == [[[0, 0]], [[1, 1]]]
