"""A recording read back in Python: values, events, tables; and by tools that know nothing of tenscope."""

import json
import pickle
import sys

import numpy as np
import pytest
import tenscope

torch = pytest.importorskip("torch") if sys.version_info[:2] == (3, 11) else None
needs_torch = pytest.mark.skipif(torch is None, reason="torch is installed for CPython 3.11 only")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """Three steps: a number, a tensor recorded twice a step, a nest, one tensor with trouble in it."""
    rng = np.random.default_rng(0)
    with tenscope.Run(tmp_path_factory.mktemp("runs")) as run:
        for step in range(3):
            tenscope.record("loss", 1.0 / (step + 1))
            for call in range(2):
                tenscope.record("blocks.0.q", np.full((2, 3), 10 * step + call, "f4"))
            tenscope.record("out", {"logits": rng.normal(size=(4,)), "cache": [{"k": step}, {"k": -step}]})
            if step < 2:
                tenscope.step()
        tenscope.record("bad", np.array([1, np.nan, np.inf]))
        tenscope.record("mark", "text", kind="note")
    return run.path


@pytest.fixture
def run(recorded):
    return tenscope.open(recorded)


def test_indices(run):
    assert run["loss"] == 1 / 3 and run["loss", 1] == 1 / 2 and run["loss", -3] == 1.0
    assert run["blocks.0.q", 1, 0][0, 0] == 10 and run["blocks.0.q", 1][0, 0] == 11 and run["blocks.0.q"][0, 0] == 21
    assert run["loss", 1:].tolist() == [1 / 2, 1 / 3] and run["loss", :-1].tolist() == [1, 1 / 2]
    assert run["out.cache", 2] == [{"k": 2}, {"k": -2}] and run["out"]["cache"][1]["k"] == -2
    assert set(run["out", 1]) == {"logits", "cache"} and run["out", 1]["cache"][0]["k"] == 1


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("los", "did you mean loss"),
        (("loss", 7), "no step 7 of loss, it has 0-2"),
        (("loss", -4), "no step -4"),
        (("blocks.0.q", 1, 5), "no call 5"),
    ],
)
def test_a_missing_key_is_a_key_error_that_helps(run, key, message):
    with pytest.raises(KeyError, match=message) as caught:
        run[key]
    assert isinstance(caught.value, tenscope.Error)


@pytest.mark.parametrize("key", [3, (), ("loss", 1, 2, 3)])
def test_a_wrong_key_is_a_value_error(run, key):
    with pytest.raises(ValueError, match="index a recording"):
        run[key]


def test_a_missing_run_is_a_file_not_found_error(tmp_path):
    with pytest.raises(FileNotFoundError) as caught:
        tenscope.open(tmp_path / "none")
    assert isinstance(caught.value, tenscope.Error) and "none" in str(caught.value)


def test_the_newest_run_of_a_folder(tmp_path):
    for i in range(3):
        with tenscope.Run(tmp_path):
            tenscope.record("i", i)
    assert tenscope.open(tmp_path)["i"] == 2


def test_names_steps_and_events(run):
    assert run.names() == ["loss", "blocks.0.q", "out.logits", "out.cache.0.k", "out.cache.1.k", "bad"]
    assert run.names("out.*.k") == ["out.cache.0.k", "out.cache.1.k"] and run.names("b??") == ["bad"]
    assert run.steps() == [0, 1, 2] and run.steps("bad") == [2] and run.ranks == [0]
    assert len(run) == len(list(run)) and "loss" in run and "lo*" not in run
    assert [e.value for e in run.find("loss")] == [1, 1 / 2, 1 / 3]
    assert [e.call for e in run.find("blocks*", step=1)] == [0, 1]
    assert [e.value for e in run.find(kind="note") if e.name != "source"] == ["text", None]
    seqs = [event.seq for event in run]
    assert seqs == list(range(len(run)))


def test_an_event_tells(run):
    event = run.event("bad")
    assert (
        event.dtype == "float64"
        and event.shape == (3,)
        and event.device == "cpu"
        and event.stored
        and event.writer == "rank-0"
    )
    assert event.stats.nan == 1 and event.stats.pos_inf == 1 and event.stats.mean == 1.0
    assert "1 NaN 1 +Inf" in repr(event) and "test_reader_py.py:" in event.site
    assert abs(event.time.timestamp() - run.path.stat().st_mtime) < 60
    assert run.event("loss").stats is None and run.event("loss").fingerprint is None


def test_tensors_are_read_only_views_that_outlive_the_reader(recorded):
    array = tenscope.open(recorded)["blocks.0.q", 0, 1]
    assert isinstance(array, tenscope.Tensor) and not array.flags.owndata and not array.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 1
    assert array.tolist() == [[1, 1, 1], [1, 1, 1]]
    assert type(array + 1) is np.ndarray and type(array.numpy()) is np.ndarray
    assert type(pickle.loads(pickle.dumps(array))) is np.ndarray


