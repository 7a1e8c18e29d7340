"""The verbs that read, with NumPy and the safetensors package as judges."""

import json
import os
import pty
import re
import shutil
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
from hand_written_run import HandWrittenRun, dump, sealed, tenscope, tenscope_json, tenscope_program
from safetensors.numpy import load_file

DTYPES = [
    "float64",
    "float32",
    "float16",
    "int64",
    "int32",
    "int16",
    "int8",
    "uint64",
    "uint32",
    "uint16",
    "uint8",
    "bool",
    "complex64",
    "complex128",
]


def sample(dtype: str, shape: tuple, scale: float, seed: int) -> np.ndarray:
    random = np.random.default_rng(seed)
    kind = np.dtype(dtype).kind
    if kind == "c":
        return ((random.normal(size=shape) + 1j * random.normal(size=shape)) * scale).astype(dtype)
    if kind == "b":
        return random.random(shape) < 0.5
    if kind in "iu":
        info = np.iinfo(dtype)
        return (
            random.integers(info.min, info.max, shape, dtype, endpoint=True)
            if scale > 1
            else random.integers(0, 9, shape, dtype)
        )
    return (random.normal(size=shape) * scale).astype(dtype)


def printed(output: str) -> str:
    """The array in the output of show: between the statistics and the histogram."""
    return output.split("\n\n", 1)[1]


@pytest.fixture(scope="module")
def arrays() -> dict[str, np.ndarray]:
    shapes = [(), (1,), (7,), (40,), (3, 4), (2, 3, 4), (2, 0), (50, 60), (12, 5, 30), (3, 2, 2, 2)]
    result = {}
    for i, dtype in enumerate(DTYPES):
        for j, shape in enumerate(shapes):
            with np.errstate(over="ignore"):
                result[f"{dtype}.{j}"] = sample(dtype, shape, [1, 1e-6, 1e5, 100][(i + j) % 4], i * 100 + j)
    result["special.nan"] = np.array([1, np.nan, -np.inf, 2.5], np.float32)
    result["special.all_nan"] = np.array([np.nan, np.nan])
    result["special.inf"] = np.array([np.inf, -np.inf], np.float16)
    result["special.zeros"] = np.zeros((2, 3))
    result["special.negative_zero"] = np.array([-0.0, 0.0, 1e-300])
    result["special.mixed"] = np.array([1e-5, 1, 1e5], np.float32)
    result["special.large"] = np.array([123456789.0, 1e15, 1.5])
    result["special.thirds"] = np.arange(9).reshape(3, 3) / 3
    result["special.half"] = np.array([0.1, 0.2, 65504, 6e-8], np.float16)
    result["special.half_small"] = np.array([0.1, 0.25, 3.14159, 99.9], np.float16)
    result["special.complex"] = np.array([1 + 2j, complex(np.nan, -1), complex(0, np.inf)])
    result["special.one"] = np.array(1 / 3, np.float32)
    result["special.tiny"] = np.array(1.5e-9)
    result["special.complex_one"] = np.array(1 - 2j)
    result["special.exponents"] = np.array([1e-100, 1e100, -3.25])
    return result


@pytest.fixture(scope="module")
def array_run(arrays, tmp_path_factory):
    import hand_written_run

    hand_written_run.HEADER, before = 1 << 16, hand_written_run.HEADER
    run = HandWrittenRun(tmp_path_factory.mktemp("runs") / "arrays")
    for name, array in arrays.items():
        run.tensor(name, array)
    path = run.close()
    hand_written_run.HEADER = before
    return path


def test_values_are_printed_as_numpy_prints_them(arrays, array_run):
    prints_halves_as_we_do = np.lib.NumpyVersion(np.__version__) >= "2.4.0"  # older ones go later to exponents
    wrong = []
    for name, array in arrays.items():
        if array.dtype == np.float16 and not prints_halves_as_we_do:
            continue
        got = printed(tenscope("show", array_run, name).stdout)
        if not got.startswith(str(array) + "\n"):
            wrong.append(f"{name}\n{array!s}\n-- got\n{got.split(chr(10) + chr(10))[0]}")
    assert not wrong, f"{len(wrong)} of {len(arrays)} differ:\n" + "\n\n".join(wrong[:8])


