"""tenscope run: scripts recorded as they are. The judge is a script that observes itself with plain hooks."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import tenscope
from launched import warm_run

torch = pytest.importorskip("torch")
HERE = Path(__file__).parent


def tenscope_run(folder, *words, env=None, check=True):
    done = subprocess.run(
        [sys.executable, "-m", "tenscope.run", "--name", "it", *map(str, words)],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", **(env or {})},
        capture_output=True,
        text=True,
        timeout=120,
    )
    if check:
        assert done.returncode == 0, done.stderr
    return done


def recorded(folder, *words):
    """The same for tests of what is recorded, which are not about the start of the program."""
    done = warm_run(folder, "--name", "it", *words)
    assert done.returncode == 0, done.stderr
    return done


def recording(folder):
    return tenscope.open(folder / "runs" / "it")


def script(folder, text, name="script.py"):
    path = folder / name
    path.write_text(text)
    return path


OBSERVED = f"""
import sys
sys.path.insert(0, {str(HERE)!r})
import torch
from torch import nn
import torch.nn.functional as F
from model_zoo import Observer, ResNet, GPT

torch.manual_seed(3)
model = ResNet() if sys.argv[1] == "resnet" else GPT()
observer = Observer(model)
seen = observer.seen
if sys.argv[2] == "torch":
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
else:
    class Optimizer:
        def __init__(self, params, lr):
            self.params, self.lr = list(params), lr

        def zero_grad(self):
            for p in self.params:
                p.grad = None

        def step(self):
            for p in self.params:
                if sys.argv[2] == "data":
                    p.data.sub_(self.lr * p.grad)
                else:
                    with torch.no_grad():
                        p.sub_(self.lr * p.grad)

    optimizer = Optimizer(model.parameters(), 0.1)
for step in range(2):
    optimizer.zero_grad()
    for micro in range(2):
        if sys.argv[1] == "resnet":
            loss = model(torch.randn(2, 3, 8, 8)).square().mean()
        else:
            ids = torch.randint(0, 31, (2, 6))
            loss = F.cross_entropy(model(ids).logits.flatten(0, 1), ids.flatten())
        seen.append(("", "loss", [loss.detach().clone()]))
        loss.backward()
        for name, p in model.named_parameters():
            seen.append((name, "grad", [p.grad.clone()]))
    optimizer.step()
    for name, p in model.named_parameters():
        seen.append((name, "param", [p.detach().clone()]))
torch.save(seen, "seen.pt")
"""


@pytest.mark.parametrize(("model", "optimizer"), [("resnet", "torch"), ("gpt", "plain"), ("resnet", "data")])
def test_training_script_is_seen_as_it_sees_itself(tmp_path, model, optimizer):
    path = script(tmp_path, OBSERVED)
    tenscope_run(tmp_path, path, model, optimizer)
    seen = torch.load(tmp_path / "seen.pt")
    run = recording(tmp_path)
    recorded = [
        e
        for e in run.events(kind="value")
        if e.is_tensor and e.io in ("input", "output", "loss", "grad", "param") and e.phase != "init"
    ]
    flat = [(where, io, value) for where, io, values in seen for value in values]
    assert [(e.name.removesuffix(".grad") if e.io in ("grad", "param") else e.scope, e.io) for e in recorded] == [
        (where, io) for where, io, _ in flat
    ]
    for e, (where, io, value) in zip(recorded, flat, strict=True):
        assert torch.equal(e.torch(), value), (where, io)

    assert [e.step for e in recorded if e.io == "loss"] == [0, 0, 1, 1]
    assert [e.call for e in recorded if e.io == "loss"] == [0, 1, 2, 3]
    assert sorted({e.step for e in recorded if e.io == "param"}) == [0, 1]
    assert {e.phase for e in recorded if e.io == "param"} == {"optimizer"}
    initial = [e for e in run.events(kind="value") if e.phase == "init"]
    assert initial and {e.io for e in initial} == {"param", "buffer"} and {e.step for e in initial} == {0}
    assert {e.root for e in recorded} == {"ResNet#0" if model == "resnet" else "GPT#0"}
    if optimizer == "torch":
        env = {**os.environ, "OMP_NUM_THREADS": "1"}
        subprocess.run([sys.executable, path, model, optimizer], cwd=tmp_path, check=True, env=env)
        for (where, io, a), (_, _, b) in zip(seen, torch.load(tmp_path / "seen.pt"), strict=True):
            assert all(torch.equal(x, y) for x, y in zip(a, b, strict=True)), ("not recorded it differs", where, io)
    if model == "resnet":
        changed = [e for e in run.events("stem.1.*") if e.io == "buffer" and e.phase == "forward"]
        assert [(e.name.rpartition(".")[2], e.call) for e in changed[:6]] == [
            ("running_mean", 0), ("running_var", 0), ("num_batches_tracked", 0),
            ("running_mean", 1), ("running_var", 1), ("num_batches_tracked", 1),
        ]  # fmt: skip


INFERENCE = """
import torch
from torch import nn
model = nn.Sequential(nn.Linear(2, 2), nn.Sigmoid()).eval()
criterion = nn.MSELoss()
with torch.no_grad():
    for i in range(5):
        criterion(model(torch.full((1, 2), float(i))), torch.zeros(1, 2))
        if i == 2:
            model[0].weight.data = model[0].weight.data * 2
