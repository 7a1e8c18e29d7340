"""Two gloo processes under `tenscope run`: sharded, tensor parallel and pipelined models against themselves."""

import os
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import tenscope
import warm_start

torch = pytest.importorskip("torch")

TENSCOPE = Path(sys.executable).parent / "tenscope"

HEAD = """
import sys
import torch, torch.distributed as dist
from torch import nn

torch.manual_seed(0)
dist.init_process_group("gloo")
rank = dist.get_rank()
mesh = dist.device_mesh.init_device_mesh("cpu", (2,))

class Block(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(size), nn.Linear(size, 4 * size), nn.Linear(4 * size, size)
    def forward(self, x):
        return x + self.down(self.up(self.norm(x)).relu())

class Model(nn.Module):
    def __init__(self, size=16):
        super().__init__()
        self.blocks = nn.ModuleList(Block(size) for _ in range(2))
        self.head = nn.Linear(size, 5)
    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)

def batch(step, shape, mine=False):
    random = torch.Generator().manual_seed(2 * step + (rank if mine else 0))
    x = torch.randn(*shape, generator=random)
    return x, torch.randint(5, (x.numel() // x.shape[-1],), generator=random)

def train(model, shape=(4, 16), mine=False, steps=2, before_step=lambda model: None):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(steps):
        optimizer.zero_grad()
        x, y = batch(step, shape, mine)
        nn.functional.cross_entropy(model(x).reshape(-1, 5), y).backward()
        before_step(model)
        optimizer.step()
"""