def test_show_json_has_values_statistics_and_histogram(arrays, array_run):
    array = arrays["float32.5"]
    got = tenscope_json("show", array_run, "float32.5")
    np.testing.assert_array_equal(np.array(got["values"], np.float32), array)
    counts, edges = np.histogram(array, bins=len(got["histogram"]["counts"]))
    assert got["histogram"]["counts"] == counts.tolist()
    np.testing.assert_allclose(got["histogram"]["edges"], edges, rtol=1e-6)
    assert got["tensor"]["dtype"] == "float32"
    assert got["tensor"]["shape"] == [2, 3, 4]
    assert got["tensor"]["stats"]["min"] == array.min()


def test_exact_integers(arrays, array_run):
    for name in ("int64.2", "uint64.2"):
        got = tenscope_json("show", array_run, name)
        assert got["values"] == arrays[name].tolist()
        assert got["tensor"]["stats"]["max"] == int(arrays[name].max())


@pytest.mark.parametrize("text", ["0", "-1", ":, 1", "0,:,3:7", "..., 0", "1, ::2, ::-1", "1:1", "5:, 0", "0,0,0", ""])
def test_slices_follow_numpy(arrays, array_run, text):
    array = arrays["int32.5"]
    expected = eval(f"array[{text}]", {"array": array}) if text else array
    got = tenscope_json("show", array_run, "int32.5", "--slice", text)
    np.testing.assert_array_equal(np.array(got["values"]).reshape(expected.shape), expected)
    if expected.size:
        assert got["tensor"]["stats"]["max"] == expected.max()


def test_a_wrong_slice_is_told(array_run):
    for text in ("9", "0,0,0,0", "x", "::0", "1:2:3:4"):
        assert "slice" in tenscope("show", array_run, "int32.5", "--slice", text, check=2).stderr


@pytest.fixture
def run(tmp_path):
    run = HandWrittenRun(tmp_path / "runs" / "one")
    for step in range(3):
        run.tensor("blocks.0.attn.q", np.full((2, 3), step, np.float32), step=step)
        run.tensor("blocks.0.attn.k", np.array([1, np.nan if step == 1 else 0]), step=step)
        run.tensor("big", np.ones(5), step=step, keep=False)
        run.add("value", name="loss", step=step, call=0, value=1 / (step + 1))
        run.add("step", step=step + 1)
    return run.close()


def test_ls_of_a_run(run):
    text = tenscope("ls", run).stdout
    assert "blocks.0.attn.q" in text and "float32" in text and "[2, 3]" in text and "0-2" in text
    assert "NaN 1 @ step 1" in text
    names = {entry["name"]: entry for entry in tenscope_json("ls", run)["names"]}
    assert list(names) == ["blocks.0.attn.q", "blocks.0.attn.k", "big", "loss"]
    assert names["blocks.0.attn.q"]["last"]["tensor"]["stats"]["mean"] == 2
    assert names["blocks.0.attn.k"]["first_nonfinite"] == {"step": 1, "call": 0, "nan": 1, "posinf": 0, "neginf": 0}
    assert names["loss"]["last"]["value"] == 1 / 3
    assert [entry["name"] for entry in tenscope_json("ls", run, "*attn*")["names"]] == [
        "blocks.0.attn.q",
        "blocks.0.attn.k",
    ]
    assert [entry["name"] for entry in tenscope_json("ls", run, "loss", "b?g")["names"]] == ["big", "loss"]
    assert "did you mean 'loss'" in tenscope("ls", run, "big", "lss", check=2).stderr


def test_ls_of_a_folder(run):
    HandWrittenRun(run.parent / "two", started_ns=1).crash()
    runs = tenscope_json("ls", run.parent)["runs"]
    assert [(entry["path"].split("/")[-1], entry["state"]) for entry in runs] == [("two", "crashed"), ("one", "closed")]
    assert runs[1]["events"] == 16


