"""What a person sees in a terminal: widths, folded names, curves, hostile names, closed pipes, errors, the recorder's
lines."""

import fcntl
import json
import math
import os
import pty
import shutil
import signal
import struct
import subprocess
import sys
import termios
import unicodedata
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
import tenscope
from hand_written_run import tenscope as program
from hand_written_run import tenscope_json, tenscope_program
from tenscope.launch import command

HOSTILE = ["a\nb", "esc\x1b[31mred\x1b[2J", "\x1b]0;title\x07", "\x9b31m", "cr\rover", "rtl\u202eabc", "x" * 5000]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Twelve layers with their weights, a loss, and what the program recorded besides."""
    base = tmp_path_factory.mktemp("runs")
    for name, factor in (("good", 1.0), ("bad", 2.0)):
        with tenscope.Run(base, name=name) as run:
            for step in range(20):
                for layer in range(12):
                    weight = np.full((3, 4), layer + step, np.float32)
                    run.record(f"blocks.{layer}.attn.qkv.weight", weight, io="param")
                    run.record(f"blocks.{layer}.grad_norm", np.array(1 + layer, np.float32))
                run.record("loss", np.array(factor / (step + 1), np.float32))
                run.record("accuracy", math.nan if step == 7 else step / 20)
                run.step()
    return base


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    with tenscope.Run(tmp_path_factory.mktemp("runs"), name="hostile") as run:
        for step in range(3):
            for name in HOSTILE:
                run.record(name, step)
                run.record(name + "t", np.arange(4.0))
            run.step()
    return run.path


def columns(line: str) -> int:
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in line)


def on_terminal(*words, width: int = 80) -> str:
    """What the program writes to a terminal of that width."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, width, 0, 0))
    environment = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES", "NO_COLOR")}
    process = subprocess.Popen(
        [tenscope_program(), *map(str, words)],
        stdout=slave,
        stderr=subprocess.DEVNULL,
        env=environment | {"TERM": "xterm-256color", "LC_ALL": "C.UTF-8"},
    )
    os.close(slave)
    text = b""
    while True:
        try:
            part = os.read(master, 65536)
        except OSError:
            break
        if not part:
            break
        text += part
    os.close(master)
    assert process.wait() in (0, 1)
    return text.decode().replace("\r\n", "\n")


def without_colors(text: str) -> str:
    import re

    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def test_ls_folds_layers_and_shows_numbers_over_steps(model):
    rows = program("ls", model / "good").stdout.splitlines()[3:]
    assert [row.split("  ")[0] for row in rows] == [
        "blocks.[0-11].grad_norm ×12",
        "loss",
        "accuracy",
        "blocks.[0-11].attn.qkv.weight ×12",
        "26 names in 4 rows; --all lists each",
    ]
    assert "█" in rows[1] and "▁" in rows[1] and "×" in rows[2]
    everything = program("ls", model / "good", "--all").stdout
    assert all(f"blocks.{layer}.attn.qkv.weight " in everything for layer in range(12))
    assert len(tenscope_json("ls", model / "good")["names"]) == 26


@pytest.mark.parametrize("width", [40, 80, 140])
def test_everything_fits_the_terminal(model, hostile, width):
    for words in (
        ["ls", model],
        ["ls", model / "good"],
        ["ls", model / "good", "--all"],
        ["ls", hostile],
        ["show", model / "good", "loss"],
        ["show", model / "good", "blocks.0.attn.qkv.weight"],
        ["show", hostile, "x" * 5000],
        ["plot", model / "good", "loss", "blocks.*.grad_norm"],
        ["plot", hostile, "*"],
        ["diff", model / "good", model / "bad"],
        ["check", model / "good"],
    ):
        for line in without_colors(on_terminal(*words, width=width)).splitlines():
            if "tenscope show" not in line and not line.startswith(("[[", " [")):  # to be copied; NumPy's own
                assert columns(line) <= width, (words, line)


def test_nothing_in_a_name_reaches_the_terminal(hostile):
    for words in (
        ["ls", hostile],
        ["tree", hostile],
        ["plot", hostile, "*"],
        ["check", hostile],
        ["show", hostile, r"a\nb"],
    ):
        for text in (without_colors(on_terminal(*words)), program(*words, check=None).stdout):
            bad = [c for c in text if c != "\n" and (unicodedata.category(c) == "Cc" or c == "\u202e")]
            assert not bad, (words, bad)
            assert not any(line.startswith("b") for line in text.splitlines()), words
    error = program("show", hostile, "nothing\x1b[2J", check=2).stderr
    assert "\x1b" not in error


