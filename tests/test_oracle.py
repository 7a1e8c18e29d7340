"""`tenscope zoom --oracle`: the blamed call once more in a wider type, and which run is near to it."""

import json
import os
import random
import subprocess

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import tenscope  # noqa: E402
from hand_written_run import tenscope as tenscope_cli  # noqa: E402
from hand_written_run import tenscope_program  # noqa: E402
from tenscope import _core  # noqa: E402
from tenscope.launch.blamed_call import judge  # noqa: E402
from tenscope.launch.oracle import Oracle  # noqa: E402
from torch import nn  # noqa: E402

# ---- the widened call


def asked(folder, model, *inputs, path=".", call=0, calls=1):
    """The model called with a witness: its results, and the recorded events of the widened call."""
    with tenscope.Run(folder, name="run", strict=True) as run, tenscope.trace(model, buffers=True) as trace:
        trace._probe.witness = Oracle(trace._probe, path, call)
        results = [model(*inputs) for _ in range(calls)]
    events = [event for event in tenscope.open(run.path) if event.io == "oracle"]
    return results[-1], {event.name.partition(":")[2]: event for event in events}


def reason(folder, model, *inputs):
    _, events = asked(folder, model, *inputs)
    (event,) = events.values()
    return event.meta["reason"]


class Twice(nn.Module):
    """Does what keeps a module from being wide by its parameters alone."""

    table = torch.linspace(0, 1, 8)  # nobody's parameter, and float32

    def __init__(self):
        super().__init__()
        self.fc, self.norm = nn.Linear(8, 8), nn.LayerNorm(8)
        self.shift, self.scales = torch.linspace(1, 2, 8), [torch.tensor(0.3)]
        self.kept = None

    def forward(self, x, mask=None):
        x = self.norm(x).float().softmax(-1, dtype=torch.float32).type_as(x)
        x = self.fc(x) * self.scales[0] + torch.full((8,), 0.1) + self.table @ torch.eye(8)
        x = x + torch.zeros(8, dtype=torch.float32).add_(self.shift)
        self.kept = x
        return x if mask is None else x.masked_fill(mask, 0.0), x.argmax(-1)


@pytest.mark.parametrize(("dtype", "wide"), [("float32", "float64"), ("bfloat16", "float32"), ("float16", "float32")])
def test_it_is_wide_all_the_way(tmp_path, dtype, wide):
    torch.manual_seed(0)
    model, x = Twice().to(getattr(torch, dtype)), torch.randn(4, 8).to(getattr(torch, dtype))
    result, events = asked(tmp_path, model, x, calls=2, call=1)
    assert set(events) == {"computed.0", "computed.1", "oracle.0", "oracle.1"}
    assert events["oracle.0"].dtype == wide and events["oracle.0"].call == 1
    assert torch.equal(events["computed.0"].tensor().torch(), result[0].detach())
    # By hand, in float64 throughout, of the same numbers.
    p = {name: value.detach().double() for name, value in model.named_parameters()}
    y = nn.functional.layer_norm(x.double(), (8,), p["norm.weight"], p["norm.bias"]).softmax(-1)
    y = (y @ p["fc.weight"].T + p["fc.bias"]) * model.scales[0].double() + 0.1 + Twice.table.double()
    y = y + model.shift.double()
    error = (events["oracle.0"].tensor().torch().double() - y).abs().max()
    assert error < (1e-13 if wide == "float64" else 1e-5), error
    assert (result[0].double() - y).abs().max() > 100 * error, "what the program computed is not that near"


