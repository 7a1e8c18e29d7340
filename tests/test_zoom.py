"""Operations (`tenscope run --ops`) and `tenscope zoom`: the line where two programs part."""

import copy
import fcntl
import functools
import json
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import termios

import pytest

torch = pytest.importorskip("torch")

from hand_written_run import tenscope as tenscope_cli  # noqa: E402
from hand_written_run import tenscope_program  # noqa: E402

PROGRAM = """
import sys
import torch
from torch import nn

BUG = sys.argv[1]
torch.manual_seed(0)
if BUG == "ranks":
    import torch.distributed as dist

    dist.init_process_group("gloo")
    dist.barrier()


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        q, k, v = self.q(x), self.k(x), self.v(x)
        scores = q @ k.transpose(-2, -1)
        if BUG != "unscaled":
            scores = scores * 0.35  # SCALE
        if BUG == "swapped":
            weights = k.softmax(-1)  # SWAPPED
            return weights @ q.transpose(-2, -1) @ v
        if BUG == "unswapped":
            weights = q.softmax(-1)  # UNSWAPPED
            return weights @ k.transpose(-2, -1) @ v
        if BUG == "axis":
            weights = scores.softmax(-2)  # WRONG AXIS
        else:
            weights = scores.softmax(-1)  # RIGHT AXIS
        return weights @ v


class Squash(nn.Module):
    def forward(self, values):
        return values * 0.5  # HALF


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.attn = Attention()
        self.squash = Squash()
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        y = self.attn(x)
        if BUG in ("given", "another"):
            given = y if BUG == "given" else x
            y = y + self.squash(given)  # GIVEN
        if BUG == "ranks" and dist.get_rank() == 1 and "bad" in sys.argv:
            y = y.flip(-1)  # RANK 1
        return self.head(y)


class Renamed(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = Attention()
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        return self.head(self.attention(x))


net = Renamed() if BUG == "renamed" else Net()
if BUG == "renamed":
    BUG = "axis"
if "compiled" in sys.argv:
    net.attn.compile(backend="aot_eager")


class Momentum(torch.optim.Optimizer):
    @torch.no_grad()
    def step(self):
        for p in self.param_groups[0]["params"]:
            kept = self.state[p].setdefault("kept", torch.zeros_like(p))
            p.sub_(kept.lerp(p.grad, 0.5), alpha=0.1)
            if BUG == "hasty":
                kept.lerp_(p.grad, 0.9)  # HASTY
            else:
                kept.lerp_(p.grad, 0.1)  # CALM


if BUG in ("calm", "hasty"):
    optimizer = Momentum(net.parameters(), {})
else:
    optimizer = torch.optim.SGD(net.parameters(), lr=0.2 if BUG == "rate" else 0.1)
if "reads" in sys.argv:
    open("needed.txt").close()
for step in range(3):
    x = torch.randn(2, 5, 8)
    if BUG == "data" and step == 1:
        x = x.flip(-1)  # FLIP
    y = net(x)
    if BUG == "loss":
        loss = y.abs().mean()  # ABS
    else:
        loss = y.pow(2).mean()  # POW
    optimizer.zero_grad()
    loss.backward()  # BACKWARD
    optimizer.step()  # STEP
    if BUG == "random":
        with torch.no_grad():
            net.head.bias.add_(float(__import__("time").time_ns() % 997))
"""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """Records the program with a mistake, once each."""
    folder = tmp_path_factory.mktemp("zoom")
    (folder / "model.py").write_text(PROGRAM)

    def record(bug, *options, name=None, more=()):
        run = folder / "runs" / (name or bug)
        if not run.exists():
            command = [tenscope_program(), "run", *options, "--out", folder / "runs", "--name", run.name]
            command += [folder / "model.py", bug, *more]
            environment = os.environ | {"TENSCOPE_METADATA": "1", "OMP_NUM_THREADS": "1"}
            subprocess.run(command, check=True, cwd=folder, env=environment, capture_output=True)
        return run

    return record


def line_of(mark):
    return next(number for number, text in enumerate(PROGRAM.split("\n"), 1) if f"# {mark}" in text)


def operations(run):
    lines = (run / "rank-0" / "journal.jsonl").read_text().rstrip("\0").splitlines()
    return [event for event in map(json.loads, lines) if event.get("io") == "op"]


