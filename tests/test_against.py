"""A run compared with a recording while it is made. The judge: `tenscope diff` of two full recordings."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import tenscope
import warm_start
from launched import notes, write

torch = pytest.importorskip("torch")

SCRIPT = """
import sys, torch
flaw, steps = sys.argv[1], int(sys.argv[2])
torch.manual_seed(0)
class Block(torch.nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.up, self.down, self.factor = torch.nn.Linear(16, 64), torch.nn.Linear(64, 16), factor
    def forward(self, x):
        a, b = "the program's own a", "and b"
        h = self.up(x) * self.factor
        return x + self.down(torch.relu(h))
model = torch.nn.Sequential(Block(1.0), Block(1.001 if flaw == "factor" else 1.0), torch.nn.Linear(16, 4))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.011 if flaw == "rate" else 0.01)
for step in range(steps):
    x = torch.randn(8, 16)
    loss = torch.nn.functional.cross_entropy(model(x), torch.arange(8) % 4)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("step", step)
print("done")
"""


def run(folder, name, *words, flaw="none", steps=3, text=None):
    """With a text, that is the program's input."""
    command = ["-m", "tenscope.run", "--name", name, *words, "script.py", flaw, steps]
    if text is None:
        return warm_start.run(command, cwd=folder)
    return subprocess.run(
        [sys.executable, "-W", "ignore", *map(str, command)],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        input=text,
        text=True,
        timeout=120,
    )


