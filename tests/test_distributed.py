"""Two gloo processes: what each rank records, what is gathered, what is out of sync, and a rank that goes away."""

import json
import signal
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
import os, signal, sys, time
import torch, torch.distributed as dist
from torch import nn
import tenscope

rank, folder = int(sys.argv[1]), sys.argv[3]
torch.manual_seed(0)
dist.init_process_group("gloo", init_method="tcp://127.0.0.1:" + sys.argv[2], rank=rank, world_size=2)

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)
    def forward(self, x):
        h = self.fc(x)
        return x + h.relu()

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(4, 1)
    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)
"""


def run_ranks(tmp_path, script, codes=(0, 0)):
    """Runs the script as two ranks; returns what each wrote to stdout."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    path = tmp_path / "script.py"
    path.write_text(HEAD + textwrap.dedent(script) + "\ndist.destroy_process_group()\n")
    started = [warm_start.start([path, rank, port, tmp_path]) for rank in range(2)]
    outputs = [process.communicate(timeout=150) for process in started]
    assert tuple(process.returncode for process in started) == codes, "\n".join(err for _, err in outputs)
    return [out for out, _ in outputs]


def names_of(run, rank, io):
    return [e.name for e in run.rank(rank).events(kind="value") if e.io == io]


def test_ddp_ranks_record_for_themselves_and_the_step_where_they_part_is_named(tmp_path):
    run_ranks(
        tmp_path,
        """
        from torch.nn.parallel import DistributedDataParallel as DDP
        model = Model()
        ddp = DDP(model)
        optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
        with tenscope.init(folder + "/runs"), tenscope.trace(ddp, grads=True, param_grads=True, params=True):
            for step in range(4):
                optimizer.zero_grad()
                ddp(torch.full((2, 4), 1.0 + step + rank)).sum().backward()
                optimizer.step()
                if step == 1:
                    assert not tenscope.check_sync(ddp), str(tenscope.check_sync(ddp))
                if step == 2 and rank == 1:
                    with torch.no_grad():
                        model.blocks[1].fc.bias += 1  # a rank that goes its own way
            report = tenscope.check_sync(ddp)
        assert "blocks.1.fc.bias" in [entry.name for entry in report], str(report)
        print(report)
        """,
    )
    run = tenscope.open(tmp_path / "runs")
    assert run.ranks == [0, 1] and run.closed
    for rank in (0, 1):
        assert names_of(run, rank, "output")[:5] == [
            *("blocks.0.fc.output", "blocks.0.output", "blocks.1.fc.output", "blocks.1.output", "head.output")
        ]
        assert run.rank(rank)["input.0", 3].tolist() == [[4.0 + rank] * 4] * 2
    assert run.stack("input.0").shape == (2, 4, 2, 4), "ranks, steps, and its own shape"
    grads = run.stack("head.weight.grad")
    assert (grads[0, :3] == grads[1, :3]).all(), "DDP has averaged them"
    (note,) = run.rank(0).find("out_of_sync", kind="note")
    assert "blocks.1.fc.bias" in [entry["name"] for entry in note.meta["tensors"]]

    done = subprocess.run([TENSCOPE, "diff", run.path, "--ranks"], capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    assert done.stdout.startswith("the ranks part at step 3: blocks.1.fc.bias on rank 1"), done.stdout
    done = subprocess.run([TENSCOPE, "diff", run.path, "--ranks", "--json"], capture_output=True, text=True)
    assert json.loads(done.stdout)


def test_traced_gradients_count_as_the_optimizer_is_given_them(tmp_path):
    run_ranks(
        tmp_path,
        """
        model = Model()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with tenscope.init(folder + "/runs"), tenscope.trace(model, param_grads=True, params=True):
            for step in range(2):
                optimizer.zero_grad()
                model(torch.full((2, 4), 1.0 + step + rank)).sum().backward()
                for p in model.parameters():
                    dist.all_reduce(p.grad)
                optimizer.step()
        """,
    )
    run = tenscope.open(tmp_path / "runs")
    phases = [event.phase for event in run.rank(0).find("head.weight.grad", step=1)]
    assert phases == ["backward", "optimizer"]
    done = subprocess.run([TENSCOPE, "diff", run.path, "--ranks"], capture_output=True, text=True)
    assert done.returncode == 0 and "in step" in done.stdout, done.stdout + done.stderr


def test_gathering(tmp_path):
    h5py = pytest.importorskip("h5py")
    run_ranks(
        tmp_path,
        """
        model = Model()
        log = []
        def note(name, values, iterations, ranks):
            log.append((name, len(values)))
        with tenscope.gather(
            model, ["forward", "blocks.*.forward.h"], every=2, gather_every=4, after_gather=[note], at_end=[note]
        ) as gathered:
            for i in range(6):
                model(torch.full((1 + rank, 4), float(i)))
        if rank == 0:
            h = gathered["blocks.1.forward.h"]
            assert h.iterations == [2, 4, 2, 4, 6, 6] and h.ranks == [0, 0, 1, 1, 0, 1], h
            assert [v.shape for v in h.values] == [(1, 4), (1, 4), (2, 4), (2, 4), (1, 4), (2, 4)], "kept as they are"
            assert h.stack(pad=True).shape == (6, 2, 4)
            assert torch.equal(gathered["forward"].values[1], model(torch.full((1, 4), 3.0)).detach())
            assert log.count(("forward", 4)) == 1 and log.count(("forward", 2)) == 1 and ("forward", 6) in log
            try:
                gathered["nothing"]
            except KeyError as error:
                assert "blocks.0.forward.h" in str(error)
        else:
            assert not gathered.results
        with tenscope.gather(model, "forward.x", hdf5=folder + "/live.h5") as gathered:
            for i in range(3):
                model(torch.full((2 - rank, 4), float(i)))
        """,
    )
    with h5py.File(tmp_path / "live.h5") as file:
        x = file["forward.x"]
        assert x.shape == (18, 2, 4), "the argument and each block's result, of two ranks, three times"
        assert file["forward.x_ranks"][:6].tolist() == [0, 0, 0, 1, 1, 1]
        assert file["forward.x_iterations"][:].tolist() == [1] * 6 + [2] * 6 + [3] * 6
        assert x[0].tolist() == [[0] * 4] * 2 and x[15].tolist() == [[2] * 4, [0] * 4], "rank 1's is padded"


@pytest.mark.parametrize("how", ["lags", "is killed before", "is killed while values are sent"])
def test_a_rank_that_is_gone_is_named(tmp_path, how):
    out, _ = run_ranks(
        tmp_path,
        f"""
        how = {how!r}
        if rank == 1 and how == "is killed while values are sent":
            def die(*_, **__):
                os.kill(os.getpid(), signal.SIGKILL)
            dist.gather_object = die  # it has signed in, and nothing more
        model = Model()
        started = time.time()
        try:
            with tenscope.gather(model, "forward", timeout_s=4):
                if rank == 1 and how == "lags":
                    time.sleep(6)
                if rank == 1 and how == "is killed before":
                    time.sleep(1)
                    os.kill(os.getpid(), signal.SIGKILL)
                model(torch.ones(1, 4))
        except tenscope.Error as error:
            print(error)
            assert time.time() - started < 60
            sys.stdout.flush()
            os._exit(0)
        """,
        codes=(0, 0 if how == "lags" else -signal.SIGKILL),
    )
    assert out.startswith("gathering failed: rank 1 "), out


def test_fsdp_names_are_those_of_the_model(tmp_path):
    run_ranks(
        tmp_path,
        """
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, fully_shard
        from torch.distributed.device_mesh import init_device_mesh
        mesh = init_device_mesh("cpu", (2,))
        model = Model()
        for block in model.blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
        with tenscope.Run(folder, name="fully_shard"), tenscope.trace(model, grads=True, params=True):
            model(torch.ones(2, 4)).sum().backward()
        old = Model()
        old.blocks[0] = FSDP(old.blocks[0], device_id=torch.device("cpu"))
        old = FSDP(old, device_id=torch.device("cpu"))
        with tenscope.Run(folder, name="old"), tenscope.trace(old, grads=True):
            old(torch.ones(2, 4)).sum().backward()
        """,
    )
    for name in ("fully_shard", "old"):
        run = tenscope.open(tmp_path / name)
        called = [(e.name, e.cls) for e in run.rank(1).events(kind="enter")]
        assert called == [
            *(("", "Model"), ("blocks.0", "Block"), ("blocks.0.fc", "Linear"), ("blocks.1", "Block")),
            *(("blocks.1.fc", "Linear"), ("head", "Linear")),
        ], name
        assert run.rank(0)["head.output"].shape == (2, 1)
    sharded = tenscope.open(tmp_path / "fully_shard")
    assert any("head.weight" in e.name for e in sharded.rank(0).events(kind="value") if e.io == "param")
