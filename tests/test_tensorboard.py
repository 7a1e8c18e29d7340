"""`tenscope export --tensorboard`: the tensorboard package reads back what was recorded; numpy counts the bins."""

import json
import math
import struct
import subprocess
import sys

import numpy as np
import pytest
import tenscope

pytest.importorskip("tensorboard")
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator


def export(run, folder, *arguments, check=0):
    command = [sys.executable, "-m", "tenscope", "export", run.path, "--tensorboard", folder, *arguments]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    assert done.returncode == check, done.stdout + done.stderr
    return done


def read(folder):
    everything = {"scalars": 0, "histograms": 0}
    return EventAccumulator(str(folder), size_guidance=everything).Reload()


def scalars(board, tag):
    return [(event.step, event.value) for event in board.Scalars(tag)]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    random = np.random.default_rng(0)
    with tenscope.Run(tmp_path_factory.mktemp("runs"), name="model") as run:
        for step in range(4):
            run.record("loss", 1 / (step + 3))
            run.record("rate", np.float32(0.1) * step)
            run.record("huge", 1e300 if step == 1 else math.inf if step == 2 else math.nan if step == 3 else 10**400)
            run.record("done", step == 3)
            run.record("big", 10**30)
            run.record("label", "a text")
            x = random.normal(size=(50, 7)).astype(np.float32) * (step + 1)
            if step == 2:
                x[0, :3] = np.nan, np.inf, -np.inf
            run.record("blocks.0.x", x)
            run.record("blocks.0.x", x * 2)
            run.record("constant", np.full(5, 3.0))
            run.record("all_bad", np.full(5, np.nan))
            run.record("integers", np.arange(-10, 20))
            run.record("light", np.ones(3) * step, values="stats")
            run.record("complex", np.array([1 + 2j, 3 - 4j]) * (step + 1))
            run.record("empty", np.zeros(0))
            if step == 1:
                run.record("once", np.arange(10.0))
                for i in range(5):
                    run.record("inner", i * 10)
            run.step()
    return tenscope.open(run.path)


@pytest.fixture(scope="module")
def told(run, tmp_path_factory):
    folder = tmp_path_factory.mktemp("board")
    done = export(run, folder, "--json")
    return folder, json.loads(done.stdout), done.stderr


@pytest.fixture(scope="module")
def board(told):
    return read(told[0] / "model")


def test_scalars(run, board):
    assert scalars(board, "loss") == [(step, np.float32(1 / (step + 3))) for step in range(4)]
    assert scalars(board, "rate") == [(step, np.float32(np.float32(0.1) * step)) for step in range(4)]
    assert scalars(board, "done") == [(0, 0), (1, 0), (2, 0), (3, 1)]
    assert scalars(board, "big")[0] == (0, np.float32(1e30))
    huge = [value for _, value in scalars(board, "huge")]
    assert huge[:3] == [math.inf] * 3 and math.isnan(huge[3]), "a scalar is a float there"
    times = [event.wall_time for event in board.Scalars("loss")]
    assert times == [event.time_ns / 1e9 for event in run.find("loss")]


def test_statistics(run, board):
    for call, tag in enumerate(("blocks.0.x", "blocks.0.x#1")):
        for word in ("mean", "std", "l2"):
            expected = [(e.step, np.float32(getattr(e.stats, word))) for e in run.find("blocks.0.x", call=call)]
            assert scalars(board, f"{word}/{tag}") == expected
        assert scalars(board, f"nonfinite/{tag}") == [(2, 3), (3, 0)]
    assert scalars(board, "std/light") == [(step, 0) for step in range(4)], "also where the bytes were not kept"
    assert scalars(board, "nonfinite/all_bad") == [(step, 5) for step in range(4)]
    absent = {"mean/once", "max/blocks.0.x", "mean/all_bad", "mean/empty", "nonfinite/integers", "label"}
    assert not absent & set(board.Tags()["scalars"])


def test_a_run_without_steps_has_calls_for_an_axis(board):
    assert scalars(board, "inner") == [(call, call * 10) for call in range(5)]


