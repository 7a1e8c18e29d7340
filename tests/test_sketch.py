"""The sketch of every tensor: what two of them say of the distance of two tensors, judged by numpy in float64."""

from __future__ import annotations

import base64
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import tenscope
from hand_written_run import strip_sketches
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

STANDARD_ERROR = 1 / np.sqrt(2 * 64)
WIDTHS = {8: 8, 4: 5, 2: 4, 1: 4}  # bytes kept of a sum, by the size of an element (of a complex one: half of it)


def mixed(block: np.ndarray) -> np.ndarray:
    x = block.astype(np.uint64)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def reference(array: np.ndarray, index: np.ndarray | None = None) -> np.ndarray:
    """As docs/format.md has it, of the elements with these indices in the whole."""
    flat = np.ascontiguousarray(array).reshape(-1)
    index = np.arange(flat.size) if index is None else index.reshape(-1)
    if flat.dtype.kind == "c":
        index = np.stack([2 * index, 2 * index + 1], -1).reshape(-1)
        flat = np.stack([flat.real, flat.imag], -1).reshape(-1)
    values = np.where(np.isfinite(flat), flat, 0).astype(np.float64)
    with np.errstate(over="ignore"):
        signs = mixed(index // 64)
        place = (index % 64).astype(np.uint64) ^ ((signs * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(58))
    is_negative = (signs >> place) & np.uint64(1)
    sums = np.zeros(64)
    np.add.at(sums, place.astype(int), np.where(is_negative == 1, -values, values))
    return sums


def stored(text: str, dtype: np.dtype) -> np.ndarray:
    """What stands in the journal, read with nothing but its documentation."""
    width = WIDTHS[dtype.itemsize // (2 if dtype.kind == "c" else 1)]
    raw = np.frombuffer(base64.b64decode(text), np.uint8).reshape(-1, width)
    filled = np.zeros((len(raw), 8), np.uint8)
    filled[:, 8 - width :] = raw
    return np.pad(filled.view("<f8").reshape(-1), (0, 64 - len(raw)))


def lines(run: Path) -> list[dict]:
    events = [json.loads(line) for line in (run / "rank-0" / "journal.jsonl").read_text().splitlines()]
    return [event for event in events if "tensor" in event]


def record(folder: Path, name: str, *arrays, **more) -> Path:
    with tenscope.Run(folder, name=name, strict=True) as run:
        for array in arrays:
            run.record("x", array, **more)
    return folder / name


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "int64", "int32", "uint8", "bool", "complex64"])
@pytest.mark.parametrize("shape", [(2,), (64,), (65,), (3, 1000), (40, 1, 129)])
def test_it_is_what_the_format_says(tmp_path, dtype, shape):
    random = np.random.default_rng(0)
    array = (random.normal(size=shape) * 50).astype(dtype)
    if array.dtype.kind in "fc":
        array.reshape(-1)[1] = np.nan
    run = record(tmp_path, "run", array, values="stats")
    expected = reference(array)
    text = lines(run)[0]["tensor"]["sketch"]
    read = stored(text, array.dtype)
    size = np.abs(expected).max()
    np.testing.assert_allclose(read, expected, rtol=0, atol=size * (1e-13 if dtype in ("float64", "int64") else 1e-6))
    np.testing.assert_array_equal(next(tenscope.open(run).events("x")).sketch, read)


def test_a_number_has_none_and_an_unchanged_tensor_that_of_the_first(tmp_path):
    weight = np.random.default_rng(0).normal(size=1000).astype(np.float32)
    for values in ("full", "stats"):
        run = record(tmp_path, values, np.array(3, "f4"), weight, np.array(4, "f4"), weight, weight, values=values)
        tensors = [event["tensor"] for event in lines(run)]
        assert "sketch" not in tensors[0] and "sketch" not in tensors[2]
        assert isinstance(tensors[1]["sketch"], str)
        assert [tensors[i]["sketch"] for i in (3, 4)] == [lines(run)[1]["seq"]] * 2
        events = list(tenscope.open(run).events("x"))
        assert events[1].sketch == events[4].sketch and events[0].sketch[0] == 3


def test_large_tensors_are_known_again(tmp_path):
    weight = np.random.default_rng(0).normal(size=100_000).astype(np.float32)
    for values in ("full", "stats"):
        run = record(tmp_path, values, weight, weight + 1, weight, weight, values=values)
        sketches = [event["tensor"]["sketch"] for event in lines(run)]
        assert isinstance(sketches[0], str) and isinstance(sketches[1], str)
        assert sketches[2:] == [lines(run)[0]["seq"]] * 2


STRUCTURES = ["everywhere", "constant", "factor", "column", "row", "block", "few", "strided"]


def changed(x: np.ndarray, how: str, size: float, random: np.random.Generator) -> np.ndarray:
    d = np.zeros_like(x)
    rows, columns = x.shape
    if how == "everywhere":
        d = random.normal(size=x.shape)
    elif how == "constant":
        d[:] = 1
    elif how == "factor":
        d = x.copy()
    elif how == "column":
        d[:, random.integers(columns)] = 1
    elif how == "row":
        d[random.integers(rows)] = random.normal(size=columns)
    elif how == "block":
        d[rows // 4 : rows // 2, columns // 4 : columns // 2] = 1
    elif how == "few":
        d.reshape(-1)[random.integers(x.size, size=5)] = 1
    else:
        d.reshape(-1)[:: int(random.choice([2, 3, 16, 64, 128]))] = 1
    return x + d * (size * np.linalg.norm(x) / np.linalg.norm(d))


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    how=st.sampled_from(STRUCTURES),
    size=st.sampled_from([1e-7, 1e-6, 1e-4, 1e-2, 1e-1]),
    shape=st.sampled_from([(8, 32), (64, 64), (37, 129), (256, 256), (16, 4096)]),
    mean=st.sampled_from([0.0, 3.0]),
    dtype=st.sampled_from(["float64", "float32"]),
    seed=st.integers(0, 10_000),
)
def test_the_distance_is_estimated(tmp_path_factory, how, size, shape, mean, dtype, seed):
    random = np.random.default_rng(seed)
    x = (random.normal(size=shape) + mean).astype(dtype)
    y = changed(x.astype(np.float64), how, size, random).astype(dtype)
    if np.array_equal(x, y):
        return
    folder = tmp_path_factory.mktemp("pair")
    a, b = (
        np.array(tenscope.open(record(folder, name, array, values="stats")).event("x").sketch)
        for name, array in (("a", x), ("b", y))
    )
    true = np.linalg.norm(y.astype(np.float64) - x.astype(np.float64))
    estimated = np.linalg.norm(b - a)
    # A difference in a few elements of one sum may cancel or add up; then the error is not that of normal numbers.
    allowed = 5 if how in ("few", "column", "strided", "row") else 4
    assert abs(estimated / true - 1) < allowed * STANDARD_ERROR + (0.02 if dtype == "float32" and size < 1e-6 else 0)


def test_the_typical_error_is_that_of_64_sums():
    random = np.random.default_rng(1)
    ratios = []
    for _ in range(200):
        d = random.normal(size=10_000)
        ratios.append(np.linalg.norm(reference(d)) / np.linalg.norm(d))
    assert abs(np.mean(np.square(ratios)) - 1) < 0.05
    assert 0.06 < np.std(ratios) < 0.12


def test_shards_add_up(tmp_path):
    whole = np.random.default_rng(2).normal(size=(12, 50)).astype(np.float32)
    index = np.arange(whole.size).reshape(whole.shape)
    total = np.zeros(64)
    for rank in range(2):
        part = (slice(None), slice(25 * rank, 25 * rank + 25))
        with tenscope.Run(tmp_path, name="run", rank=rank, world_size=2, join=rank > 0, strict=True) as run:
            tenscope.shard("q", whole[part], axis=1, run=run, values="stats")
        event = tenscope.open(tmp_path / "run").rank(rank).event("q")
        np.testing.assert_allclose(event.sketch, reference(whole[part], index[part]), atol=1e-7)
        total += event.sketch
    np.testing.assert_allclose(total, reference(whole), atol=1e-6)


def test_equal_parts_of_other_places_have_sketches_of_their_own(tmp_path):
    part = np.random.default_rng(3).normal(size=(12, 25)).astype(np.float32)
    with tenscope.Run(tmp_path, name="run", strict=True) as run:
        for rank in (0, 1, 1):
            tenscope.shard("q", part, axis=1, part=rank, parts=2, run=run)
    first, second, third = tenscope.open(tmp_path / "run").events("q")
    assert first.sketch != second.sketch and second.sketch == third.sketch


def test_another_order_is_told_without_the_bytes(tmp_path):
    x = np.random.default_rng(0).normal(size=(100, 30)).astype(np.float32)
    a, b = record(tmp_path, "a", x, values="stats"), record(tmp_path, "b", x[::-1].copy(), values="stats")
    found = tenscope.diff(a, b)
    assert found.verdict == "differs"
    assert "by sketch: rel. L2 about 1" in str(found)
    metrics = found.first_divergence.metrics
    assert metrics.remark == "by sketch"
    assert abs(metrics.rel_l2 - np.sqrt(2)) < 4 * metrics.rel_l2_error


def test_one_side_may_have_bytes(tmp_path):
    x = np.random.default_rng(0).normal(size=3000).astype(np.float32)
    y = x.copy()
    y[100:200] *= 1.01
    full, stats = record(tmp_path, "full", x), record(tmp_path, "stats", y, values="stats")
    for pair in ((full, stats), (stats, full)):
        found = tenscope.diff(*pair)
        assert found.verdict == "differs" and found.first_divergence.metrics.remark == "by sketch"
    near = record(tmp_path, "near", np.nextafter(x, np.float32(9)), values="stats")
    assert tenscope.diff(full, near).verdict == "noise"


def test_only_the_journals_are_there(tmp_path):
    x = np.random.default_rng(0).normal(size=3000).astype(np.float32)
    runs = [record(tmp_path, name, array) for name, array in (("a", x), ("b", x * np.float32(1.5)), ("c", x + 1e-8))]
    for run in runs:
        for segment in (run / "rank-0").glob("*.safetensors"):
            segment.unlink()
    assert tenscope.diff(runs[0], runs[1]).verdict == "differs"
    assert tenscope.diff(runs[0], runs[2]).verdict == "noise"


def test_one_element_of_many_is_not_overlooked(tmp_path):
    x = np.random.default_rng(0).normal(size=1_000_000).astype(np.float32)
    y = np.nextafter(x, np.float32(9))
    a, b = record(tmp_path, "a", x, values="stats"), record(tmp_path, "b", y, values="stats")
    assert tenscope.diff(a, b).verdict == "noise"
    y[123_456] += 0.001
    assert tenscope.diff(a, record(tmp_path, "c", y, values="stats")).verdict == "differs"


def test_runs_without_sketches_still_open(tmp_path):
    """Of a recording of an earlier version: unknown is what was unknown."""
    x = np.random.default_rng(0).normal(size=100).astype(np.float32)
    a, b = record(tmp_path, "a", x, values="stats"), record(tmp_path, "b", x[::-1].copy(), values="stats")
    strip_sketches(a)
    assert next(tenscope.open(a).events("x")).sketch is None
    for pair in ((a, b), (b, a)):
        assert tenscope.diff(*pair).verdict == "unknown"


torch = pytest.importorskip("torch")


class Net(torch.nn.Module):
    def __init__(self, bug: str | None = None, noise: bool = False):
        super().__init__()
        self.first, self.norm, self.second = torch.nn.Linear(48, 64), torch.nn.LayerNorm(64), torch.nn.Linear(64, 32)
        self.bug, self.noise = bug, noise
        if bug == "eps":
            self.norm.eps = 1e-3

    def forward(self, x):
        h = self.first(x)
        if self.noise:
            h = torch.nextafter(h, torch.full_like(h, 9))
        h = self.norm(h)
        if self.bug == "scale":
            h = h * 1.02
        h = self.second(torch.relu(h))
        return h.flip(0) if self.bug == "flip" else h


def train(folder: Path, name: str, values: str, lr: float = 0.1, **kinds) -> Path:
    torch.manual_seed(0)
    net = Net(**kinds)
    optimizer = torch.optim.SGD(net.parameters(), lr=lr)
    probe = tenscope.trace(net, grads=True, param_grads=True, params=True, values=values)
    with tenscope.init(folder, name=name), probe:
        for _ in range(3):
            loss = net(torch.randn(16, 48)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            tenscope.step()
    return folder / name


@pytest.mark.parametrize("kind", [{"bug": "eps"}, {"bug": "scale"}, {"bug": "flip"}, {"lr": 0.12}])
def test_statistics_find_the_same_first_divergence_as_bytes(tmp_path, kind):
    for values in ("full", "stats"):
        train(tmp_path, f"good-{values}", values)
        train(tmp_path, f"bad-{values}", values, **kind)
    for sides in (("good", "bad"), ("bad", "good")):
        full, stats = (
            tenscope.diff(tmp_path / f"{sides[0]}-{values}", tmp_path / f"{sides[1]}-{values}")
            for values in ("full", "stats")
        )
        assert full.verdict == stats.verdict == "differs"
        x, y = full.first_divergence, stats.first_divergence
        assert (x.module, x.name, x.io, x.step, x.phase) == (y.module, y.name, y.io, y.step, y.phase)


def test_noise_is_noise_by_statistics_alone(tmp_path):
    a, b = train(tmp_path, "a", "stats"), train(tmp_path, "b", "stats", noise=True)
    for pair in ((a, b), (b, a)):
        found = tenscope.diff(*pair)
        assert found.verdict == "noise" and found.counts.noise > 0 and found.counts.unknown == 0


def test_a_copied_run_needs_nothing_else(tmp_path):
    a = train(tmp_path, "a", "stats")
    shutil.copytree(a, tmp_path / "copy")
    assert tenscope.diff(a, tmp_path / "copy").verdict == "equal"
