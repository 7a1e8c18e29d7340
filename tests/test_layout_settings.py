"""How the ranks are laid out, among the settings of a run: real gloo processes."""

import os
import socket
import subprocess
import sys

import pytest
import tenscope
import warm_start
from launched import notes

pytest.importorskip("torch")

SCRIPT = """
import os, sys
import torch, torch.distributed as dist
from torch import nn

name = sys.argv[1]
torch.manual_seed(0)
dist.init_process_group("gloo")
init = dist.device_mesh.init_device_mesh
if name == "square":
    mesh = init("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    parts = mesh["dp"], mesh["tp"]  # of that mesh, and none of their own
if name == "line":
    mesh = init("cpu", (4,))
model = nn.Linear(3, 2)
for step in range(2):
    model(torch.ones(5, 3))
    if name == "late" and step == 0:
        mesh = init("cpu", (4, 1), mesh_dim_names=("pp", "dp"))
for variable in ("RANK", "WORLD_SIZE"):
    del os.environ[variable]
dist.destroy_process_group()
"""
ALONE = """
import torch
torch.manual_seed(0)
model = torch.nn.Linear(3, 2)
for step in range(2):
    model(torch.ones(5, 3))
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("layouts")
    for name, ranks in {"square": 4, "line": 4, "late": 4, "alone": 1}.items():
        (folder / "script.py").write_text(SCRIPT if ranks > 1 else ALONE)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        started = []
        for rank in range(ranks):
            env = {"RANK": str(rank), "WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
            env = {**os.environ, **(env if ranks > 1 else {})}
            command = ["-m", "tenscope.run", "--out", folder, "--name", name, "script.py", name]
            started.append(warm_start.start(command, cwd=folder, env=env))
        errors = [process.communicate(timeout=150)[1] for process in started]
        assert not any(process.returncode for process in started), "\n".join(errors)
    return folder


def layouts(runs, name, rank=0):
    return [note.meta for note in notes(tenscope.open(runs / name).rank(rank), "layout")]


def test_what_is_noted(runs):
    for rank in range(4):
        (noted,) = layouts(runs, "square", rank)
        assert noted == {
            "world_size": 4,
            "backend": "gloo",
            "meshes": [{"dp": 2, "tp": 2}],
            "coordinates": [{"dp": rank // 2, "tp": rank % 2}],
        }
        assert layouts(runs, "line", rank)[0]["coordinates"] == [[rank]]
    assert layouts(runs, "alone") == [{"world_size": 1, "backend": "", "meshes": []}]


def test_a_mesh_that_is_made_later(runs):
    before, after = layouts(runs, "late", 3)
    assert before == {"world_size": 4, "backend": "gloo", "meshes": []}
    assert after["meshes"] == [{"pp": 4, "dp": 1}] and after["coordinates"] == [{"pp": 3, "dp": 0}]


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ("square", "square", []),
        ("square", "line", ['layout.meshes: [{"dp":2,"tp":2}] became [[4]]']),
        ("late", "line", ['layout.meshes: [{"pp":4,"dp":1}] became [[4]]']),
        (
            "alone",
            "line",
            [
                "layout.backend: nothing became gloo",
                "layout.meshes: [] became [[4]]",
                "layout.world_size: 1 became 4",
            ],
        ),
    ],
)
def test_another_layout_is_told_and_is_no_difference(runs, a, b, expected):
    diff = tenscope.diff(runs / a, runs / b)
    assert diff.verdict == "equal" and diff.first_divergence is None
    assert [text for text in diff.settings if text.startswith("layout.")] == expected
    done = subprocess.run(
        [os.path.join(os.path.dirname(sys.executable), "tenscope"), "diff", runs / a, runs / b],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0 and all(text in done.stdout for text in expected)