def segment_bytes(folder):
    return sum(path.stat().st_size for path in folder.rglob("*.safetensors"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """With a recording, runs/good, and runs/bad, a full one of the program with a wrong factor."""
    folder = tmp_path_factory.mktemp("against")
    write(folder, SCRIPT)
    for name, flaw in (("good", "none"), ("bad", "factor")):
        assert run(folder, name, flaw=flaw).returncode == 0
    return folder


def test_an_equal_program_runs_to_its_end_and_stores_no_tensor(folder):
    done = run(folder, "same", "--against", "runs/good")
    assert (done.returncode, done.stdout.split()[-1]) == (0, "done"), done.stderr
    good, same = tenscope.open(folder / "runs/good"), tenscope.open(folder / "runs/same")
    tensors = [event for event in same if event.fingerprint is not None]
    assert len(tensors) > 100
    assert not any(event.stored for event in tensors)
    assert segment_bytes(folder / "runs/same") == 0 < segment_bytes(folder / "runs/good")
    values = [event for event in good if event.kind == "value"]
    count = f"{len(values)} of {len(values)} tensors and values of the reference"
    assert f"equal: every tensor agrees bit for bit; {count}" in done.stderr
    event = same.event("0.up.output", 2)
    np.testing.assert_allclose(event.stats.mean, good["0.up.output", 2].mean(), rtol=1e-5)
    assert tenscope.diff(good, same).verdict == "equal"


def test_it_stops_where_the_runs_part_as_the_diff_of_full_recordings_says(folder):
    done = run(folder, "stopped", "--against", "runs/good", flaw="factor")
    assert done.returncode == 1
    assert "done" not in done.stdout
    assert "step 0" not in done.stdout, "the step did not end"
    full = tenscope.diff(folder / "runs/good", folder / "runs/bad").first_divergence
    found = tenscope.diff(folder / "runs/good", folder / "runs/stopped", prefix=True).first_divergence
    assert (full.module, full.name, full.step) == ("1", "1.down.input.0", 0)
    for member in ("module", "name", "io", "step", "call", "phase", "cause", "confidence", "metrics", "last_agreeing"):
        assert getattr(found, member) == getattr(full, member), member
    assert done.stderr.startswith("first divergence: 1.down.input.0 in 1 (step 0, call 0, forward)"), done.stderr
    assert "tenscope diff --prefix runs/good runs/stopped" in done.stderr
    stopped = tenscope.open(folder / "runs/stopped")
    assert stopped.state == "closed"
    assert len(notes(stopped, "stopped")) == 1
    assert stopped.event("1.down.input.0", 0).stored
    assert not stopped.event("1.up.output", 0).stored


def test_keep_going_reports_at_the_end_what_the_diff_says(folder):
    done = run(folder, "kept", "--against", "runs/good", "--keep-going", flaw="factor")
    assert (done.returncode, done.stdout.split()[-1]) == (1, "done"), done.stderr
    assert "tenscope: the run parts from the reference at step 0, forward, 1.down.input.0; it goes on" in done.stderr
    kept = tenscope.diff(folder / "runs/good", folder / "runs/kept").json
    full = tenscope.diff(folder / "runs/good", folder / "runs/bad").json
    assert kept["counts"] == full["counts"]
    for member in ("show", "event_b"):
        kept.pop(member, None), full.pop(member, None)
    assert kept["origins"] == full["origins"]
    first = str(tenscope.diff(folder / "runs/good", folder / "runs/kept")).splitlines()[:3]
    assert "\n".join(first) in done.stderr


def test_another_learning_rate_is_judged_by_bytes_that_only_the_reference_has(folder):
    done = run(folder, "rate", "--against", "runs/good", flaw="rate")
    assert done.returncode == 1
    found = tenscope.diff(folder / "runs/good", folder / "runs/rate", prefix=True).first_divergence
    assert (found.cause, found.step, found.phase) == ("update", 0, "optimizer")
    assert found.update.ratio == pytest.approx(1.1, rel=1e-3)
    assert found.tensors == 10, "all parameters of the step had been recorded"
    assert not tenscope.open(folder / "runs/rate").event("0.up.weight.grad", 0).stored


def test_pdb_stops_in_the_frame_with_both_tensors(folder):
    lines = ["p a.shape, b.shape", "p (b / a)[a != 0].median().item()", "p h.shape"]
    lines += ["a.dtype", "b.dtype", "p frame.f_locals['a']"]
    done = run(folder, "pdb", "--against", "runs/good", "--pdb", flaw="factor", text="\n".join([*lines, "q", ""]))
    assert done.returncode == 1
    assert "done" not in done.stdout
    assert "-> return x + self.down(torch.relu(h))" in done.stdout
    answers = [line.removeprefix("(tenscope) ") for line in done.stdout.splitlines() if line.startswith("(tenscope) ")]
    assert answers[0] == "(torch.Size([8, 64]), torch.Size([8, 64]))"
    assert float(answers[1]) == pytest.approx(1.001, rel=1e-4)
    assert answers[2:5] == ["torch.Size([8, 64])", "torch.float32", "torch.float32"]
    assert answers[5] == "\"the program's own a\""
    assert len(notes(tenscope.open(folder / "runs/pdb"), "stopped")) == 1


def test_pdb_goes_on(folder):
    done = run(folder, "pdb-on", "--against", "runs/good", "--pdb", flaw="factor", steps=2, text="n\nc\n")
    assert (done.returncode, done.stdout.split()[-1]) == (1, "done"), done.stdout
    assert done.stdout.count("(tenscope) ") == 2


def test_a_shorter_program_is_a_difference_unless_it_is_meant(folder):
    done = run(folder, "short", "--against", "runs/good", steps=2)
    assert (done.returncode, done.stdout.split()[-1]) == (1, "done")
    assert "the second run ends" in done.stderr, done.stderr
    done = run(folder, "meant", "--against", "runs/good", "--prefix", steps=2)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--against", "runs/nowhere"], "runs/nowhere"),
        (["--against", "script.py"], "script.py"),
        (["--against", "s3://bucket/run"], "at a URL"),
        (["--against", "runs/good", "--replace", "--name", "good"], "--replace would remove the run"),
        (["--against", "runs/good", "--pdb", "--keep-going"], "not allowed with"),
        (["--keep-going"], "go with --against"),
    ],
)
def test_what_cannot_be_compared_is_refused_before_the_program_runs(folder, words, reason):
    done = run(folder, "refused", *words)
    assert done.returncode == 2
    assert reason in done.stderr
    assert not (folder / "runs/refused").exists()
    assert (folder / "runs/good").exists()


# In Python.