def test_no_name_has_a_colour_of_its_own(tmp_path):
    """Not even one that reports use themselves: what is said of a name is told by the program alone."""
    red = "esc\x1b[31mred"
    for name, value in (("good", 1.0), ("bad", np.nan)):
        with tenscope.Run(tmp_path, name=name) as run:
            run.record(red, np.array([1.0, value]), site=f"{red}.py:1")
            run.record(red + "n", value)
            run.record("after", np.array([value, 2.0]))
    for words in (["ls"], ["tree"], ["plot"], ["check"], ["show"], ["diff"]):
        rest = {"plot": ["*n"], "show": ["after"], "diff": [tmp_path / "good"]}.get(words[0], [])
        text = on_terminal(*words, tmp_path / "bad", *rest)
        assert "\x1b[" in text and "esc\x1b" not in text, words
        assert r"esc\x1b[31mred" in text or words[0] == "show", words


def test_a_file_diff_has_colours(tmp_path):
    values = np.arange(6.0)
    np.savez(tmp_path / "a.npz", w=values, n=values, same=values)
    np.savez(tmp_path / "b.npz", w=values + 1, n=values * np.nan, same=values)
    text = on_terminal("diff", tmp_path / "a.npz", tmp_path / "b.npz")
    assert text.startswith("\x1b[1;31mdifferent: 2 differences in 3 tensors\x1b[0m\n")
    assert "\n\x1b[1mw\x1b[0m\n  \x1b[31mdifferent: 6 of 6" in text
    assert "NaN          \x1b[31m0 in a only, 6 in b only\x1b[0m" in text
    assert "\x1b" not in program("diff", tmp_path / "a.npz", tmp_path / "b.npz", check=1).stdout
    assert on_terminal("diff", tmp_path / "a.npz", tmp_path / "a.npz").startswith("\x1b[1;32midentical: 3 tensors")


def test_a_constant_has_one_label(tmp_path):
    with tenscope.Run(tmp_path, name="run") as run:
        for step in range(5):
            run.record("lr", 0.25, step=step)
    (line,) = [line for line in on_terminal("show", tmp_path / "run", "lr").splitlines() if "┤" in line]
    assert without_colors(line).startswith("0.25 ┤⠉")


def test_very_many_names_are_no_wall(tmp_path):
    with tenscope.Run(tmp_path, name="run") as run:
        for i in range(2000):
            run.record(f"module{i % 37}.part{i}", i)
    lines = without_colors(on_terminal("ls", tmp_path / "run")).splitlines()
    assert len(lines) < 510
    assert lines[-1] == "2000 names in 2000 rows, the first 500 are shown; --all lists each"
    assert len(on_terminal("ls", tmp_path / "run", "--all").splitlines()) > 2000
    assert len(program("ls", tmp_path / "run").stdout.splitlines()) > 2000


def test_no_verb_is_told_all_of_them():
    text = subprocess.run([tenscope_program()], capture_output=True, text=True)
    assert text.returncode == 2 and text.stdout.startswith("tenscope: the flight recorder") and not text.stderr
    assert "tenscope --help lists them" in program("frobnicate", check=2).stderr


def test_options_get_near_suggestions(model):
    error = program("show", "--stp", 3, model / "good", "loss", check=2).stderr
    assert "did you mean '--step'?" in error
    error = program("show", model / "good", "blocks.3.atn", check=2).stderr
    assert "did you mean 'blocks.3.attn.qkv.weight'" in error