def test_show_takes_the_last_step_or_the_one_asked_for(run):
    assert tenscope_json("show", run, "blocks.0.attn.q")["values"] == [[2.0] * 3] * 2
    assert tenscope_json("show", run, "*.q", "--step", 1)["values"] == [[1.0] * 3] * 2
    assert tenscope_json("show", run, "big")["values"] is None
    assert "not kept" in tenscope("show", run, "big").stdout
    assert [entry["value"] for entry in tenscope_json("show", run, "loss")["values"]] == [1, 0.5, 1 / 3]
    assert tenscope_json("show", run, "blocks.0.attn.k", "--step", 1)["values"] == [1.0, {"float": "nan"}]


def test_wrong_names_get_a_suggestion(run):
    assert "did you mean 'show'" in tenscope("shwo", check=2).stderr
    assert "did you mean 'blocks.0.attn.q'" in tenscope("show", run, "blocks.0.atn.q", check=2).stderr
    assert "did you mean 'one'" in tenscope("ls", run.parent / "oen", check=2).stderr
    assert "matches 2 names" in tenscope("show", run, "blocks.*", check=2).stderr
    assert "steps 0 to 2" in tenscope("show", run, "loss", "--step", 7, check=2).stderr
    error = tenscope_json("show", run, "nothing", check=2)["error"]
    assert error["code"] == "NotFound"


def test_wrong_use_is_exit_code_2(run):
    tenscope(check=2)
    tenscope("show", check=2)
    tenscope("show", run, "loss", "--elephant", check=2)
    assert "did you mean '--step'" in tenscope("show", run, "loss", "--stpe", "1", check=2).stderr
    for words in (["show"], ["show", run, "loss", "--elephant"], ["shwo"], ["completion", "fish"]):
        error = tenscope_json(*words, check=2)["error"]
        assert error["code"] == "InvalidArgument" and error["message"]
    tenscope("--help")
    assert "Examples:" in tenscope("show", "--help").stdout


def test_no_escape_codes_where_there_is_no_terminal(run):
    assert "\033" not in tenscope("ls", run).stdout


def test_verify_and_repair_after_a_crash(tmp_path):
    run = HandWrittenRun(tmp_path / "run")
    run.tensor("mask", np.array([1, 2, 3], np.uint8))
    run.tensor("w", np.arange(4.0), step=1)
    run.tensor("z", np.array([1 + 2j, 3 - 4j]), step=1, call=2)
    path = run.crash(torn=run.lines[0][:40])
    problems = tenscope_json("verify", path, check=1)["runs"][0]["problems"]
    assert len(problems) == 1 and "without having been closed" in problems[0]["reason"]
    assert len(tenscope_json("repair", path)["runs"][0]["actions"]) == 3
    assert tenscope_json("verify", path)["runs"][0]["problems"] == []
    assert tenscope_json("repair", path)["runs"][0]["actions"] == []
    tensors = load_file(path / "rank-0" / "000000.safetensors")
    np.testing.assert_array_equal(tensors["w@1#0"], np.arange(4.0))
    np.testing.assert_array_equal(tensors["z@1#2"], [[1, 2], [3, -4]])
    assert tenscope_json("ls", path)["state"] == "repaired"


def test_export(run, tmp_path):
    out = tmp_path / "q.npy"
    tenscope("export", run, out, "--name", "*.q", "--step", 1)
    np.testing.assert_array_equal(np.load(out), np.full((2, 3), 1, np.float32))
    tenscope("export", run, tmp_path / "all.npz", "--name", "blocks.*")
    with np.load(tmp_path / "all.npz") as archive:
        assert sorted(archive) == sorted(f"blocks.0.attn.{x}@{step}#0" for x in "qk" for step in range(3))
    tenscope("export", run, tmp_path / "s.safetensors", "--name", "blocks.*", "--step", "1:2")
    tensors = load_file(tmp_path / "s.safetensors")
    assert sorted(tensors) == ["blocks.0.attn.k", "blocks.0.attn.q"]
    tenscope("export", run, tmp_path / "folder", "--name", "*.q")
    assert sorted(file.name for file in (tmp_path / "folder").iterdir()) == [
        f"blocks.0.attn.q@{step}#0.npy" for step in range(3)
    ]
    assert "holds one tensor" in tenscope("export", run, out, "--name", "blocks.*", check=2).stderr
    assert "statistics" in tenscope("export", run, out, "--name", "big", "--step", 0, check=2).stderr


