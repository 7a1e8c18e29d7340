"""Measured noise: `tenscope noise`, and what `diff` makes of it. numpy's neighbours are the judge of what is moved."""

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import noise_family as family  # noqa: E402
import tenscope  # noqa: E402
from forked import record, write_profile  # noqa: E402
from launched import start, write  # noqa: E402
from tenscope import _core  # noqa: E402
from tenscope.launch.moved import Moves, moved  # noqa: E402

TENSCOPE = Path(sys.executable).parent / "tenscope"
SMALL = family.Settings(layers=2, steps=2)


TOLD = {"TENSCOPE_METADATA": "1"}  # runs say how they were made


def run_noise(folder, *words):
    words, env = [TENSCOPE, "noise", *words], os.environ | TOLD
    return subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, timeout=300)


# What is moved.


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16])
def test_numbers_become_their_neighbours(dtype):
    x = torch.randn(10_000).to(dtype)
    before, after = x.numpy(), moved(x, 1, "x").numpy()
    up, down = np.nextafter(before, np.inf, dtype=before.dtype), np.nextafter(before, -np.inf, dtype=before.dtype)
    assert np.all((after == before) | (after == up) | (after == down))
    for kind, share in (((after == before), 0.5), ((after == up), 0.25), ((after == down), 0.25)):
        assert abs(kind.mean() - share) < 0.03
    assert torch.equal(moved(x, 1, "x"), moved(x, 1, "x"))
    assert not torch.equal(moved(x, 1, "x"), moved(x, 2, "x"))
    assert not torch.equal(moved(x, 1, "x"), moved(x, 1, "y"))


def test_zeros_and_what_is_not_finite_stay():
    x = torch.tensor([0.0, -0.0, float("inf"), float("-inf"), float("nan"), torch.finfo(torch.float32).max])
    for seed in range(20):
        after = moved(x, seed, "x")
        assert torch.equal(after[:4], x[:4]) and after[4].isnan() and after[5].isfinite()
    integers = torch.arange(5)
    assert moved(integers, 1, "x") is integers


def test_other_kinds_of_tensors_are_moved():
    half = torch.randn(1000).bfloat16()
    steps = (moved(half, 1, "x").view(torch.int16) - half.view(torch.int16)).abs()
    assert steps.max() == 1
    pairs = torch.randn(1000, dtype=torch.complex64)
    assert 0 < (moved(pairs, 1, "x") - pairs).abs().max() < 1e-6
    across = torch.randn(30, 40).t()
    assert 0 < (moved(across, 1, "x") - across).abs().max() < 1e-6


def test_the_programs_random_numbers_stay_its_own():
    model = torch.nn.Linear(4, 4)
    torch.manual_seed(3)
    expected = torch.rand(3)
    torch.manual_seed(3)
    moved(torch.randn(5, generator=torch.Generator().manual_seed(0)), 1, "x")
    Moves(1).move_inputs((torch.ones(2),), {"y": [torch.ones(2), {"z": torch.ones(3)}]})
    assert torch.equal(torch.rand(3), expected)
    assert model.weight.grad is None


def test_inputs_are_moved_by_position_by_name_and_inside_of_nests():
    x = torch.randn(200, requires_grad=True)
    args, kwargs = Moves(1).move_inputs((x, 3), {"y": [x.detach(), {"z": (x.detach(), None)}]})
    assert args[1] == 3 and kwargs["y"][1]["z"][1] is None
    for other in (args[0], kwargs["y"][0], kwargs["y"][1]["z"][0]):
        assert 0 < (other - x).abs().max() < 1e-6
    args[0].sum().backward()
    assert torch.equal(x.grad, torch.ones(200))


# What diff makes of it.


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    folder = tmp_path_factory.mktemp("noise")
    base = record(folder / "base", family.train, SMALL)
    write_profile(base, family.train, SMALL)
    return base


def compare(base, tmp_path, noise=True, settings=SMALL, **other):
    run = tmp_path / "other"
    if not run.exists():
        record(run, family.train, dataclasses.replace(settings, **other))
    return tenscope.diff(base, run, noise=noise)


@pytest.mark.parametrize(
    "way", [family.HARMLESS[i] for i in (0, 3, 5, 8, 11, 15, 18, -1)], ids=lambda way: "-".join(way.values())
)
def test_correct_rewrites_are_noise(measured, tmp_path, way):
    found = compare(measured, tmp_path, **way)
    assert found.verdict in ("noise", "equal"), str(found)


@pytest.mark.parametrize(
    ("mistake", "delta", "module"), [("bias", 1e-4, "qkv"), ("leak", 2e-6, "attention"), ("residual", 4e-6, "blocks.0")]
)
def test_mistakes_below_the_usual_limits_are_found(measured, tmp_path, mistake, delta, module):
    assert not compare(measured, tmp_path, noise=False, mistake=mistake, delta=delta)
    found = compare(measured, tmp_path)
    assert found.verdict == "differs"
    assert found.first_divergence.module.endswith(module)
    assert found.noise_profiles == [str(measured / "noise.json")]
    assert found.counts.judged_by_profile > 0
    assert "noise.json" in str(found)


