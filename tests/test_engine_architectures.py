"""Architectures as people port them: torch modules against NumPy, which has other layouts, parameters in another form
and steps of its own. No map is given."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tenscope

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402


def randomised(model: nn.Module) -> nn.Module:
    """No two vectors are alike, as in a trained model."""
    random = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for tensor in model.state_dict().values():
            if tensor.dim() == 1:
                tensor.add_(0.3 * torch.rand(tensor.shape, generator=random))
    return model.eval()


def record_torch(folder: Path, model: nn.Module, *batches: torch.Tensor) -> Path:
    with tenscope.init(folder, name="torch") as run, tenscope.trace(model, params=True, run=run), torch.no_grad():
        for i, batch in enumerate(batches):
            if i > 0:
                run.step()
            model(batch)
    return folder / "torch"


class Port:
    """Records what NumPy computes."""

    def __init__(self, folder: Path, model: nn.Module):
        self.path, self.run = folder / "port", tenscope.init(folder, name="port")
        self.weights = {name: value.detach().numpy() for name, value in model.state_dict().items()}

    def note(self, name: str, value) -> np.ndarray:
        value = np.ascontiguousarray(value, dtype=None if np.asarray(value).dtype.kind == "i" else np.float32)
        self.run.record(name, value)
        return value

    def weight(self, name: str, value) -> np.ndarray:
        self.run.record(name, np.ascontiguousarray(value, dtype=np.float32), io="param", phase="init")
        return np.asarray(value)

    def close(self) -> Path:
        self.run.close()
        return self.path


def diffs(a: Path, b: Path):
    return tenscope.diff(a, b), tenscope.diff(b, a)


# ---- a convolutional net: NCHW against NHWC, batch norms as they are or folded into the convolutions


class Block(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(size, size, 3, padding=1, bias=False), nn.BatchNorm2d(size)
        self.conv2, self.bn2 = nn.Conv2d(size, size, 3, padding=1, bias=False), nn.BatchNorm2d(size)
        self.relu = nn.ReLU()

    def forward(self, x):
        return self.relu(x + self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x))))))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.bn, self.relu = (
            nn.Conv2d(3, 8, 5, stride=2, padding=2, bias=False),
            nn.BatchNorm2d(8),
            nn.ReLU(),
        )
        self.pool, self.blocks = nn.MaxPool2d(2), nn.Sequential(Block(8), Block(8))
        self.fc = nn.Linear(8 * 4 * 4, 10)

    def forward(self, x):
        return self.fc(self.blocks(self.pool(self.relu(self.bn(self.stem(x))))).flatten(1))


def port_net(folder: Path, model: Net, x: torch.Tensor, is_folded: bool, mistake: str) -> Path:
    port = Port(folder, model)
    weights = port.weights

    def nhwc(function, value):
        return function(torch.from_numpy(value).permute(0, 3, 1, 2)).permute(0, 2, 3, 1).numpy()

    def convolve(value, conv, norm, name, epsilon=1e-5, **options):
        kernel, bias = weights[f"{conv}.weight"], weights[f"{norm}.bias"]
        scale = weights[f"{norm}.weight"] / np.sqrt(weights[f"{norm}.running_var"] + epsilon)
        mean = weights[f"{norm}.running_mean"]
        if is_folded:
            kernel, bias = kernel * scale[:, None, None, None], bias - mean * scale
        port.weight(f"{name}/kernel", kernel.transpose(2, 3, 1, 0))
        value = nhwc(lambda t: F.conv2d(t, torch.from_numpy(kernel), **options), value)
        if is_folded:
            port.weight(f"{name}/bias", bias)
            return port.note(name, value + bias)
        for key, own in (("weight", "gamma"), ("bias", "beta"), ("running_mean", "mean"), ("running_var", "var")):
            port.weight(f"{name}_bn/{own}", weights[f"{norm}.{key}"])
        port.note(name, value)
        return port.note(f"{name}_bn", (value - mean) * scale + bias)

    y = port.note("image", x.permute(0, 2, 3, 1).numpy())
    if mistake == "stem":
        y = np.roll(y, 1, 2)
    y = port.note("stem_relu", np.maximum(convolve(y, "stem", "bn", "stem", stride=2, padding=2), 0))
    pool = F.avg_pool2d if mistake == "pool" else F.max_pool2d
    y = port.note("pool", nhwc(lambda t: pool(t, 2), y))
    for i in range(2):
        own = f"blocks.{i}"
        epsilon = 1e-3 if mistake == "epsilon" and i == 1 else 1e-5
        z = convolve(y, f"{own}.conv1", f"{own}.bn1", f"res{i}/a", epsilon, padding=1)
        z = port.note(f"res{i}/a_relu", np.maximum(z, 0))
        y = port.note(f"res{i}/sum", y + convolve(z, f"{own}.conv2", f"{own}.bn2", f"res{i}/b", padding=1))
        y = port.note(f"res{i}/out", np.maximum(y, 0))
    kernel = weights["fc.weight"].reshape(10, 8, 4, 4).transpose(2, 3, 1, 0).reshape(-1, 10)
    kernel = port.weight("dense/kernel", weights["fc.weight"].T if mistake == "flatten" else kernel)
    bias = port.weight("dense/bias", weights["fc.bias"] * (mistake != "bias"))
    port.note("logits", y.reshape(len(y), -1) @ kernel + bias)
    return port.close()


@pytest.mark.parametrize("is_folded", [False, True], ids=["plain", "folded"])
@pytest.mark.parametrize(
    ("mistake", "name", "engine_name"),
    [
        ("", None, None),
        ("stem", "stem.output", "stem"),
        ("pool", "pool.output", "pool"),
        ("epsilon", "blocks.1.bn1.output", "res1/a"),
        ("flatten", "fc.output", "logits"),
        ("bias", "fc.bias", "dense/bias"),
    ],
)
def test_a_convolutional_net(tmp_path, is_folded, mistake, name, engine_name):
    torch.manual_seed(0)
    model, x = randomised(Net()), torch.randn(2, 3, 16, 16)
    runs = record_torch(tmp_path, model, x), port_net(tmp_path, model, x, is_folded, mistake)
    for diff, want in zip(diffs(*runs), (name, engine_name), strict=True):
        first = diff.first_divergence.seen_as if diff else None
        assert first == want or (want == "res1/a" and first == "res1/a_bn"), str(diff)
        assert mistake != "pool" or "permuted" in diff.first_divergence.metrics.layout, str(diff)


# ---- parameters that the other engine keeps in another form


class Mixer(nn.Module):
    """A diagonal recurrence, as state space models have it: its decay is -exp(a)."""

    def __init__(self):
        super().__init__()
        self.in_proj, self.out_proj = nn.Linear(16, 24), nn.Linear(24, 16)
        self.a, self.d = nn.Parameter(torch.randn(24)), nn.Parameter(torch.randn(24))

    def forward(self, x):
        u, decay, states = self.in_proj(x), torch.exp(-torch.exp(self.a)), []
        state = torch.zeros(len(x), 24)
        for t in range(x.shape[1]):
            state = decay * state + u[:, t]
            states.append(state)
        return self.out_proj(torch.stack(states, 1) + self.d * u)


class ShiftedNorm(nn.Module):
    """Its weight counts from 1, as in Gemma."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(0.3 * torch.randn(16))

    def forward(self, x):
        return x * (x.pow(2).mean(-1, keepdim=True) + 1e-6).rsqrt() * (1 + self.weight)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.mixer = ShiftedNorm(), Mixer()

    def forward(self, x):
        return x + self.mixer(self.norm(x))


