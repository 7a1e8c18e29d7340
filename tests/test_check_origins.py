"""`tenscope check` names the place where a NaN or an infinity arises, and nothing that only follows from it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import tenscope

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

TENSCOPE = Path(sys.executable).parent / "tenscope"
INF = float("inf")


def findings(run: Path, *options: str) -> list[dict]:
    done = subprocess.run([TENSCOPE, "check", run, "--json", *options], capture_output=True, text=True)
    document = json.loads(done.stdout)
    assert done.returncode == (1 if document["findings"] else 0), done.stderr
    return [finding for finding in document["findings"] if finding["code"] in ("nan", "inf")]


def record(folder: Path, model, program, **options) -> list[dict]:
    torch.manual_seed(0)
    run = tenscope.Run(folder, name="run", strict=True)
    with tenscope.trace(model, run=run, **{"grads": True, "param_grads": True, "params": True, **options}):
        program(model)
    run.close()
    return findings(folder / "run")


def train(*batches, lr=0.1):
    def program(model):
        optimizer = torch.optim.SGD(model.parameters(), lr)
        for batch in batches:
            optimizer.zero_grad()
            model(batch).square().mean().backward()
            optimizer.step()

    return program


def where(finding):
    return {key: finding[key] for key in ("module", "name", "step", "phase", "code")}


class Log(nn.Module):
    def forward(self, x):
        return torch.log(x)


class Sqrt(nn.Module):
    def forward(self, x):
        return torch.sqrt(x)


class Gate(nn.Module):
    """As ReLU, but what comes back is multiplied by 0 and not replaced by it: an infinity becomes NaN."""

    def forward(self, x):
        return x * (x > 0)


class Inline(nn.Module):
    """The logarithm is taken in the model's own code, between two modules."""

    def __init__(self, act):
        super().__init__()
        self.a, self.relu, self.act, self.b = nn.Linear(4, 4), nn.ReLU(), act, nn.Linear(4, 2)

    def forward(self, x):
        return self.b(self.act(torch.log(self.relu(self.a(x)))))


def batch(seed=0, size=(6, 4)):
    return torch.randn(size, generator=torch.Generator().manual_seed(seed))


def test_log_of_zero_in_a_module(tmp_path):
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), Log(), nn.GELU(), nn.Linear(4, 2))
    (finding,) = record(tmp_path, model, train(batch(0), batch(1)))
    assert where(finding) == {"module": "2", "name": "2.output", "step": 0, "phase": "forward", "code": "inf"}
    assert "-Inf of 24 elements at step 0, call 0" in finding["message"]
    assert "its input 2.input.0 is finite: min 0, max " in finding["message"]
    assert finding["count"] > 30 and finding["others"][0] == "3.output (NaN)"


@pytest.mark.parametrize("act", [nn.GELU(), nn.Identity(), nn.Tanh()], ids=["gelu", "identity", "tanh"])
def test_log_of_zero_in_the_code_of_a_model(tmp_path, act):
    """Under a tanh, -Inf becomes -1: it shows in the gradients only, and still arises in the forward."""
    (finding,) = record(tmp_path, Inline(act), train(batch(0), batch(1)))
    assert where(finding) == {"module": "", "name": "act.input.0", "step": 0, "phase": "forward", "code": "inf"}
    assert "in the code of the model (Inline), before it calls act" in finding["message"]
    assert "relu.output is finite: min 0, max " in finding["message"]


def test_log_of_zero_in_the_code_of_a_submodule(tmp_path):
    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.head = Inline(nn.GELU()), nn.Linear(2, 2)

        def forward(self, x):
            return self.head(self.inner(x))

    (finding,) = record(tmp_path, Outer(), train(batch()))
    assert (finding["module"], finding["class"], finding["name"]) == ("inner", "Inline", "inner.act.input.0")


def test_an_infinite_output_of_the_model(tmp_path):
    model = nn.Sequential(nn.ReLU(), Log())
    (finding,) = record(tmp_path, model, lambda model: model(batch()))
    assert (finding["module"], finding["name"], finding["code"]) == ("1", "1.output", "inf")
    assert finding["others"] == ["output (-Inf)"] and finding["count"] == 2


class Attention(nn.Module):
    def __init__(self, softmax=None):
        super().__init__()
        self.qkv, self.out, self.softmax = nn.Linear(8, 24), nn.Linear(8, 8), softmax

    def forward(self, x, mask):
        q, k, v = self.qkv(x).chunk(3, -1)
        scores = q @ k.transpose(-1, -2)
        scores = scores + mask if mask.is_floating_point() else scores.masked_fill(mask, -INF)
        weights = self.softmax(scores) if self.softmax else scores.softmax(-1)
        return self.out(weights @ v)


class Transformer(nn.Module):
    def __init__(self, softmax=None, mask=None):
        super().__init__()
        self.attn = nn.ModuleList([Attention(softmax), Attention(softmax)])
        self.head = nn.Linear(8, 3)
        if mask is not None:
            self.register_buffer("mask", mask)

    def forward(self, x, mask=None):
        for attn in self.attn:
            x = x + attn(x, self.mask if mask is None else mask)
        return self.head(x)


