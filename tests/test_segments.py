"""A run folder can be read without tenscope: safetensors opens every sealed segment, json reads every line."""

import json
import sys

import numpy as np
import pytest
import tenscope

safetensors = pytest.importorskip("safetensors")
torch = pytest.importorskip("torch") if sys.version_info[:2] == (3, 11) else None
needs_torch = pytest.mark.skipif(torch is None, reason="torch is installed for CPython 3.11 only")


def sealed(run):
    run.close()
    paths = sorted(run.path.glob("rank-0/*.safetensors"))
    assert paths and not list(run.path.glob("rank-0/*.open"))
    return paths


def open_all(paths, framework="np"):
    tensors = {}
    for path in paths:
        with safetensors.safe_open(path, framework) as file:
            for key in file.keys():  # noqa: SIM118
                if not key.startswith("__pad__"):
                    assert key not in tensors
                    tensors[key] = file.get_tensor(key)
    return tensors


def test_small_and_large_numpy_arrays(tmp_path):
    generator = np.random.default_rng(0)
    expected = {}
    with tenscope.Run(tmp_path, segment_bytes=1 << 20) as run:
        for i in range(300):
            dtype = [np.float64, np.float32, np.int8, np.uint16, np.bool_][i % 5]
            size = 120_000 if i % 40 == 0 else int(generator.integers(0, 5000))
            array = generator.integers(0, 2 if dtype is np.bool_ else 100, size).astype(dtype)
            run.record(f"x{i}", array)
            if size:
                expected[f"x{i}@0#0"] = array
        tensors = open_all(sealed(run))
    stored = {a.dtype.str + str(a.tobytes()) for a in tensors.values()}
    for key, array in expected.items():
        if key in tensors:
            np.testing.assert_array_equal(tensors[key], array)
        else:  # equal bytes were stored before under another name
            assert array.dtype.str + str(array.tobytes()) in stored


@needs_torch
def test_every_dtype_of_torch(tmp_path):
    names = ["float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz",
             "float8_e5m2fnuz", "int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8", "bool",
             "complex64"]  # fmt: skip
    expected = {}
    with tenscope.Run(tmp_path) as run:
        for name in names:
            dtype = getattr(torch, name)
            expected[name] = torch.randint(0, 2, (3, 5, 7)).to(dtype)
            run.record(name, expected[name])
        paths = sealed(run)
    for path in paths:
        with safetensors.safe_open(path, "pt") as file:
            keys = set(file.keys())
            for name in names:
                if f"{name}@0#0" not in keys:
                    continue
                try:
                    tensor = file.get_tensor(f"{name}@0#0")
                except (KeyError, safetensors.SafetensorError):
                    continue  # a dtype that this version of the package knows in a file, but not as a tensor
                assert torch.equal(tensor.view(torch.uint8), expected.pop(name).view(torch.uint8))
    assert set(expected) <= {"float8_e4m3fnuz", "float8_e5m2fnuz", "complex64"}, "not opened"


def test_complex128_has_one_more_axis(tmp_path):
    array = np.arange(6).reshape(2, 3) * (1 + 2j)
    with tenscope.Run(tmp_path) as run:
        run.record("z", array)
        tensors = open_all(sealed(run))
    np.testing.assert_array_equal(tensors["z@0#0"].view(np.complex128)[..., 0], array)


def test_the_journal_is_plain_json(tmp_path):
    with tenscope.Run(tmp_path) as run:
        run.record('name with "quotes" and \n breaks', 1.5)
        run.record("x", np.arange(4, dtype=np.float32))
    lines = (run.path / "rank-0" / "journal.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in lines]
    assert [event["seq"] for event in events] == list(range(len(events)))
    assert events[0]["name"] == 'name with "quotes" and \n breaks' and events[0]["value"] == 1.5
    assert events[1]["tensor"]["shape"] == [4] and events[1]["tensor"]["stats"]["max"] == 3
    assert events[-1]["kind"] == "note" and events[-1]["name"] == "closed"
