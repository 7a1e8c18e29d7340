"""Attributes of modules that a program changes on the way: recorded when they change, compared from there on."""

import dataclasses
import functools
import gc
import types
import weakref

import pytest

torch = pytest.importorskip("torch")

import tenscope  # noqa: E402
from hand_written_run import tenscope as tenscope_cli  # noqa: E402
from hand_written_run import tenscope_json  # noqa: E402
from tenscope.metadata.reproducer import make_case  # noqa: E402
from test_repro_call import run_case  # noqa: E402
from torch import nn  # noqa: E402
from traced import events  # noqa: E402


@dataclasses.dataclass
class Config:
    rate: float = 0.1
    rope: dict = dataclasses.field(default_factory=lambda: {"theta": 1.0})


class Net(nn.Module):
    def __init__(self, config=None):
        super().__init__()
        self.fc, self.norm = nn.Linear(4, 4), nn.LayerNorm(4)
        self.config = config or Config()
        self.act, self.sizes, self.cache, self.factor = torch.relu, [1, 2], None, 1.0

    def forward(self, x):
        return self.norm(self.act(self.fc(x))) * self.factor * self.config.rate


def net(**options):
    torch.manual_seed(0)
    return Net(**options)


@pytest.fixture
def run(tmp_path):
    with tenscope.Run(tmp_path, name="run", strict=True, metadata=False) as run:
        yield run


def told(run, scope="", *words):
    return [[e.meta.get(word) for word in words or ("changed",)] for e in events(run, kind="enter", scope=scope)]


def test_what_changes_is_told_once_when_it_does(run):
    model, x = net(), torch.ones(2, 4)
    steps = [
        lambda: None,
        lambda: setattr(model.norm, "eps", 1e-3),
        lambda: model.sizes.append(3),
        lambda: (setattr(model.config, "rate", 0.5), model.config.rope.update(theta=2.0)),
        lambda: setattr(model, "act", torch.tanh),
        lambda: setattr(model, "cache", torch.ones(3)),
        lambda: setattr(model, "config", Config(rate=0.7)),
        lambda: None,
    ]
    with tenscope.trace(model):
        for step in steps:
            step()
            model(x)
    tanh = f"{torch.tanh.__module__}.{torch.tanh.__qualname__}"
    assert [each for [each] in told(run)] == [
        None,
        None,
        {"sizes": [1, 2, 3]},
        {"config.rate": 0.5, "config.rope.theta": 2.0},
        {"act": tanh},
        {},
        {"config.rate": 0.7, "config.rope.theta": 1.0},
        None,
    ]
    assert [gone for [gone] in told(run, "", "gone")] == [None] * 5 + [["cache"]] + [None] * 2
    assert [each for [each] in told(run, "norm")] == [None, {"eps": 1e-3}] + [None] * 6


def test_the_value_and_not_the_object_counts(run):
    model = net()
    with tenscope.trace(model):
        model(torch.ones(2, 4))
        model.norm.eps, model.sizes, model.factor = float("1e-05"), [1, 2], float("1.0")
        model.config = Config()
        model(torch.ones(2, 4))
        model.factor = True  # which is another value than 1.0 for those who look
        model(torch.ones(2, 4))
    assert [each for [each] in told(run)] == [None, None, {"factor": True}]


def test_nothing_is_kept_alive_and_nothing_of_the_program_runs(run):
    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.method, self.own = types.MethodType(Odd.helper, self), lambda: self
            self.part = functools.partial(Odd.helper, self)
            self.odd = None

        def helper(self):
            raise AssertionError("is not called")

        def forward(self, x):
            self.odd = torch.ones(3) if self.odd is None else self.odd + 1
            return x

    model = Odd()
    with tenscope.trace(model):
        for _ in range(3):
            model(torch.ones(2))
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None


def record(folder, name, changes, steps=4):
    """Changes: what is done to the model before a step."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(2)
    with tenscope.Run(folder, name=name, metadata=False) as run, tenscope.trace(model, run=run, params=True):
        for step in range(steps):
            if step in changes:
                changes[step](model)
            optimizer.zero_grad()
            model(torch.randn(2, 4, generator=generator)).pow(2).sum().backward()
            optimizer.step()
    return folder / name


def test_diff_says_from_where_on_they_differ(tmp_path):
    good = record(tmp_path, "good", {})
    bad = record(tmp_path, "bad", {2: lambda model: setattr(model.norm, "eps", 1e-2)})
    found = tenscope_json("diff", good, bad, check=1)
    first = found["first_divergence"]
    assert (first["module"], first["step"]) == ("norm", 2)
    assert first["code"]["attributes"] == [{"name": "eps", "a": 1e-5, "b": 1e-2, "step": 2, "call": 2}]
    assert found["attribute_count"] == 1
    text = tenscope_cli("diff", good, bad, check=1).stdout
    assert "attributes     eps 1e-05 → 0.01 from step 2, call 2 on" in text
    # The same change in both is none, and one that comes behind the divergence is no reason for it.
    both = record(tmp_path, "both", {2: lambda model: setattr(model.norm, "eps", 1e-2)})
    assert tenscope_json("diff", bad, both, check=0)["attributes"] == []

    def factor(model):
        model.factor = 2.0

    late = record(tmp_path, "late", {1: factor, 3: lambda model: setattr(model, "sizes", [7])})
    found = tenscope_json("diff", good, late, check=1)
    assert [one["name"] for one in found["first_divergence"]["code"]["attributes"]] == ["factor"]
    assert [(one["name"], one["step"]) for one in found["attributes"]] == [("factor", 1), ("sizes", 3)]


@pytest.mark.parametrize("changed", ["factor", "act", "config"])
def test_a_case_has_the_values_of_its_call(tmp_path, changed):
    def change(model):
        if changed == "factor":
            model.factor = 2.0
        elif changed == "act":
            model.act = torch.tanh
        else:
            model.config.rate = 0.5

    run = record(tmp_path, "run", {2: change})
    for step in (1, 2, 3):
        case = make_case(run, ".", tmp_path / f"case-{step}", step=step)
        code, output = run_case(case.folder)
        assert code == 0 and case.missing == [], output


def test_what_cannot_be_described_any_more_is_said(tmp_path):
    run = record(tmp_path, "run", {2: lambda model: setattr(model, "act", lambda x: x * 2)})
    case = make_case(run, ".", tmp_path / "case", step=2)
    assert any("act" in remark for remark in case.remarks)
    assert run_case(make_case(run, ".", tmp_path / "early", step=1).folder)[0] == 0
