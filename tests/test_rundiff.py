"""Two runs against each other, on made-up event sequences with known edits, and on real recordings."""

from __future__ import annotations

import copy
import dataclasses
import itertools
import json
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import exported_page
import numpy as np
import pytest
import tenscope
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tenscope import testing

TENSCOPE = Path(sys.executable).parent / "tenscope"


@dataclass
class Module:
    """A made-up module: a leaf computes, a container calls its children in order."""

    name: str
    children: list[Module] = field(default_factory=list)
    seed: int = 0
    cls: str = ""
    scale: float = 1.0  # what a mistake in its own code multiplies its result by
    is_identity: bool = False

    def walk(self, path: str = ""):
        yield path, self
        for child in self.children:
            yield from child.walk(f"{path}.{child.name}" if path else child.name)


class Recorder:
    """Plays a module tree as docs/trace.md says."""

    def __init__(self, run, model: Module):
        self.run, self.model, self.calls = run, model, {}
        for path, module in model.walk():
            if not module.children and not module.is_identity:
                self.event(f"{path}.weight", self.weight(module), path, module, io="param", phase="init")

    @staticmethod
    def weight(module: Module):
        return np.random.default_rng(module.seed).normal(size=8).astype(np.float32)

    def event(self, name, value, path, module, *, kind="value", call=0, **more):
        self.run.record(name.lstrip("."), value, kind=kind, call=call, scope=path, root="Net#0", cls=module.cls, **more)

    def forward(self, x, path="", module=None):
        module = module or self.model
        call = self.calls[path] = self.calls.get(path, -1) + 1
        say = {"call": call, "phase": "forward"}
        self.event(path, None, path, module, kind="enter", **say)
        self.event(f"{path}.input.0", x, path, module, io="input", **say)
        if module.children:
            for child in module.children:
                x = self.forward(x, f"{path}.{child.name}" if path else child.name, child)
        elif not module.is_identity:
            x = np.tanh(x * self.weight(module) + np.float32(0.1)).astype(np.float32)
        x = (x * np.float32(module.scale)).astype(np.float32)
        self.event(f"{path}.output", x, path, module, io="output", **say)
        self.event(path, None, path, module, kind="exit", **say)
        return x


def play(folder: Path, model: Module, steps: int = 2) -> Path:
    with tenscope.Run(folder.parent, name=folder.name, strict=True) as run:
        recorder = Recorder(run, model)
        for step in range(steps):
            run.step(step)
            recorder.forward(np.random.default_rng(100 + step).normal(size=(4, 8)).astype(np.float32))
    return folder


@st.composite
def models(draw):
    seeds = itertools.count(1)

    def tree(depth: int, name: str) -> Module:
        if depth == 0 or draw(st.booleans()):
            return Module(name, seed=next(seeds), cls=draw(st.sampled_from(["Linear", "Conv", "Norm"])))
        children = [tree(depth - 1, f"{draw(st.sampled_from('abc'))}{i}") for i in range(draw(st.integers(1, 4)))]
        return Module(name, children, cls="Block")

    children = [tree(2, f"m{i}") for i in range(draw(st.integers(1, 4)))]
    return Module("", children, cls="Net")


folders = (f"pair{i}" for i in itertools.count())
few = settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def play_both(tmp_path, a, b):
    place = tmp_path / next(folders)
    return tenscope.diff(play(place / "a", a), play(place / "b", b))


@few
@given(models())
def test_the_same_twice_is_equal(tmp_path, model):
    diff = play_both(tmp_path, model, model)
    assert diff.equal and diff.within_tolerance and not diff
    assert diff.counts.compared == diff.counts.bit_equal > 0


@few
@given(models(), st.data())
def test_a_mistake_is_found_where_it_is(tmp_path, model, data):
    wrong = copy.deepcopy(model)
    path, module = data.draw(st.sampled_from(list(wrong.walk())))
    module.scale = 1.01
    diff = play_both(tmp_path, model, wrong)
    assert diff
    found = diff.first_divergence
    # A leaf's mistake is in its output; a container's comes after its children's outputs, in its own output.
    assert (found.module, found.io, found.step) == (path, "output", 0)
    assert found.last_agreeing is not None


