"""One run, one folder: a program that opens a run by itself under `tenscope run`, names used again, and --replace."""

import json
import os
import subprocess
import sys

import pytest
import tenscope
from launched import folders, notes, start, tenscope_run, write

README = """
import torch, tenscope
torch.manual_seed(0)
model = torch.nn.Linear(8, 4)
{opens}
for step in range(3):
    x = torch.randn(32, 8)
    loss = model(x).pow(2).mean()
    tenscope.record("loss", loss)
    tenscope.step()
"""

TRAINS = """
import torch, tenscope
torch.manual_seed(0)
model = torch.nn.Linear(8, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
{opens}
for _ in range(3):
    loss = model(torch.randn(32, 8)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    tenscope.record("my_loss", loss)
    {steps}
"""

needs_torch = pytest.mark.skipif(
    subprocess.run([sys.executable, "-c", "import torch"], capture_output=True).returncode != 0, reason="needs torch"
)


@needs_torch
@pytest.mark.parametrize("opens", ['tenscope.init("runs")', "tenscope.init()", 'tenscope.init(name="one")'])
def test_init_joins_the_run_being_recorded(tmp_path, opens):
    done = tenscope_run(tmp_path, "--name", "one", write(tmp_path, README.format(opens=opens)))
    assert done.returncode == 0 and done.stderr == "", done.stderr
    assert folders(tmp_path / "runs") == ["one"]
    run = tenscope.open(tmp_path / "runs" / "one")
    assert [writer.folder for writer in run.writers] == ["rank-0"] and run.closed
    assert [e.step for e in run.find("loss")] == [0, 1, 2]
    assert [e.step for e in run.find("output")] == [0, 1, 2]
    assert notes(run, "seeds")


@needs_torch
def test_a_block_joins_and_leaves_the_run_open(tmp_path):
    text = """
import torch, tenscope
model = torch.nn.Linear(2, 2)
for i in range(2):
    with tenscope.Run("runs") as run:
        run.record("inside", i)
        model(torch.ones(1, 2))
model(torch.ones(1, 2))
assert not run.closed
"""
    done = tenscope_run(tmp_path, "--name", "one", write(tmp_path, text))
    assert done.returncode == 0 and done.stderr == "", done.stderr
    assert folders(tmp_path / "runs") == ["one"]
    run = tenscope.open(tmp_path / "runs" / "one")
    assert [e.value for e in run.find("inside")] == [0, 1] and len(run.find("output")) == 3 and run.closed


@needs_torch
@pytest.mark.parametrize(("steps", "where"), [("tenscope.step()", [0, 1, 2]), ("pass", [0, 1, 2])])
def test_the_programs_steps_and_its_optimizers_steps_are_not_counted_twice(tmp_path, steps, where):
    text = TRAINS.format(opens="tenscope.init()", steps=steps)
    done = tenscope_run(tmp_path, "--name", "one", write(tmp_path, text))
    assert done.returncode == 0, done.stderr
    run = tenscope.open(tmp_path / "runs" / "one")
    for name in ("my_loss", "loss", "output", "weight.grad"):
        assert [e.step for e in run.find(name)] == where, name
    assert [e.step for e in run.find("weight") if e.phase == "optimizer"] == where


@needs_torch
def test_what_is_ignored_is_said(tmp_path):
    text = README.format(opens='tenscope.init("elsewhere", strict=True, keep="last")')
    done = tenscope_run(tmp_path, "--name", "one", write(tmp_path, text))
    assert done.returncode == 0
    said = "the program's run is the one being recorded, runs/one; ignored: the folder elsewhere, strict, keep"
    assert done.stderr == f"tenscope: {said}\n"
    assert folders(tmp_path / "runs") == ["one"] and not (tmp_path / "elsewhere").exists()


@needs_torch
def test_a_run_of_another_name_is_one_of_its_own_and_said(tmp_path):
    done = tenscope_run(tmp_path, "--name", "one", write(tmp_path, README.format(opens='tenscope.init(name="mine")')))
    assert done.returncode == 0
    assert done.stderr == (
        "tenscope: recording into runs/mine too, as the program says; its modules are recorded into runs/one\n"
    )
    assert folders(tmp_path / "runs") == ["mine", "one"]
    mine, one = (tenscope.open(tmp_path / "runs" / name) for name in ("mine", "one"))
    assert len(mine.find("loss")) == 3 and not mine.find("output")
    assert len(one.find("output")) == 3 and not one.find("loss")


def test_a_program_without_torch_records_into_the_run(tmp_path):
    done = tenscope_run(tmp_path, "--name", "one", write(tmp_path, 'import tenscope\ntenscope.init().record("x", 3)'))
    assert done.returncode == 0 and done.stderr == "", done.stderr
    run = tenscope.open(tmp_path / "runs" / "one")
    assert run["x"] == 3 and run.closed and folders(tmp_path / "runs") == ["one"]