def test_every_dtype_is_exported(arrays, array_run, tmp_path):
    tenscope("export", array_run, tmp_path / "all.npz")
    with np.load(tmp_path / "all.npz") as archive:
        for name, array in arrays.items():
            np.testing.assert_array_equal(archive[name], array)
            assert archive[name].dtype == array.dtype


def test_a_newer_format_is_refused(tmp_path):
    run = HandWrittenRun(tmp_path / "run")
    run.close()
    (tmp_path / "run" / "run.json").write_bytes(sealed(dump({"tenscope_format": 2, "started_ns": 1})))
    assert json.loads(tenscope("ls", tmp_path / "run", "--json", check=2).stdout)["error"]["code"] == "Version"


@pytest.fixture
def traced(tmp_path):
    run = HandWrittenRun(tmp_path / "traced")
    run.add("enter", name="blocks.0", step=0, call=0, **{"class": "Block"}, root="GPT#0")
    run.add("change", name="x", step=0, call=0, site="model.py:12", scope="Block.forward", value=5, meta={"old": 3})
    run.add("enter", name="blocks.0.attn", step=0, call=0, **{"class": "Attention"})
    run.tensor("blocks.0.attn.output", np.array([1, np.nan]))
    run.add("exit", name="blocks.0.attn", step=0, call=0, meta={"duration_ns": 1500, "raised": "ValueError: bad"})
    run.add("exit", name="blocks.0", step=0, call=0, meta={"duration_ns": 2_000_000})
    run.add("value", name="loss", step=0, call=0, site="train.py:7", value=0.25)
    run.add("dropped", name="disk full", step=0, value=4)
    return run.close()


def tree(*arguments) -> list[str]:
    """The lines of the tree without their times; two spaces stand for a level."""
    return [line[13:] for line in tenscope("tree", *arguments).stdout.splitlines()]


def test_tree_shows_calls_values_and_changes(traced):
    assert tree(traced) == [
        "→ blocks.0 (Block)",
        "  x: 3 → 5  model.py:12",
        "  → blocks.0.attn (Attention)",
        "    blocks.0.attn.output = float64[2]  min 1  max 1  mean 1  NaN 1",
        "  ← blocks.0.attn  1.5 µs  raised ValueError: bad",
        "← blocks.0  2 ms",
        "loss = 0.25  train.py:7",
        "4 events dropped: disk full",
        "note closed",
    ]


def test_tree_filters_keep_the_calls_around(traced):
    assert tree(traced, "--variable", "x") == ["→ blocks.0 (Block)", "  x: 3 → 5  model.py:12", "← blocks.0  2 ms"]
    assert tree(traced, "--line", "train.py") == ["loss = 0.25  train.py:7"]
    assert tree(traced, "--line", "12") == ["→ blocks.0 (Block)", "  x: 3 → 5  model.py:12", "← blocks.0  2 ms"]
    assert len(tree(traced, "--function", "Attention")) == 5
    assert tree(traced, "--until", "0.0000005") == ["→ blocks.0 (Block)", "← blocks.0  2 ms"]
    events = tenscope_json("tree", traced)["events"]
    assert [event["depth"] for event in events] == [0, 1, 1, 2, 1, 0, 0, 0, 0]
    assert events[1]["meta"] == {"old": 3} and events[1]["value"] == 5


def completions(*words) -> list[str]:
    script = (
        f'tenscope() {{ "{tenscope_program()}" "$@"; }}; source <(tenscope completion bash); '
        f'COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _tenscope; printf "%s\\n" "${{COMPREPLY[@]}}"'
    )
    result = subprocess.run(
        ["bash", "-c", script, "bash", "tenscope", *map(str, words)], capture_output=True, text=True, check=True
    )
    return result.stdout.split()