def causal(kind):
    mask = torch.ones(5, 5, dtype=torch.bool).triu(1)
    return torch.zeros(5, 5).masked_fill(mask, -INF) if kind == "float" else mask


def train_masked(mask, *batches):
    def program(model):
        optimizer = torch.optim.SGD(model.parameters(), 0.01)
        for x in batches:
            optimizer.zero_grad()
            model(x, *([] if mask is None else [mask])).square().mean().backward()
            optimizer.step()

    return program


@pytest.mark.parametrize("kind", ["float", "bool"])
@pytest.mark.parametrize("has_softmax", [False, True])
@pytest.mark.parametrize("is_buffer", [False, True])
def test_masks_are_healthy(tmp_path, kind, has_softmax, is_buffer):
    mask = causal(kind)
    model = Transformer(nn.Softmax(-1) if has_softmax else None, mask if is_buffer else None)
    program = train_masked(None if is_buffer else mask, batch(0, (2, 5, 8)), batch(1, (2, 5, 8)))
    assert record(tmp_path, model, program) == []


def test_a_fully_masked_row(tmp_path):
    mask = causal("bool")
    mask[2] = True
    (finding,) = record(tmp_path, Transformer(), train_masked(mask, batch(0, (2, 5, 8))))
    assert where(finding) == {
        "module": "attn.0", "name": "attn.0.out.input.0", "step": 0, "phase": "forward", "code": "nan",
    }  # fmt: skip


def test_a_fully_masked_row_of_a_mask_given_as_numbers(tmp_path):
    mask = causal("float")
    mask[2] = -INF
    (finding,) = record(tmp_path, Transformer(), train_masked(mask, batch(0, (2, 5, 8))))
    assert (finding["module"], finding["name"]) == ("attn.0", "attn.0.out.input.0")
    assert "a mask is at hand: attn.0.input.1" in finding["message"]


def test_a_fully_masked_row_before_a_softmax_module(tmp_path):
    """The scores are filled in the attention's code; they are what the softmax cannot do with."""
    mask = causal("bool")
    mask[2] = True
    (finding,) = record(tmp_path, Transformer(nn.Softmax(-1)), train_masked(mask, batch(0, (2, 5, 8))))
    assert (finding["module"], finding["name"]) == ("attn.0", "attn.0.softmax.input.0")
    assert finding["others"][0] == "attn.0.softmax.output (NaN)"


def test_multihead_attention_with_a_fully_masked_row(tmp_path):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.mha, self.head = (
                nn.LayerNorm(8),
                nn.MultiheadAttention(8, 2, batch_first=True),
                nn.Linear(8, 2),
            )

        def forward(self, x, padding):
            x = self.norm(x)
            return self.head(self.mha(x, x, x, key_padding_mask=padding)[0])

    padding = torch.zeros(2, 5, dtype=torch.bool)
    padding[1] = True
    (finding,) = record(tmp_path, Net(), train_masked(padding, batch(0, (2, 5, 8))))
    assert (finding["module"], finding["phase"]) == ("mha", "forward")


def test_overflow_in_half_precision(tmp_path):
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8), nn.Softmax(-1)).half()
    with torch.no_grad():
        model[0].weight.fill_(100)
        model[1].weight.fill_(300)
    (finding,) = record(tmp_path, model, lambda model: model(torch.ones(3, 8).half()))
    assert (finding["module"], finding["name"], finding["code"]) == ("1", "1.output", "inf")
    assert "24 +Inf of 24 elements" in finding["message"] and "2.output (NaN)" in finding["others"]


def test_nan_in_the_data(tmp_path):
    bad = batch(1)
    bad[2, 3] = float("nan")
    (finding,) = record(tmp_path, nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2)), train(batch(0), bad, batch(2)))
    assert where(finding) == {"module": "", "name": "input.0", "step": 1, "phase": "forward", "code": "nan"}
    assert "1 NaN of 24 elements" in finding["message"] and "data" in finding["message"]


def test_infinity_in_the_data(tmp_path):
    bad = batch(1)
    bad[2, 3] = -INF
    (finding,) = record(tmp_path, nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2)), train(batch(0), bad))
    assert (finding["module"], finding["name"], finding["step"], finding["code"]) == ("", "input.0", 1, "inf")


def test_each_recovery_begins_anew(tmp_path):
    """Without training nothing is carried on: a second batch with NaN is a finding of its own."""
    bad = batch(1)
    bad[2, 3] = float("nan")

    model = nn.Linear(4, 2)
    run = tenscope.Run(tmp_path, name="run", strict=True)
    with tenscope.trace(model, run=run):
        for x in (batch(0), bad, batch(2), bad, bad, batch(3)):
            model(x)
            run.step()
    run.close()
    first, second = findings(tmp_path / "run")
    assert (first["step"], second["step"]) == (1, 3)
    assert (first["name"], second["name"]) == ("input.0", "input.0")