def zoom(a, b, *options, check=1):
    return json.loads(tenscope_cli("zoom", a, b, "--json", *options, check=check).stdout)


# ---- operations


def test_operations_have_lines_inputs_and_true_values(recorded):
    run = recorded("none", "--ops", "attn", "--steps", "0:1", name="ops")
    found = operations(run)
    by_line = {event["site"]: event for event in found if event.get("phase") == "forward" and event.get("site")}
    softmax = by_line[f"model.py:{line_of('RIGHT AXIS')}"]
    assert softmax["name"] == "attn:softmax" and softmax["meta"]["args"].startswith("dim=-1")
    assert softmax["meta"]["text"] == "weights = scores.softmax(-1)  # RIGHT AXIS"
    scaled = by_line[f"model.py:{line_of('SCALE')}"]
    # What goes in is named by the content of what came out before.
    assert softmax["meta"]["from"] == [scaled["tensor"]["fp"]]
    import tenscope

    opened = tenscope.open(run)
    before = torch.from_numpy(opened["attn:mul", 0, scaled["call"]].copy())
    assert torch.equal(before.softmax(-1), torch.from_numpy(opened["attn:softmax", 0, softmax["call"]].copy()))
    assert {event["scope"] for event in found} >= {"attn", "attn.q"}
    assert not any(event["scope"] == "head" for event in found), "not asked for"


def test_operations_of_backward_belong_to_the_lines_of_forward(recorded):
    found = operations(recorded("none", "--ops", "attn", "--steps", "0:1", name="ops"))
    backward = {event["site"] for event in found if event["phase"] == "backward" and event.get("site")}
    assert f"model.py:{line_of('RIGHT AXIS')}" in backward
    assert f"model.py:{line_of('BACKWARD')}" not in {
        event["site"] for event in found if event["name"] == "attn:softmax_backward_data"
    }


def test_a_statement_is_shown_whole_with_what_it_assigns(tmp_path):
    from tenscope.probes.statements import statement_at

    (tmp_path / "lines.py").write_text(
        "x = 1\nfor i in (\n    1,\n):\n    y, self.z = (\n        f(i),\n        2)\nif x: a = 1; b = 2\nd['k'] += 1\n"
    )

    def at(line):
        found = statement_at(str(tmp_path / "lines.py"), line)
        return found.text, found.assigns

    assert at(1) == ("x = 1", "x")
    assert at(3) == ("for i in ( 1, ):", "")
    assert at(6) == ("y, self.z = ( f(i), 2)", "y, self.z")
    assert at(8) == ("if x: a = 1; b = 2", "")
    assert at(9) == ("d['k'] += 1", "d['k']")
    assert at(99) == ("", "")
    (tmp_path / "wrong.py").write_text("x = (\n")
    assert statement_at(str(tmp_path / "wrong.py"), 1).text == "x = ("


def test_trace_records_operations_of_modules(tmp_path):
    import tenscope

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    x = torch.randn(3, 4)
    with tenscope.Run(tmp_path, name="r") as run, tenscope.trace(model, run=run, ops=["0", "1"]):
        y = model(x)
        y.sum().backward()
    found = operations(tmp_path / "r")
    assert {event["scope"] for event in found} == {"0", "1"}
    assert {event["phase"] for event in found} == {"forward", "backward"}
    assert all("test_zoom.py:" in event["site"] for event in found if event.get("site"))
    opened = tenscope.open(tmp_path / "r")
    assert torch.equal(torch.from_numpy(opened["1:relu"].copy()), model[1](model[0](x)))
    with pytest.raises(ValueError, match="paths of modules, not ':loss'"):
        tenscope.trace(model, ops=":loss")
    with (
        tenscope.Run(tmp_path, name="none") as run,
        pytest.warns(tenscope.RecordingWarning, match="nearest that exists is '0'"),
        tenscope.trace(model, run=run, ops="00"),
    ):
        model(x)


def test_pythons_own_library_has_no_lines_of_the_program(tmp_path):
    import tenscope

    class Twice(torch.nn.Module):
        def forward(self, x):
            return functools.reduce(torch.add, copy.deepcopy([x, x]))  # copy.py calls torch

    model = torch.nn.Sequential(Twice())
    with tenscope.Run(tmp_path, name="run", strict=True), tenscope.trace(model, ops="0"):
        model(torch.ones(3))
    sites = {event["site"] for event in operations(tmp_path / "run") if event.get("site")}
    assert {site.rpartition(":")[0].rpartition("/")[2] for site in sites} == {os.path.basename(__file__)}


