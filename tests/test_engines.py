"""One model in two engines: torch modules, and NumPy under names, shapes and orders of its own. No map is given."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tenscope

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

ROOT = Path(__file__).parent.parent
TENSCOPE = Path(sys.executable).with_name("tenscope")
SIZE, HEADS, LAYERS, TOKENS, VOCABULARY = 32, 4, 3, 7, 50
HEAD = SIZE // HEADS
IDS = np.array([3, 14, 15, 9, 26, 5, 35])


class Norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(SIZE))

    def forward(self, x):
        return x * (x.pow(2).mean(-1, keepdim=True) + 1e-6).rsqrt() * self.weight


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(SIZE, SIZE, bias=False) for _ in range(4))

    def forward(self, x):
        q, k, v = (part(x).view(1, TOKENS, HEADS, HEAD).transpose(1, 2) for part in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o(y.transpose(1, 2).reshape(1, TOKENS, SIZE))


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.attention, self.norm2 = Norm(), Attention(), Norm()
        self.up, self.down = nn.Linear(SIZE, 48, bias=False), nn.Linear(48, SIZE, bias=False)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.down(F.silu(self.up(self.norm2(x))))


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.layers = nn.Embedding(VOCABULARY, SIZE), nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm, self.head = Norm(), nn.Linear(SIZE, VOCABULARY, bias=False)

    def forward(self, ids):
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


def decoder():
    torch.manual_seed(0)
    model = Decoder().eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 1:
                parameter.add_(0.2 * torch.randn(SIZE))
            elif ".q." in name or ".k." in name:
                parameter.mul_(4)  # attention that is far from uniform
    return model


def record_torch(folder: Path) -> Path:
    model = decoder()
    with tenscope.init(folder, name="torch") as run, tenscope.trace(model, params=True, run=run), torch.no_grad():
        model(torch.from_numpy(IDS)[None])
    return folder / "torch"


def norm(x, weight, epsilon=1e-6):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + epsilon) * weight


def record_numpy(folder: Path, mistake: str = "", dtype=np.float32) -> Path:
    """No batch axis, heads in front, weights as (in, out), names of its own, in another precision where asked for."""
    weights = {name: p.detach().numpy().astype(dtype).astype(np.float32) for name, p in decoder().named_parameters()}
    run = tenscope.init(folder, name=f"numpy{mistake}")
    note = run.record

    def weight(name, its):
        value = weights[name]
        note(its, value.T.copy() if value.ndim == 2 and "emb" not in its else value, io="param", phase="init")
        return value

    note("tok", IDS.astype(np.int32))
    x = weight("embed.weight", "emb.w")[IDS]
    note("emb", x)
    for i in range(LAYERS):
        at, layer = f"blk{'_'}{i}", f"layers.{i}."
        epsilon = 1e-5 * 30 if mistake == "epsilon" and i == 1 else 1e-6
        y = norm(x, weight(layer + "norm1.weight", f"{at}.n1.w"), epsilon)
        note(f"{at}.n1", y)
        parts = []
        for part in "qkv":
            w = weight(f"{layer}attention.{part}.weight", f"{at}.{part}.w")
            parts.append((y @ w.T).reshape(TOKENS, HEADS, HEAD).transpose(1, 0, 2).copy())
            note(f"{at}.{part}", parts[-1])
        q, k, v = parts
        scores = q @ k.transpose(0, 2, 1) * (1 if mistake == "scale" and i == 1 else HEAD**-0.5)
        scores = np.where(np.tril(np.ones((TOKENS, TOKENS), bool)), scores, -np.inf)
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        context = (scores / scores.sum(-1, keepdims=True) @ v).transpose(1, 0, 2).reshape(TOKENS, SIZE)
        note(f"{at}.ctx", context.astype(np.float32))
        o = weight(f"{layer}attention.o.weight", f"{at}.o.w")
        y = context.astype(np.float32) @ (o if mistake == "transposed" and i == 2 else o.T)
        note(f"{at}.o", y)
        x = x + y
        note(f"{at}.mid", x)
        y = norm(x, weight(layer + "norm2.weight", f"{at}.n2.w"))
        note(f"{at}.n2", y)
        up = y @ weight(layer + "up.weight", f"{at}.up.w").T
        note(f"{at}.up", up)
        x = x + (up / (1 + np.exp(-up))) @ weight(layer + "down.weight", f"{at}.down.w").T
        note(f"{at}.out", x)
    x = norm(x, weight("norm.weight", "n.w"))
    note("n", x)
    note("logits", x @ weight("head.weight", "head.w").T)
    run.close()
    return folder / f"numpy{mistake}"


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("swapped", [False, True])
def test_a_clean_port_is_silent(tmp_path, dtype, swapped):
    runs = record_torch(tmp_path), record_numpy(tmp_path, dtype=dtype)
    diff = tenscope.diff(*(reversed(runs) if swapped else runs))
    assert not diff, str(diff)
    pairs = {(pair["b"], pair["a"]) if swapped else (pair["a"], pair["b"]) for pair in diff.json["content_pairs"]}
    true = {("head.output", "logits"), ("embed.output", "emb"), ("norm.output", "n"), ("input.0", "tok")}
    for i in range(LAYERS):
        true |= {(f"layers.{i}.attention.{part}.output", f"blk_{i}.{part}") for part in "qkv"}
        true |= {(f"layers.{i}.attention.{part}.weight", f"blk_{i}.{part}.w") for part in "qkvo"}
        true |= {(f"layers.{i}.norm1.output", f"blk_{i}.n1"), (f"layers.{i}.attention.o.input.0", f"blk_{i}.ctx")}
        true |= {(f"layers.{i}.up.output", f"blk_{i}.up"), (f"layers.{i}.output", f"blk_{i}.out")}
    if not swapped:
        assert true <= pairs
    names = dict(pairs) if not swapped else {}
    assert all(names[a] == b for a, b in true if a in names)


@pytest.mark.parametrize(
    ("mistake", "modules"),
    [("epsilon", ["layers.1.norm1"]), ("scale", ["layers.1.attention"]), ("transposed", ["layers.2.attention.o"])],
)
def test_a_mistake_is_named_in_the_reference_s_names(tmp_path, mistake, modules):
    diff = tenscope.diff(record_torch(tmp_path), record_numpy(tmp_path, mistake))
    assert diff.first_divergence is not None and diff.first_divergence.module in modules, str(diff)


def test_the_map_is_shown_and_can_be_given_again(tmp_path):
    torch_run, numpy_run = record_torch(tmp_path), record_numpy(tmp_path)
    written = tmp_path / "engine.map"
    words = [TENSCOPE, "map", torch_run, numpy_run, "--write", written]
    shown = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert "layers.0.attention.q.output" in shown and "blk_0.q " in shown and "permuted" in shown
    by_diff = tmp_path / "diff.map"
    subprocess.run([TENSCOPE, "diff", torch_run, numpy_run, "--write-map", by_diff], capture_output=True, check=True)
    assert by_diff.read_text() == written.read_text()
    rules = written.read_text().splitlines()
    assert "head.output=logits" in rules
    again = subprocess.run(
        [TENSCOPE, "diff", torch_run, numpy_run, "--map-file", written], capture_output=True, text=True
    )
    assert again.returncode == 0, again.stdout
    wrong = subprocess.run([TENSCOPE, "diff", torch_run, numpy_run, "--map", "haed.output=logits"], capture_output=True)
    assert wrong.returncode == 2


def test_equal_names_pair_where_one_run_alone_has_modules(tmp_path):
    model = decoder()
    values = {}
    hook = model.head.register_forward_hook(lambda module, inputs, output: values.update(logits=output))
    torch_run = record_torch(tmp_path)
    with torch.no_grad():
        model(torch.from_numpy(IDS)[None])
    hook.remove()
    with tenscope.init(tmp_path, name="plain") as run:
        run.record("head.output", values["logits"][0] * 2)  # without the batch axis
    diff = tenscope.diff(torch_run, tmp_path / "plain")
    assert (diff.first_divergence.module, diff.first_divergence.name) == ("head", "head.output")
    assert diff.first_divergence.metrics.relation == "b = 2 a"


X = np.random.default_rng(0).standard_normal((6, 8)).astype(np.float32)
NAN = np.where(np.arange(6)[:, None] == 0, np.nan, X).astype(np.float32)


@pytest.mark.parametrize(
    ("a", "b", "is_same"),
    [
        (NAN, NAN.T.copy(), True),
        (NAN, np.nan_to_num(NAN), False),
        (np.arange(20) + 2**60, np.arange(20) + 2**60 + 1, False),
        (X + 1j * X, X + 2j * X, False),
        (X, np.where(X > 1, np.inf, X).astype(np.float32), False),
        (np.zeros((0, 4), np.float32), np.zeros((4, 0), np.float32), False),
    ],
    ids=["nan", "nan-and-zero", "big-integers", "complex", "infinity", "empty"],
)
def test_what_is_paired_by_content_is_not_called_equal_where_it_is_not(tmp_path, a, b, is_same):
    for run_name, name, value in (("a", "x", a), ("b", "y", b)):
        with tenscope.init(tmp_path, name=run_name) as run:
            run.record(name, value)
    assert bool(tenscope.diff(tmp_path / "a", tmp_path / "b")) != is_same


@pytest.mark.parametrize("options", [{}, {"prefix": True}])
@pytest.mark.parametrize("constant", [np.zeros((16, 16), np.float32), np.ones(9, np.int64)], ids=["zeros", "ones"])
def test_a_tensor_of_one_number_everywhere_tells_nothing(tmp_path, constant, options):
    for run_name, name, more in (("a", "mask", {"h": X}), ("b", "cache", {})):
        with tenscope.Run(tmp_path, name=run_name) as run:
            for key, value in {name: constant, **more}.items():
                run.record(key, value)
    assert tenscope.diff(tmp_path / "a", tmp_path / "b", **options).verdict == "nothing"


@pytest.mark.parametrize("is_wrong", [False, True])
def test_the_adapter_of_the_docs(tmp_path, is_wrong):
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "adapters.md").read_text(), re.DOTALL)
    defined: dict = {}
    exec(code, defined)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    x = torch.randn(5, 8)
    with tenscope.Run(tmp_path, name="torch"), tenscope.trace(model, params=True), torch.no_grad():
        want = model(x)
    state = {name: parameter.detach().numpy() for name, parameter in model.named_parameters()}
    weights = {"w0": state["0.weight"].T, "b0": state["0.bias"], "w1": state["2.weight"].T, "b1": state["2.bias"]}
    program = [("xw0", "matmul", ["x", "w0"]), ("h0", "add", ["xw0", "b0"]), ("r0", "relu", ["h0"])]
    program += [("xw1", "matmul", ["h0" if is_wrong else "r0", "w1"]), ("h1", "add", ["xw1", "b1"])]
    engine = defined["Engine"](weights, program)
    with tenscope.Run(tmp_path, name="engine") as run:
        result = defined["traced"](engine, run)(x.numpy())
    assert np.allclose(result, want, atol=1e-6) != is_wrong
    diff = tenscope.diff(tmp_path / "torch", tmp_path / "engine")
    assert (diff.first_divergence.module if diff else "") == ("2" if is_wrong else ""), str(diff)


@pytest.mark.parametrize("is_wrong", [False, True])
def test_the_output_of_a_module_with_a_bias_is_what_the_bias_was_added_to(tmp_path, is_wrong):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))
    x = torch.randn(5, 8)
    with tenscope.Run(tmp_path, name="torch"), tenscope.trace(model, params=True), torch.no_grad():
        model(x)
    with tenscope.Run(tmp_path, name="plain") as run:
        y = x.numpy()
        run.record("in", y)
        for i in (0, 2):
            weight, bias = model[i].weight.detach().numpy().T.copy(), model[i].bias.detach().numpy()
            run.record(f"w{i}", weight, io="param", phase="init")
            run.record(f"b{i}", bias, io="param", phase="init")
            product = y @ weight
            run.record(f"xw{i}", product, inputs=["in" if i == 0 else "t", f"w{i}"])
            y = product + bias * (1 - 0.01 * (is_wrong and i == 2))
            run.record(f"h{i}", y, inputs=[f"xw{i}", f"b{i}"])
            if i == 0:
                y = np.tanh(y)
                run.record("t", y, inputs=["h0"])
    diff = tenscope.diff(tmp_path / "torch", tmp_path / "plain")
    pairs = {pair["a"]: pair["b"] for pair in diff.json["content_pairs"]}
    assert (pairs["0.output"], pairs["2.output"]) == ("h0", "h2"), str(diff)
    assert bool(diff) == is_wrong and (not is_wrong or diff.first_divergence.module == "2"), str(diff)
