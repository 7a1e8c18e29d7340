"""`tenscope check`: each rule finds what it is for, and a healthy run passes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tenscope
from hand_written_run import HandWrittenRun

TENSCOPE = Path(sys.executable).parent / "tenscope"


def check(run: Path, *options: str) -> tuple[int, dict]:
    done = subprocess.run([TENSCOPE, "check", run, "--json", *options], capture_output=True, text=True)
    return done.returncode, json.loads(done.stdout)


def codes(run: Path, *options: str) -> set[str]:
    code, document = check(run, *options)
    found = {finding["code"] for finding in document["findings"]}
    assert code == (1 if found else 0) and document["healthy"] == (not found)
    return found


class Recording:
    def __init__(self, folder: Path, **options):
        self.run = tenscope.Run(folder.parent, name=folder.name, strict=True, **options)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.run.close()

    def tensor(self, module, tail, value, io, phase="forward", step=0, call=0):
        name = f"{module}.{tail}" if module else tail
        self.run.record(name, value, scope=module, io=io, phase=phase, root="Net#0", step=step, call=call)

    def training(self, steps=3, *, scale=1.0, update=0.1, gradient=1.0):
        rng = np.random.default_rng(0)
        weight = rng.normal(size=(4, 4)).astype(np.float32)
        self.tensor("fc", "weight", weight, "param", "init")
        for step in range(steps):
            x = rng.normal(size=(8, 4)).astype(np.float32)
            self.tensor("fc", "input.0", x, "input", step=step, call=step)
            self.tensor("fc", "output", (x @ weight * scale).astype(np.float32), "output", step=step, call=step)
            grad = (rng.normal(size=(4, 4)) * gradient).astype(np.float32)
            self.tensor("fc", "weight.grad", grad, "grad", "backward", step=step, call=step)
            weight = (weight - update * rng.normal(size=(4, 4))).astype(np.float32)
            self.tensor("fc", "weight", weight, "param", "optimizer", step=step)


def say(run: Path, *options: str) -> tuple[int, str]:
    done = subprocess.run([TENSCOPE, "check", run, *options], capture_output=True, text=True)
    return done.returncode, done.stdout


def test_a_healthy_run(tmp_path):
    with Recording(tmp_path / "run") as recording:
        recording.training()
    assert codes(tmp_path / "run") == set()
    assert say(tmp_path / "run") == (0, "healthy: 13 tensors, 1 parameter over 3 steps looked at, nothing found\n")
    looked_at = check(tmp_path / "run")[1]["looked_at"]
    assert (looked_at["tensors"], looked_at["numbers"], looked_at["parameters"], looked_at["steps"]) == (13, 0, 1, 3)
    assert (looked_at["rules"]["nan"], looked_at["rules"]["no-gradient"]) == (13, 1)
    assert looked_at["rules"]["ranks-out-of-sync"] == 0


def nothing(run):
    pass


def texts_and_notes(run):
    run.record("title", "a run of words")
    run.step()


@pytest.mark.parametrize("record", [nothing, texts_and_notes])
def test_a_run_with_nothing_to_look_at(tmp_path, record):
    with tenscope.Run(tmp_path, name="run", strict=True) as run:
        record(run)
    code, text = say(tmp_path / "run")
    assert code == 2 and text == "nothing was looked at: the run has nothing that a rule is about\n"
    code, document = check(tmp_path / "run")
    assert code == 2 and document["healthy"] is False and document["findings"] == []
    assert set(document["looked_at"]["rules"].values()) == {0}


def test_an_empty_journal(tmp_path):
    with tenscope.Run(tmp_path, name="run", strict=True):
        pass
    (tmp_path / "run" / "rank-0" / "journal.jsonl").write_bytes(b"")
    code, document = check(tmp_path / "run")
    assert code == 2 and document["healthy"] is False and "cut off" in document["missing"][0]


def test_rules_that_have_nothing_to_look_at(tmp_path):
    with Recording(tmp_path / "run") as recording:
        recording.tensor("fc", "output", np.arange(6, dtype=np.float32), "output")
    code, text = say(tmp_path / "run", "--only", "no-gradient", "--only", "ranks-out-of-sync")
    assert code == 2 and "nothing was looked at" in text
    code, text = say(tmp_path / "run", "--only", "no-gradient", "--only", "nan")
    assert code == 0
    assert text == "note: no-gradient had nothing to look at\nhealthy: 1 by nan looked at, nothing found\n"


def test_numbers_are_looked_at(tmp_path):
    with tenscope.Run(tmp_path, name="run", strict=True) as run:
        for loss in (0.5, 0.25):
            run.record("loss", loss)
            run.step()
    assert say(tmp_path / "run") == (0, "healthy: 0 tensors, 2 numbers over 2 steps looked at, nothing found\n")


def test_a_run_that_was_cut_off(tmp_path):
    with Recording(tmp_path / "run") as recording:
        recording.training()
    journal = tmp_path / "run" / "rank-0" / "journal.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(lines[:-3]) + lines[-3][:40])
    code, text = say(tmp_path / "run")
    assert code == 1 and "missing: rank-0 was cut off by a crash" in text
    assert "healthy:" not in text.replace("not known to be healthy:", "")
    code, document = check(tmp_path / "run")
    assert document["healthy"] is False and document["missing"] and document["findings"] == []


def test_a_run_with_a_damaged_line(tmp_path):
    with Recording(tmp_path / "run") as recording:
        recording.training()
    journal = tmp_path / "run" / "rank-0" / "journal.jsonl"
    text = bytearray(journal.read_bytes())
    text[text.index(b"fc.output")] ^= 1
    journal.write_bytes(text)
    code, document = check(tmp_path / "run")
    assert code == 1 and document["healthy"] is False and "damaged" in " ".join(document["missing"])


def test_a_run_with_lost_events(tmp_path):
    run = HandWrittenRun(tmp_path / "run")
    run.tensor("x", np.arange(3.0))
    run.add("dropped", name="the disk is full", step=0, value=17)
    run.add("dropped", name="the disk is full", step=0, value=3)
    code, document = check(run.close())
    assert code == 1 and document["healthy"] is False
    assert document["missing"] == ["rank-0: 20 events were lost: the disk is full"]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"scale": 0.0}, "zero-output"),
        ({"update": 0.0}, "unchanged-parameter"),
        ({"gradient": 0.0}, "no-gradient"),
        ({"gradient": 1e5}, "exploding-gradient"),
        ({"gradient": 1e-12}, "vanishing-gradient"),
    ],
)
def test_training_gone_wrong(tmp_path, options, expected):
    with Recording(tmp_path / "run") as recording:
        recording.training(**options)
    assert codes(tmp_path / "run") == {expected}
    assert codes(tmp_path / "run", "--ignore", expected) == set()


def test_a_nan_is_traced_to_its_origin(tmp_path):
    fine, bad = np.ones((2, 3), np.float32) * [[1, 2, 3]], np.full((2, 3), np.nan)
    with Recording(tmp_path / "run") as recording:
        recording.tensor("attn", "input.0", fine.astype(np.float32), "input")
        recording.tensor("attn.q", "output", fine.astype(np.float32), "output")
        recording.tensor("attn.out", "input.0", bad.astype(np.float32), "input", step=4, call=4)
        recording.tensor("attn.out", "output", bad.astype(np.float32), "output", step=4, call=4)
    _, document = check(tmp_path / "run", "--only", "nan")
    (finding,) = document["findings"]
    assert (finding["module"], finding["name"], finding["step"], finding["count"]) == ("attn", "attn.out.input.0", 4, 2)


def test_a_gradient_that_is_zero_by_mathematics(tmp_path):
    """The bias of attention's keys has no effect on the softmax: its gradient is rounding noise."""
    rng = np.random.default_rng(0)
    with Recording(tmp_path / "run") as recording:
        for name, size in [("k.weight", 1e-3), ("k.bias", 1e-11), ("q.weight", 1e-3), ("q.bias", 1e-3)]:
            module, tail = name.split(".")
            grad = (size * rng.normal(size=16)).astype(np.float32)
            recording.tensor(f"attn.{module}", f"{tail}.grad", grad, "grad", "backward")
    assert codes(tmp_path / "run") == set()