@few
@given(models(), st.data())
def test_renamed_modules_are_found(tmp_path, model, data):
    other = copy.deepcopy(model)
    renamed = {}
    for module in data.draw(st.lists(st.sampled_from(other.children), unique_by=id, min_size=1)):
        renamed[module.name] = f"new_{module.name}"
        module.name = f"new_{module.name}"
    diff = play_both(tmp_path, model, other)
    assert not diff and diff.equal
    assert diff.renamed == renamed and not diff.unmatched


@few
@given(models(), st.data())
def test_an_inserted_identity_is_said_and_harmless(tmp_path, model, data):
    other = copy.deepcopy(model)
    containers = [(path, module) for path, module in other.walk() if module.children]
    path, module = data.draw(st.sampled_from(containers))
    at = data.draw(st.integers(0, len(module.children)))
    module.children.insert(at, Module("extra", cls="Identity", is_identity=True))
    inserted = f"{path}.extra" if path else "extra"
    for a, b, side in ((model, other, "b"), (other, model, "a")):
        diff = play_both(tmp_path, a, b)
        assert not diff and diff.equal and not diff.renamed
        assert [(one.side, one.module) for one in diff.unmatched] == [(side, inserted)]


@few
@given(st.integers(2, 6), st.data())
def test_an_identity_that_shifts_the_numbers_of_a_sequence(tmp_path, count, data):
    def sequence(modules):
        return Module("", [dataclasses.replace(module, name=str(i)) for i, module in enumerate(modules)])

    layers = [Module("", seed=i + 1, cls="Linear") for i in range(count)]
    at = data.draw(st.integers(0, count))
    more = [*layers[:at], Module("", cls="Identity", is_identity=True), *layers[at:]]
    diff = play_both(tmp_path, sequence(layers), sequence(more))
    assert not diff
    assert [one.module for one in diff.unmatched] == [str(at)]
    assert diff.renamed == {str(i): str(i + 1) for i in range(at, count)}


@few
@given(models(), st.data())
def test_renamed_and_wrong_at_once(tmp_path, model, data):
    wrong = copy.deepcopy(model)
    for module in wrong.children:
        module.name = f"x_{module.name}"
    (path, _), (_, module) = data.draw(st.sampled_from(list(zip(model.walk(), wrong.walk(), strict=True))))
    module.scale = 1.01
    diff = play_both(tmp_path, model, wrong)
    assert diff.first_divergence.module == path
    assert len(diff.renamed) == len(model.children)


def test_a_wrapper_around_everything(tmp_path):
    model = Module("", [Module("a", seed=1, cls="Linear"), Module("b", seed=2, cls="Conv")], cls="Net")
    wrapped = Module("", [Module("module", copy.deepcopy(model.children), cls="Net")], cls="Wrapper")
    diff = play_both(tmp_path, model, wrapped)
    assert not diff
    assert diff.renamed == {"": "module"}


def test_a_map_overrules(tmp_path):
    model = Module("", [Module("a", seed=1, cls="Linear"), Module("b", seed=1, cls="Linear")], cls="Net")
    other = Module("", [Module("x", seed=1, cls="Linear"), Module("y", seed=1, cls="Linear")], cls="Net")
    a, b = play(tmp_path / "a", model), play(tmp_path / "b", other)
    assert tenscope.diff(a, b).renamed == {"a": "x", "b": "y"}
    assert tenscope.diff(a, b, map=["a=y", "b=x"]).renamed == {"a": "y", "b": "x"}
    with pytest.raises(tenscope.Error, match="fits nothing: no module of the first run"):
        tenscope.diff(a, b, map="nothing.*=x.*")
    with pytest.raises(tenscope.Error, match="A=B"):
        tenscope.diff(a, b, map="a")


def test_a_skipped_module_blames_the_code_around_it(tmp_path):
    layers = [Module(name, seed=seed, cls="Linear") for seed, name in enumerate("abc", 1)]
    model = Module("", [Module("block", layers, cls="Block")], cls="Net")
    shorter = copy.deepcopy(model)
    del shorter.children[0].children[1]
    diff = play_both(tmp_path, model, shorter)
    assert diff.first_divergence.module == "block"
    assert diff.first_divergence.name == "block.c.input.0"
    assert [one.module for one in diff.unmatched] == ["block.b"]