@pytest.mark.parametrize(
    ("program", "steps"),
    [
        ("tenscope.record('x', 1); tenscope.step(); tenscope.record('x', 2)", [0, 1]),
        ("tenscope.step(7); tenscope.record('x', 1); tenscope.record('x', 2)", [7, 7]),
        ("tenscope.disable(); tenscope.record('x', 0); tenscope.enable(); tenscope.record('x', 1)", [0]),
        ("tenscope.tree(lambda x: x)(1)", [0]),
    ],
    ids=["record", "step", "disable", "tree"],
)
def test_a_program_need_not_open_the_run(tmp_path, program, steps):
    done = tenscope_run(tmp_path, "--name", "one", write(tmp_path, f"import tenscope\n{program}"))
    assert done.returncode == 0, done.stderr
    run = tenscope.open(tmp_path / "runs" / "one")
    assert [event.step for event in run.events(kind="value") if event.name.endswith("x")] == steps
    assert not notes(run, "not_seen") and folders(tmp_path / "runs") == ["one"]


@needs_torch
def test_what_is_recorded_before_the_first_module_call_is_in_the_run(tmp_path):
    text = README.format(opens="tenscope.record('settings', 3)")
    done = tenscope_run(tmp_path, "--name", "one", write(tmp_path, text))
    assert done.returncode == 0, done.stderr
    run = tenscope.open(tmp_path / "runs" / "one")
    assert run["settings"] == 3
    assert [event.step for event in run.find("output")] == [event.step for event in run.find("loss")] == [0, 1, 2]


@needs_torch
def test_a_program_that_steps_without_opening_a_run_is_not_counted_twice(tmp_path):
    text = TRAINS.format(opens="pass", steps="tenscope.step()")
    done = tenscope_run(tmp_path, "--name", "one", write(tmp_path, text))
    assert done.returncode == 0, done.stderr
    run = tenscope.open(tmp_path / "runs" / "one")
    for name in ("loss", "output", "weight.grad"):
        assert [e.step for e in run.find(name)] == [0, 1, 2], name


def test_a_childs_part_is_in_the_same_run(tmp_path):
    child = write(tmp_path, 'import tenscope\ntenscope.init().record("child", 2)', "child.py")
    text = f"""
import subprocess, sys, tenscope
tenscope.init().record("parent", 1)
subprocess.run([sys.executable, {str(child)!r}], check=True)
"""
    done = tenscope_run(tmp_path, "--name", "one", write(tmp_path, text))
    assert done.returncode == 0 and done.stderr == "", done.stderr
    assert folders(tmp_path / "runs") == ["one"]
    run = tenscope.open(tmp_path / "runs" / "one")
    assert run["parent"] == 1 and run["child"] == 2 and len(run.writers) == 2 and run.closed


def test_a_name_used_again_is_said_and_replace_starts_anew(tmp_path):
    path = write(tmp_path, 'import sys, tenscope\ntenscope.init().record("x", int(sys.argv[1]))')
    assert tenscope_run(tmp_path, "--name", "good", path, 1).stderr == ""
    done = tenscope_run(tmp_path, "--name", "good", path, 2)
    assert done.stderr == "tenscope: recording into runs/good_2: runs/good exists\n"
    done = tenscope_run(tmp_path, "--name", "good", path, 3)
    assert done.stderr == "tenscope: recording into runs/good_3: runs/good exists\n"
    done = tenscope_run(tmp_path, "--replace", "--name", "good", path, 4)
    assert done.returncode == 0 and done.stderr == ""
    assert folders(tmp_path / "runs") == ["good", "good_2", "good_3"]
    assert [tenscope.open(tmp_path / "runs" / name)["x"] for name in folders(tmp_path / "runs")] == [4, 2, 3]