print("fine")
"""


def test_inference_steps_and_filters(tmp_path):
    path = script(tmp_path, INFERENCE)
    done = tenscope_run(tmp_path, path)
    assert done.stdout == "fine\n" and done.stderr == ""
    run = recording(tmp_path)
    assert [e.step for e in run.events("output") if e.root == "Sequential#0"] == [0, 1, 2, 3, 4]
    assert [e.step for e in run.events("output") if e.root == "MSELoss#0"] == [0, 1, 2, 3, 4]
    assert [(e.name, e.step) for e in run.events("0.weight")] == [("0.weight", 0), ("0.weight", 3)]
    assert {e.name for e in run.events(kind="note")} >= {"seeds", "determinism", "precision", "threads", "versions"}

    (tmp_path / "b").mkdir()
    recorded(tmp_path / "b", "--steps", "1:4", "--every", "2", "--stats", "--exclude", "0", path)
    run = recording(tmp_path / "b")
    outputs = [e for e in run.events("*output") if e.root == "Sequential#0"]
    assert [(e.name, e.step, e.stored) for e in outputs] == [("1.output", 2, False), ("output", 2, False)]


def test_arguments_main_and_exit_code(tmp_path):
    text = """
import argparse, sys, os
parser = argparse.ArgumentParser()
parser.add_argument("--out", required=True)
parser.add_argument("rest", nargs="*")
options = parser.parse_args()
import helper
class Here: pass
import pickle
assert pickle.loads(pickle.dumps(Here())).__class__ is Here
beside = sys.path[0] == os.path.dirname(os.path.abspath(__file__))
print(__name__, os.path.basename(__file__), sys.argv[1:], options.out, helper.VALUE, beside)
sys.exit(7)
"""
    (tmp_path / "code").mkdir()
    script(tmp_path / "code", "VALUE = 5", "helper.py")
    path = script(tmp_path / "code", text)
    done = tenscope_run(tmp_path, path, "--out", "x", "--", "-y", check=False)
    assert done.returncode == 7 and done.stderr == ""
    assert done.stdout == "__main__ script.py ['--out', 'x', '--', '-y'] x 5 True\n"
    notes = [e.meta for e in recording(tmp_path).events(kind="note") if e.name == "not_seen"]
    assert notes == [{"reason": "no torch module was called"}]


def test_module_and_usage(tmp_path):
    (tmp_path / "package").mkdir()
    script(tmp_path / "package", "", "__init__.py")
    script(
        tmp_path / "package",
        "import sys\nfrom . import __name__ as n\nprint(n, __name__, sys.argv[1:], __spec__.name)",
        "tool.py",
    )
    done = tenscope_run(tmp_path, "-m", "package.tool", "--stats", "-m")
    assert done.stdout == "package __main__ ['--stats', '-m'] package.tool\n"
    for wrong in (["missing.py"], [], ["--every", "0", "x.py"], ["--steps", "a:b", "x.py"], ["-m"]):
        done = tenscope_run(tmp_path, *wrong, check=False)
        assert done.returncode == 2 and "tenscope run" in done.stderr and "Traceback" not in done.stderr


def test_traceback_is_the_programs_own(tmp_path):
    text = """
