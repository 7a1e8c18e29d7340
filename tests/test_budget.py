"""What each module adds to the error (`diff --budget`), judged by an experiment: one module at a time is swapped."""

import copy
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tenscope
from tenscope.errors import UsageError

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

TENSCOPE = Path(sys.executable).parent / "tenscope"


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.proj(y.transpose(1, 2).reshape(batch, length, width))


class Mlp(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        return self.down(nn.functional.gelu(self.up(x)))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn, self.mlp = Attention(width, heads), Mlp(width)

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    def __init__(self, words=80, width=48, heads=4, layers=3, length=24):
        super().__init__()
        self.tok, self.pos = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

    def forward(self, ids):
        x = self.tok(ids) + self.pos(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def make_gpt():
    torch.manual_seed(0)
    model = GPT()
    with torch.no_grad():  # the attention of a fresh model attends to nothing
        for name, parameter in model.named_parameters():
            if "blocks" in name and parameter.dim() == 2:
                parameter.mul_(3)
    return model.eval()


def ids(seed=1):
    return torch.randint(0, 80, (4, 24), generator=torch.Generator().manual_seed(seed))


def record(folder, model, *inputs, params=True, values="full"):
    with tenscope.Run(folder, metadata=False) as run, torch.no_grad():
        for one in inputs:
            with tenscope.trace(model, params=params, values=values, run=run):
                model(one)
            run.step()
    return run.path


def outputs(model, names, x):
    """Inputs and outputs of some modules, and the model's output."""
    seen = {}
    hooks = [
        model.get_submodule(name).register_forward_hook(
            lambda _, given, result, name=name: seen.__setitem__(name, (given[0], result))
        )
        for name in names
    ]
    with torch.no_grad():
        end = model(x)
    for hook in hooks:
        hook.remove()
    return seen, end


def relative(b, a):
    return float((b.double() - a.double()).norm() / a.double().norm())


def rank_correlation(x, y):
    ranks = [np.argsort(np.argsort(values)) for values in (x, y)]
    return float(np.corrcoef(*ranks)[0, 1])


def rounded(linear, levels):
    """The weight as integers from -levels to levels, times a scale for each row."""
    with torch.no_grad():
        scale = linear.weight.abs().amax(1, keepdim=True) / levels
        linear.weight.copy_((linear.weight / scale).round() * scale)


LINEARS = [name for name, module in GPT().named_modules() if isinstance(module, nn.Linear)]
LEVELS = dict(zip(LINEARS, [127, 40, 90, 12, 60, 25, 127, 7, 15, 50, 100, 30, 20], strict=True))


@pytest.fixture(scope="module")
def quantised(tmp_path_factory):
    """A model whose matrices are rounded, each to its own number of levels, and what comes of each by itself."""
    folder = tmp_path_factory.mktemp("quantised")
    model, other = make_gpt(), make_gpt()
    for name, levels in LEVELS.items():
        rounded(other.get_submodule(name), levels)
    reference, end = outputs(model, LINEARS, ids())
    own, at_the_end = {}, {}
    for name, levels in LEVELS.items():
        swapped = copy.deepcopy(model)
        rounded(swapped.get_submodule(name), levels)
        seen, swapped_end = outputs(swapped, [name], ids())
        own[name] = relative(seen[name][1], reference[name][1])
        at_the_end[name] = relative(swapped_end, end)
    runs = record(folder / "a", model, ids()), record(folder / "b", other, ids())
    with torch.no_grad():
        all_of_it = relative(other(ids()), end)
    return runs, own, at_the_end, all_of_it


def by_name(budget):
    return {(one.module, one.own_code): one for one in budget.modules}


def test_rounded_weights_as_the_experiment_has_it(quantised):
    runs, own, *_ = quantised
    budget = tenscope.diff(*runs, budget=True).budget
    rows = by_name(budget)
    adds = {name: rows[name, False].adds for name in LINEARS}
    print({name: (f"{adds[name]:.2e}", f"{own[name]:.2e}") for name in LINEARS})
    assert all(0.95 < adds[name] / own[name] < 1.05 for name in LINEARS)
    assert rank_correlation([adds[n] for n in LINEARS], [own[n] for n in LINEARS]) > 0.98
    assert [one.adds for one in budget.modules] == sorted((one.adds for one in budget.modules), reverse=True)
    # The rest of the model computes as before: it hands errors on and adds nothing but rounding.
    others = [one for one in budget.modules if (one.module, one.own_code) not in {(n, False) for n in LINEARS}]
    assert len(others) > 10 and not any(one.assumed for one in others)
    worst = max(others, key=lambda one: one.adds)
    assert worst.adds < 0.1 * min(own.values()), worst
    assert rows["blocks.1", True].arriving > 0 and rows["blocks.1.norm1", False].amplifies > 0.5


def test_shares_of_the_error_at_the_end_as_the_experiment_has_them(quantised):
    runs, _, at_the_end, all_of_it = quantised
    budget = tenscope.diff(*runs, budget=True).budget
    rows = by_name(budget)
    squares = {name: at_the_end[name] ** 2 for name in LINEARS}
    expected = {name: squares[name] / sum(squares.values()) for name in LINEARS}
    shares = {name: rows[name, False].share for name in LINEARS}
    print({name: (f"{shares[name]:.3f}", f"{expected[name]:.3f}") for name in LINEARS})
    assert sum(one.share for one in budget.modules) == pytest.approx(1, abs=1e-6)
    (root,) = budget.roots
    assert root.leaving == pytest.approx(all_of_it, rel=1e-6) and root.share_of_inputs == 0
    assert rank_correlation([shares[n] for n in LINEARS], [expected[n] for n in LINEARS]) > 0.95
    assert all(1 / 1.5 < shares[n] / expected[n] < 1.5 for n in LINEARS if expected[n] > 0.01)


def test_a_model_in_bfloat16_as_the_experiment_has_it(tmp_path):
    model = make_gpt()
    leaves = [name for name, module in model.named_modules() if not list(module.children())]
    reference, _ = outputs(model, leaves, ids())
    half = make_gpt().bfloat16()
    budget = tenscope.diff(
        record(tmp_path / "a", model, ids()), record(tmp_path / "b", half, ids()), budget=True
    ).budget
    rows = by_name(budget)
    ratios = {}
    for name in leaves:
        given = reference[name][0]
        module = half.get_submodule(name)
        with torch.no_grad():  # what it is given is rounded already, by the module before it
            exact = model.get_submodule(name)(given if not given.is_floating_point() else given.bfloat16().float())
            swapped = module(given if not given.is_floating_point() else given.bfloat16())
        ratios[name] = rows[name, False].adds / relative(swapped, exact)
    print({name: f"{ratio:.2f}" for name, ratio in ratios.items()})
    assert all(0.9 < ratio < 1.1 for ratio in ratios.values()), ratios


def test_what_arrives_with_the_inputs_is_no_module_of_the_models(tmp_path):
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    x = torch.randn(64, 8, generator=torch.Generator().manual_seed(0))
    y = x + 1e-2 * torch.randn(64, 8, generator=torch.Generator().manual_seed(1))
    budget = tenscope.diff(record(tmp_path / "a", model, x), record(tmp_path / "b", model, y), budget=True).budget
    (root,) = budget.roots
    assert root.share_of_inputs > 0.99 and root.share_not_traced < 1e-6
    assert all(one.adds < 0.05 * one.leaving for one in budget.modules)
    for one in budget.modules:
        assert one.amplifies == pytest.approx(one.leaving / one.arriving, rel=0.01)


def test_equal_runs_add_nothing(tmp_path):
    runs = [record(tmp_path / side, make_gpt(), ids()) for side in "ab"]
    diff = tenscope.diff(*runs, budget=True)
    assert not diff and all(one.adds == 0 and one.share is None for one in diff.budget.modules)
    assert "no module adds an error of its own" in str(diff)
    assert tenscope.diff(*runs).budget is None and "adds" not in str(tenscope.diff(*runs))


def test_several_calls_are_the_root_of_the_mean_square(tmp_path):
    model, other = make_gpt(), make_gpt()
    rounded(other.blocks[1].mlp.up, 10)
    batches = [ids(seed) for seed in range(3)]
    diff = tenscope.diff(record(tmp_path / "a", model, *batches), record(tmp_path / "b", other, *batches), budget=True)
    expected = []
    for batch in batches:
        before, after = (outputs(m, ["blocks.1.mlp.up"], batch)[0]["blocks.1.mlp.up"][1] for m in (model, other))
        expected.append(relative(after, before))
    first = diff.budget.modules[0]
    assert first.module == "blocks.1.mlp.up" and first.calls == 3 and diff.budget.roots[0].calls == 3
    assert first.adds == pytest.approx(np.sqrt(np.mean(np.square(expected))), rel=1e-4)
    assert first.arriving == 0 and first.amplifies is None and first.share > 0.99


def test_training_moves_the_parameters_apart(tmp_path):
    def train(folder, levels):
        model = make_gpt()
        if levels:
            rounded(model.head, levels)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with tenscope.Run(folder, metadata=False) as run, tenscope.trace(model, params=True, grads=True, run=run):
            for step in range(3):
                model(ids(step)).square().mean().backward()
                optimizer.step()
                optimizer.zero_grad()
                run.step()
        return run.path

    diff = tenscope.diff(train(tmp_path / "a", None), train(tmp_path / "b", 20), budget=True)
    (root,) = diff.budget.roots
    assert (root.calls, root.left_out) == (1, 2)
    assert [one.module for one in diff.budget.modules if one.adds > 0] == ["head"]
    assert "2 later calls of GPT#0 left out" in str(diff)


def test_of_statistics_alone_sums_are_known_and_the_rest_is_assumed(tmp_path):
    model, other = make_gpt(), make_gpt()
    rounded(other.blocks[0].attn.qkv, 5)
    runs = [record(tmp_path / side, one, ids(), values="stats") for side, one in (("a", model), ("b", other))]
    budget = tenscope.diff(*runs, budget=True).budget
    rows = by_name(budget)
    before, after = (outputs(m, ["blocks.0.attn.qkv"], ids())[0]["blocks.0.attn.qkv"][1] for m in (model, other))
    assert budget.modules[0].module == "blocks.0.attn.qkv"
    assert budget.modules[0].adds == pytest.approx(relative(after, before), rel=0.3)
    assert not rows["blocks.0", True].assumed and rows["blocks.0", True].adds < 1e-3
    assert rows["blocks.1.attn.proj", False].assumed


def test_an_engine_without_modules_has_no_budget(tmp_path):
    runs = []
    for side in "ab":
        with tenscope.Run(tmp_path / side, metadata=False) as run:
            run.record("q", np.arange(64, dtype=np.float32) + (side == "b"))
        runs.append(run.path)
    diff = tenscope.diff(*runs, budget=True)
    assert diff.budget.modules == [] and "no budget of the modules' errors" in str(diff)


def test_the_table_on_the_command_line(quantised):
    runs, *_ = quantised
    words = [TENSCOPE, "diff", *runs, "--budget"]
    text = subprocess.run([*words, "--top", "4"], capture_output=True, text=True, check=False)
    assert text.returncode == 1
    lines = text.stdout.splitlines()
    begin = next(i for i, line in enumerate(lines) if line.startswith("what each module adds"))
    assert lines[begin + 1].split() == ["module", "arriving", "leaving", "adds", "share", "amplifies"]
    document = json.loads(subprocess.run([*words, "--json"], capture_output=True, text=True, check=False).stdout)
    names = [one["module"] for one in document["budget"]["modules"][:4]]
    assert [line.split()[0] for line in lines[begin + 2 : begin + 6]] == names
    assert "more, " in lines[begin + 6] and all(len(line) <= 80 for line in lines[begin : begin + 7])
    refused = subprocess.run([*words, "--dask", "tcp://localhost:1"], capture_output=True, text=True, check=False)
    assert refused.returncode == 2 and "--budget" in refused.stderr
    with pytest.raises(UsageError, match="executor"):
        tenscope.diff(*runs, budget=True, executor=object())