def zsh_completions(*words) -> list[str]:
    """What the script hands to zsh's own functions, which are replaced."""
    script = (
        f'tenscope() {{ "{tenscope_program()}" "$@"; }}; compdef() {{ }}; source <(tenscope completion zsh); '
        'compadd() { [[ $1 == -a ]] && print -l -- "${(@P)2}" || print -l -- "$@"; }; '
        '_describe() { print -l -- "${(@)${(P)2}%%:*}"; }; _files() { print -l -- files "$@"; }; '
        'words=("$@"); CURRENT=$#; _tenscope'
    )
    result = subprocess.run(
        ["zsh", "-f", "-c", script, "zsh", "tenscope", *map(str, words)], capture_output=True, text=True, check=True
    )
    return result.stdout.split()


def test_bash_completion(run):
    assert "show" in completions("sh")
    assert completions("sho") == ["show"]
    assert "--slice" in completions("show", "--s")
    assert completions("show", run, "blocks.0.attn.") == ["blocks.0.attn.q", "blocks.0.attn.k"]
    assert completions("ls", str(run)[:-1]) == [str(run)]


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
def test_zsh_completion(run):
    assert {"show", "ls", "verify", "export"} <= set(zsh_completions("sh"))
    assert {"--slice", "--step", "--json"} <= set(zsh_completions("show", "--s"))
    assert {"blocks.0.attn.q", "blocks.0.attn.k"} <= set(zsh_completions("show", run, ""))
    assert zsh_completions("ls", "") == ["files", "-/"]
    assert zsh_completions("export", run, "") == ["files"]


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
def test_a_real_zsh_completes(run, tmp_path):
    """As a person has it: the script in a folder of functions, a terminal, and the tabulator."""
    functions = tmp_path / "functions"
    functions.mkdir()
    (functions / "_tenscope").write_text(tenscope("completion", "zsh").stdout)
    (tmp_path / ".zshrc").write_text(
        f"PS1='%% '; fpath=({functions} $fpath); path=({Path(tenscope_program()).parent} $path)\n"
        "autoload -Uz compinit; compinit -u -D; bindkey -e; unsetopt zle_bracketed_paste; print ready\n"
    )
    process, terminal = pty.fork()
    if process == 0:
        os.environ |= {"ZDOTDIR": str(tmp_path), "TERM": "dumb", "COLUMNS": "200"}
        os.execvp("zsh", ["zsh", "-i"])

    def until(wanted: str) -> str:
        seen, end = "", time.monotonic() + 20
        while wanted not in seen:
            assert time.monotonic() < end, seen
            seen += re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]|\r", "", os.read(terminal, 65536).decode())
        return seen

    until("ready")
    for typed, completed in (
        ("tenscope sho", "tenscope show "),
        ("tenscope help sho", "tenscope help show "),
        ("tenscope show --sli", "tenscope show --slice "),
        (f"tenscope show {run} blocks.0.attn.q", "blocks.0.attn.q "),
        (f"tenscope show --step 1 {run} blocks.0.at", "blocks.0.attn."),
        (f"tenscope ls {str(run)[:-1]}", f"{run}/"),
    ):
        os.write(terminal, f"{typed}\t".encode())
        until(completed)
        os.write(terminal, b"\x15")  # the line is emptied
    os.write(terminal, b"exit\n")
    os.close(terminal)
    os.waitpid(process, 0)


def test_verify_draws_its_progress_on_a_terminal_only(run):
    assert tenscope("verify", run).stderr == ""
    master, slave = pty.openpty()
    result = subprocess.run([tenscope_program(), "verify", run], stdout=subprocess.PIPE, stderr=slave, check=False)
    os.close(slave)
    shown = os.read(master, 65536).decode()
    os.close(master)
    assert result.returncode == 0 and b"every checksum" in result.stdout
    assert "checking" in shown and "%" in shown