import torch
from torch import nn
def work():
    loss = nn.Linear(2, 2)(torch.ones(1, 2)).sum()
    loss.backward()
    loss.backward()
try:
    nn.Linear(2, 2)(torch.ones(1, 3))
except RuntimeError:
    pass
work()
"""
    path = script(tmp_path, text)
    recorded = tenscope_run(tmp_path, path, check=False)
    plain = subprocess.run([sys.executable, path], cwd=tmp_path, capture_output=True, text=True)
    assert recorded.returncode == plain.returncode == 1
    assert recorded.stderr == plain.stderr
    exits = [e.meta for e in recording(tmp_path).events(kind="exit")]
    assert "RuntimeError" in exits[0]["raised"] and "raised" not in exits[1]


def test_interrupt_ends_as_python_ends(tmp_path):
    path = script(tmp_path, "raise KeyboardInterrupt")
    assert tenscope_run(tmp_path, path, check=False).returncode == -signal.SIGINT


SPAWNED = """
import os, sys
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

def worker(rank, world):
    if world > 1:
        dist.init_process_group("gloo", rank=rank, world_size=world)
    torch.manual_seed(rank)
    model = nn.Sequential(nn.Linear(3, 2))
    if world > 1:
        model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.full((1, 3), rank + 1.0)).sum().backward()
        optimizer.step()
    if world > 1:
        dist.destroy_process_group()

if __name__ == "__main__":
    if "RANK" in os.environ:
        worker(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
    else:
        os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "127.0.0.1", sys.argv[2]
        mp.start_processes(worker, args=(2,), nprocs=2, start_method=sys.argv[1])
"""


def free_port():
    import socket

    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def check_two_ranks(run):
    assert run.ranks == [0, 1] and run.closed
    for rank in (0, 1):
        mine = run.rank(rank)
        inputs = mine.find("input.0")
        assert [e.step for e in inputs] == [0, 1] and float(inputs[0].torch()[0, 0]) == rank + 1
        assert mine.find("module.0.output")[0].scope == "module.0"
        assert mine.find("*output")[0].root == "DistributedDataParallel#0"
        assert [e.torch().tolist() for e in mine.find("module.0.weight.grad")] == [[[1.5] * 3] * 2] * 2, "all-reduced"


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_processes_record_into_one_run(tmp_path, method):
    tenscope_run(tmp_path, script(tmp_path, SPAWNED), method, free_port())
    check_two_ranks(recording(tmp_path))


def test_torchrun(tmp_path):
    path = script(tmp_path, SPAWNED)
    words = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", free_port(), path]
    tenscope_run(tmp_path, *words)
    check_two_ranks(recording(tmp_path))


def test_torchrun_starts_us(tmp_path):
    path = script(tmp_path, SPAWNED)
    launcher = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nproc-per-node",
        "2",
        "--master-port",
        str(free_port()),
    ]
    subprocess.run([*launcher, "-m", "tenscope.run", str(path)], cwd=tmp_path, check=True, capture_output=True)
    (folder,) = (tmp_path / "runs").iterdir()
    check_two_ranks(tenscope.open(folder))


def test_gradients_changed_before_the_step_and_state_written_outside(tmp_path):
    text = """
import torch
from torch import nn
model = nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.ones(1, 2)).sum().backward()
torch.nn.utils.clip_grad_norm_([model.weight], 0.5)
optimizer.step()
with torch.no_grad():
    model.weight.data.mul_(2)  # as an EMA would, past the version counter
    model(torch.ones(1, 2))