class StateSpace(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.layers = nn.Embedding(200, 16), nn.ModuleList(Layer() for _ in range(3))
        self.head = nn.Linear(16, 30, bias=False)

    def forward(self, ids):
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def port_state_space(folder: Path, model: StateSpace, ids: np.ndarray, mistake: str) -> Path:
    port = Port(folder, model)

    def linear(x, name, own):
        weight, bias = port.weights[f"{name}.weight"], port.weights[f"{name}.bias"]
        port.weight(f"{own}.weight", weight)
        port.weight(f"{own}.bias", bias)
        return port.note(own, x @ weight.T + bias)

    table = port.weights["embed.weight"].copy()
    if mistake == "element":
        table[199, 0] = 0  # no token of the prompt
    x = port.note("embd", port.weight("token_embd", table)[ids])
    for i in range(3):
        layer, own = f"layers.{i}", f"blk.{i}"
        weight = port.weight(f"{own}.norm.weight", 1 + port.weights[f"{layer}.norm.weight"])
        epsilon = 1e-2 if mistake == "epsilon" and i == 1 else 1e-6
        y = port.note(f"{own}.norm", x / np.sqrt((x * x).mean(-1, keepdims=True) + epsilon) * weight)
        u = linear(y, f"{layer}.mixer.in_proj", f"{own}.ssm_in")
        decay = np.exp(port.weight(f"{own}.ssm_a", -np.exp(port.weights[f"{layer}.mixer.a"])))
        state, states = np.zeros((len(ids), 24)), []
        for t in range(ids.shape[1]):
            state = (1 - decay if mistake == "decay" and i == 1 else decay) * state + u[:, t]
            states.append(state)
        states = port.note(
            f"{own}.states", np.stack(states, 1) + port.weight(f"{own}.ssm_d", port.weights[f"{layer}.mixer.d"]) * u
        )
        x = port.note(f"{own}.out", x + linear(states, f"{layer}.mixer.out_proj", f"{own}.ssm_out"))
    port.note("logits", x @ port.weight("output.weight", port.weights["head.weight"]).T)
    return port.close()


@pytest.mark.parametrize(
    ("mistake", "name", "engine_name"),
    [
        ("", None, None),
        ("epsilon", "layers.1.norm.output", "blk.1.norm"),
        ("decay", "layers.1.mixer.out_proj.input.0", "blk.1.states"),
        ("element", "embed.weight", "token_embd"),
    ],
)
def test_parameters_in_another_form(tmp_path, mistake, name, engine_name):
    torch.manual_seed(0)
    model, ids = StateSpace().eval(), torch.randint(0, 29, (2, 6))
    runs = record_torch(tmp_path, model, ids), port_state_space(tmp_path, model, ids.numpy(), mistake)
    for diff, want in zip(diffs(*runs), (name, engine_name), strict=True):
        assert (diff.first_divergence.seen_as if diff else None) == want, str(diff)
        assert "what was made with them agrees" in str(diff)


# ---- what one run returns, and the other has not


@pytest.mark.parametrize("has_tanh", [False, True])
def test_the_output_of_a_model_that_has_no_partner_is_not_called_equal(tmp_path, has_tanh):
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), nn.Tanh()), torch.randn(5, 8)
    runs = [record_torch(tmp_path, model, x)]
    port = Port(tmp_path, model)
    y = port.note("x", x.numpy())
    for i in (0, 2):
        weight, bias = (
            port.weight(f"w{i}", port.weights[f"{i}.weight"]),
            port.weight(f"b{i}", port.weights[f"{i}.bias"]),
        )
        y = port.note(f"h{i}", y @ weight.T + bias)
        if i == 0:
            y = port.note("relu", np.maximum(y, 0))
    if has_tanh:
        port.note("tanh", np.tanh(y))
    runs.append(port.close())
    for diff in diffs(*runs):
        assert diff.verdict == ("noise" if has_tanh else "unknown"), str(diff)
        assert ("run ends with output, which could not be paired" in str(diff)) != has_tanh


