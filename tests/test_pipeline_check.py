"""What the stages of a pipeline give to each other, in one run: `tenscope check` with no reference."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tenscope
import warm_start

TENSCOPE = Path(sys.executable).with_name("tenscope")
RULE = "pipeline-transfer"
MICRO, STEPS = 4, 2

HEAD = """
import sys
import torch, torch.distributed as dist
from torch import nn

mode = sys.argv[1]
torch.manual_seed(0)
dist.init_process_group("gloo")
rank, ranks = dist.get_rank(), dist.get_world_size()
MICRO, STEPS = 4, 2

class Block(nn.Module):
    def __init__(self, size=8):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(size), nn.Linear(size, 2 * size), nn.Linear(2 * size, size)
    def forward(self, x):
        return x + self.down(self.up(self.norm(x)).relu())

def batch(step):
    random = torch.Generator().manual_seed(step)
    return torch.randn(8, 3, 8, generator=random), torch.randn(8, 3, 8, generator=random)
"""

SCHEDULES = (
    HEAD
    + """
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from torch.distributed.pipelining import ScheduleInterleaved1F1B, ScheduleInterleavedZeroBubble

several = {"interleaved": ScheduleInterleaved1F1B, "zero_bubble": ScheduleInterleavedZeroBubble}
each = 2 if mode in several else 1
stages = []
for number in range(rank, each * ranks, ranks):
    torch.manual_seed(number)
    part = nn.Sequential(Block(), Block())
    part = part.bfloat16() if mode == "bf16" else part
    stages.append(PipelineStage(part, number, each * ranks, torch.device("cpu")))
stage = stages[0]

def instead(method, make):
    original = getattr(stage, method)
    setattr(stage, method, lambda chunk, *rest: make(original, chunk, *rest))

calls = 0
def activations(original, chunk, *rest):
    global calls
    calls += 1
    if mode == "other_micro_batch" and chunk == 2:
        return tuple(x.detach().clone().requires_grad_() for x in original(1, *rest))
    if mode == "spoilt" and calls == MICRO + 2:
        return tuple((x * 1.03).detach().requires_grad_() for x in original(chunk, *rest))
    return original(chunk, *rest)

def gradients(original, chunk, *rest):
    return original(1 if mode == "other_gradient" and chunk == 2 else chunk, *rest)

if rank == 1:
    instead("_retrieve_recv_activations", activations)
if rank == 0:
    instead("_retrieve_recv_grads", gradients)
loss = lambda x, y: nn.functional.mse_loss(x, y)
if mode in several:
    schedule = several[mode](stages, MICRO, loss_fn=loss)
else:
    schedule = (Schedule1F1B if mode == "1f1b" else ScheduleGPipe)(stage, MICRO, loss_fn=loss)
optimizer = torch.optim.SGD([p for stage in stages for p in stage.submod.parameters()], lr=0.01)
for step in range(STEPS):
    optimizer.zero_grad()
    x, y = (t.bfloat16() if mode == "bf16" else t for t in batch(step))
    if rank == ranks - 1:
        schedule.step(target=y, losses=[])
    else:
        schedule.step(*[x] if rank == 0 else [])
    optimizer.step()
"""
)

BY_HAND = (
    HEAD
    + """