def test_wrong_words_get_a_sentence(model, tmp_path):
    good = model / "good"
    (tmp_path / "a.py").write_text("")
    for words, sentence in (
        (["show", good, "loss", "--stepp", "3"], "show: there is no option '--stepp'; did you mean '--step'? ("),
        (["show", good, "loss", "more"], "show: 'more' is one word too many ("),
        (["show", good, "loss", "--step", "x"], "show: --step cannot be 'x' ("),
        (["show", good, "loss", "--step"], "show: --step needs a value behind it ("),
        (["--al"], "there is no option '--al' ("),
        (["show", good, "los"], f"there is no 'los' in {good}; did you mean 'loss'?"),
        (["ls", tmp_path / "a.py"], f"{tmp_path / 'a.py'} is a file, not a run: view, diff and explain take files"),
        (["export", good, tmp_path / "a.py" / "b"], f"Not a directory: {tmp_path / 'a.py' / 'b'}"),
        (["run"], "run: which script? (tenscope run --help tells more)"),
        (["run", "--max-bytes", "lots", "a.py"], "run: --max-bytes is a number of bytes"),
        (["run", "--json", tmp_path / "a.py"], "run: there is no option '--json' ("),
        (["run", "--stat", tmp_path / "a.py"], "run: there is no option '--stat'; did you mean '--stats'? ("),
        (["noise"], "noise: which run, or which script? ("),
    ):
        error = program(*words, check=2).stderr
        assert error.startswith(f"tenscope: {sentence}"), error
    for words in (["noise"], ["zoom", good, model / "bad"], ["repro", good, "--call", "nothing"]):
        assert {*tenscope_json(*words, check=2)["error"]} == {"code", "message"}


def test_a_name_below_runs_is_a_run(model, tmp_path, monkeypatch):
    (tmp_path / "runs").symlink_to(model)
    monkeypatch.chdir(tmp_path)
    for verb in ("diff", "map"):
        assert tenscope_json(verb, "good", "bad", check=None) == tenscope_json(
            verb, "runs/good", "runs/bad", check=None
        )
    (tmp_path / "a.py").write_text("")
    assert "runs/nothing" not in program("run", "--against", "nothing", "a.py", check=2).stderr
    assert "cannot open" not in program("run", "--against", "good", "a.py", check=None).stderr
    assert "how it was made" in program("noise", "good", check=2).stderr


def test_a_long_name_is_no_suggestion(hostile):
    assert "xxx" not in program("show", hostile, "xx", check=2).stderr


def test_a_curve_stays_beside_a_nan(tmp_path):
    with tenscope.Run(tmp_path, name="run") as run:
        for step in range(20):
            run.record("loss", 1 / (step + 1))
            run.step(step + 1)
        run.record("text" * 8, "a text that is not so short")
        run.record("nan", np.array([math.nan, math.inf]))
        run.record("none", np.zeros((0, 3)))
        run.record("", np.ones(2))
    loss = next(line for line in on_terminal("ls", tmp_path / "run").splitlines() if "loss" in line)
    assert "█" in loss and "▁" in loss
    assert "\n''  " in program("ls", tmp_path / "run").stdout
    for verb in (["show", tmp_path / "run", "none"], ["tree", tmp_path / "run", "--variable", "none"]):
        assert "min -" not in program(*verb).stdout


def test_layers_with_one_value_show_it_once(tmp_path):
    with tenscope.Run(tmp_path, name="run") as run:
        for layer in range(3):
            run.record(f"blocks.{layer}.use_cache", True)
    assert "True" in program("ls", tmp_path / "run").stdout.splitlines()[-2]


def test_a_pipe_gets_whole_names(hostile):
    assert "x" * 5000 in program("ls", hostile).stdout


def test_show_draws_a_curve_and_lists_the_values(model):
    text = program("show", model / "good", "loss").stdout
    assert text.startswith("loss  last 0.05  min 0.05 (step 19)  max 1 (step 0)\n")
    assert any("\u2800" < c <= "\u28ff" for c in text) and "step 0" in text
    assert "0.33333334" in text  # the third of the values
    assert "×" in program("show", model / "good", "accuracy").stdout
    assert "1." in program("show", model / "good", "loss", "--step", 0).stdout  # one tensor, as before
    assert tenscope_json("show", model / "good", "loss")["tensor"]["shape"] == []


def test_plot_in_the_terminal_and_as_json(model):
    text = program("plot", model / "good", "loss", "blocks.*.grad_norm", "--against", model / "bad").stdout
    assert "blocks.*.grad_norm  ×12" in text and "1 at step 0" in text and "equal" in text
    document = tenscope_json("plot", model / "good", "loss", "--against", model / "bad", "--step", "3:6")
    first, second = document["charts"][0]["series"]
    assert [point["step"] for point in first["points"]] == [3, 4, 5]
    np.testing.assert_allclose([p["value"] for p in second["points"]], [2 / 4, 2 / 5, 2 / 6], rtol=1e-6)
    assert (first["min"], first["last"]) == (first["points"][-1]["value"],) * 2
    assert document["against"] == str(model / "bad") and document["file"] is None


