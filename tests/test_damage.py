"""Damage anywhere in a run is found by verify, never crashes a reader, and never gives a wrong value."""

import json
import random
import shutil
import struct

import numpy as np
import pytest
from hand_written_run import HEADER, HandWrittenRun, dump, sealed, tenscope, tenscope_json

TENSORS = {
    "w": np.arange(600, dtype=np.float32).reshape(20, 30),
    "mask": np.arange(7, dtype=np.uint8),
    "v": np.linspace(0, 1, 50),
    "ids": np.array([2**62, -5], np.int64),
}


def write_run(path):
    run = HandWrittenRun(path)
    for step in range(6):
        for name, array in TENSORS.items():
            run.tensor(name, array + array.dtype.type(step), step=step)
        run.add("value", name="loss", step=step, call=0, value=float(step))
        run.add("step", step=step + 1)
    return run


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    path = write_run(tmp_path_factory.mktemp("good") / "run").close()
    assert tenscope_json("verify", path)["runs"][0]["problems"] == []
    return path


def check_reading(path) -> None:
    """Whatever can be read is right; what cannot is told by an error, never by a signal."""
    listing = tenscope("ls", path, "--json", check=None)
    assert listing.returncode in (0, 2), listing.stderr
    if listing.returncode == 2:
        return
    for entry in json.loads(listing.stdout)["names"]:
        name, last = entry["name"], entry["last"]
        if name == "loss":
            assert last["value"] == last["step"]
            continue
        expected = TENSORS[name] + TENSORS[name].dtype.type(last["step"])
        assert last["tensor"]["stats"]["max"] == expected.max()
        shown = tenscope("show", path, name, "--json", check=None)
        assert shown.returncode in (0, 2), shown.stderr
        if shown.returncode == 0:  # 2: its bytes are not there, or damaged
            np.testing.assert_array_equal(np.array(json.loads(shown.stdout)["values"], expected.dtype), expected)


def check_found(path, what) -> None:
    result = tenscope("verify", path, "--json", check=None)
    assert result.returncode == 1, (what, result.returncode, result.stdout, result.stderr)
    problem = json.loads(result.stdout)["runs"][0]["problems"][0]
    assert problem["file"] and problem["reason"] and problem["offset"] >= 0


def pads(path) -> list[range]:
    """What lies between tensors belongs to nobody, nor does the number in a pad's name."""
    data = (path / "rank-0" / "000000.safetensors").read_bytes()
    header = data[8:HEADER]
    result = []
    for key, entry in json.loads(header).items():
        if key.startswith("__pad__"):
            begin, end = entry["data_offsets"]
            at = 8 + header.index(b'"' + key.encode()) + len('"__pad__')
            result += [range(HEADER + begin, HEADER + end), range(at, at + len(key) - len("__pad__"))]
    return result


def files(path):
    return sorted(file.relative_to(path) for file in path.rglob("*") if file.is_file())


def damaged(good, tmp_path, file, change):
    path = tmp_path / "run"
    shutil.rmtree(path, ignore_errors=True)
    shutil.copytree(good, path)
    data = bytearray((path / file).read_bytes())
    (path / file).write_bytes(change(data))
    return path


def test_flipped_bits(good, tmp_path):
    rng = random.Random(1)
    nobody = pads(good)
    for file in files(good):
        size = (good / file).stat().st_size
        for turn in range(25):
            at = rng.randrange(size)
            if file.suffix == ".safetensors" and any(at in pad for pad in nobody):
                continue

            def flip(data, at=at):
                data[at] ^= 1 << rng.randrange(8)
                return data

            path = damaged(good, tmp_path, file, flip)
            check_found(path, f"{file} at {at}")
            if turn % 5 == 0:
                check_reading(path)


def test_cut_files(good, tmp_path):
    rng = random.Random(2)
    for file in files(good):
        size = (good / file).stat().st_size
        for at in [0, 1, size - 1, *(rng.randrange(size) for _ in range(8))]:
            path = damaged(good, tmp_path, file, lambda data, at=at: data[:at])
            check_found(path, f"{file} cut at {at}")
            check_reading(path)


