"""Tensors of which each rank has a part: what is recorded of them, and the whole that is read."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tenscope
from hypothesis import given, settings
from hypothesis import strategies as st

TENSCOPE = Path(sys.executable).with_name("tenscope")


def as_ranks(folder, count, record, name="run"):
    """Records as so many ranks, one after the other."""
    for rank in range(count):
        with tenscope.Run(folder, name=name, rank=rank, world_size=count, join=rank > 0, metadata=False) as run:
            record(run, rank)
    return tenscope.open(folder / name)


WHOLE = np.arange(48, dtype=np.float32).reshape(6, 8)


def test_slices_along_an_axis(tmp_path):
    def record(run, rank):
        run.step(3)
        tenscope.shard("q", WHOLE[:, 2 * rank : 2 * rank + 2], axis=1, run=run, io="output")
        tenscope.shard("k", WHOLE[rank : rank + 1], axis=-2, part=rank, parts=6, run=run)
        run.record("plain", rank)

    with pytest.raises(tenscope.NotFoundError, match="'k' is spread over ranks, and 4 of 6 parts are there"):
        as_ranks(tmp_path, 4, record)["k"]
    run = as_ranks(tmp_path, 4, record, "other")
    np.testing.assert_array_equal(run["q"], WHOLE)
    np.testing.assert_array_equal(run["q", 3, 0], WHOLE)
    np.testing.assert_array_equal(run.rank(2)["q"], WHOLE[:, 4:6])
    event = run.rank(2).event("q")
    assert event.meta["shard"] == {
        "mesh": [4],
        "placements": ["S(1)"],
        "shape": [6, 8],
        "coordinate": [2],
        "offset": [0, 4],
    }
    assert event.io == "output" and event.site.startswith("tests/test_shards.py:")
    assert run["plain"] == 0


def test_parts_of_other_sizes(tmp_path):
    """As torch.chunk cuts 6 rows for 4 ranks: 2, 2, 2 and none."""

    def record(run, rank):
        tenscope.shard("q", WHOLE[2 * rank : 2 * rank + 2], axis=0, shape=WHOLE.shape, run=run)
        begin = [0, 1, 5, 6][rank]
        tenscope.shard("k", WHOLE[begin : [1, 5, 6, 6][rank]], axis=0, shape=WHOLE.shape, offset=(begin, 0), run=run)

    run = as_ranks(tmp_path, 4, record)
    np.testing.assert_array_equal(run["q"], WHOLE)
    np.testing.assert_array_equal(run["k"], WHOLE)


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64", "int64"])
@pytest.mark.parametrize("operation", ["sum", "avg", "max", "min", "product"])
def test_partial_results(tmp_path, operation, dtype):
    parts = np.random.default_rng(0).integers(-4, 5, (3, 4, 5)).astype(dtype)
    run = as_ranks(tmp_path, 3, lambda run, rank: tenscope.shard("o", parts[rank], partial=operation, run=run))
    expected = {"sum": np.sum, "avg": np.mean, "max": np.max, "min": np.min, "product": np.prod}[operation]
    np.testing.assert_allclose(run["o"], expected(parts.astype(np.float64), axis=0), rtol=1e-6)
    assert run.rank(1)["o"].dtype == dtype


@st.composite
def meshes(draw):
    mesh = tuple(draw(st.lists(st.integers(1, 3), min_size=1, max_size=3)))
    shape = tuple(draw(st.lists(st.integers(0, 7), min_size=1, max_size=3)))
    axes = st.integers(0, len(shape) - 1).map(lambda axis: f"S({axis})")
    return mesh, shape, [draw(st.one_of(axes, st.just("R"), st.just("P(sum)"))) for _ in mesh]


def cut(whole, mesh, placements, coordinate):
    """One rank's part, as numpy cuts it. Of a sum the first rank has all and others have nothing."""
    part = whole
    for parts, placement, at in zip(mesh, placements, coordinate, strict=True):
        if placement.startswith("S("):
            axis = int(placement[2:-1])
            size = -(-part.shape[axis] // parts)
            part = part.take(range(min(at * size, part.shape[axis]), min((at + 1) * size, part.shape[axis])), axis)
        elif placement != "R" and at > 0:
            part = np.zeros_like(part)
    return part


@settings(max_examples=60, deadline=None)
@given(meshes())
def test_any_mesh(tmp_path_factory, drawn):
    mesh, shape, placements = drawn
    whole = np.arange(np.prod(shape), dtype=np.float32).reshape(shape) + 1
    ranks = list(np.ndindex(*mesh))

    def record(run, rank):
        part = cut(whole, mesh, placements, ranks[rank])
        tenscope.shard("w", part, mesh=mesh, placements=placements, coordinate=ranks[rank], shape=shape, run=run)

    run = as_ranks(tmp_path_factory.mktemp("mesh"), len(ranks), record)
    np.testing.assert_array_equal(run["w"], whole)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, "give axis="),
        ({"axis": 0, "partial": "sum"}, "give axis="),
        ({"axis": 2}, "no axis 2"),
        ({"axis": 0, "part": 4, "parts": 4}, "parts count from 0"),
        ({"partial": "median"}, "not P\\(median\\)"),
        ({"mesh": (2,)}, "give placements="),
        ({"mesh": (2,), "placements": ["S(0)"]}, "coordinate="),
        ({"mesh": (2,), "placements": ["S(5)"], "coordinate": (0,)}, "not S\\(5\\)"),
        ({"axis": 0, "shape": (5, 8)}, "does not lie in the whole"),
    ],
)
def test_what_does_not_fit_is_an_error(tmp_path, options, reason):
    with tenscope.Run(tmp_path, metadata=False) as run, pytest.raises(tenscope.UsageError, match=reason):
        tenscope.shard("q", WHOLE, run=run, **options)