def test_plot_of_tensors_needs_a_statistic(model):
    assert "--stat" in program("plot", model / "good", "blocks.0.attn.qkv.weight", check=2).stderr
    points = tenscope_json("plot", model / "good", "blocks.3.attn.qkv.weight", "--stat", "mean")["charts"][0]["series"][
        0
    ]
    assert [point["value"] for point in points["points"]] == [3 + step for step in range(20)]
    assert "did you mean 'loss'" in program("plot", model / "good", "los", check=2).stderr


def test_plot_writes_svg_and_png(model, tmp_path):
    words = ("plot", model / "good", "loss", "accuracy", "blocks.*.grad_norm", "--against", model / "bad")
    program(*words, "-o", tmp_path / "a.svg")
    drawing = ElementTree.parse(tmp_path / "a.svg").getroot()
    lines = [e for e in drawing if e.tag.endswith("polyline")]
    assert sum(len(e.get("points").split()) == 20 for e in lines) == 2 * 13  # loss and 12 norms, twice; NaN breaks one
    assert "loss" in [e.text for e in drawing if e.tag.endswith("text")]
    program("plot", model / "good", "loss", "-o", tmp_path / "a.jpg", check=2)
    if shutil.which("dot"):
        program(*words, "-o", tmp_path / "a.png")
        assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_help_and_version():
    assert program("-v").stdout == program("--version").stdout == tenscope.__version__ + "\n"
    text = program("help", "plot").stdout
    assert text == program("plot", "--help").stdout == program("plot", "-h").stdout
    assert text.index("Examples:") < text.index("Usage:") < text.index("Options:")
    assert "did you mean 'plot'" in program("help", "plto", check=2).stderr
    assert program("help").stdout == program("--help").stdout
    assert all(columns(line) <= 80 for line in program("--help", COLUMNS="80").stdout.splitlines())


@pytest.mark.parametrize("verb", ["run", "noise"])
def test_verbs_written_in_python_explain_themselves_like_the_others(verb):
    text = program("help", verb, COLUMNS="80").stdout
    assert text.index("Examples:") < text.index("Usage:") < text.index("Options:")
    assert "  -h, --help " in text and all(columns(line) <= 80 for line in text.splitlines())


def test_every_option_of_run_is_completed():
    told = set(program("completion", "bash").stdout.split("    run) options='")[1].split("'")[0].split())
    assert told == {option for option in command._parser()._option_string_actions if option.startswith("--")}


@pytest.mark.parametrize("ignored", [signal.SIG_IGN, signal.SIG_DFL])
def test_a_closed_pipe_ends_quietly(model, ignored):
    process = subprocess.Popen(
        [tenscope_program(), "tree", model / "good", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGPIPE, ignored),
    )
    process.stdout.read(10)
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait() in (141, -signal.SIGPIPE)
    process.stderr.close()


def test_a_closed_pipe_ends_a_verb_in_python_quietly():
    words = [tenscope_program(), "noise", "--help"]
    buffered = {key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"}
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=buffered) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 141


def test_an_unreadable_run_does_not_end_the_list(model, tmp_path):
    shutil.copytree(model / "good", tmp_path / "runs" / "good")
    newer = tmp_path / "runs" / "newer"
    newer.mkdir()
    (newer / "run.json").write_text('{"tenscope_format": 99}')
    (newer / "rank-0").mkdir()
    (newer / "rank-0" / "journal.jsonl").mkdir()
    text = program("ls", tmp_path / "runs").stdout
    assert "good" in text and "newer" in text


def test_a_part_of_a_run_and_a_broken_one(model, tmp_path):
    error = program("show", model / "good" / "rank-0", "loss", check=2).stderr
    assert f"it is a part of the run {model / 'good'}" in error.replace("\n    ", " ")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "run.json").write_text("{bad")
    told = program("ls", tmp_path / "broken", check=None).stderr
    assert told.count("run.json:") == 1 and told.count(str(tmp_path)) == 1, told