class Part(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.Sequential(Block(), Block())
    def forward(self, x):
        return self.blocks(x)

torch.manual_seed(rank)
part = Part()
optimizer = torch.optim.SGD(part.parameters(), lr=0.01)
order = {"swapped": [0, 2, 1, 3], "other_order": [3, 1, 0, 2]}.get(mode, range(MICRO)) if rank == 1 else range(MICRO)
if mode == "warm_up" and rank == 1:
    part(torch.zeros(2, 3, 8))

for step in range(STEPS):
    optimizer.zero_grad()
    inputs, targets = (whole.chunk(MICRO) for whole in batch(step))
    given, made, sending = {}, {}, []
    for i in order:
        if rank == 0:
            made[i] = part(inputs[i])
            sending.append(dist.isend(made[i].detach(), 1, tag=i))
        else:
            x = torch.empty(2, 3, 8)
            dist.recv(x, 0, tag=i)
            if mode == "spoilt" and step == 1 and i == 2:
                x *= 1.01
            given[i] = x.requires_grad_()
            made[i] = part(given[i])
    for position, i in enumerate(order):
        # One that mixes micro-batches up goes by their positions, here and in the targets.
        number = position if mode == "swapped" else i
        if rank == 1:
            loss = nn.functional.mse_loss(made[i], targets[number])
            loss.backward()
            sending.append(dist.isend(given[i].grad, 0, tag=100 + number))
        else:
            gradient = torch.empty(2, 3, 8)
            dist.recv(gradient, 1, tag=100 + i)
            if mode == "scaled":
                gradient /= MICRO
            if mode == "lost_gradient" and step == 1 and i == 3:
                gradient *= 0
            made[i].backward(gradient)
    for work in sending:
        work.wait()
    optimizer.step()
"""
)


def record(folder, script, mode, *options, ranks=2):
    pytest.importorskip("torch")
    (folder / "script.py").write_text(script)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    started = []
    for rank in range(ranks):
        env = {"RANK": str(rank), "WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        command = ["-m", "tenscope.run", *options, "--out", folder, "--name", "run"]
        command += [folder / "script.py", mode]
        started.append(warm_start.start(command, env={**os.environ, **env}))
    errors = [process.communicate(timeout=150)[1] for process in started]
    assert not any(process.returncode for process in started), "\n".join(errors)
    return folder / "run"


def check(run, *options):
    """The findings of the rule, and how many transfers it has looked at."""
    done = subprocess.run([TENSCOPE, "check", run, "--json", *options], capture_output=True, text=True)
    report = json.loads(done.stdout)
    assert done.returncode == (1 if report["findings"] else 0)
    return [one for one in report["findings"] if one["code"] == RULE], report["looked_at"]["rules"][RULE]


@pytest.mark.parametrize(
    ("mode", "looked_at"),
    [("gpipe", 16), ("1f1b", 16), ("interleaved", 48), ("bf16", 16)],
)
def test_schedules_are_silent(tmp_path, mode, looked_at):
    assert check(record(tmp_path, SCHEDULES, mode)) == ([], looked_at)


def test_a_zero_bubble_is_silent(tmp_path):
    found, looked_at = check(record(tmp_path, SCHEDULES, "zero_bubble"))
    assert not found and looked_at >= 24


@pytest.mark.parametrize("options", [[], ["--stats"]])
def test_a_micro_batch_that_is_taken_for_another(tmp_path, options):
    (finding,), _ = check(record(tmp_path, SCHEDULES, "other_micro_batch", *options))
    message = "rank 1 (stage 1) received for micro-batch 2 what rank 0 (stage 0) sent for micro-batch 1"
    assert finding["message"] == message
    assert (finding["step"], finding["rank"], finding["name"], finding["count"]) == (0, 1, "input.0", 2)


@pytest.mark.parametrize("options", [[], ["--stats"]])
def test_a_value_that_is_spoilt_on_its_way(tmp_path, options):
    run = record(tmp_path, SCHEDULES, "spoilt", *options)
    (finding,), _ = check(run)
    message = "what rank 1 (stage 1) received for micro-batch 1 is not what rank 0 (stage 0) sent (rel. L2 0.0"
    assert finding["message"].startswith(message)
    assert (finding["step"], finding["call"], finding["count"]) == (1, 5, 1)
    assert finding["value"] == pytest.approx(0.03, rel=0.3 if options else 1e-3)
    assert check(run, "--set", f"{RULE}=0.1")[0] == []


class Pipeline:
    """A run of some ranks, written call by call. What a call is given and makes are numbers: seeds of tensors."""

    def __init__(self, folder):
        self.folder = folder
        self.events = {}
        self.calls = {}

    def call(self, rank, given, made, step=0, gradient=None, arrived=None, root="Part#0", dtype=np.float32):
        call = self.calls[rank, root] = self.calls.get((rank, root), -1) + 1
        values = {"input.0": (given, "input"), "output": (made, "output")}
        values |= {"grad_input.0": (gradient, "grad_input"), "grad_output.0": (arrived, "grad_output")}
        for name, (value, io) in values.items():
            if value is None:
                continue
            tensor = np.random.default_rng(value).normal(size=(3, 5)) if np.isscalar(value) else value
            phase = "backward" if io.startswith("grad") else "forward"
            told = {"io": io, "phase": phase, "root": root, "step": step, "call": call}
            self.events.setdefault(rank, []).append((name, tensor.astype(dtype), told))

    def note_stage(self, rank, **meta):
        told = {"kind": "note", "root": "Part#0", "meta": json.dumps(meta)}
        self.events.setdefault(rank, []).append(("pipeline_stage", None, told))

    def write(self, values="full"):
        for rank in sorted(self.events):
            options = {"name": "run", "rank": rank, "world_size": len(self.events), "join": rank > 0}
            with tenscope.Run(self.folder, **options, metadata=False) as run:
                for name, tensor, told in self.events[rank]:
                    run.record(name, *([] if tensor is None else [tensor]), **told, values=values)
        return self.folder / "run"

    def check(self, values="full"):
        return check(self.write(values), "--only", RULE)


def test_a_value_of_the_step_before(tmp_path):
    """A buffer that is sent before it is filled: each call has what was made one call earlier."""
    pipeline = Pipeline(tmp_path)
    for i in range(8):
        pipeline.call(0, 100 + i, i, step=i // 4)
        pipeline.call(1, i - 1 if i else np.zeros((3, 5)), 200 + i, step=i // 4)
    (finding,), looked_at = pipeline.check()
    assert (finding["count"], looked_at) == (7, 8)
    assert finding["message"] == "rank 1 received for micro-batch 1 what rank 0 sent for micro-batch 0"


def test_data_that_comes_from_a_rank_now_and_then(tmp_path):
    """Two of three batches are what another rank made; the third is the program's own."""
    pipeline = Pipeline(tmp_path)
    for i in range(9):
        pipeline.call(0, 100 + i, i, step=i)
        pipeline.call(1, 300 + i if i % 3 == 2 else i, 200 + i, step=i)
    assert pipeline.check() == ([], 9)


def test_replicas_that_make_the_same(tmp_path):
    """Two roots one behind the other on each rank, with equal data but for one call: nothing is sent."""
    pipeline = Pipeline(tmp_path)
    for i in range(8):
        for rank in range(2):
            made = i + 50 * rank * (i == 5)
            pipeline.call(rank, 100 + i, made, step=i)
            pipeline.call(rank, made, 200 + made, step=i, root="Loss#0")
    done = subprocess.run([TENSCOPE, "check", pipeline.write(), "--only", RULE], capture_output=True, text=True)
    assert done.returncode == 2 and "nothing was looked at" in done.stdout


def test_an_output_that_goes_to_two_ranks(tmp_path):
    """The gradient that comes back is a sum: of its parts nothing is said."""
    pipeline = Pipeline(tmp_path)
    for i in range(4):
        pipeline.call(0, 100 + i, i, step=i, arrived=500 + i)
        for rank in (1, 2):
            pipeline.call(rank, i, 200 + i + 10 * rank, step=i, gradient=600 + i + 10 * rank)
    assert pipeline.check() == ([], 8)


@pytest.mark.parametrize("pairs", [[(0, 2), (1, 3)], [(0, 3), (1, 2)]])
@pytest.mark.parametrize("is_noted", [True, False])
@pytest.mark.parametrize("is_wrong", [True, False])
def test_replicas_of_a_pipeline(tmp_path, pairs, is_noted, is_wrong):
    """Which rank sends to which is noted, else it follows from what they have, else from their order."""
    pipeline = Pipeline(tmp_path)
    for sender, receiver in pairs:
        pipeline.note_stage(sender, stage=0, stages=2)
        noted = {"receives_from": sender} if is_noted else {}
        pipeline.note_stage(receiver, stage=1, stages=2, **noted)
        for i in range(4):
            pipeline.call(sender, 100 + i, i + 10 * sender, arrived=900 + i + 10 * sender)
            given = 0 + 10 * sender if is_wrong and i == 1 and receiver == 3 else i + 10 * sender
            pipeline.call(receiver, given, 700 + i, gradient=900 + i + 10 * sender)
    found, looked_at = pipeline.check()
    sender = {receiver: sender for sender, receiver in pairs}[3]
    message = f"rank 3 (stage 1) received for micro-batch 1 what rank {sender} (stage 0) sent for micro-batch 0"
    assert [one["message"] for one in found] == ([message] if is_wrong else [])
    assert looked_at == (15 if is_wrong else 16)


@pytest.mark.parametrize("values", ["full", "stats"])
def test_values_that_are_rounded_on_their_way(tmp_path, values):
    """All of them alike, to 16 bits: no mistake."""
    pipeline = Pipeline(tmp_path)
    pipeline.note_stage(0, stage=0, stages=2)
    pipeline.note_stage(1, stage=1, stages=2, receives_from=0)
    for i in range(4):
        tensor = np.random.default_rng(i).normal(size=(3, 5)).astype(np.float32)
        pipeline.call(0, 100 + i, tensor)
        pipeline.call(1, tensor.astype(np.float16), 200 + i)
    assert pipeline.check(values) == ([], 4)


@pytest.mark.parametrize("is_wrong", [True, False])
def test_a_stage_that_misses_the_end_of_a_step(tmp_path, is_wrong):
    """Its optimizer leaves one step out, so that its steps are counted otherwise."""
    pipeline = Pipeline(tmp_path)
    pipeline.note_stage(0, stage=0, stages=2)
    pipeline.note_stage(1, stage=1, stages=2, receives_from=0)
    for i in range(12):
        pipeline.call(0, 100 + i, i, step=i // 4)
        pipeline.call(1, 8 if is_wrong and i == 9 else i, 200 + i, step=min(i // 4, 1))
    found, looked_at = pipeline.check()
    assert looked_at == 12
    assert [(one["rank"], one["call"]) for one in found] == ([(1, 9)] if is_wrong else [])


def test_a_stage_that_received_nothing_right(tmp_path):
    pipeline = Pipeline(tmp_path)
    pipeline.note_stage(0, stage=0, stages=2)
    pipeline.note_stage(1, stage=1, stages=2, receives_from=0)
    for i in range(6):  # the run ended in the middle of the second step
        pipeline.call(0, 100 + i, i, step=i // 4)
        if i < 5:
            pipeline.call(1, 300 + i, 200 + i, step=i // 4)
    (finding,), looked_at = pipeline.check()
    assert (finding["count"], looked_at) == (5, 5)
    assert finding["message"].startswith("what rank 1 (stage 1) received for micro-batch 0 is not what")


def test_gradients_of_other_micro_batches(tmp_path):
    (finding,), _ = check(record(tmp_path, SCHEDULES, "other_gradient"))
    assert (
        finding["message"]
        == "rank 0 (stage 0) received for micro-batch 2 the gradient that rank 1 (stage 1) sent for micro-batch 1"
    )
    assert finding["count"] == STEPS and finding["io"] == "grad_output"


@pytest.mark.parametrize(
    ("mode", "looked_at"), [("right", 16), ("other_order", None), ("scaled", 16), ("warm_up", None)]
)
def test_stages_made_by_hand_are_silent(tmp_path, mode, looked_at):
    found, compared = check(record(tmp_path, BY_HAND, mode))
    assert not found and compared >= (looked_at or 8)


@pytest.mark.parametrize(
    ("mode", "message", "count"),
    [
        ("swapped", "rank 1 received for micro-batch 1 what rank 0 sent for micro-batch 2", 4),
        ("spoilt", "what rank 1 received for micro-batch 2 is not what rank 0 sent (rel. L2 0.01)", 1),
        ("lost_gradient", "the gradient that rank 0 received for micro-batch 3 is not what rank 1 sent (rel. L2 1)", 1),
    ],
)
def test_mistakes_in_stages_made_by_hand(tmp_path, mode, message, count):
    (finding,), _ = check(record(tmp_path, BY_HAND, mode))
    assert (finding["message"], finding["count"]) == (message, count)