def model(factor=1.0):
    torch.manual_seed(0)
    made = torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.ReLU(), torch.nn.Linear(64, 4))
    with torch.no_grad():
        made[2].weight.mul_(factor)
    return made


def train(made, steps=3, noise=0.0):
    torch.manual_seed(1)
    optimizer = torch.optim.SGD(made.parameters(), lr=0.1)
    for _ in range(steps):
        made(torch.randn(4, 8) * (1 + noise)).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()


def record(folder, name, made, values="full", **options):
    with (
        tenscope.Run(folder, name=name),
        tenscope.trace(made, params=True, grads=True, param_grads=True, values=values),
    ):
        train(made, **options)
    return folder / name


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    return record(tmp_path_factory.mktemp("python"), "good", model())


def test_a_block_that_agrees(good, tmp_path):
    with tenscope.against(good) as against:
        record(tmp_path, "same", model())
    assert against.diff.verdict == "equal"
    assert not against.diff
    assert set(against.counts) == {"equal", "noise", "differs", "unknown", "not_in_reference"}
    assert against.counts["equal"] == against.diff.counts.compared
    assert sum(against.counts.values()) == against.counts["equal"]


def test_a_block_that_differs_raises_when_the_call_is_over(good, tmp_path):
    made = model()
    calls = []
    made.register_forward_hook(lambda *_: calls.append(1))
    with torch.no_grad():
        made[2].bias.add_(0.25)
    with pytest.raises(tenscope.Divergence) as caught, tenscope.against(good) as against:
        record(tmp_path, "other", made)
    assert isinstance(caught.value, (tenscope.Error, AssertionError))
    assert len(calls) <= 1
    assert caught.value.diff is against.diff
    assert against.diff.first_divergence.name == "2.bias"
    assert str(caught.value).startswith("first divergence: parameter 2.bias")


def test_what_is_recorded_by_hand_raises_at_its_record(tmp_path):
    def program(values):
        for step, value in enumerate(values):
            tenscope.record("x", np.full(50, value, np.float32))
            tenscope.record("loss", value)
            reached.append(step)
            tenscope.step()

    reached = []
    with tenscope.Run(tmp_path, name="good"):
        program([1.0, 2.0, 3.0])
    reached.clear()
    with pytest.raises(tenscope.Divergence) as caught, tenscope.against(tmp_path / "good"):
        tenscope.init(tmp_path, name="bad")
        program([1.0, 2.5, 3.0])
    assert reached == [0]
    assert (caught.value.diff.first_divergence.name, caught.value.diff.first_divergence.step) == ("x", 1)
    assert tenscope.current() is None
    assert tenscope.open(tmp_path / "bad").closed
    with tenscope.against(tmp_path / "good", stop=False) as against:
        tenscope.init(tmp_path, name="kept")
        program([1.0, 2.5, 3.0])
    assert reached == [0, 0, 1, 2]
    assert (against.diff.verdict, against.counts["differs"], against.counts["equal"]) == ("differs", 2, 4)
    stored = {event.step: event.stored for event in tenscope.open(tmp_path / "kept").find("x")}
    assert stored == {0: False, 1: True, 2: False}


def test_a_number_that_differs_raises_too(tmp_path):
    with tenscope.Run(tmp_path, name="good"):
        tenscope.record("loss", 1.5)
    against = tenscope.against(tmp_path / "good")
    with pytest.raises(tenscope.Divergence), against, tenscope.Run(tmp_path, name="other"):
        tenscope.record("loss", 1.75)
    assert against.counts["differs"] == 1


def test_noise_is_kept_and_no_divergence(good, tmp_path):
    with tenscope.against(good) as against:
        noisy = record(tmp_path, "noisy", model(), noise=2e-7)
    assert against.diff.verdict == "noise"
    assert against.counts["noise"] > 10
    assert tenscope.open(noisy).event("2.output", 0).stored


def test_a_reference_of_statistics_says_what_sketches_can(tmp_path):
    reference = record(tmp_path, "stats", model(), values="stats")
    with tenscope.against(reference) as against:
        record(tmp_path, "same", model())
    assert against.diff.verdict == "equal"
    with pytest.raises(tenscope.Divergence) as caught, tenscope.against(reference):
        record(tmp_path, "other", model(factor=1.5))
    assert caught.value.diff.first_divergence.name == "2.weight"


