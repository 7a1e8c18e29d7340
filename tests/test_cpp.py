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
from installed import CMAKE, ROOT, install, newest_build, run

pytestmark = pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="once is enough, and torch has every dtype")
torch = pytest.importorskip("torch") if sys.version_info[:2] == (3, 11) else None

CLANG = shutil.which("clang++") or shutil.which("clang++-19")


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
    """Where the library is installed, and the program. It has been moved after it was installed."""
    return install(tmp_path_factory.mktemp("installed"))


def compilers():
    yield pytest.param("", id="default")
    yield pytest.param(CLANG, id="clang", marks=pytest.mark.skipif(not CLANG, reason="clang is not installed"))


@pytest.fixture(scope="module", params=compilers())
def programs(request, prefix, tmp_path_factory):
    """The folder of the programs that were built against an installation."""
    folder = tmp_path_factory.mktemp("consumer")
    compiler = [f"-DCMAKE_CXX_COMPILER={request.param}"] if request.param else []
    run(CMAKE, "-S", ROOT / "tests" / "cpp", "-B", folder, "-DCMAKE_BUILD_TYPE=Debug", *compiler,
        f"-Dtenscope_DIR={run(prefix / 'bin' / 'tenscope', '--cmake-dir').strip()}",
        f"-DTENSCOPE_EXAMPLE={ROOT / 'examples' / 'cpp'}",
        f"-DDLPACK_INCLUDE={Path(torch.__file__).parent / 'include' / 'ATen'}")  # fmt: skip
    run(CMAKE, "--build", folder)
    return folder


def test_the_package_needs_nothing_and_names_no_place_of_this_machine(prefix):
    text = (prefix / "lib" / "cmake" / "tenscope" / "tenscopeConfig.cmake").read_text()
    assert "find_dependency(" not in text and "find_package(" not in text and "pkg_check" not in text
    for place in (ROOT, prefix, prefix.parent / "first", "/usr", "/tmp"):
        assert str(place) not in text
    soname = run("readelf", "-d", prefix / "lib" / "libtenscope.so").partition("soname: [")[2].partition("]")[0]
    assert (prefix / "lib" / soname).exists() and soname.startswith("libtenscope.so.")


def test_the_library_exports_its_own_functions_only(prefix):
    lines = run("nm", "-DC", "--defined-only", prefix / "lib" / "libtenscope.so").splitlines()
    names = [line.split(maxsplit=2)[2] for line in lines]
    names = [name for name in names if " std::" not in name]  # the standard library's templates, of types of ours
    assert "tenscope_open" in names and any(name.startswith("tenscope::Run::record(") for name in names)
    foreign = [name for name in names if not name.startswith(("tenscope_", "tenscope::"))]
    assert {name.rpartition(" ")[2] for name in foreign} <= {"tenscope::Error"}
    inner = ("tenscope::store::", "tenscope::kernels::", "tenscope::compare::", "tenscope::report::")
    assert not [name for name in names if name.startswith(inner) or "::Impl" in name]


def test_the_program_says_where_the_library_is_not(tmp_path):
    alone = shutil.copy(newest_build() / "src" / "cli" / "tenscope", tmp_path)
    result = subprocess.run([alone, "--cmake-dir"], capture_output=True, text=True, check=False)
    assert result.returncode == 2 and not result.stdout
    assert "the C++ library is not installed beside this program" in result.stderr


@pytest.mark.parametrize(("program", "standard"), [("consumer17", "201703"), ("consumer20", "202002")])
def test_a_program_in_either_standard_records_reads_and_compares(programs, tmp_path, program, standard):
    assert run(programs / program, tmp_path).strip() == f"as expected, with __cplusplus {standard}"
    assert tenscope.open(tmp_path / "a")["strided", 0].tolist() == [[2, 6, 10], [4, 8, 12]]


def test_a_program_in_c_records_what_python_reads(programs, tmp_path):
    said = run(programs / "from_c", tmp_path)
    assert said.split() == [tenscope.__version__, str(tmp_path / "c")]
    command("verify", tmp_path / "c")
    back = tenscope.open(tmp_path / "c")
    assert np.array_equal(back["q", 0], np.arange(6.0).reshape(2, 3))
    assert np.array_equal(back["q.transposed", 0], np.arange(6.0).reshape(2, 3).T)
    assert np.array_equal(back["dlpack", 0], np.array([[1, 2], [3, 4]], np.float32))
    assert (back["loss", 7], back["epoch", 7], back["engine", 7]) == (0.5, -3, "C")
    (q,) = [event for event in told(tmp_path / "c") if event.get("name") == "q"]
    assert q["io"] == "output" and q["meta"] == {"inputs": ["x", "blk.0.attn_q.weight"], "op": "MUL_MAT"}


VALGRIND = shutil.which("valgrind")


@pytest.mark.parametrize("judge", [pytest.param([], id="plain"), pytest.param(
    [VALGRIND, "--quiet", "--error-exitcode=99", "--leak-check=full", "--errors-for-leak-kinds=definite"],
    marks=pytest.mark.skipif(not VALGRIND, reason="valgrind is not installed"), id="valgrind")])  # fmt: skip
def test_what_a_caller_in_c_does_wrong_is_told(programs, tmp_path, judge):
    run(*judge, programs / "misuse", tmp_path)
    for name, which in (("one", 1), ("two", 2)):
        command("verify", tmp_path / name)
        assert tenscope.open(tmp_path / name)["which", 0] == which
    (empty,) = [event["tensor"]["shape"] for event in told(tmp_path / "one") if "tensor" in event]
    assert empty == [0, 3]


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
    with tenscope.Run(folder, metadata=False, sources=False) as run:
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