def test_autocast_checkpoints_and_vmap(tmp_path):
    import tenscope
    from torch.utils.checkpoint import checkpoint

    class Inner(torch.nn.Linear):
        def forward(self, x):
            return super().forward(x).relu()

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Inner(4, 4)

        def forward(self, x):
            y = checkpoint(self.inner, x, use_reentrant=False)
            return y + torch.func.vmap(torch.sin)(x)

    def losses(ops):
        torch.manual_seed(0)
        model, x = Model(), torch.randn(3, 4, requires_grad=True)
        with tenscope.Run(tmp_path, name=f"r{bool(ops)}") as run, tenscope.trace(model, run=run, ops=ops):
            with torch.autocast("cpu", torch.bfloat16):
                loss = model(x).float().pow(2).sum()
            loss.backward()
        return loss.detach(), x.grad, model.inner.weight.grad

    assert all(torch.equal(a, b) for a, b in zip(losses(None), losses("*"), strict=True))
    found = operations(tmp_path / "rTrue")
    assert {"inner:to_copy", "inner:addmm", "inner:relu", ":sin", ":add"} <= {event["name"] for event in found}
    assert {event["name"] for event in found if event["phase"] == "backward"} >= {"inner:threshold_backward", ":cos"}


def test_compiled_code_stays_compiled_and_is_said_to_be_closed(recorded):
    plain = recorded("none", "--eager", "--ops", "*", "--steps", "0:1", name="eager", more=["compiled"])
    assert "attn:softmax" in {event["name"] for event in operations(plain)}
    run = recorded("none", "--ops", "*", "--ops", "attn", "--steps", "0:1", name="compiled", more=["compiled"])
    assert {event.get("scope") for event in operations(run)} == {None, "head"}
    lines = (run / "rank-0" / "journal.jsonl").read_text().rstrip("\0").splitlines()
    notes = [event for event in map(json.loads, lines) if event["kind"] == "note"]
    reasons = [note["meta"]["reason"] for note in notes if note["name"] == "not_seen"]
    assert any("operations of compiled code were not seen" in reason for reason in reasons), reasons
    unmatched = [note["value"] for note in notes if note["name"] == "matched_nothing"]
    assert any("'attn' matched no call that was seen" in text for text in unmatched), unmatched


def test_tree_show_and_graph_know_operations(recorded, tmp_path):
    run = recorded("none", "--ops", "attn", "--steps", "0:1", name="ops")
    tree = tenscope_cli("tree", run).stdout
    line = next(line for line in tree.splitlines() if "softmax(dim=-1" in line)
    assert "weights = scores.softmax(-1)" in line and line.endswith(f"model.py:{line_of('RIGHT AXIS')}")
    shown = tenscope_cli("show", run, "attn:softmax", "--step", 0, "--call", 0).stdout
    assert "aten._softmax.default(dim=-1" in shown and "made of attn:mul  step 0  call 0" in shown
    drawn = json.loads(tenscope_cli("graph", run, "--ops", "attn", "--json").stdout)
    names = [node["op"] for node in drawn["nodes"]]
    scale, softmax = names.index("mul"), names.index("softmax")
    assert [scale, softmax] in drawn["edges"], "what is scaled goes into the softmax"
    assert not any(node["module"] == "head" for node in drawn["nodes"])
    judged = {(event["name"].rpartition(":")[2], event["site"]) for event in operations(run) if event.get("site")}
    assert judged == {(node["op"], node["site"]) for node in drawn["nodes"] if not node["is_input"]}
    tenscope_cli("graph", run, "--ops", "*", "-o", tmp_path / "ops.svg")
    assert "softmax" in (tmp_path / "ops.svg").read_text()
    assert "no such operations" in tenscope_cli("graph", recorded("none"), "--ops", "*", "--json", check=2).stderr