def test_nan_in_a_weight_after_the_optimizer(tmp_path):
    class Broken(torch.optim.SGD):
        def step(self, closure=None):
            super().step(closure)
            if self.steps == 1:
                self.param_groups[0]["params"][2].data[0, 0] = float("nan")
            self.steps += 1

    def program(model):
        optimizer = Broken(model.parameters(), 0.1)
        optimizer.steps = 0
        for x in (batch(0), batch(1), batch(2)):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()

    (finding,) = record(tmp_path, nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2)), program)
    assert where(finding) == {"module": "1", "name": "1.weight", "step": 1, "phase": "optimizer", "code": "nan"}
    assert "the optimizer's step; 1.weight.grad is finite" in finding["message"]


def test_nan_in_a_weight_from_the_beginning(tmp_path):
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    model[1].bias.data[0] = float("nan")
    (finding,) = record(tmp_path, model, train(batch(0), batch(1)))
    assert where(finding) == {"module": "1", "name": "1.bias", "step": 0, "phase": "init", "code": "nan"}


def test_a_weight_that_follows_from_its_gradient(tmp_path):
    """The gradient of sqrt at 0 is infinite; the forward is sound. The weights' NaN follow from it."""
    model = nn.Sequential(nn.Linear(4, 4), Gate(), Sqrt(), nn.Linear(4, 2))
    (finding,) = record(tmp_path, model, train(batch(0), batch(1)))
    assert where(finding)["module"] == "2" and where(finding)["phase"] == "backward"
    assert finding["name"] == "2.grad_input.0" and finding["step"] == 0
    assert "2.grad_output.0 is finite" in finding["message"]
    assert "its input 2.input.0 is finite: min 0, max " in finding["message"]
    assert finding["count"] > 20


def test_zero_times_infinity_in_the_backward(tmp_path):
    """where() hides the infinite branch in the forward; its gradient is 0 * inf."""

    class Safe(nn.Module):
        def forward(self, x):
            return torch.where(x > 0, (x * (x > 0)).sqrt(), torch.zeros_like(x))

    model = nn.Sequential(nn.Linear(4, 4), Safe(), nn.Linear(4, 2))
    (finding,) = record(tmp_path, model, train(batch(0), batch(1)))
    assert (finding["module"], finding["name"], finding["code"]) == ("1", "1.grad_input.0", "nan")


def test_a_gradient_that_arises_after_the_model(tmp_path):
    def program(model):
        model(torch.zeros(3, 4)).sub(model[0].bias).abs().sqrt().sum().backward()

    (finding,) = record(tmp_path, nn.Sequential(nn.Linear(4, 4)), program)
    assert (finding["module"], finding["name"], finding["phase"]) == ("", "grad_output.0", "backward")
    assert "the program's own code, after the model" in finding["message"]


def test_a_gradient_between_two_modules(tmp_path):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 2)

        def forward(self, x):
            return self.b(Gate.forward(self, self.a(x)).sqrt())

    (finding,) = record(tmp_path, Net(), train(batch()))
    assert (finding["module"], finding["name"]) == ("", "a.grad_output.0")
    assert "in the backward of the code of the model (Net), after a" in finding["message"]


def test_gradients_that_were_not_recorded(tmp_path):
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), Gate(), Sqrt(), nn.Linear(4, 2))
    (finding,) = record(tmp_path, model, train(batch()), grads=False, param_grads=False)
    assert (finding["name"], finding["phase"], finding["count"]) == ("0.weight", "optimizer", 4)
    assert "in its gradient, which was not recorded" in finding["message"]


def test_a_loss_that_is_not_finite(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import torch\n"
        "torch.manual_seed(0)\n"
        "model = torch.nn.Linear(4, 2)\n"
        "loss = (model(torch.randn(3, 4)).sum() * 0).log()\n"
        "loss.backward()\n"
    )
    subprocess.run([TENSCOPE, "run", "--out", tmp_path, "--name", "run", script], check=True, cwd=tmp_path)
    (finding,) = findings(tmp_path / "run")
    assert (finding["module"], finding["name"], finding["io"]) == ("", "loss", "loss")
    assert "output is finite" in finding["message"]


def test_only_one_of_the_rules(tmp_path):
    """The chain begins with -Inf and goes on with NaN: each rule alone finds it."""
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), Log(), nn.GELU(), nn.Linear(4, 2))
    record(tmp_path, model, train(batch()))
    for code in ("nan", "inf"):
        (finding,) = findings(tmp_path / "run", "--only", code)
        assert (finding["name"], finding["code"]) == ("2.output", code)
    assert findings(tmp_path / "run", "--ignore", "nan", "--ignore", "inf") == []


def test_the_same_origin_in_every_call_is_one_finding(tmp_path):
    model = nn.Sequential(nn.ReLU(), Log())

    def program(model):
        for seed in range(7):
            model(batch(seed))

    (finding,) = record(tmp_path, model, program)
    assert finding["again"] == 6 and "it arises again in 6 later calls" in finding["message"]