def test_the_program_does_not_notice(tmp_path):
    """Its state, its generators, and what it computes later are what they are without."""

    class Stateful(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.drop, self.calls = nn.BatchNorm1d(8), nn.Dropout(0.5), 0

        def forward(self, x):
            self.calls += 1
            return self.drop(self.norm(x)) + random.random() + float(np.random.rand())

    def outcome(witnessed):
        torch.manual_seed(3), random.seed(3), np.random.seed(3)
        model, x = Stateful(), torch.randn(5, 8, requires_grad=True)
        y = asked(tmp_path / "x", model, x * 2, calls=2)[0] if witnessed else [model(x * 2) for _ in range(2)][-1]
        y.sum().backward()
        versions = [buffer._version for buffer in model.buffers()]
        return [y, x.grad, *model.state_dict().values(), torch.rand(1), random.random(), np.random.rand()], (
            model.calls, versions, torch.get_default_dtype(),
        )  # fmt: skip

    without, with_it = outcome(False), outcome(True)
    assert without[1] == with_it[1]
    assert all(torch.equal(*map(torch.as_tensor, pair)) for pair in zip(without[0], with_it[0], strict=True))


@pytest.mark.parametrize("name", ["dropout", "rand_like", "bernoulli", "randn"])
def test_the_same_random_numbers_are_drawn(tmp_path, name):
    class Random(nn.Linear):
        def forward(self, x):
            y = super().forward(x)
            if name == "dropout":
                return nn.functional.dropout(y, 0.5)
            if name == "bernoulli":
                return y * torch.bernoulli(y.sigmoid())
            return y * (torch.rand_like(y) if name == "rand_like" else torch.randn(6, 8))

    torch.manual_seed(0)
    result, events = asked(tmp_path, Random(8, 8), torch.randn(6, 8))
    oracle = events["oracle"].tensor().torch()
    assert oracle.dtype == torch.float64
    assert 0 < (oracle - result.double()).abs().max() < 1e-5


def test_other_random_numbers_are_told(tmp_path):
    class Random(nn.Linear):
        calls = 0

        def forward(self, x):
            Random.calls += 1
            return super().forward(x) * torch.rand(Random.calls)[0]

    assert "draws random numbers" in reason(tmp_path, Random(8, 8), torch.randn(6, 8))


class Strict(nn.Linear):
    def forward(self, x):
        assert x.dtype == torch.float32, "float32 only"
        return super().forward(x)


class Uncopied(nn.Linear):
    def __deepcopy__(self, memo):
        return self


class Alone(nn.Linear):
    def __deepcopy__(self, memo):
        raise TypeError("there is only one")


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: Strict(8, 8), "AssertionError: float32 only"),
        (lambda: Uncopied(8, 8), "shares tensors or modules with it"),
        (lambda: Alone(8, 8), "TypeError: there is only one"),
        (lambda: nn.Linear(8, 8).double(), "computes in float64 already"),
    ],
    ids=["assert", "shared", "not copied", "float64"],
)
def test_why_not(tmp_path, make, why):
    model = make()
    x = torch.randn(2, 8, dtype=next(model.parameters()).dtype)
    assert why in reason(tmp_path, model, x)
    assert next(model.parameters()).dtype == x.dtype


def test_a_model_of_transformers(tmp_path):
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        vocab_size=30, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
        intermediate_size=32,
    )  # fmt: skip
    torch.manual_seed(0)
    model = transformers.LlamaModel(config).eval()  # its norms compute in float32 whatever they are given
    result, events = asked(tmp_path, model, torch.arange(10).view(2, 5))  # and it makes a cache
    oracle = events["oracle.last_hidden_state"].tensor().torch()
    assert oracle.dtype == torch.float64
    assert 0 < (oracle - result.last_hidden_state.double()).abs().max() < 1e-5
    norm = model.norm
    with torch.no_grad():
        x = torch.randn(2, 16)
        _, events = asked(tmp_path / "norm", norm, x)
    x = x.double()
    right = norm.weight.double() * (x * torch.rsqrt(x.square().mean(-1, keepdim=True) + norm.variance_epsilon))
    assert (events["oracle"].tensor().torch() - right).abs().max() < 1e-14


# ---- the judgement


def judged(folder, a, b):
    """Of runs with these values: (computed, oracle), or a reason; and what stands for the inputs."""
    for name, (values, inputs) in (("a", a), ("b", b)):
        with tenscope.Run(folder, name=name, replace=True) as run:
            where = {"io": "oracle", "scope": "attn", "root": "Net#0", "cls": "Attention", "phase": "forward"}
            if isinstance(values, str):
                run.record("attn:oracle", values, meta={"reason": values, "inputs": inputs}, **where)
                continue
            for word, value in zip(("computed", "oracle"), values, strict=True):
                run.record(f"attn:{word}", value, meta={"inputs": inputs}, **where)
    text, document = _core.judge_by_oracle(str(folder / "a"), str(folder / "b"), None)
    return text, json.loads(document)


RIGHT = np.linspace(-4, 4, 101)
UNIT = 4 * 2.0**-24  # the roundoff of float32 at the largest value


def off(units, dtype=np.float32):
    """Values of which one is that many units away."""
    values = RIGHT.astype(np.float32).astype(np.float64)
    values[0] += units * UNIT
    return values.astype(dtype)


EXACT = RIGHT.astype(np.float32).astype(np.float64)  # so that the others have no error but theirs


@pytest.mark.parametrize(
    ("a", "b", "verdict", "words"),
    [
        (2, 4, "rounding", "both within 4 units: rounding (A 2 units, B 4 units)"),
        (2, 2048, "b_is_wrong", "A 2 units, B 2.05e+03 units: B is wrong"),
        (2048, 0, "a_is_wrong", "A 2.05e+03 units, B 0 units: A is wrong"),
        (2048, 4096, "neither", "A 2.05e+03 units, B 4.1e+03 units: neither is near to it"),
        (64, 256, "unclear", "A 64 units, B 256 units: not clear"),
    ],
)
def test_who_is_right(tmp_path, a, b, verdict, words):
    text, found = judged(tmp_path, ((off(a), EXACT), "x"), ((off(b), EXACT), "x"))
    assert found["verdict"] == verdict and found["are_inputs_equal"] and found["limit"] == 100
    assert text.startswith(f"attn widened to float64: {words}\n")
    assert (found["a"]["units"], found["b"]["units"]) == (a, b)