def test_recording_operations_does_not_change_the_program(recorded):
    plain, with_ops = recorded("none"), recorded("none", "--ops", ":all", name="all")
    found = json.loads(tenscope_cli("diff", plain, with_ops, "--json").stdout)
    assert found["equal"], found["first_divergence"]
    # Neither the comparison of modules nor check looks at operations.
    checks = [json.loads(tenscope_cli("check", run, "--json", check=None).stdout) for run in (plain, with_ops)]
    assert checks[0]["looked_at"] == checks[1]["looked_at"]
    assert len(operations(with_ops)) > 100


@pytest.mark.parametrize(("where", "mark"), [(":data", None), (":loss", "POW"), (":optimizer", "STEP")])
def test_the_code_around_modules(recorded, where, mark):
    found = operations(recorded("none", "--ops", where, "--steps", "0:2", name=f"around{where[1:]}"))
    assert found
    sites = {event["site"] for event in found if event.get("site")}
    if mark is not None:
        assert f"model.py:{line_of(mark)}" in sites
    assert not any(event.get("scope") for event in found if event.get("phase") == "forward"), "not asked for"


# ---- zoom


@pytest.mark.parametrize(
    ("bug", "verdict", "a", "b"),
    [
        ("axis", "differs", "RIGHT AXIS", "WRONG AXIS"),
        ("unscaled", "only_in_a", "SCALE", None),
        ("data", "only_in_b", None, "FLIP"),
        ("loss", "other", "POW", "ABS"),
        ("rate", "differs", "STEP", "STEP"),
    ],
)
def test_the_line_is_named(recorded, bug, verdict, a, b):
    found = zoom(recorded("none"), recorded(bug))
    assert found["operations"]["verdict"] == verdict
    named = {side: place and (place["file"], place["line"]) for side, place in found["line"].items()}
    assert named == {side: mark and ("model.py", line_of(mark)) for side, mark in (("a", a), ("b", b))}


def test_the_option_of_the_optimizer_is_named(recorded):
    found = zoom(recorded("none"), recorded("rate"))
    assert found["operations"]["optimizer"] == {"lr": {"a": 0.1, "b": 0.2}}
    said = tenscope_cli("diff", recorded("none"), recorded("rate"), "--zoom", check=1).stdout
    assert "the optimizer's lr: 0.1 became 0.2" in said
    assert (
        "--zoom runs two recorded programs again" in tenscope_cli("diff", __file__, __file__, "--zoom", check=2).stderr
    )


def test_a_module_that_is_given_another_value_is_called_on_the_line_that_is_named(recorded):
    """Not the line of its own code that is the first to compute something else of it."""
    found = zoom(recorded("given"), recorded("another"))
    assert found["first_divergence"]["cause"] == "submodule_input"
    line = found["line"]["b"]
    assert (line["line"], line["op"], line["function"]) == (line_of("GIVEN"), "mul", "forward")
    assert line["inside"] == f"model.py:{line_of('HALF')}" and line["text"] == "y = y + self.squash(given)  # GIVEN"


def test_a_value_of_the_step_before_is_followed_to_where_it_was_made(recorded):
    """The optimizer's state is wrong from the first step on, which shows in the parameters in the second."""
    calm, hasty = recorded("calm"), recorded("hasty")
    script = calm.parent.parent / "model.py"
    script.write_text("raise SystemExit('edited since')")  # what the runs keep is run again, and again
    try:
        found = zoom(calm, hasty)
    finally:
        script.write_text(PROGRAM)
    assert found["first_divergence"]["step"] == 1
    a, b = found["line"]["a"], found["line"]["b"]
    assert (a["line"], b["line"], b["step"]) == (line_of("CALM"), line_of("HASTY"), 0)


def test_a_program_that_cannot_be_run_again_is_said_to_fail(recorded):
    run = recorded("none")
    needed = run.parent.parent / "needed.txt"
    needed.touch()
    other = recorded("axis", name="reads", more=["reads"])
    needed.unlink()
    done = tenscope_cli("zoom", run, other, check=2)
    assert "running B again failed (FileNotFoundError), before the place of the divergence" in done.stderr
    assert "No such file or directory: 'needed.txt'" in done.stderr


def test_a_module_of_another_name(recorded):
    found = zoom(recorded("none"), recorded("renamed"))
    assert found["renamed"] == {"attn": "attention"}
    assert found["line"]["a"]["line"] == line_of("RIGHT AXIS") and found["line"]["b"]["line"] == line_of("WRONG AXIS")
    assert found["line"]["b"]["module"] == "attention" and found["line"]["b"]["assigns"] == "weights"