def test_zeroed_pages(good, tmp_path):
    for file in files(good):
        size = (good / file).stat().st_size
        for page in range(0, size, 4096):
            end = min(page + 4096, size)

            def zero(data, page=page, end=end):
                data[page:end] = bytes(end - page)
                return data

            path = damaged(good, tmp_path, file, zero)
            if (path / file).read_bytes() == (good / file).read_bytes():
                continue
            check_found(path, f"{file} page {page}")
            check_reading(path)


def test_missing_files(good, tmp_path):
    for file in files(good):
        path = damaged(good, tmp_path, file, bytes)
        (path / file).unlink()
        result = tenscope("verify", path, check=None)
        assert result.returncode in (1, 2), file
        check_reading(path)


def test_random_garbage_instead_of_files(good, tmp_path):
    rng = random.Random(3)
    for file in files(good):
        for size in (1, 7, 100, 5000):
            path = damaged(good, tmp_path, file, lambda data, size=size: rng.randbytes(size))
            check_found(path, file)
            check_reading(path)


def test_one_damaged_line_costs_one_event(good, tmp_path):
    def flip(data):
        lines = data.split(b"\n")
        data[len(b"\n".join(lines[:10])) + 20] ^= 1
        return data

    path = damaged(good, tmp_path, "rank-0/journal.jsonl", flip)
    assert tenscope_json("ls", path)["events"] == tenscope_json("ls", good)["events"] - 1
    assert "damaged in 1 place" in tenscope("ls", path).stderr


def test_hostile_headers(good, tmp_path):
    """Lengths that lie, in a segment and in the journal."""
    for length in (0, 1, 2**32, 2**63, 2**64 - 1):
        path = damaged(
            good, tmp_path, "rank-0/000000.safetensors", lambda data, n=length: struct.pack("<Q", n) + data[8:]
        )
        check_found(path, length)
        check_reading(path)
    for at in ([0, 2**62, 2400], [2**62, 4096, 2400], [0, 4096, 2**62], [0, 4097, 2400], [0, 0, 2400]):
        run = HandWrittenRun(tmp_path / f"at{at[0]}-{at[1]}-{at[2]}")
        tensor = {"dtype": "float32", "shape": [20, 30], "fp": "0" * 32, "stats": {}, "at": at}
        run.add("value", name="w", step=0, call=0, tensor=tensor)
        shutil.copy(good / "rank-0/000000.safetensors", run.folder)
        path = run.close()
        check_found(path, at)
        assert tenscope("show", path, "w", check=2).stderr


def test_hostile_lines_with_right_checksums(tmp_path):
    lines = [
        {"seq": 0},
        {"seq": -1},
        {"seq": "x"},
        {"seq": 0, "kind": 5},
        {"seq": 0, "kind": "value", "name": 7},
        {"seq": 0, "kind": "value", "tensor": []},
        {"seq": 0, "kind": "value", "tensor": {"shape": [2**40] * 3, "dtype": "int8"}},
        {"seq": 0, "kind": "value", "name": "x", "value": {"float": "maybe"}},
        {"seq": 0, "kind": "value", "value": [1]},
        {"seq": 2**64 - 1, "kind": "note", "step": 2**62},
        {"seq": 0, "kind": "value", "meta": "text"},
    ]
    for number, line in enumerate(lines):
        run = HandWrittenRun(tmp_path / str(number))
        run.lines = [sealed(dump(line))]
        path = run.close()
        for verb in (["ls"], ["verify"], ["tree"], ["show", path, "x"]):
            result = tenscope(*verb, *([path] if len(verb) == 1 else []), check=None)
            assert result.returncode in (0, 1, 2), (line, verb, result.returncode)


def test_a_damaged_run_can_be_repaired_without_loss(tmp_path):
    run = write_run(tmp_path / "run")
    run.lines[2] = run.lines[2].replace(b"value", b"valve", 1)
    path = run.crash(torn=b'{"seq":99,')
    tenscope("repair", path)
    problems = tenscope_json("verify", path, check=1)["runs"][0]["problems"]
    assert all("journal" in problem["file"] for problem in problems)
    check_reading(path)