def test_a_parameter_that_rounding_noise_alone_would_change(tmp_path):
    """Its update is lost in rounding: the optimizer leaves it as it is, and nothing is wrong."""
    rng = np.random.default_rng(0)
    weight, bias = rng.normal(size=16).astype(np.float32), rng.normal(size=16).astype(np.float32)
    for size, expected in [(1e-11, set()), (1e-4, {"unchanged-parameter"})]:
        with Recording(tmp_path / str(size)) as recording:
            for step in range(3):
                for name, value, scale in [("weight", weight - np.float32(step), 1e-3), ("bias", bias, size)]:
                    grad = (scale * rng.normal(size=16)).astype(np.float32)
                    recording.tensor("attn.k", f"{name}.grad", grad, "grad", "backward", step=step, call=step)
                    recording.tensor("attn.k", name, value, "param", "optimizer", step=step)
        assert codes(tmp_path / str(size)) == expected


def test_a_gradient_whose_sum_over_ranks_is_zero_by_mathematics(tmp_path):
    """With the sequence spread over ranks each has a gradient of its own; what the optimizer is given is their sum."""
    rng = np.random.default_rng(0)
    with Recording(tmp_path / "run") as recording:
        weight, bias = rng.normal(size=(2, 8)).astype(np.float32)
        recording.tensor("k", "weight", weight, "param", "init")
        recording.tensor("k", "bias", bias, "param", "init")
        for step in range(3):
            for name, phase, size in [
                ("weight", "backward", 1e-3),
                ("bias", "backward", 1e-3),
                ("weight", "optimizer", 1e-3),
                ("bias", "optimizer", 1e-11),
            ]:
                gradient = (rng.normal(size=8) * size).astype(np.float32)
                recording.tensor("k", f"{name}.grad", gradient, "grad", phase, step=step, call=step)
            recording.tensor("k", "weight", weight + step + 1, "param", "optimizer", step=step)
            recording.tensor("k", "bias", bias, "param", "optimizer", step=step)
    assert codes(tmp_path / "run") == set()


