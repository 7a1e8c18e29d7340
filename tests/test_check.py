"""`tenscope check`: each rule finds what it is for, and a healthy run passes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tenscope

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


def test_a_healthy_run(tmp_path):
    with Recording(tmp_path / "run") as recording:
        recording.training()
    assert codes(tmp_path / "run") == set()


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