def run_ranks(folder, script, *names):
    """Runs the script as two ranks for each name (its first argument), recorded under it; all at once."""
    path = folder / "script.py"
    path.write_text(HEAD + textwrap.dedent(script))
    started = []
    for name in names:
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        for rank in range(2):
            env = {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
            command = ["-m", "tenscope.run", "--out", folder / "runs", "--name", name, path, name]
            started.append(warm_start.start(command, env={**os.environ, **env}))
    errors = [process.communicate(timeout=150)[1] for process in started]
    assert not any(process.returncode for process in started), "\n".join(errors)
    return [tenscope.open(folder / "runs" / name) for name in names]


def say(*words):
    done = subprocess.run([TENSCOPE, *words], capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def shards_alone_are_no_agreement(run):
    """Where no two ranks hold the same tensor, `--ranks` has compared nothing; the run itself is healthy."""
    code, text = say("diff", run.path, "--ranks")
    assert code == 2 and "nothing was compared" in text, text
    code, text = say("check", run.path)
    assert code == 0, text


FSDP = """
from torch.distributed.fsdp import fully_shard

model = Model()
for block in model.blocks:
    fully_shard(block, mesh=mesh)
fully_shard(model, mesh=mesh)
train(model, mine=True)
"""


def test_fully_sharded(tmp_path):
    one, two = run_ranks(tmp_path, FSDP, "one", "two")
    assert tenscope.diff(one, two).verdict == "equal"
    part = one.rank(1).find("blocks.0.up.weight")[0]
    assert one.rank(1)["blocks.0.up.weight", 0].shape == (32, 16)
    assert part.meta["shard"] == {
        "mesh": [2],
        "placements": ["S(0)"],
        "shape": [64, 16],
        "coordinate": [1],
        "offset": [32, 0],
    }
    assert one["blocks.0.up.weight", 0].shape == (64, 16)
    shards_alone_are_no_agreement(one)


FIRST_FSDP = """
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

model = Model()
if sys.argv[1] == "whole":
    model = nn.parallel.DistributedDataParallel(model)
else:
    options = {"auto_wrap_policy": ModuleWrapPolicy({Block}), "device_id": torch.device("cpu")}
    model = FullyShardedDataParallel(model, use_orig_params=sys.argv[1] == "pieces", **options)
train(model, mine=True)
"""


def test_sharded_by_the_first_fsdp(tmp_path):
    """Each rank has a piece of a parameter as one row, whole parameters or none of one."""
    whole, pieces, rows = run_ranks(tmp_path, FIRST_FSDP, "whole", "pieces", "rows")
    bias = whole.rank(0)["module.blocks.0.up.bias", 0]
    path = "_fsdp_wrapped_module.blocks.0._fsdp_wrapped_module.up.bias"
    parts = [event for rank in (0, 1) for event in pieces.rank(rank).find(path) if event.phase == "optimizer"][::2]
    assert [event.meta["shard"]["offset"] for event in parts] == [[0], [parts[0].shape[0]]]
    assert sum(event.shape[0] for event in parts) == bias.size
    assert torch.allclose(pieces[path, 0].torch(), bias.torch())
    for one, other in ((whole, pieces), (pieces, whole)):
        found = tenscope.diff(one, other)
        assert found.verdict in ("equal", "noise"), str(found)
        assert found.counts.compared == found.counts.first_run or one is pieces, str(found)  # has wrappers
    for run in (pieces, rows):
        shards_alone_are_no_agreement(run)


SEQUENCE_PARALLEL = """
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel, PrepareModuleInput, RowwiseParallel, SequenceParallel, parallelize_module
)

model = Model(64)
for block in model.blocks:
    plan = {"norm": SequenceParallel(), "up": ColwiseParallel(input_layouts=Shard(1))}
    parallelize_module(block, mesh, plan | {"down": RowwiseParallel(output_layouts=Shard(1))})
split = PrepareModuleInput(
    input_layouts=(Replicate(),), desired_input_layouts=(Shard(1),), use_local_output=True
)
head = ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate())
parallelize_module(model, mesh, {"blocks.0": split, "head": head})
train(model, (8, 32, 64))
"""


def test_what_a_collective_is_still_making_is_waited_for(tmp_path):
    one, two = run_ranks(tmp_path, SEQUENCE_PARALLEL, "one", "two")
    assert not [name for name in one.names() if "elem" in name or "local_tensor" in name]
    assert tenscope.diff(one, two).verdict == "equal", str(tenscope.diff(one, two))
    assert one.rank(0)["blocks.1.up.grad_input.0", 0].shape == (8, 16, 64), "a part of the sequence"


def test_shards_are_not_compared_and_replicas_are(tmp_path):
    script = SEQUENCE_PARALLEL.replace(
        "train(",
        """
import tenscope
assert not tenscope.check_sync(model)
assert "blocks.0.up.weight" in str(tenscope.check_sync(model)), str(tenscope.check_sync(model))
assert "blocks.0.norm.weight" not in tenscope.check_sync(model).not_compared
if sys.argv[1] == "wrong":
    with torch.no_grad():
        model.blocks[0].norm.weight._local_tensor[3] += rank
    assert [entry.name for entry in tenscope.check_sync(model)] == ["blocks.0.norm.weight"]
train(""",
    )
    good, wrong = run_ranks(tmp_path, script, "good", "wrong")
    code, text = say("diff", good.path, "--ranks")
    assert code == 0 and "in step" in text and "not compared, shards" in text, text
    assert say("check", good.path)[0] == 0, say("check", good.path)[1]
    code, text = say("diff", wrong.path, "--ranks")
    assert code == 1 and text.startswith("the ranks part at step 0: blocks.0.norm.weight on rank 1"), text


def test_gradients_averaged_by_hand(tmp_path):
    script = """
        def average(model):
            for p in model.parameters() if sys.argv[1] == "good" else ():
                dist.all_reduce(p.grad)
                p.grad /= 2
        train(Model(), mine=True, before_step=average)
        """
    good, wrong = run_ranks(tmp_path, script, "good", "wrong")
    code, text = say("diff", good.path, "--ranks")
    assert code == 0 and "in step" in text, text
    code, text = say("diff", wrong.path, "--ranks")
    assert code == 1 and ".grad" in text, text


def test_a_pipeline_that_learns_shapes_is_not_training(tmp_path):
    script = """
        from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
        whole = Model()
        part = nn.Sequential(whole.blocks[0]) if rank == 0 else nn.Sequential(whole.blocks[1], whole.head)
        stage = PipelineStage(part, rank, 2, torch.device("cpu"))
        schedule = ScheduleGPipe(stage, n_microbatches=2, loss_fn=nn.CrossEntropyLoss())
        optimizer = torch.optim.SGD(part.parameters(), lr=0.01)
        for step in range(2):
            optimizer.zero_grad()
            x, y = batch(step, (4, 16))
            schedule.step(x) if rank == 0 else schedule.step(target=y)
            optimizer.step()
        """
    one, two = run_ranks(tmp_path, script, "one", "two")
    assert tenscope.diff(one, two).verdict == "equal"
    for rank in (0, 1):
        calls = [event for event in one.rank(rank).events(kind="enter") if event.root == "Sequential#0"]
        assert len([event for event in calls if event.name == ""]) == 2 * 2, "steps and micro-batches"
        (note,) = one.rank(rank).find("shapes_only", kind="note")
        assert "pipelining" in note.meta["reason"]
    shards_alone_are_no_agreement(one)