def test_show(tmp_path):
    as_ranks(tmp_path, 2, lambda run, rank: tenscope.shard("q", WHOLE[:, 4 * rank :][:, :4], axis=1, run=run))

    def show(*options):
        done = subprocess.run([TENSCOPE, "show", tmp_path / "run", "q", *options], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "float32 [6, 8], of 2 parts (mesh [2], S(1)); --rank shows one of them" in show()
    assert "float32 [6, 4]" in show("--rank", "1")
    shown = json.loads(show("--json", "--slice", "0"))
    assert shown["parts"] == 2 and shown["values"] == [0, 1, 2, 3, 4, 5, 6, 7]


def test_show_takes_the_lowest_rank(tmp_path):
    """As `run[name]` does, so that a command without --rank shows what it is said to show."""
    as_ranks(
        tmp_path, 3, lambda run, rank: [run.record("x", np.full(2, 10 * rank + step), step=step) for step in (0, 1)]
    )
    done = subprocess.run([TENSCOPE, "show", tmp_path / "run", "x", "--json"], capture_output=True, text=True)
    assert json.loads(done.stdout)["values"] == [1, 1] and tenscope.open(tmp_path / "run")["x"].tolist() == [1, 1]


def test_sums_whose_masks_are_not_there(tmp_path):
    """As torch names what an embedding with a sharded vocabulary gives, and as earlier versions recorded it."""

    def record(run, rank):
        shard = {"mesh": [2], "placements": ["MaskP(sum, torch.Size([4, 2]), 0)"], "shape": [1, 2]}
        meta = {"shard": {**shard, "coordinate": [rank], "offset": [0, 0]}}
        run.record("tok.output", np.full((1, 2), rank), meta=json.dumps(meta))

    run = as_ranks(tmp_path, 2, record)
    with pytest.raises(tenscope.Error, match=r"'tok.output' is a masked partial sum .* masks were not recorded"):
        run["tok.output"]
    assert run.rank(1)["tok.output"].tolist() == [[1, 1]]
    done = subprocess.run([TENSCOPE, "show", tmp_path / "run", "tok.output"], capture_output=True, text=True)
    assert done.returncode == 2 and "masks were not recorded" in done.stderr


DTENSORS = """
import torch, torch.distributed as dist, tenscope, pickle, sys
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.placement_types import _StridedShard

dist.init_process_group("gloo")
random = torch.Generator().manual_seed(0)
wholes = {}
with tenscope.init("runs", name="dtensors"):
    for mesh in (
        dist.device_mesh.init_device_mesh("cpu", (4,)),
        dist.device_mesh.init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "model")),
    ):
        for i in range(12):
            shape = [int(torch.randint(1, 8, (), generator=random)) for _ in range(3)]
            choices = [Shard(0), Shard(1), Shard(2), Replicate()]
            placements = [choices[int(torch.randint(4, (), generator=random))] for _ in mesh.shape]
            tensor = distribute_tensor(torch.randn(shape, generator=random), mesh, placements)
            name = f"mesh{mesh.ndim}.{i}"
            tenscope.record(name, tensor)
            wholes[name] = tensor.full_tensor().numpy()
    parts = DTensor.from_local(torch.full((3, 2), float(dist.get_rank() + 1)), mesh, [Partial(), Shard(1)])
    tenscope.record("partial", parts)
    wholes["partial"] = parts.full_tensor().numpy()
    for name, placements in {"embedded": [Replicate(), Shard(0)], "embedded_batch": [Shard(0), Replicate()]}.items():
        vocabulary = distribute_tensor(torch.randn(7, 3, generator=random), mesh, [Replicate(), Shard(0)])
        ids = distribute_tensor(torch.randint(7, (4, 5), generator=random), mesh, placements[:1] + [Replicate()])
        embedded = torch.nn.functional.embedding(ids, vocabulary)
        assert "MaskP" in str(embedded.placements[1])
        before = embedded.to_local().clone()
        tenscope.record(name, embedded)
        assert torch.equal(embedded.to_local(), before)
        wholes[name] = embedded.full_tensor().numpy()
if dist.get_rank() == 0:
    pickle.dump(wholes, open("wholes.pkl", "wb"))
dist.destroy_process_group()
"""


def test_dtensors_against_torch(tmp_path):
    """torch puts its own parts together: the judge."""
    pytest.importorskip("torch")
    import pickle

    (tmp_path / "script.py").write_text(DTENSORS)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "4"}
    ranks = [
        subprocess.Popen(
            [sys.executable, "script.py"],
            cwd=tmp_path,
            env={**environment, "RANK": str(rank), "LOCAL_RANK": str(rank), "OMP_NUM_THREADS": "1"},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(4)
    ]
    for rank in ranks:
        _, errors = rank.communicate(timeout=300)
        assert rank.returncode == 0, errors
    run = tenscope.open(tmp_path / "runs" / "dtensors")
    wholes = pickle.loads((tmp_path / "wholes.pkl").read_bytes())
    assert len(wholes) == 27
    for name, whole in wholes.items():
        np.testing.assert_array_equal(run[name], whole, err_msg=name)
    assert run.event("mesh2.0").meta["shard"]["names"] == ["data", "model"]
    assert run.event("embedded_batch").meta["shard"]["placements"] == ["S(0)", "P(sum)"]
