"""tenscope as a C++ library: installed, found by another CMake project, and recording what Python records."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tenscope
from hand_written_run import tenscope as command

pytestmark = pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="once is enough, and torch has every dtype")
torch = pytest.importorskip("torch") if sys.version_info[:2] == (3, 11) else None

ROOT = Path(__file__).resolve().parent.parent


def newest_build():
    """The newest build tree without sanitizers that has the libraries."""

    def is_plain(build):
        return "TENSCOPE_SANITIZE:STRING=\n" in (build / "CMakeCache.txt").read_text()

    libraries = (ROOT / "build").glob("*/src/report/libtenscope_report.a")
    builds = sorted(libraries, key=lambda path: path.stat().st_mtime)
    builds = [path.parents[2] for path in builds if is_plain(path.parents[2])]
    if not builds:
        pytest.fail("the libraries are not built (cmake --build build/release)")
    return builds[-1]


def run(*words):
    result = subprocess.run(list(map(str, words)), capture_output=True, text=True, timeout=300, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    """The folder of the programs that were built against an installation."""
    folder = tmp_path_factory.mktemp("consumer")
    cmake = shutil.which("cmake") or str(Path(sys.executable).with_name("cmake"))
    run(cmake, "--install", newest_build(), "--component", "development", "--prefix", folder / "prefix")
    run(cmake, "-S", ROOT / "tests" / "cpp", "-B", folder / "build", "-DCMAKE_BUILD_TYPE=Debug",
        f"-DCMAKE_PREFIX_PATH={folder / 'prefix'}", f"-DTENSCOPE_EXAMPLE={ROOT / 'examples' / 'cpp'}")  # fmt: skip
    run(cmake, "--build", folder / "build")
    return folder / "build"


def test_the_example_records_a_run(programs, tmp_path):
    said = run(programs / "example" / "mlp", tmp_path, 5)
    assert "events in" in said and "loss" in said
    command("verify", tmp_path)
    back = tenscope.open(tmp_path)
    assert back.steps("loss") == list(range(5))
    assert back["first.output", 4].shape == (64, 32)
    assert back["loss", 4] < back["loss", 0]


def contents(seed, dtype, count):
    size = count * torch.empty(0, dtype=dtype).element_size()
    words = np.uint64(seed) + np.arange((size + 7) // 8, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    if dtype == torch.bool:
        words &= np.uint64(0x0101010101010101)
    return torch.from_numpy(words.view(np.uint8)[:size].copy()).view(dtype)


DTYPES = ["float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz",
          "float8_e5m2fnuz", "int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8", "bool",
          "complex64", "complex128"]  # fmt: skip


def record_from_python(folder):
    with tenscope.Run(folder, metadata=False) as run:
        for seed, name in enumerate(DTYPES):
            tensor = contents(seed, getattr(torch, name), 105)
            run.record(name, tensor.view(3, 5, 7))
            run.record(f"{name}.transposed", tensor.view(3, 5, 7).permute(2, 1, 0))
            run.record(f"{name}.scalar", tensor[0])
            run.record(f"{name}.empty", tensor[:0].view(0, 4))
        for step in range(1, 4):
            run.step(step)
            large = contents(step << 40, torch.float32, 3_000_000).view(1000, 3000)
            run.record("large", large)
            run.record("large", large)
            run.record("loss", 0.5 / step)
            run.record("epoch", step)
            run.record("phase", "train")
    return run.path


def told(folder):
    """What two recordings of the same must share: all but times, threads, places in the source and in the files."""
    (journal,) = folder.glob("**/journal.jsonl")
    events = [json.loads(line) for line in journal.read_text().splitlines()]
    for event in events:
        event.get("tensor", {}).pop("at", None)
        for name in ("t", "th", "site", "crc", "sum"):
            event.pop(name, None)
    return events


def test_the_same_tensors_from_cpp_and_python_are_equal_recordings(programs, tmp_path):
    run(programs / "same_recording", tmp_path / "cpp")
    python = record_from_python(tmp_path / "python")
    expected = told(python)
    assert len([event for event in expected if event["kind"] == "value"]) == 4 * len(DTYPES) + 3 * 5
    assert all({"dtype", "shape", "fp", "stats"} <= set(event["tensor"]) for event in expected if "tensor" in event)
    assert told(tmp_path / "cpp") == expected
    assert not tenscope.diff(tmp_path / "cpp", python)