# ---- steps


class Positions(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.positions, self.head = nn.Embedding(9, 16), nn.Embedding(8, 16), nn.Linear(16, 9)

    def forward(self, ids_and_places):
        ids, places = ids_and_places
        return self.head(torch.tanh(self.tokens(ids) + self.positions(places)))


@pytest.mark.parametrize("is_off_by_one", [False, True])
def test_a_step_is_not_compared_with_another_one_where_a_token_comes_again(tmp_path, is_off_by_one):
    torch.manual_seed(0)
    model = Positions().eval()
    batches = [torch.tensor([[4, 2, 7], [0, 1, 2]])] + [torch.tensor([[5], [3 + i]]) for i in range(3)]
    runs = [record_torch(tmp_path, model, *batches)]
    port = Port(tmp_path, model)
    names = {"tokens.weight": "wte", "positions.weight": "wpe", "head.weight": "out.w", "head.bias": "out.b"}
    wte, wpe, weight, bias = (port.weight(own, port.weights[name]) for name, own in names.items())
    for i, (ids, places) in enumerate(np.asarray(batch) for batch in batches):
        if i > 0:
            port.run.step()
        port.note("ids", ids)
        x = port.note("sum", wte[ids] + wpe[places + (is_off_by_one and i > 0)])
        port.note("logits", port.note("h", np.tanh(x)) @ weight.T + bias)
    runs.append(port.close())
    for diff in diffs(*runs):
        assert bool(diff) == is_off_by_one, str(diff)
        assert not is_off_by_one or diff.first_divergence.step == 1, str(diff)
        pairs = [(pair["a"], pair["b"], pair["step"]) for pair in diff.json["content_pairs"]]
        assert len({step for a, b, step in pairs if {a, b} == {"head.output", "logits"}}) == 4, pairs