def test_histograms_have_the_counts_of_numpy(run, board):
    names = set(board.Tags()["histograms"])
    assert names == {"blocks.0.x", "blocks.0.x#1", "constant", "integers", "complex", "once"}
    for tag in names:
        name, _, call = tag.partition("#")
        events = run.find(name, call=int(call or 0))
        read_back = board.Histograms(tag)
        assert [event.step for event in read_back] == [event.step for event in events]
        for event, recorded in zip(read_back, events, strict=True):
            x = recorded.value.numpy().ravel()
            x = x.view(np.float64) if np.iscomplexobj(x) else x.astype(np.float64)
            x = x[np.isfinite(x)]
            found = event.histogram_value
            assert (found.min, found.max, found.num) == (x.min(), x.max(), x.size)
            np.testing.assert_allclose([found.sum, found.sum_squares], [x.sum(), (x**2).sum()], rtol=1e-9, atol=1e-9)
            if x.min() == x.max():
                assert found.bucket_limit == [x.max()] and found.bucket == [x.size]
            else:
                counts, edges = np.histogram(x, bins=30)
                assert found.bucket == counts.tolist()
                np.testing.assert_allclose(found.bucket_limit, edges[1:], rtol=1e-12, atol=1e-12)


def test_what_is_told(run, told, board):
    folder, answer, stderr = told
    assert [folder / "model"] == [path.parent for path in (folder / "model").iterdir()]
    assert answer["files"] == [str(path) for path in (folder / "model").iterdir()]
    assert set(answer["scalars"]) == set(board.Tags()["scalars"])
    assert set(answer["histograms"]) == set(board.Tags()["histograms"])
    points = sum(len(board.Scalars(tag)) for tag in answer["scalars"])
    assert answer["points"] == points + sum(len(board.Histograms(tag)) for tag in answer["histograms"])
    assert answer["left_out"] == {
        "it is text or None": 4,
        "the bytes of a tensor were not kept: it has no histogram": 4,
    }
    assert "4 values left out: it is text or None" in stderr


def test_every_record_has_its_checksums(told):
    """As TensorFlow's record_writer documents them, computed here bit by bit."""
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)

    def masked(data):
        crc = 0xFFFFFFFF
        for byte in data:
            crc = crc >> 8 ^ table[(crc ^ byte) & 255]
        crc ^= 0xFFFFFFFF
        return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF

    (file,) = (told[0] / "model").iterdir()
    data, records = file.read_bytes(), 0
    while data:
        length, of_length = struct.unpack("<QI", data[:12])
        message, (of_data,) = data[12 : 12 + length], struct.unpack("<I", data[12 + length : 16 + length])
        assert of_length == masked(data[:8]) and of_data == masked(message)
        data, records = data[16 + length :], records + 1
    assert records == told[1]["points"] + 1


def test_options(run, tmp_path):
    told = export(
        run, tmp_path, "--name", "blocks.*", "--step", "1:3", "--stat", "max,absmax", "--no-histograms"
    ).stdout
    assert told == f"6 scalars and 0 histograms to {tmp_path}\nnext: tensorboard --logdir {tmp_path}\n"
    board = read(tmp_path / "model")
    assert board.Tags()["histograms"] == []
    expected = [(e.step, np.float32(e.stats.abs_max)) for e in run.find("blocks.0.x", call=1) if 1 <= e.step < 3]
    assert scalars(board, "absmax/blocks.0.x#1") == expected and len(expected) == 2


def test_again_replaces(run, tmp_path):
    for _ in range(2):
        export(run, tmp_path, "--name", "loss")
    assert len(list((tmp_path / "model").iterdir())) == 1 and len(read(tmp_path / "model").Scalars("loss")) == 4


def test_ranks_are_runs(tmp_path):
    for rank in range(2):
        with tenscope.Run(tmp_path, name="r", rank=rank, world_size=2) as run:
            for step in range(3):
                run.record("loss", step + rank * 10, step=step)
    run = tenscope.open(tmp_path / "r")
    export(run, tmp_path / "board")
    for rank in range(2):
        assert scalars(read(tmp_path / "board" / "r" / f"rank-{rank}"), "loss") == [
            (s, s + rank * 10) for s in range(3)
        ]
    export(run, tmp_path / "one", "--rank", 1)
    assert scalars(read(tmp_path / "one" / "r"), "loss") == [(0, 10), (1, 11), (2, 12)]


def test_steps_that_go_back_lose_no_point(tmp_path):
    with tenscope.Run(tmp_path, name="r") as run:
        for step in (5, 3, 4, 1):
            run.record("loss", step, step=step)
            run.record("x", np.arange(4.0), step=step)
    export(tenscope.open(run.path), tmp_path / "board")
    board = read(tmp_path / "board" / "r")
    assert scalars(board, "loss") == [(1, 1), (3, 3), (4, 4), (5, 5)] and len(board.Histograms("x")) == 4


def test_mistakes(run, tmp_path):
    assert "did you mean 'loss'" in export(run, tmp_path, "--name", "los", check=2).stderr
    assert "either" in export(run, tmp_path, "a.npz", check=2).stderr
    assert "--stat" in export(run, tmp_path, "--stat", "median", check=2).stderr
    assert not list(tmp_path.iterdir())