def record_plain(folder: Path, values: dict[str, np.ndarray]) -> Path:
    with tenscope.Run(folder.parent, name=folder.name, strict=True) as run:
        for name, value in values.items():
            run.record(name, value)
    return folder


def play_inputs(folder: Path, model: Module, inputs: list[int]) -> Path:
    with tenscope.Run(folder.parent, name=folder.name, strict=True) as run:
        recorder = Recorder(run, model)
        for step, seed in enumerate(inputs):
            run.step(step)
            recorder.forward(np.random.default_rng(seed).normal(size=(4, 8)).astype(np.float32))
    return folder


@few
@given(models(), st.lists(st.integers(0, 5), max_size=3), st.data())
def test_calls_more_in_one_run_shift_the_others(tmp_path, model, places, data):
    usual, more = [100, 101, 102, 103, 104], [100, 101, 102, 103, 104]
    for number, place in enumerate(places):
        more.insert(place, 200 + number)
    wrong = copy.deepcopy(model)
    path, module = data.draw(st.sampled_from(list(wrong.walk())))
    module.scale = 1.01
    place = tmp_path / next(folders)
    a, b = play_inputs(place / "a", model, usual), play_inputs(place / "b", model, more)
    is_longer = more[:5] == usual and bool(places)  # calls at the end alone: the run goes on
    for diff in (tenscope.diff(a, b, prefix=True), tenscope.diff(b, a, prefix=True)):
        assert not diff and bool(diff.equal) == (not places)
    for diff in (tenscope.diff(a, b), tenscope.diff(b, a)):
        assert bool(diff) == is_longer and (not diff or diff.first_divergence.cause == "end")
        assert any("no partner" in note for note in diff.notes) == (more[:5] != usual)
    found = tenscope.diff(a, play_inputs(place / "c", wrong, more)).first_divergence
    assert (found.module, found.io, found.step, found.call) == (path, "output", 0, 0)


def test_another_order_is_no_shift(tmp_path):
    model = Module("", [Module("fc", seed=1, cls="Linear")], cls="Net")
    a = play_inputs(tmp_path / "a", model, [100, 101, 102])
    found = tenscope.diff(a, play_inputs(tmp_path / "b", model, [101, 102, 100])).first_divergence
    assert (found.io, found.call, found.module) == ("input", 0, "")


def test_equal_tensors_are_not_read(tmp_path):
    model = Module("", [Module("fc", seed=1, cls="Linear")], cls="Net")
    a, b = play(tmp_path / "a", model), play(tmp_path / "b", model)
    for segment in [*a.rglob("*.safetensors"), *b.rglob("*.safetensors")]:
        segment.unlink()
    diff = tenscope.diff(a, b)
    assert diff.equal and diff.counts.compared == diff.counts.bit_equal > 0