def test_ranks_of_a_launcher_are_all_run_again(recorded):
    """The blamed rank is the one that is looked at."""
    folder = recorded("none").parent
    for name in ("good", "bad"):
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
        command += ["-m", "tenscope.run"]
        command += [
            "--out",
            folder,
            "--name",
            f"ranks-{name}",
            "--include",
            "*",
            folder.parent / "model.py",
            "ranks",
            name,
        ]
        environment = os.environ | {"TENSCOPE_METADATA": "1", "OMP_NUM_THREADS": "1"}
        subprocess.run(command, check=True, cwd=folder.parent, env=environment, capture_output=True)
    found = zoom(folder / "ranks-good", folder / "ranks-bad", "--oracle")
    assert found["first_divergence"]["rank"] == 1
    assert found["line"]["a"] is None and found["line"]["b"]["line"] == line_of("RANK 1")
    # The other rank is not blamed, and the call of this one is what is widened, and offered.
    assert found["oracle"]["verdict"] == "different", found["oracle"]
    assert found["reproduce"][1].endswith("--call . --call-index 0 --rank 1 -o case"), found["reproduce"]
    for rank in ("0", "1"):
        case = folder.parent / f"case-{rank}"
        tenscope_cli("repro", folder / "ranks-bad", "--call", "attn", "--rank", rank, "-o", case)
        done = subprocess.run([sys.executable, case / "repro.py"], capture_output=True, text=True, cwd=folder.parent)
        assert done.returncode == 0 and "equal in bits" in done.stdout, done.stdout + done.stderr


def test_values_that_were_exchanged_are_not_said_to_agree(recorded):
    found = zoom(recorded("unswapped"), recorded("swapped"))
    assert found["operations"]["verdict"] == "differs" and found["operations"]["are_inputs_exchanged"]
    assert found["line"]["a"]["line"] == line_of("UNSWAPPED") and found["line"]["b"]["line"] == line_of("SWAPPED")
    assert not zoom(recorded("none"), recorded("axis"))["operations"]["are_inputs_exchanged"]


def test_the_report_shows_both_lines(recorded):
    said = tenscope_cli("zoom", recorded("none"), recorded("axis"), check=1).stdout
    assert f"first divergence: softmax at model.py:{line_of('RIGHT AXIS')} in attn (step 0, forward)" in said
    assert f"  B  model.py:{line_of('WRONG AXIS')}   weights = scores.softmax(-2)" in said
    assert "its inputs agree in bits, its result does not" in said