def test_errors_name_the_right_thing(model, tmp_path):
    np.save(tmp_path / "a.npy", np.ones(3))
    for words in ([model / "good", tmp_path / "a.npy"], [tmp_path / "a.npy", model / "good"]):
        error = program("diff", *words, check=2).stderr
        assert f"{model / 'good'} is a run, {tmp_path / 'a.npy'} is a file" in error
    for verb in ("ls", "diff", "map", "zoom", "repro", "check"):
        words = [model / "god"] + ([model / "bad"] if verb in ("diff", "map", "zoom") else [])
        error = program(verb, *words, check=2).stderr
        assert error.count("'good'") == 1, (verb, error)


def test_wrong_arguments_get_a_sentence(tmp_path):
    with tenscope.Run(tmp_path, max_bytes="1 GB", segment_bytes="64 MB") as run:
        for step in (run.step, tenscope.step):
            with pytest.raises(TypeError, match=r"step takes the number of a step, .* not 'a'"):
                step("a")
        assert run.step(np.int64(4)) == 4
    with pytest.raises(tenscope.UsageError, match="max_bytes is a number of bytes"):
        tenscope.Run(tmp_path, max_bytes="a lot")


def test_mistakes_in_python_get_a_sentence(model, tmp_path):
    """Never a signature of C++, an operator's complaint or silence; each says what is wanted."""
    array, good, file = np.ones(3), model / "good", tmp_path / "a.npy"
    np.save(file, array)
    recording = tenscope.open(good)
    with tenscope.Run(tmp_path, name="mistakes") as run:
        for what, wrong, kind in (
            (lambda: tenscope.step(-1), "an int from 0 on, .* not -1", TypeError),
            (lambda: run.record(1.0, "loss"), "the name first, .* a name is no float", TypeError),
            (lambda: run.record(array, "loss"), "a name is no numpy.ndarray", TypeError),
            (lambda: run.record("x", 1, step="a"), "step is an int, not 'a'", TypeError),
            (lambda: tenscope.Run(3), "the folder for runs, not 3", TypeError),
            (lambda: tenscope.Run(tmp_path, rank="0"), "a rank is a number", ValueError),
            (lambda: tenscope.watch("x", depth="2"), "depth is a number, 0 or more, not '2'", TypeError),
            (lambda: tenscope.watch("x", max_changes=-1), "max_changes is a number, 0 or more", TypeError),
            (lambda: tenscope.tree(3), "a function, a class or a module, not 3", TypeError),
            (lambda: tenscope.open(3), "the folder of a run, or of runs, not 3", TypeError),
            (lambda: tenscope.open(file), "this is a file: ", KeyError),
            (lambda: tenscope.open(good / "rank-0"), "it is a part of the run ", KeyError),
            (lambda: tenscope.open(model / "god"), "did you mean '.*good'", KeyError),
            (lambda: recording["loss", "a"], "a step is an int, not 'a'", TypeError),
            (lambda: recording["loss", 1.0], "a step is an int, not 1.0", TypeError),
            (lambda: recording["loss", 1, "b"], "a call is an int, not 'b'", TypeError),
            (lambda: recording["blocks.3.atn"], r"did you mean blocks\.3\.attn\.qkv", KeyError),
            (lambda: recording.find("loss", step="a"), "a step is an int", TypeError),
            (lambda: recording.names(3), "a pattern of names is text, not 3", TypeError),
            (lambda: tenscope.compare(1.0, 1.0, atol="x"), "a tolerance is a number, not 'x'", TypeError),
            (lambda: tenscope.diff(good, file), "is one, .*a.npy, a file, is not", ValueError),
            (lambda: tenscope.diff(array, good), "is one, the ndarray is not", ValueError),
            (lambda: tenscope.diff(good, model / "bad", tolerance="x"), "a tolerance is a number, not 'x'", TypeError),
            (lambda: tenscope.diff(good, model / "bad", map=3), r"a map is a text like .*, not 3", TypeError),
            (lambda: tenscope.diff(good, model / "bda"), "did you mean '.*bad'", KeyError),
            (lambda: tenscope.load(model), "this is a folder; tenscope.open", ValueError),
            (lambda: tenscope.save({"a": array}, "x.npz"), "the path of a file first, not dict", TypeError),
        ):
            with pytest.raises(kind, match=wrong):
                what()
    with pytest.warns(tenscope.RecordingWarning, match="recording is off"):
        off = tenscope.Run(file)
    assert "off, there is no folder" in repr(off)