def test_the_same_in_python(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for value in (1, 2):
        with tenscope.Run("runs", name="good") as run:
            run.record("x", value)
    assert capsys.readouterr().err == "tenscope: recording into runs/good_2: runs/good exists\n"
    with tenscope.Run("runs", name="good", replace=True) as run:
        run.record("x", 3)
    assert capsys.readouterr().err == ""
    assert tenscope.open("runs/good")["x"] == 3 and tenscope.open("runs/good_2")["x"] == 2
    tenscope.init("runs", name="good", replace=True).record("x", 4)
    tenscope.close()
    assert tenscope.open("runs/good")["x"] == 4 and folders(tmp_path / "runs") == ["good", "good_2"]
    with tenscope.Run("runs", name="new", replace=True) as run:
        run.record("x", 5)
    assert tenscope.open("runs/new")["x"] == 5
    with pytest.raises(tenscope.UsageError, match="needs the name"):
        tenscope.Run("runs", replace=True)
    with pytest.raises(tenscope.UsageError, match="no file name"):
        tenscope.Run("runs/good", name="..", replace=True)
    assert folders(tmp_path / "runs") == ["good", "good_2", "new"]


def make_run(base, name="good"):
    with tenscope.Run(base, name=name) as run:
        run.record("x", 1)
    return base / name


def no_run(base):
    (base / "good").mkdir()
    (base / "good" / "thesis.tex").write_text("years of work")


def no_folder(base):
    (base / "good").write_text("years of work")


def linked(base):
    (base / "good").symlink_to(make_run(base, "elsewhere"))


def with_notes(base):
    (make_run(base) / "notes.txt").write_text("years of work")


def with_work_inside(base):
    (make_run(base) / "rank-0" / "plot.png").write_text("years of work")


def with_a_run_inside(base):
    make_run(make_run(base), "inner")


def with_a_false_run_json(base):
    (base / "good").mkdir()
    (base / "good" / "run.json").write_text('["tenscope"]')


@pytest.mark.parametrize(
    "make", [no_run, no_folder, linked, with_notes, with_work_inside, with_a_run_inside, with_a_false_run_json]
)
def test_replace_removes_nothing_but_a_run(tmp_path, make):
    make(tmp_path)
    before = sorted((str(path), path.is_file() and path.read_bytes()) for path in tmp_path.rglob("*"))
    with pytest.raises(tenscope.UsageError, match=r"cannot replace the run: .*good"):
        tenscope.Run(tmp_path, name="good", replace=True)
    path = write(tmp_path.parent, "print('ran')", f"{tmp_path.name}.py")
    done = tenscope_run(tmp_path.parent, "--out", tmp_path, "--replace", "--name", "good", path)
    assert done.returncode == 2 and "cannot replace the run" in done.stderr and done.stdout == ""
    assert sorted((str(path), path.is_file() and path.read_bytes()) for path in tmp_path.rglob("*")) == before


def test_replace_refuses_a_run_that_is_being_written(tmp_path):
    with tenscope.Run(tmp_path, name="good") as run:
        run.record("x", 1)
        with pytest.raises(tenscope.UsageError, match="being written by rank-0"):
            tenscope.Run(tmp_path, name="good", replace=True)
        run.record("x", 2)
    assert [e.value for e in tenscope.open(tmp_path / "good").find("x")] == [1, 2]
    tenscope.Run(tmp_path, name="good", replace=True).close()
    assert not tenscope.open(tmp_path / "good").names()


def test_an_empty_folder_may_be_replaced(tmp_path):
    (tmp_path / "good").mkdir()
    make = tenscope.Run(tmp_path, name="good", replace=True)
    make.close()
    assert make.path.name == "good"


@pytest.mark.parametrize(
    ("program", "says"),
    [
        (["missing.py"], "no such file: missing.py"),
        (["empty"], "a folder without a __main__.py: empty"),
        (["-m", "no_such_module"], "there is no module named no_such_module"),
        (["-m", "package.missing"], "there is no module named package.missing"),
        (["--replace", "there.py"], "--replace needs the --name"),
        (["--name", "a/b", "there.py"], "no file name"),
    ],
)
def test_what_cannot_be_run_leaves_no_run(tmp_path, program, says):
    (tmp_path / "empty").mkdir()
    (tmp_path / "package").mkdir()
    write(tmp_path / "package", "", "__init__.py")
    write(tmp_path, "print('ran')", "there.py")
    done = tenscope_run(tmp_path, *program)
    assert done.returncode == 2 and says in done.stderr and "Traceback" not in done.stderr, done.stderr
    assert not (tmp_path / "runs").exists() and done.stdout == ""


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_an_unreadable_script(tmp_path):
    path = write(tmp_path, "print('ran')")
    path.chmod(0)
    done = tenscope_run(tmp_path, path)
    assert done.returncode == 2 and "Permission denied" in done.stderr and not (tmp_path / "runs").exists()


def test_ranks_of_one_launch_share_a_name_and_do_not_join_an_older_run(tmp_path):
    text = """
import os, subprocess, sys
child = "import tenscope; tenscope.init(name='job').record('rank', int(__import__('os').environ['RANK']))"
ranks = [subprocess.Popen([sys.executable, "-c", child], env={**os.environ, "RANK": str(r), "WORLD_SIZE": "2"})
         for r in range(2)]
assert [rank.wait() for rank in ranks] == [0, 0]
"""
    path = write(tmp_path, text)
    for _ in range(2):
        done = start(tmp_path, path)
        assert done.returncode == 0, done.stderr
        old = tmp_path / "runs" / "job" / "run.json"
        stamp = json.loads(old.read_text())["started_ns"] - 10**11  # as if it were from a while ago
        os.utime(old, ns=(stamp, stamp))
    assert done.stderr == "tenscope: recording into runs/job_2: runs/job exists\n"
    for name in ("job", "job_2"):
        run = tenscope.open(tmp_path / "runs" / name)
        assert run.ranks == [0, 1] and [run.rank(r)["rank"] for r in (0, 1)] == [0, 1]