def test_recordings_without_modules(tmp_path):
    rng = np.random.default_rng(0)
    shapes = {"q": (3, 4), "k": (4, 5), "out": (6,)}
    values = {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    a = record_plain(tmp_path / "a", values)
    assert tenscope.diff(a, record_plain(tmp_path / "b", values)).equal
    other = record_plain(tmp_path / "c", {f"engine_{name}": value for name, value in values.items()})
    diff = tenscope.diff(a, other)
    assert not diff and diff.renamed == {name: f"engine_{name}" for name in values}
    wrong = dict(values, k=values["k"] * np.float32(3))
    found = tenscope.diff(a, record_plain(tmp_path / "d", wrong)).first_divergence
    assert (found.name, found.io, found.metrics.relation) == ("k", "value", "b = 3 a")


def test_nothing_in_common_is_not_equal(tmp_path):
    a = record_plain(tmp_path / "a", {"x": np.zeros(3, np.float32)})
    b = record_plain(tmp_path / "b", {"y": np.ones((2, 2), np.float32)})
    diff = tenscope.diff(a, b)
    assert diff and not diff.within_tolerance and diff.first_divergence is None
    assert {(one.side, one.name) for one in diff.unmatched} == {("a", "x"), ("b", "y")}


def test_another_class_is_said(tmp_path):
    a = Module("", [Module("fc", seed=1, cls="Linear"), Module("act", seed=2, cls="ReLU")], cls="Net")
    b = copy.deepcopy(a)
    b.children[1].cls = "GELU"
    b.children[1].scale = 1.5
    diff = play_both(tmp_path, a, b)
    assert diff.first_divergence.module == "act"
    assert "act is a ReLU in the first run and a GELU in the second" in diff.notes


def test_two_empty_runs_are_not_called_the_same(tmp_path):
    diff = tenscope.diff(record_plain(tmp_path / "a", {}), record_plain(tmp_path / "b", {}))
    assert str(diff).startswith("nothing to compare")


def test_noise_and_mistakes(tmp_path):
    """A tensor from nothing: rounding noise is let through, a factor of nearly the same size is not."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=4096).astype(np.float32)
    a = record_plain(tmp_path / "a", {"x": x})
    noise = (x * (1 + 1e-6 * rng.normal(size=x.size))).astype(np.float32)
    diff = tenscope.diff(a, record_plain(tmp_path / "b", {"x": noise}))
    assert not diff and not diff.equal and diff.first_bit_difference.name == "x"
    assert tenscope.diff(a, tmp_path / "b", tolerance=1e-9)
    factor = (x * np.float32(1 + 5e-6)).astype(np.float32)
    assert tenscope.diff(a, record_plain(tmp_path / "c", {"x": factor}))
    large = x.copy()
    large[17] += 0.01
    found = tenscope.diff(a, record_plain(tmp_path / "d", {"x": large})).first_divergence
    assert found.metrics.worst_index == [17] and found.metrics.differing == 1 and found.metrics.ranges == [[17, 18]]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda x: x * 4, "b = 4 a"),
        (lambda x: x - 0.5, "b = a - 0.5"),
        (lambda x: x[:, ::-1], "b is a, flipped along axis 1"),
        (lambda x: np.roll(x, 3, axis=0), "b is a, rolled by 3 along axis 0"),
        (lambda x: x.T, "b is a, with axes 0 and 1 exchanged"),
        (lambda x: x * 0, "b is all zero"),
        (lambda x: x.astype(np.float16).astype(np.float32), "b is a, rounded to float16"),
        (lambda x: np.sin(x), None),
    ],
)
def test_relations(tmp_path, change, words):
    x = np.random.default_rng(0).normal(size=(8, 8)).astype(np.float32)
    a = record_plain(tmp_path / "a", {"x": x})
    b = record_plain(tmp_path / "b", {"x": np.ascontiguousarray(change(x))})
    assert tenscope.diff(a, b).first_divergence.metrics.relation == words


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, np.complex64, np.int16])
@pytest.mark.parametrize("shape", [(7,), (3, 5, 11), (2, 150_001)])
def test_metrics_are_those_of_numpy(tmp_path, dtype, shape):
    rng = np.random.default_rng(0)
    x = (100 * rng.normal(size=shape)).astype(dtype)
    y = x.copy()
    where = rng.random(shape) < 0.3
    y[where] += dtype(3)
    y.flat[-1] += dtype(50)
    if np.issubdtype(dtype, np.floating):
        x.flat[2] = y.flat[2] = np.nan
        x.flat[3] = y.flat[3] = np.inf
    a, b = record_plain(tmp_path / "a", {"x": x}), record_plain(tmp_path / "b", {"x": y})
    found = tenscope.diff(a, b).first_divergence.metrics
    wide = np.complex128 if dtype is np.complex64 else np.float64
    keep = np.isfinite(x)
    p, q = x.astype(wide)[keep], y.astype(wide)[keep]
    d = q - p
    differing = ~((x == y) | (np.isnan(x) & np.isnan(y)))
    parts = d.view(np.float64)
    assert found.differing == np.count_nonzero(parts)
    assert np.isclose(found.max_abs, np.abs(parts).max())
    assert np.isclose(found.rel_l2, np.linalg.norm(d) / np.linalg.norm(p))
    assert np.isclose(found.correlation, np.vdot(d, p).real / np.linalg.norm(d) / np.linalg.norm(p))
    assert found.ranges == [[int(i.min()), int(i.max()) + 1] for i in np.nonzero(differing)]
    assert found.worst_index == [size - 1 for size in shape]


def test_other_shapes_and_dtypes(tmp_path):
    x = np.arange(12, dtype=np.float32)
    a = record_plain(tmp_path / "a", {"x": x})
    found = tenscope.diff(a, record_plain(tmp_path / "b", {"x": x.reshape(3, 4)})).first_divergence
    assert found.metrics.remark == "the shapes differ" and found.metrics.shape_b == [3, 4]
    half = record_plain(tmp_path / "c", {"x": (x / 3).astype(np.float16)})
    full = record_plain(tmp_path / "d", {"x": x / 3})
    assert tenscope.diff(full, half)  # rounding to float16 where nothing before it says so
    assert not tenscope.diff(full, half, tolerance=1e-3)


def command(*arguments) -> tuple[int, str]:
    done = subprocess.run([TENSCOPE, *map(str, arguments)], capture_output=True, text=True)
    return done.returncode, done.stdout


def test_the_command_line(tmp_path):
    model = Module("", [Module("fc", seed=1, cls="Linear")], cls="Net")
    wrong = copy.deepcopy(model)
    wrong.children[0].scale = 1.5
    renamed = Module("", [Module("linear", seed=1, cls="Linear")], cls="Net")
    a, b, c = play(tmp_path / "a", model), play(tmp_path / "b", wrong), play(tmp_path / "c", renamed)
    code, text = command("diff", a, a)
    assert code == 0 and text.startswith("equal: ")
    code, text = command("diff", a, b, "--html", tmp_path / "page.html")
    assert code == 1
    assert text.splitlines()[0] == "first divergence: fc.output in fc (step 0, call 0, forward)"
    assert "b = 1.5 a" in text
    page = (tmp_path / "page.html").read_text()
    answers = exported_page.answers(page)
    assert answers["/api/answer"]["headline"] == text.splitlines()[0]
    first = answers["/api/answer"]["places"][0]
    assert answers[f"/api/event?event={first['event_a']}"]["name"] == "fc.output"
    assert exported_page.fetched(page) == []
    code, text = command("diff", a, b, "--json")
    document = json.loads(text)
    assert code == 1 and document == tenscope.diff(a, b).json
    members = {"root", "module", "name", "io", "step", "call", "rank", "phase", "last_agreeing", "metrics"}
    assert members <= set(document["first_divergence"])
    assert command("diff", a, c)[0] == 0 and command("diff", a, c, "--strict")[0] == 1
    (tmp_path / "map").write_text("# names\nfc=linear\n")
    assert command("diff", a, c, "--map-file", tmp_path / "map")[0] == 0
    assert command("diff", a, tmp_path / "nothing")[0] == 2
    assert command("diff", a)[0] == 2


def test_assert_same_run(tmp_path):
    model = Module("", [Module("fc", seed=1, cls="Linear")], cls="Net")
    wrong = copy.deepcopy(model)
    wrong.children[0].scale = 1.5
    a, b = play(tmp_path / "a", model), play(tmp_path / "b", wrong)
    testing.assert_same_run(a, a, bitwise=True)
    with pytest.raises(AssertionError, match=r"first divergence: fc\.output in fc"):
        testing.assert_same_run(b, a)


def test_assert_close():
    x = np.arange(6, dtype=np.float32)
    testing.assert_close({"x": x}, {"x": x + 1e-9})
    with pytest.raises(AssertionError, match="the values differ"):
        testing.assert_close({"x": x}, {"x": x + 1})
    with pytest.raises(AssertionError, match=r"100\.0 became 110\.0"):
        testing.assert_close(np.array([110.0]), np.array([100.0]), rtol=0.095)
    testing.assert_close(np.array([100.0]), np.array([110.0]), rtol=0.095)  # a part of the expected value


def test_the_helpers_are_there_without_an_import_of_their_own():
    import subprocess
    import sys

    program = "import tenscope; tenscope.testing.assert_same_run; tenscope.testing.assert_close"
    subprocess.run([sys.executable, "-c", program], check=True)