def test_changes_of_a_name():
    @tenscope.watch("loss", "rate")
    def train():
        loss = 2.0
        rate = 0.1  # noqa: F841
        loss = 1.0
        return loss

    with pytest.raises(KeyError, match="has not changed"):
        train.changes["loss"]
    train()
    assert [change.new for change in train.changes["loss"]] == [2.0, 1.0]
    assert [change.name for change in train.changes[1:]] == ["rate", "loss"]
    with pytest.raises(KeyError, match="did you mean loss"):
        train.changes["los"]
    with pytest.raises(TypeError, match="by their place or by a name"):
        train.changes[1.5]


def test_a_frame_has_the_values_of_tensors_without_axes(model):
    pytest.importorskip("pandas")
    frame = tenscope.open(model / "good").frame()
    losses = frame[frame.name == "loss"].value
    np.testing.assert_allclose(losses.astype(float), [1 / (step + 1) for step in range(20)], rtol=1e-6)
    assert frame[frame.name == "blocks.0.attn.qkv.weight"].value.isna().all()


def test_a_scalar_is_shown_as_its_value(model):
    text = program("tree", model / "good", "--variable", "loss", "--step", 0).stdout
    assert " s  loss = 1.0  float32[]" in text


def test_a_constant_tensor_has_no_histogram(model):
    assert "█" not in program("show", model / "good", "blocks.0.attn.qkv.weight").stdout


def test_the_recorder_says_where_and_how_much(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(
        "import tenscope\ntenscope.init('runs', name='r')\nfor i in range(3): tenscope.record('loss', i)\n"
    )
    environment = os.environ | {"TENSCOPE_QUIET": "0"}
    told = subprocess.run(
        [sys.executable, script], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    ).stderr.splitlines()
    assert told[0] == "tenscope: recording into runs/r"
    events = json.loads(program("ls", tmp_path / "runs" / "r", "--json").stdout)["events"]
    assert told[1].startswith(f"tenscope: recorded {events} events, ")
    assert told[1].endswith("next: tenscope ls runs/r")
    assert len(told) == 2 and " KB, in " in told[1]
    run = [sys.executable, "-m", "tenscope.run", "--name", "s", script]
    told = subprocess.run(run, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True).stderr
    assert "tenscope: recording into runs/s\n" in told and "next: tenscope ls runs/s" in told
    quiet = subprocess.run(
        [sys.executable, script],
        cwd=tmp_path,
        env=os.environ | {"TENSCOPE_QUIET": "1"},
        capture_output=True,
        check=True,
    )
    assert b"recorded" not in quiet.stderr


@pytest.mark.parametrize("launcher", [[], ["-m", "tenscope.run", "--name", "r"]])
def test_the_recorder_says_what_was_lost(tmp_path, launcher):
    script = tmp_path / "train.py"
    script.write_text(
        "import resource, tenscope\ntenscope.init('runs', name='r')\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))\n"
        "for i in range(3): tenscope.record('x', bytes(200_000))\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))\n"
    )
    told = subprocess.run(
        [sys.executable, *launcher, script],
        cwd=tmp_path,
        env=os.environ | {"TENSCOPE_QUIET": "0"},
        capture_output=True,
        text=True,
        check=True,
    ).stderr.splitlines()
    assert ", 3 lost, " in next(line for line in told if line.startswith("tenscope: recorded "))


def test_repro_straight_after_a_run_finds_nothing(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(
        "import os, tenscope\nos.environ['OMP_DYNAMIC'] = 'false'\ntenscope.init()\ntenscope.record('x', 1)\n"
    )
    environment = os.environ | {"TENSCOPE_METADATA": "1"}
    program_words = [tenscope_program(), "run", "--name", "r", script]
    subprocess.run(program_words, cwd=tmp_path, env=environment, capture_output=True, check=True)
    check = subprocess.run(
        [tenscope_program(), "repro", "runs/r", "--check", "--json"], cwd=tmp_path, env=environment, capture_output=True
    )
    assert check.returncode == 0, check.stdout
    assert not any(json.loads(check.stdout).values())