def test_the_empty_part_of_a_rank(tmp_path):
    """Of six rows over eight ranks two have none: nothing of them can change."""
    with Recording(tmp_path / "run") as recording:
        recording.training()
        nothing = np.zeros((0, 4), dtype=np.float32)
        recording.tensor("pos", "weight", nothing, "param", "init")
        for step in range(3):
            recording.tensor("pos", "weight.grad", nothing, "grad", "backward", step=step, call=step)
            recording.tensor("pos", "weight", nothing, "param", "optimizer", step=step)
    assert codes(tmp_path / "run") == set()


def test_gradients_that_vanish_on_the_way(tmp_path):
    rng = np.random.default_rng(0)
    with Recording(tmp_path / "run") as recording:
        for layer in range(8):
            for tail in ("weight.grad", "bias.grad"):
                grad = (10.0 ** (-3 * (7 - layer)) * rng.normal(size=16)).astype(np.float32)
                recording.tensor(f"layers.{layer}", tail, grad, "grad", "backward")
    _, document = check(tmp_path / "run")
    (finding,) = document["findings"]
    assert (finding["code"], finding["module"], finding["count"]) == ("vanishing-gradient", "layers.0", 5)
    assert [name.rsplit(".", 2)[0] for name in finding["others"]] == [f"layers.{i}" for i in range(1, 5)]
    assert "the largest in the model is" in finding["message"]


