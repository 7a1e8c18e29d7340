"""A run folder can be read without tenscope: safetensors opens every sealed segment, json reads every line."""

import collections
import json
import pathlib
import subprocess
import sys
import threading

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
    with tenscope.Run(tmp_path, sources=False) as run:
        run.record('name with "quotes" and \n breaks', 1.5)
        run.record("x", np.arange(4, dtype=np.float32))
    lines = (run.path / "rank-0" / "journal.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in lines]
    assert [event["seq"] for event in events] == list(range(len(events)))
    assert events[0]["name"] == 'name with "quotes" and \n breaks' and events[0]["value"] == 1.5
    assert events[1]["tensor"]["shape"] == [4] and events[1]["tensor"]["stats"]["max"] == 3
    assert events[-1]["kind"] == "note" and events[-1]["name"] == "closed"


def test_large_arrays_from_threads_of_which_some_are_known(tmp_path):
    """The place of a large array that was stored already is given back, in any order; no segment may show it."""
    known = np.arange((9 << 20) + 5, dtype=np.uint8)
    expected = {}
    together = threading.Barrier(3)

    def record_some(run, thread):
        generator = np.random.default_rng(thread)
        calls = collections.Counter()
        for i in range(24):
            name = f"t{thread}.{'other' if i % 8 == 7 else 'large'}"
            if i % 3 == 2 and i % 8 != 7:  # two new ones in a row: the next is taken for new, too
                array = known
                together.wait()
            elif i % 8 == 7:
                array = generator.integers(0, 255, (64 if i < 10 else 3000, 1 + i), np.uint8).T
            else:
                array = generator.integers(0, 255, (8 << 20) + 3 * thread + i, np.uint8)
            run.record(name, array)
            expected[f"{name}@0#{calls[name]}"] = array
            calls[name] += 1

    with tenscope.Run(tmp_path, segment_bytes=128 << 20) as run:
        run.record("known", known)
        threads = [threading.Thread(target=record_some, args=(run, thread)) for thread in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        tensors = open_all(sealed(run))
    assert len(expected) == 72
    for key, array in expected.items():
        np.testing.assert_array_equal(tensors["known@0#0"] if array is known else tensors[key], array)
    for event in tenscope.open(run.path).events(kind="value"):
        if event.name != "known":
            np.testing.assert_array_equal(event.value, expected[f"{event.name}@{event.step}#{event.call}"])
    assert subprocess.run([tenscope_program(), "verify", run.path]).returncode == 0


def tenscope_program():
    return pathlib.Path(sys.executable).with_name("tenscope")


def test_no_name_and_step_has_a_call_twice(tmp_path):
    with tenscope.Run(tmp_path) as run:
        for i in range(3):
            run.record("v", i, step=5)
            run.record("v", i)
            run.record("v", np.full(3, i), step=2)
            run.step()
        run.step(5)
        run.record("v", 9)
    lines = map(json.loads, (run.path / "rank-0" / "journal.jsonl").read_text().splitlines())
    calls = [(event["step"], event["call"]) for event in lines if event["kind"] == "value"]
    assert sorted(calls) == [(0, 0), (1, 0), (2, 0), (2, 1), (2, 2), (2, 3), (5, 0), (5, 1), (5, 2), (5, 3)]


def test_a_budget_keeps_what_fits(tmp_path):
    huge, tiny = np.zeros(4 << 20, np.uint8), np.arange(40, dtype=np.uint8)
    with pytest.warns(match="does not fit"), tenscope.Run(tmp_path, max_bytes=1 << 20) as run:
        run.record("huge", huge)
        run.record("tiny", tiny)
        tensors = open_all(sealed(run))
    np.testing.assert_array_equal(tensors.pop("tiny@0#0"), tiny)
    assert not tensors
