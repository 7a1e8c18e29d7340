"""A mistake in bfloat16 on two ranks that are laid out alike: each rank is compared with itself, though the rounding
of a half type would excuse more of their whole tensors. Takes seconds, since only real ranks have shown it."""

import os
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")

from hand_written_run import tenscope_json  # noqa: E402

PROGRAM = """
import sys
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.checkpoint import checkpoint

SCALE = float(sys.argv[1])


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(16, 64), nn.Linear(64, 16)

    def forward(self, x):
        return self.down(nn.functional.silu(self.up(x) * SCALE))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.mlp = nn.LayerNorm(16), MLP()

    def forward(self, x):
        return x + self.mlp(self.norm(x))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(16, 4)

    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return self.head(x)


dist.init_process_group("gloo")
torch.manual_seed(0)
net = DDP(Net())
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
generator = torch.Generator().manual_seed(3)
data, labels = torch.randn(32, 16, generator=generator), torch.randint(0, 4, (32,), generator=generator)
for step in range(4):
    at = torch.arange(8 * step + dist.get_rank(), 8 * step + 8, 2)
    with torch.autocast("cpu", torch.bfloat16):
        loss = nn.functional.cross_entropy(net(data[at]), labels[at])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
dist.destroy_process_group()
"""


def test_the_ranks_are_compared_one_by_one(tmp_path):
    (tmp_path / "train.py").write_text(PROGRAM)
    for name, scale in (("good", "1.0"), ("bad", "1.05")):
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
        command += ["-m", "tenscope.run", "--name", name, "train.py", scale]
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        subprocess.run(command, check=True, cwd=tmp_path, env=environment, capture_output=True)
    found = tenscope_json("diff", tmp_path / "runs/good", tmp_path / "runs/bad", check=1)
    assert not any("laid out differently" in note for note in found["notes"]), found["notes"]
    first = found["first_divergence"]
    assert (first["module"], first["step"], first["phase"]) == ("module.blocks.0.mlp", 0, "forward")