def on_a_terminal(*words, **environment):
    """What a program prints where its output is a terminal of 80 columns."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 80, 0, 0))
    kept = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS")}
    process = subprocess.Popen(
        [tenscope_program(), *map(str, words)],
        stdout=theirs, stderr=subprocess.DEVNULL, env={**kept, "TERM": "xterm", **environment},
    )  # fmt: skip
    os.close(theirs)
    output = b""
    try:
        while chunk := os.read(ours, 65536):
            output += chunk
    except OSError:  # the other end is closed
        pass
    os.close(ours)
    process.wait()
    return output.decode()


def test_colours_are_those_of_diff(recorded):
    """What differs between the two statements is coloured, as changed lines are; nothing in a pipe or with NO_COLOR."""
    a, b = recorded("none"), recorded("axis")
    shown = on_a_terminal("zoom", a, b)
    answer = f"first divergence: softmax at model.py:{line_of('RIGHT AXIS')} in attn (step 0, forward)"
    assert f"\033[1;31m{answer}\033[0m" in shown
    assert "\033[31mweights = scores.softmax(-1)  # RIGHT AXIS\033[0m" in shown
    assert "\033[32mweights = scores.softmax(-2)  # WRONG AXIS\033[0m" in shown
    assert shown.count("\033[1;31m") == 2  # diff's answer, and this
    # Lines are broken as diff's are, but for what is to be typed.
    plain = re.sub("\033\\[[0-9;]*m", "", shown).replace("\r", "").split("\n")
    assert not [line for line in plain if len(line) > 80 and " tenscope " not in line]
    assert "\033" not in on_a_terminal("zoom", a, b, NO_COLOR="1")
    assert "\033" not in tenscope_cli("zoom", a, b, check=1).stdout


def test_a_blamed_call_is_measured_by_its_values(recorded):
    """Not by sketches: what an operation of it returned is kept."""
    said = tenscope_cli("zoom", recorded("none"), recorded("axis"), check=1).stdout
    assert "by sketch" not in said.split("first divergence: softmax")[1]


def test_git_need_not_have_answered(recorded, tmp_path):
    shutil.copytree(recorded("axis"), tmp_path / "axis")
    (tmp_path / "axis" / "git_info.json").unlink()
    (tmp_path / "axis" / "metadata_error.txt").write_text("GitError: git add failed")
    assert zoom(recorded("none"), tmp_path / "axis")["line"]["b"]["line"] == line_of("WRONG AXIS")
    said = tenscope_cli("repro", tmp_path / "axis", check=2)
    assert "no git_info.json" in said.stderr and "metadata_error.txt there says why" in said.stderr


def test_runs_that_agree_need_no_zoom(recorded):
    again = recorded("none", name="again")
    found = zoom(recorded("none"), again, check=0)
    assert found["line"] is None


def test_a_program_that_is_not_deterministic_is_said_to_be(recorded):
    found = zoom(recorded("none"), recorded("random"), check=2)
    assert "not deterministic" in found["error"]["message"] or "gives other numbers" in found["error"]["message"]


def test_a_run_that_does_not_say_how_it_was_made_is_refused(recorded, tmp_path):
    shutil.copytree(recorded("axis"), tmp_path / "axis")
    (tmp_path / "axis" / "runtime_info.json").unlink()
    found = zoom(recorded("none"), tmp_path / "axis", check=2)
    assert "does not say how it was made" in found["error"]["message"]


def test_files_that_were_edited_in_place_are_put_back(tmp_path):
    """Both programs are run as they were, though none of their files is what it was then."""
    (tmp_path / "parts").mkdir()
    helper, script, data = tmp_path / "parts" / "helper.py", tmp_path / "train.py", tmp_path / "data.txt"
    helper.write_text("def scaled(x):\n    return x * 2\n")
    script.write_text(
        "import torch\nfrom parts.helper import scaled\n"
        "class Net(torch.nn.Linear):\n    def forward(self, x):\n        return super().forward(scaled(x))\n"
        "torch.manual_seed(0)\nnet = Net(4, 4)\nx = torch.randn(2, 4) * float(open('data.txt').read())\nnet(x)\n"
    )
    data.write_text("3")

    def record(name):
        command = [tenscope_program(), "run", "--name", name, "train.py"]
        environment = os.environ | {"TENSCOPE_METADATA": "1", "OMP_NUM_THREADS": "1"}
        subprocess.run(command, check=True, cwd=tmp_path, env=environment, capture_output=True)
        return tmp_path / "runs" / name

    good = record("good")
    helper.write_text("\n\ndef scaled(x):\n    return x * 2.5  # MISTAKE\n")
    bad = record("bad")
    helper.write_text("def scaled(x):\n    return x + 1\n")
    script.write_text("raise SystemExit('edited since')\n")
    found = zoom(good, bad)
    places = {side: (place["file"], place["line"], place["text"]) for side, place in found["line"].items()}
    assert places == {
        "a": (os.path.join("parts", "helper.py"), 2, "return x * 2"),
        "b": (os.path.join("parts", "helper.py"), 4, "return x * 2.5  # MISTAKE"),
    }
    assert script.read_text() == "raise SystemExit('edited since')\n" and "x + 1" in helper.read_text()
    # What is no source is not kept, and is noticed.
    data.write_text("4")
    assert "running A again gives other numbers, first in" in zoom(good, bad, check=2)["error"]["message"]


def test_another_command_may_be_given(recorded):
    program = recorded("none").parent.parent / "model.py"
    found = zoom(recorded("none"), recorded("axis"), "--b-command", f"{sys.executable} {program} axis")
    assert found["line"]["b"]["line"] == line_of("WRONG AXIS")
    found = zoom(recorded("none"), recorded("axis"), "--b-command", f"{sys.executable} model.py none", check=2)
    assert "running B again gives other numbers, first in" in found["error"]["message"]