def test_different_things(tmp_path):
    text, found = judged(tmp_path, ((off(2), EXACT), "x"), ((off(9), EXACT + 8 * UNIT), "x"))
    assert found["verdict"] == "different" and found["apart"] == pytest.approx(8)
    assert found["b"]["from_a"] == pytest.approx(9) and found["b"]["units"] == pytest.approx(9, abs=8)
    assert "the two versions compute different things, also in float64" in text
    # Of inputs that differ by rounding so may the widened calls.
    text, found = judged(tmp_path, ((off(2), EXACT), "x"), ((off(9), EXACT + 8 * UNIT), "y"))
    assert found["verdict"] == "rounding" and "are not equal in bits" in text
    text, found = judged(tmp_path, ((off(2), EXACT), "x"), ((off(2)[:50], EXACT[:50]), "x"))
    assert found["verdict"] == "different" and "infinitely many units" in text
    bad = off(2)
    bad[7] = np.nan
    text, found = judged(tmp_path, ((off(2), EXACT), "x"), ((bad, EXACT), "x"))
    assert found["verdict"] == "b_is_wrong" and "B infinitely many units" in text


def test_what_is_not_known(tmp_path):
    text, found = judged(tmp_path, ((off(2), EXACT), "x"), ("RuntimeError: no kernel", "x"))
    assert found["verdict"] == "unknown" and found["b"]["reason"] == "RuntimeError: no kernel"
    assert text == "who is right is not known: B's call of attn cannot be widened: RuntimeError: no kernel\n"
    whole = np.arange(4)
    text, found = judged(tmp_path, ((whole, whole), "x"), ((whole, whole), "x"))
    assert found["verdict"] == "unknown" and "no floating-point numbers" in text
    text, found = judge([], [None, None], {"module": ""})
    assert found["verdict"] == "unknown" and "module's own forward" in text


# ---- zoom

PROGRAM = """
import sys
import torch
from torch import nn

WAY = sys.argv[1]
torch.manual_seed(0)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k = nn.Linear(16, 16), nn.Linear(16, 16)
        self.drop = nn.Dropout(0.5)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        scores = self.q(x) @ self.k(x).transpose(-2, -1)
        weights = scores.half().softmax(-1).float() if WAY == "half" else scores.softmax(-1)
        return self.drop(weights) @ x, scores.argmax(-1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.attn, self.last = nn.Linear(16, 16), Attention(), nn.Linear(16, 4)

    def forward(self, x):
        return self.last(self.attn(self.first(x))[0])


net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for step in range(2):
    loss = net(torch.randn(4, 8, 16)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """Records the program in a way, once each."""
    folder = tmp_path_factory.mktemp("oracle")
    (folder / "model.py").write_text(PROGRAM)

    def record(way, *options, name=None):
        run = folder / "runs" / (name or way)
        if not run.exists():
            command = [tenscope_program(), "run", *options, "--out", folder / "runs", "--name", run.name]
            environment = os.environ | {"TENSCOPE_METADATA": "1", "OMP_NUM_THREADS": "1"}
            command += [folder / "model.py", way]
            subprocess.run(command, check=True, cwd=folder, env=environment, capture_output=True)
        return run

    return record


def test_zoom_says_who_is_right_and_offers_the_call(recorded):
    text = tenscope_cli("zoom", recorded("plain"), recorded("half"), "--oracle", check=1).stdout
    line = next(line for line in text.splitlines() if "widened to" in line)
    assert line.startswith("attn widened to float64: A ") and line.endswith(" units: B is wrong")
    lines = text.splitlines()
    offered = lines[lines.index("to look at this call alone:") + 1].strip()
    assert offered.endswith(f"tenscope repro {recorded('half')} --call attn --call-index 0 -o case")


def test_a_run_with_it_is_the_run_without(recorded):
    run = recorded("plain", "--oracle", "attn", "--oracle-call", "1", "--ops", "attn", name="looked-at")
    events = [event for event in tenscope.open(run) if event.io == "oracle"]
    assert {event.name for event in events} == {f"attn:{w}.{i}" for w in ("oracle", "computed") for i in (0, 1)}
    assert {event.call for event in events} == {1}
    found = json.loads(tenscope_cli("diff", recorded("plain"), run, "--json").stdout)
    assert found["equal"] and found["counts"]["compared"] == found["counts"]["first_run"]
    checks = [json.loads(tenscope_cli("check", r, "--json", check=None).stdout) for r in (recorded("plain"), run)]
    assert checks[0]["looked_at"] == checks[1]["looked_at"]
    # No operation of the widened call is among the recorded ones.
    assert not any(event.io == "op" and event.dtype == "float64" for event in tenscope.open(run))