"""
    recorded(tmp_path, script(tmp_path, text))
    run = recording(tmp_path)
    grads = [(e.name, e.phase, e.step) for e in run.events("*.grad")]
    assert grads == [("weight.grad", "backward", 0), ("bias.grad", "backward", 0), ("weight.grad", "optimizer", 0)]
    weights = [(e.phase, e.step) for e in run.events("weight")]
    assert weights == [("init", 0), ("optimizer", 0), ("init", 1)]


def test_training_by_autograd_grad(tmp_path):
    text = """
import torch
from torch import nn
model = nn.Linear(2, 1)
for _ in range(2):
    loss = model(torch.ones(1, 2)).sum()
    grads = torch.autograd.grad(loss, list(model.parameters()))
    with torch.no_grad():
        for p, g in zip(model.parameters(), grads):
            p -= 0.1 * g
"""
    recorded(tmp_path, script(tmp_path, text))
    run = recording(tmp_path)
    values = [(e.name, e.phase, e.step) for e in run.events(kind="value") if e.io in ("loss", "grad", "param")]
    once = [("loss", "backward"), ("weight.grad", "backward"), ("bias.grad", "backward")]
    once += [("weight", "optimizer"), ("bias", "optimizer")]
    steps = [(name, phase, step) for step in (0, 1) for name, phase in once]
    assert values == [("weight", "init", 0), ("bias", "init", 0), *steps]


TRAIN = """
import sys, torch
from torch import nn
torch.manual_seed(0)
how = sys.argv[1]
model = nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4)), nn.Linear(4, 1))
trained = torch.compile(model, backend="aot_eager") if how == "compiled" else model
if how == "reentrant":
    class Checkpointed(nn.Sequential):
        def forward(self, x):
            return torch.utils.checkpoint.checkpoint(super().forward, x, use_reentrant=True)
    model[1] = Checkpointed(*model[1])
optimizer = torch.optim.SGD(trained.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, enabled=how == "scaled")
for step in range(2):
    optimizer.zero_grad()
    loss = trained(torch.randn(3, 4)).square().mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
"""


def test_what_was_not_seen_is_not_different(tmp_path):
    """A compiled model and a reentrant checkpoint hide calls and gradients of what is inside; nothing differs."""
    path = script(tmp_path, TRAIN)
    runs = {}
    for how in ("plain", "compiled", "reentrant"):
        done = recorded(tmp_path, "--name", how, path, how)
        runs[how] = tenscope.open(tmp_path / "runs" / how)
        assert not [e for e in runs[how].events(kind="enter") if "GraphModule" in e.cls], done.stderr
    for how in ("compiled", "reentrant"):
        for pair in [("plain", how), (how, "plain")]:
            diff = tenscope.diff(*(runs[part] for part in pair))
            assert diff.verdict in ("equal", "noise"), str(diff)


def test_a_scaled_loss_is_recorded_as_it_was(tmp_path):
    path = script(tmp_path, TRAIN)
    for how in ("plain", "scaled"):
        recorded(tmp_path, "--name", how, path, how)
    plain, scaled = (tenscope.open(tmp_path / "runs" / how) for how in ("plain", "scaled"))
    assert [event.value.item() for event in plain.find("loss")] == [event.value.item() for event in scaled.find("loss")]
    assert [event.meta.get("scale") for event in scaled.find("loss")] == [1024.0, 1024.0]
    assert all("scale" not in (event.meta or {}) for event in plain.find("loss"))


def test_a_call_on_meta_tensors_is_no_training(tmp_path):
    text = """
import torch
from torch import nn
with torch.device("meta"):
    nn.Sequential(nn.Linear(2, 2), nn.ReLU())(torch.empty(1, 2))