def test_a_call_that_the_reference_did_not_make_is_excused(good, tmp_path):
    def with_warm_up(made):
        with torch.no_grad():
            made(torch.zeros(4, 8))
        train(made)

    made = model()
    options = {"params": True, "grads": True, "param_grads": True}
    with tenscope.against(good) as against, tenscope.Run(tmp_path, name="warm"), tenscope.trace(made, **options):
        with_warm_up(made)
    full = model()
    with tenscope.Run(tmp_path, name="full"), tenscope.trace(full, **options):
        with_warm_up(full)
    expected = tenscope.diff(good, tmp_path / "full")
    assert not expected
    assert (against.diff.verdict, against.diff.json["counts"]) == (expected.verdict, expected.json["counts"])
    assert against.counts["not_in_reference"] + against.counts["differs"] > 0


def accumulate(folder, name, noise=0.0, factor=1.0):
    """Two steps of three backwards each, of which the second may be off."""
    made = model()
    torch.manual_seed(1)
    optimizer = torch.optim.SGD(made.parameters(), lr=0.1)
    with tenscope.Run(folder, name=name), tenscope.trace(made, params=True, grads=True, param_grads=True):
        for step in range(2):
            for part in range(3):
                out = made(torch.randn(4, 8) * (1 + noise))
                (out.square().mean() * (factor if step == 0 and part == 1 else 1)).backward()
            optimizer.step()
            optimizer.zero_grad()
    return folder / name


def test_gradients_that_are_added_up_are_compared_one_by_one(tmp_path):
    reference = accumulate(tmp_path, "reference")
    with tenscope.against(reference) as against:
        accumulate(tmp_path, "noisy", noise=2e-7)
    assert against.diff.verdict == "noise"
    full = tenscope.diff(reference, accumulate(tmp_path, "full", factor=1.5)).first_divergence
    with pytest.raises(tenscope.Divergence) as caught, tenscope.against(reference):
        accumulate(tmp_path, "off", factor=1.5)
    found = caught.value.diff.first_divergence
    assert (found.step, found.call, found.phase) == (0, 1, "backward")
    assert (found.module, found.name, found.cause, found.metrics.max_abs) == (
        full.module, full.name, full.cause, full.metrics.max_abs,
    )  # fmt: skip


def test_the_run_that_is_open_is_compared_and_stays_open(good, tmp_path):
    with tenscope.Run(tmp_path, name="open") as opened, tenscope.against(good, prefix=True) as against:
        made = model()
        with tenscope.trace(made, params=True, grads=True, param_grads=True):
            train(made, steps=2)
        assert not opened.closed
    expected = tenscope.diff(good, record(tmp_path, "full", model(), steps=2), prefix=True)
    assert (against.diff.verdict, against.diff.json["counts"]) == (expected.verdict, expected.json["counts"])
    assert not against.diff
    with pytest.raises(tenscope.Divergence, match="the second run ends"), tenscope.against(good):
        record(tmp_path, "short", model(), steps=2)


def test_odd_uses_are_said(good, tmp_path):
    with pytest.raises(tenscope.UsageError, match="nothing was compared"), tenscope.against(good):
        pass
    with pytest.raises(tenscope.NotFoundError):
        tenscope.against(tmp_path / "nowhere")
    with pytest.raises(ZeroDivisionError), tenscope.against(good):
        raise ZeroDivisionError
    with tenscope.Run(tmp_path, name="itself") as opened:
        tenscope.record("x", 1)
        with pytest.raises(tenscope.UsageError, match="with itself"), tenscope.against(opened.path):
            pass


def test_what_is_unlike_is_said_in_the_note(good, tmp_path):
    with tenscope.against(good):
        same = record(tmp_path, "same", model())
    (note,) = notes(tenscope.open(same), "against")
    assert note.value == str(good)
    assert json.loads(json.dumps(note.meta)) == {"kept": "statistics of what is equal"}
