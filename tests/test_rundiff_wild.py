"""Run against run as upgrades and refactorings make them: what is harmless, and what the report says of the rest."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import tenscope

torch = pytest.importorskip("torch")

from forked import compare, record_both  # noqa: E402
from launched import warm_run, write  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

TENSCOPE = Path(sys.executable).with_name("tenscope")


def batches(count=2):
    generator = torch.Generator().manual_seed(1)
    return [torch.randint(20, (4, 6), generator=generator) for _ in range(count)]


def train(model, optimizer=None, data=None):
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.1)
    for ids in data or batches():
        loss = F.cross_entropy(model(ids).flatten(0, 1), ids.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


# Arguments by position and by keyword.


class Mixer(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(16, 16)

    def forward(self, x, scale, shift=None):
        return self.linear(x) * scale + shift


class OtherMixer(Mixer):
    """The same with another name for one argument, and one more in between."""

    def forward(self, hidden, cache, scale, shift=None):
        return super().forward(hidden, scale, shift)


class Calling(nn.Module):
    def __init__(self, how):
        super().__init__()
        self.embed, self.mixer, self.head = nn.Embedding(20, 16), Mixer(), nn.Linear(16, 20)
        if how == "upgraded":
            self.mixer.__class__ = OtherMixer
        self.how = how

    def forward(self, ids):
        x = self.embed(ids)
        scale, shift, cache = torch.full((16,), 2.0), torch.full((16,), 3.0), torch.full((16,), 7.0)
        if self.how == "keyword":
            return self.head(self.mixer(shift=shift, scale=scale, x=x))
        if self.how == "upgraded":
            return self.head(self.mixer(x, cache, shift=shift, scale=scale))
        if self.how == "mistaken":
            return self.head(self.mixer(x, scale=shift, shift=scale))
        return self.head(self.mixer(x, scale, shift))


def calling(how):
    return lambda variant: train(Calling(how if variant else "position"))


@pytest.mark.parametrize("swapped", [False, True])
def test_by_position_and_by_keyword_is_the_same_argument(tmp_path, swapped):
    diff = compare(tmp_path, calling("keyword"), swapped)
    assert diff.verdict == "equal" and diff.counts.compared == diff.counts.first_run, str(diff)


@pytest.mark.parametrize("swapped", [False, True])
def test_arguments_go_by_the_names_of_the_signature(tmp_path, swapped):
    diff = compare(tmp_path, calling("upgraded"), swapped)
    assert not diff, str(diff)
    assert [one.name for one in diff.unmatched] == ["mixer.input.1"]  # the cache; x and hidden go by their position


def test_exchanged_arguments_are_found(tmp_path):
    first = compare(tmp_path, calling("mistaken")).first_divergence
    assert (first.module, first.name) == ("", "mixer.input.1")


# Initial values.


class Blocks(nn.Module):
    def __init__(self, bias=False, std=0.02, gate=False):
        super().__init__()
        if gate:
            self.gate = nn.Parameter(torch.randn(4))
        self.embed = nn.Embedding(20, 16)
        self.first, self.second = nn.Linear(16, 16, bias=bias), nn.Linear(16, 16)
        self.head = nn.Linear(16, 20)
        nn.init.normal_(self.second.weight, std=std)

    def forward(self, ids):
        return self.head(self.second(F.relu(self.first(self.embed(ids)))))


def another_std(variant):
    if variant:
        torch.rand(1)  # all numbers after it are others
    model = Blocks(std=0.06 if variant else 0.02)
    train(model)


def another_seed(variant):
    torch.manual_seed(int(variant))
    train(Blocks())


def one_more_draw(variant):
    train(Blocks(gate=variant))


def one_bias_more(variant):
    train(Blocks(bias=variant))


def transposed(variant):
    model = Blocks()
    with torch.no_grad():
        model.second.weight.copy_(model.second.weight.T.clone() if variant else model.second.weight)
    train(model)


@pytest.mark.parametrize("swapped", [False, True])
def test_another_distribution_is_told_from_another_draw(tmp_path, swapped):
    diff = compare(tmp_path, another_std, swapped)
    first = diff.first_divergence
    assert (first.name, first.phase, first.distribution.another_draw) == ("second.weight", "init", False), str(diff)
    ratio = first.distribution.std_b / first.distribution.std_a
    assert (1 / ratio if swapped else ratio) == pytest.approx(3, rel=0.2)
    assert {origin.name: origin.distribution.another_draw for origin in diff.origins[1:]} == {
        "embed.weight": True,
        "first.weight": True,
        "head.weight": True,
    }
    assert "drawn from another distribution" in str(diff) and "times the std" in str(diff)
    assert any("look like another draw" in note for note in diff.notes)
    assert "start a difference of their own" not in str(diff)


def test_another_seed_is_another_draw(tmp_path):
    diff = compare(tmp_path, another_seed)
    assert all(origin.distribution.another_draw for origin in diff.origins)
    assert diff.first_divergence.name == "embed.weight" and "another seed" in diff.first_divergence.reason
    assert any("seeds.torch" in setting for setting in diff.settings)


@pytest.mark.parametrize("swapped", [False, True])
def test_one_parameter_more_shifts_the_draws_after_it(tmp_path, swapped):
    diff = compare(tmp_path, one_more_draw, swapped)
    first = diff.first_divergence
    assert (first.module, first.name, first.cause) == ("", "gate", "extra_draw"), str(diff)
    assert first.confidence == "medium"
    assert "if not there" in str(diff)


@pytest.mark.parametrize("swapped", [False, True])
def test_one_parameter_more_where_the_difference_begins(tmp_path, swapped):
    first = compare(tmp_path, one_bias_more, swapped).first_divergence
    assert (first.module, first.name, first.cause) == ("first", "first.bias", "parameter_of_its_own")


def test_the_same_numbers_in_another_order_are_no_draw(tmp_path):
    diff = compare(tmp_path, transposed)
    first = diff.first_divergence
    assert first.name == "second.weight" and not first.distribution.independent
    assert first.metrics.relation == "b is a, with axes 0 and 1 exchanged"


# Parameters and backwards.


class Tied(nn.Module):
    def __init__(self, head_first):
        super().__init__()
        weight = nn.Parameter(torch.randn(20, 16))
        embed, head = nn.Embedding(20, 16), nn.Linear(16, 20, bias=False)
        embed.weight = head.weight = weight
        for name, module in (("head", head), ("embed", embed))[:: 1 if head_first else -1]:
            setattr(self, name, module)

    def forward(self, ids):
        return self.head(self.embed(ids))


@pytest.mark.parametrize("swapped", [False, True])
def test_a_tied_parameter_under_its_other_name(tmp_path, swapped):
    diff = compare(tmp_path, lambda variant: train(Tied(head_first=variant)), swapped)
    assert diff.verdict == "equal", str(diff)


def accumulated(forgets=False):
    def program(variant):
        torch.manual_seed(0)
        model = Blocks()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for first, second in (batches(2), batches(2)):
            losses = [F.cross_entropy(model(ids).flatten(0, 1), ids.flatten()) / 2 for ids in (first, second)]
            if not variant:
                for loss in losses:
                    loss.backward()
            else:
                sum(losses[:1] if forgets else losses).backward()
            optimizer.step()
            optimizer.zero_grad()

    return program


@pytest.mark.parametrize("swapped", [False, True])
def test_one_backward_of_a_sum_instead_of_several(tmp_path, swapped):
    diff = compare(tmp_path, accumulated(), swapped)
    assert not diff, str(diff)


@pytest.mark.parametrize("swapped", [False, True])
def test_a_part_that_is_missing_in_one_backward(tmp_path, swapped):
    first = compare(tmp_path, accumulated(forgets=True), swapped).first_divergence
    assert (first.io, first.phase, first.step) == ("grad", "backward", 0)


# What the report says.


def in_bfloat16(scale):
    def program(variant):
        model = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 32))
        x = torch.randn(8, 32, generator=torch.Generator().manual_seed(1))
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=variant):
            y = model[1](model[0](x))
            model[2](y * scale if variant else y)

    return program


def test_what_is_beyond_the_rounding_of_another_dtype(tmp_path):
    diff = compare(tmp_path, in_bfloat16(1.0))
    assert (diff.first_divergence.module, diff.rounding.dtype, diff.rounding.beyond) == ("", "bfloat16", None), str(
        diff
    )
    assert "everything else is within bfloat16's rounding" in str(diff)


def test_a_mistake_besides_another_dtype(tmp_path):
    diff = compare(tmp_path, in_bfloat16(1.5))
    assert diff.first_divergence.name == "output"
    assert diff.rounding.beyond.name == "input.0", str(diff)


def learning_rate(variant):
    model = Blocks()
    train(model, torch.optim.SGD(model.parameters(), lr=-0.2 if variant else 0.1) if not variant else Backwards(model))


class Backwards(torch.optim.SGD):
    """Goes up instead of down, twice as far."""

    def __init__(self, model):
        super().__init__(model.parameters(), lr=0.2, maximize=True)


def test_an_update_is_told_by_its_ratio_and_optimizer(tmp_path):
    diff = compare(tmp_path, learning_rate)
    first = diff.first_divergence
    assert (first.phase, first.update.optimizer_a, first.update.optimizer_b) == ("optimizer", "SGD", "Backwards")
    assert first.update.ratio == pytest.approx(-2, rel=1e-3) and first.update.flipped == first.update.moved_both > 0
    assert "SGD became Backwards: b's update is -2 times a's (median)" in str(diff)
    assert "optimizer.lr: 0.1 became 0.2" in diff.settings


def other_loss(variant):
    model = Blocks()
    criterion = nn.CrossEntropyLoss(reduction="sum" if variant else "mean")
    for ids in batches():
        criterion(model(ids).flatten(0, 1), ids.flatten()).backward()


def test_a_loss_is_called_by_its_class(tmp_path):
    diff = compare(tmp_path, other_loss)
    assert str(diff).startswith("first divergence: output in CrossEntropyLoss (step 0"), str(diff)
    assert "the output of CrossEntropyLoss differs, while its inputs agree" in str(diff)


def test_the_commands_show_the_tensor_in_both_runs(tmp_path):
    runs = record_both(tmp_path, another_std)
    diff = tenscope.diff(*runs)
    assert len(diff.show) == 2
    for run, command in zip(runs, diff.show, strict=True):
        words = command.split()
        assert words[:4] == ["tenscope", "show", str(run), "second.weight"]
        shown = subprocess.run([TENSCOPE, *words[1:]], capture_output=True, text=True, check=True).stdout
        assert "second.weight" in shown


class Scaled(nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def forward(self, x):
        return x * self.factor


@pytest.mark.parametrize("inputs", [True, False])
def test_agreement_is_not_claimed_of_what_was_not_recorded(tmp_path, inputs):
    for name, factor in (("a", 1.0), ("b", 2.0)):
        layer = Scaled(factor)
        with tenscope.init(tmp_path, name=name) as run, tenscope.trace(layer, inputs=inputs, run=run):
            layer(torch.ones(2, 4))
    first = tenscope.diff(tmp_path / "a", tmp_path / "b").first_divergence
    assert first.confidence == ("high" if inputs else "medium")
    assert ("its inputs" in first.reason) == inputs


def test_versions_are_those_of_imported_packages(tmp_path):
    program = """
import sys, types, torch
torch.manual_seed(0)
torch.nn.Linear(4, 4)(torch.ones(2, 4))
sys.modules["invented"] = types.ModuleType("invented")  # imported after the first call
sys.modules["invented"].__version__ = sys.argv[1]
"""
    script = write(tmp_path, program)
    for name in ("a", "b"):
        assert warm_run(tmp_path, "--name", name, script, f"0.0.{name}").returncode == 0
    assert tenscope.diff(tmp_path / "runs/a", tmp_path / "runs/b").settings == ["invented 0.0.a became 0.0.b"]


def merged(variant):
    """Changes a parameter between two calls in a way that torch's version counters do not see."""
    model = Blocks().eval()
    ids = batches(1)[0]
    with torch.no_grad():
        model(ids)
        model.second.bias.data += 0.02 if variant else 0.01
        model(ids)


def test_a_parameter_that_was_changed_past_the_version_counters(tmp_path):
    first = compare(tmp_path, merged).first_divergence
    assert (first.name, first.io, first.cause) == ("second.bias", "param", "changed_between_calls")