model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
model(torch.ones(1, 2))
"""
    recorded(tmp_path, script(tmp_path, text))
    run = recording(tmp_path)
    assert [(e.root, e.name, e.step) for e in run.events(kind="enter")] == [
        ("Sequential#0", name, 0) for name in ("", "0", "1")
    ]
    (note,) = run.find("shapes_only", kind="note")
    assert "meta" in note.meta["reason"]


def test_scripted_and_compiled_models_run_and_are_said_not_to_be_seen(tmp_path):
    text = """
import torch
from torch import nn
scripted = torch.jit.script(nn.Sequential(nn.Linear(2, 2), nn.ReLU()))
scripted(torch.ones(1, 2))
compiled = torch.compile(nn.Sequential(nn.Linear(2, 2), nn.ReLU()), backend="eager", fullgraph=True)
optimizer = torch.optim.SGD(compiled.parameters(), lr=0.1)
compiled(torch.ones(1, 2)).sum().backward()
optimizer.step()
"""
    done = recorded(tmp_path, script(tmp_path, text))
    assert done.stderr == ""
    run = recording(tmp_path)
    assert {e.root for e in run.events("output")} == {"RecursiveScriptModule#0", "OptimizedModule#0"}
    notes = [e for e in run.events(kind="note") if e.name == "not_seen"]
    assert any("torch.compile" in e.meta["reason"] and e.root == "OptimizedModule#0" for e in notes)
    assert any(e.meta.get("modules") == ["0", "1"] and e.root == "RecursiveScriptModule#0" for e in notes)
    assert len([e for e in run.events() if e.io == "grad"]) == 2


def test_environment_reaches_torch_first_and_run_json_is_there(tmp_path):
    text = """
import os, sys
os.environ["OMP_NUM_THREADS"] = "1"
assert "torch" not in sys.modules
import torch
print(torch.get_num_threads())
"""
    done = tenscope_run(tmp_path, script(tmp_path, text), env={"OMP_NUM_THREADS": "2"})
    assert done.stdout == "1\n"
    assert json.loads((tmp_path / "runs/it/run.json").read_text())["tenscope_format"] == 1


def test_a_new_optimizer_for_the_same_parameters_counts_on(tmp_path):
    text = """
import torch
from torch import nn
model, other = nn.Linear(2, 1), nn.Linear(2, 1)
for round in range(2):  # the second one as after a checkpoint
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(2):
        optimizer.zero_grad()
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
optimizer = torch.optim.SGD(other.parameters(), lr=0.1)
other(torch.ones(1, 2)).sum().backward()
optimizer.step()
"""
    recorded(tmp_path, script(tmp_path, text))
    steps = [(e.root, e.step) for e in recording(tmp_path).events("weight") if e.phase == "optimizer"]
    assert steps == [("Linear#0", 0), ("Linear#0", 1), ("Linear#0", 2), ("Linear#0", 3), ("Linear#1", 0)]


IN_PARTS = """
import torch
from torch import nn

class InParts(torch.optim.Optimizer):
    '''Leaves its step to an optimizer of each of its parameters, as ZeroRedundancyOptimizer does to that of a shard.'''
    def __init__(self, parameters):
        super().__init__(list(parameters), {})
        self.inner = [torch.optim.SGD([p], lr=0.1) for p in self.param_groups[0]["params"]]
    def step(self, closure=None):
        for optimizer in self.inner:
            optimizer.step()

model = nn.Linear(3, 2)
whole, other = InParts(model.parameters()), torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1)
for _ in range(3):
    whole.zero_grad()
    model(torch.ones(1, 3)).sum().backward()
    other.step(whole.step)  # a closure with a step of others is no part of it
"""


def test_an_optimizer_that_leaves_its_step_to_others_makes_one_step(tmp_path):
    recorded(tmp_path, script(tmp_path, IN_PARTS))
    run = recording(tmp_path)
    parameters = [e for e in run.events(kind="value") if e.io == "param" and e.phase != "init"]
    assert [(e.name, e.step) for e in parameters] == [(name, s) for s in range(3) for name in ("weight", "bias")]
    assert [e.step for e in run.events(kind="value") if e.io == "loss"] == [0, 1, 2]