@needs_torch
def test_torch_tensors_are_writable_copies(run):
    tensor = run["blocks.0.q", 0, 1].torch()
    tensor += 1
    assert tensor.tolist() == [[2, 2, 2], [2, 2, 2]] and run["blocks.0.q", 0, 1][0, 0] == 1
    assert run["blocks.0.q", 0, 1].torch(copy=False).tolist() == [[1, 1, 1], [1, 1, 1]]
    assert run["blocks.0.q", 0, 1][:, 1:].torch().shape == (2, 2)


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"])
def test_small_floats_with_and_without_ml_dtypes(tmp_path, monkeypatch, name):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    from tenscope.reading import tensor

    codes = np.arange(256, dtype="u1") if name != "bfloat16" else np.arange(0, 65536, 97, dtype="u2")
    array = codes.view(getattr(ml_dtypes, name))
    with tenscope.Run(tmp_path) as run:
        tenscope.record("x", array)
    back = tenscope.open(run.path)["x"]
    assert back.dtype == array.dtype and back.tensor_dtype == name and (back.bits == codes).all()
    monkeypatch.setattr(tensor, "_ml_dtype", lambda name: None)
    plain = tenscope.open(run.path)["x"]
    assert plain.dtype == np.float32 and plain.tensor_dtype == name and (plain.bits == codes).all()
    np.testing.assert_array_equal(plain, array.astype("f4"))


def test_stack(run):
    assert run.stack("loss").tolist() == [1, 1 / 2, 1 / 3]
    assert run.stack("blocks.0.q", call=0).shape == (3, 2, 3) and run.stack("blocks.0.q", call=0)[2, 0, 0] == 20
    with pytest.raises(tenscope.NotFoundError):
        run.stack("none")


def test_stack_of_different_shapes_is_refused(tmp_path):
    with tenscope.Run(tmp_path) as run:
        tenscope.record("x", np.ones(2))
        tenscope.step()
        tenscope.record("x", np.ones(3))
    with pytest.raises(ValueError, match="shapes differ"):
        tenscope.open(run.path).stack("x")


def test_frame(run):
    pandas = pytest.importorskip("pandas")
    frame = run.frame()
    assert len(frame) == len(run)
    losses = frame[frame.name == "loss"]
    assert losses.value.tolist() == [1, 1 / 2, 1 / 3] and losses.step.tolist() == [0, 1, 2]
    assert frame[frame.name == "bad"].nan.item() == 1 and isinstance(frame.time[0], pandas.Timestamp)


def test_repr_and_html(run):
    text, page = repr(run), run._repr_html_()
    assert str(run.path) in text and "blocks.0.q" in text and "1 NaN 1 +Inf" in text and "closed" in text
    assert "<table " in page and "blocks.0.q" in page and "1 NaN 1 +Inf" in page


def test_repr_of_an_empty_run(tmp_path):
    with tenscope.Run(tmp_path) as run:
        pass
    back = tenscope.open(run.path)
    assert "no" not in back and "0 names" in repr(back) and back._repr_html_()


def test_a_running_run_can_be_read(tmp_path):
    with tenscope.Run(tmp_path) as run:
        tenscope.record("x", np.arange(3))
        back = tenscope.open(run.path)
        assert back["x"].tolist() == [0, 1, 2] and not back.closed
        tenscope.record("x", 4)
    assert back["x"].tolist() == [0, 1, 2] and tenscope.open(run.path)["x"] == 4


def test_damage_is_reported_and_the_rest_is_read(tmp_path):
    with tenscope.Run(tmp_path) as run:
        for i in range(5):
            tenscope.record(f"x{i}", i)
    journal = run.path / "rank-0" / "journal.jsonl"
    data = journal.read_bytes()
    journal.write_bytes(data.replace(b'"value":2', b'"value":7'))
    back = tenscope.open(run.path)
    assert back.names() == ["x0", "x1", "x3", "x4"]
    assert back.problems and back.problems[0].file == journal and "problem" in repr(back)


# Other tools, no tenscope.


def test_the_safetensors_package_opens_every_sealed_segment(tmp_path):
    safetensors = pytest.importorskip("safetensors")
    arrays = {}
    rng = np.random.default_rng(1)
    with tenscope.Run(tmp_path, segment_bytes=1 << 20) as run:
        for i, dtype in enumerate(["f8", "f4", "f2", "i8", "i4", "i2", "i1", "u1", "?", "u8"] * 8):
            arrays[f"x{i}@0#0"] = rng.integers(0, 2, size=rng.integers(0, 40_000)).astype(dtype) + rng.integers(0, 2)
            tenscope.record(f"x{i}", arrays[f"x{i}@0#0"])
    segments = sorted((run.path / "rank-0").glob("*.safetensors"))
    assert len(segments) > 1 and not list((run.path / "rank-0").glob("*.open"))
    found = {}
    for segment in segments:
        with safetensors.safe_open(segment, "numpy") as file:
            found |= {key: file.get_tensor(key) for key in file.keys() if not key.startswith("__pad__")}  # noqa: SIM118
    for key, array in found.items():
        np.testing.assert_array_equal(array, arrays[key])
        assert array.dtype == arrays[key].dtype
    contents = {(array.tobytes(), array.dtype.str) for array in arrays.values() if array.size}
    kept = [(array.tobytes(), array.dtype.str) for array in found.values() if array.size]
    assert set(kept) == contents and len(kept) == len(contents)  # equal bytes once


def test_the_journal_is_json_lines(recorded):
    lines = (recorded / "rank-0" / "journal.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in lines]
    assert [e["value"] for e in events if e.get("name") == "loss"] == [1, 1 / 2, 1 / 3]
    assert json.loads((recorded / "run.json").read_text())["tenscope_format"] == 1