def test_findings_are_counted_and_in_order(tmp_path):
    with Recording(tmp_path / "run") as recording:
        for module in "abcdefgh":
            recording.tensor(module, "output", np.zeros(5, np.float32), "output")
        recording.tensor("i", "output", np.array([np.nan, 1], np.float32), "output")
    _, document = check(tmp_path / "run")
    assert [finding["code"] for finding in document["findings"]] == ["nan", "zero-output"]
    zero = document["findings"][1]
    assert zero["count"] == 8 and zero["others"] == [f"{module}.output" for module in "bcdef"]
    _, text = say(tmp_path / "run")
    assert "  7 more: b.output, c.output, d.output, e.output, f.output, ...\n" in text
    assert text.endswith("2 findings; 9 tensors over 1 step looked at\n")


def test_the_lowest_number_as_a_mask(tmp_path):
    lowest = np.finfo(np.float32).min
    with Recording(tmp_path / "run") as recording:
        recording.tensor("attn", "input.1", np.array([[0, lowest], [0, 0]], np.float32), "input")
        recording.tensor("attn", "output", np.array([[1, 2], [3, lowest]], np.float32), "output")
    assert codes(tmp_path / "run") == set()


def test_infinity_overflow_and_constants(tmp_path):
    with Recording(tmp_path / "run") as recording:
        recording.tensor("a", "output", np.array([1, np.inf, 2], np.float32), "output")
        recording.tensor("b", "output", np.array([1, 60000, 2], np.float16), "output")
        recording.tensor("c", "output", np.full(5, 7, np.float32), "output")
        recording.tensor("mask", "input.0", np.array([0, -np.inf], np.float32), "input")
    assert codes(tmp_path / "run") == {"inf", "overflow", "constant-output"}
    assert codes(tmp_path / "run", "--set", "overflow=0.99", "--set", "inf=1") == {"constant-output"}


def test_dead_units(tmp_path):
    rng = np.random.default_rng(0)
    with Recording(tmp_path / "run") as recording:
        for call in range(3):
            x = np.maximum(rng.normal(size=(16, 8)), 0).astype(np.float32)
            x[:, :6] = 0
            recording.tensor("relu", "output", x, "output", step=call, call=call)
    _, document = check(tmp_path / "run")
    (finding,) = document["findings"]
    assert finding["code"] == "dead-units" and finding["value"] == 0.75
    assert codes(tmp_path / "run", "--set", "dead-units=0.8") == set()


def test_ranks_out_of_sync(tmp_path):
    for rank in (0, 1):
        with Recording(tmp_path / "run", rank=rank, world_size=2) as recording:
            for step in range(3):
                value = np.arange(4, dtype=np.float32) + step + (rank if step == 2 else 0)
                recording.tensor("fc", "weight", value, "param", "optimizer", step=step)
    _, document = check(tmp_path / "run")
    (finding,) = document["findings"]
    assert (finding["code"], finding["name"], finding["step"]) == ("ranks-out-of-sync", "fc.weight", 2)
    done = subprocess.run([TENSCOPE, "diff", tmp_path / "run", "--ranks"], capture_output=True, text=True)
    assert done.returncode == 1 and done.stdout.startswith("the ranks part at step 2: fc.weight on rank 1")


def test_wrong_use(tmp_path):
    with Recording(tmp_path / "run") as recording:
        recording.training()
    for options in (["--only", "nothing"], ["--set", "nan"], ["--set", "nan=x"]):
        done = subprocess.run([TENSCOPE, "check", tmp_path / "run", *options], capture_output=True, text=True)
        assert done.returncode == 2 and done.stderr
    rules = subprocess.run([TENSCOPE, "check", "--rules"], capture_output=True, text=True)
    assert rules.returncode == 0 and "ranks-out-of-sync" in rules.stdout