def test_a_chaotic_layer_raises_no_alarm_and_hides_nothing_before_it(tmp_path):
    chaos = dataclasses.replace(SMALL, chaos=True, steps=1)
    base = record(tmp_path / "base", family.train, chaos)
    write_profile(base, family.train, chaos)
    assert compare(base, tmp_path, noise=False, settings=chaos, attention="sdpa").verdict == "differs"
    found = compare(base, tmp_path)
    assert found.verdict == "noise"
    assert any("chaos." in note and "hides" in note for note in found.notes), found.notes
    wrong = record(tmp_path / "wrong", family.train, dataclasses.replace(chaos, mistake="bias", delta=1e-4))
    assert tenscope.diff(base, wrong).first_divergence.module.endswith("qkv")


def test_a_profile_is_given_by_its_path_and_ignored_on_request(measured, tmp_path):
    wrong = {"mistake": "leak", "delta": 2e-6}
    run = record(tmp_path / "other", family.train, dataclasses.replace(SMALL, **wrong))
    plain = record(tmp_path / "plain", family.train, SMALL)
    assert not tenscope.diff(plain, run)
    for profile in (measured, measured / "noise.json"):
        assert tenscope.diff(plain, run, noise=profile)
        printed = subprocess.run(
            [TENSCOPE, "diff", plain, run, "--noise", profile, "--json"], capture_output=True, text=True
        )
        assert printed.returncode == 1
        assert json.loads(printed.stdout)["noise_profiles"] == [str(measured / "noise.json")]
    ignored = subprocess.run([TENSCOPE, "diff", measured, run, "--no-noise"], capture_output=True, text=True)
    assert ignored.returncode == 0
    with pytest.raises(tenscope.Error, match=r"nothing\.json"):
        tenscope.diff(plain, run, noise=tmp_path / "nothing.json")


def test_a_damaged_profile_beside_a_run_is_said(measured, tmp_path):
    run = record(tmp_path / "other", family.train, SMALL)
    (run / "noise.json").write_text('{"format": "tenscope noise profile"')
    with pytest.raises(tenscope.Error, match="cannot read a noise profile"):
        tenscope.diff(measured, run)


def test_every_recorded_value_has_a_place(measured):
    profile = _core.NoiseProfile.read(measured / "noise.json")
    run = tenscope.open(measured)
    values = [event for event in run.events(kind="value") if event.value is not None]
    assert len(profile) == len({(e.name, e.io, e.phase, e.step, e.call) for e in values})
    assert all(one.missing == 0 for one in profile.runs)


# The command.


SCRIPT = """
import sys, torch
if "--unseeded" not in sys.argv:
    torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Tanh(), torch.nn.Linear(64, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    loss = model(torch.randn(16, 64)).square().mean()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
"""


def test_noise_records_a_script_measures_it_and_says_so(tmp_path):
    write(tmp_path, SCRIPT, "train.py")
    done = run_noise(tmp_path, "--runs", "2", "--name", "good", "train.py")
    assert done.returncode == 0, done.stderr
    assert "unchanged: the same bits" in done.stdout
    assert "moved by half a unit (seed 2), " in done.stdout
    run = tenscope.open(tmp_path / "runs" / "good")
    places = _core.NoiseProfile.read(run.path / "noise.json").places()
    moved_places = [place for place in places if place["rel_l2"] > 0]
    assert 0 < len(moved_places) < len(places)
    assert all(place["rel_l2"] < 1e-5 for place in moved_places)
    inputs = [place for place in moved_places if place["name"] == "input.0"]
    assert len(inputs) == 2 and all(1e-9 < place["rel_l2"] < 1e-7 for place in inputs)
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["good"]


def test_a_program_that_is_not_deterministic_is_refused(tmp_path):
    write(tmp_path, SCRIPT, "train.py")
    assert start(tmp_path, "-m", "tenscope.run", "--name", "good", "train.py", "--unseeded", env=TOLD).returncode == 0
    done = run_noise(tmp_path, "--json", "runs/good")
    assert done.returncode == 2
    assert "not deterministic" in json.loads(done.stdout)["error"]["message"]
    assert not (tmp_path / "runs" / "good" / "noise.json").exists()
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["good"]


def test_wrong_words_are_told(tmp_path):
    assert "which run" in run_noise(tmp_path).stderr
    assert run_noise(tmp_path, "nothing.py").returncode == 2
    assert "number from 1 on" in run_noise(tmp_path, "--runs", "0", "x.py").stderr
