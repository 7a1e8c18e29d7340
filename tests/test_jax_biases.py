"""A Flax port of layers with biases, of which two were exchanged."""

from __future__ import annotations

import numpy as np
import pytest
import tenscope

jax = pytest.importorskip("jax")
nn = pytest.importorskip("flax.linen")
torch = pytest.importorskip("torch")

import jax.numpy as jnp  # noqa: E402
import tenscope.jax  # noqa: E402

SIZE, WIDE = 12, 20
TO_FLAX = {"q": "query", "k": "key", "v": "value", "up": "wi", "down": "wo"}


class Torch(torch.nn.Module):
    def __init__(self):
        super().__init__()
        for name in "qkv":
            setattr(self, name, torch.nn.Linear(SIZE, SIZE))
        self.up, self.down = torch.nn.Linear(SIZE, WIDE), torch.nn.Linear(WIDE, SIZE)

    def forward(self, x):
        x = torch.softmax(self.q(x) @ self.k(x).T, -1) @ self.v(x)
        return self.down(torch.relu(self.up(x)))


class Flax(nn.Module):
    @nn.compact
    def __call__(self, x):
        layer = lambda name, size=SIZE: nn.Dense(size, name=name)  # noqa: E731
        x = jax.nn.softmax(layer("query")(x) @ layer("key")(x).T) @ layer("value")(x)
        return layer("wo")(jax.nn.relu(layer("wi", WIDE)(x)))


@pytest.mark.parametrize("exchanged", ["", "qk", "qv", "kv"])
def test_what_a_layer_with_another_bias_returns_is_compared_with_its_own(tmp_path, exchanged):
    torch.manual_seed(0)
    model, x = Torch(), np.random.default_rng(1).standard_normal((7, SIZE)).astype(np.float32)
    with tenscope.Run(tmp_path, name="torch") as run, tenscope.trace(model, params=True, run=run):
        model(torch.from_numpy(x))
    weights = {name: value.detach().numpy() for name, value in model.named_parameters()}
    params = {}
    for name, to in TO_FLAX.items():
        kernel, bias = weights[f"{name}.weight"].T, weights[f"{name}.bias"]
        params[to] = {"kernel": jnp.asarray(kernel), "bias": jnp.asarray(bias)}
    if exchanged:
        first, second = (params[TO_FLAX[name]] for name in exchanged)
        first["bias"], second["bias"] = second["bias"], first["bias"]
    with tenscope.Run(tmp_path, name="flax") as run:
        tenscope.jax.trace(Flax().apply, params=0, run=run)({"params": params}, jnp.asarray(x))
    diff = tenscope.diff(tmp_path / "torch", tmp_path / "flax")
    if not exchanged:
        assert not diff, str(diff)
        return
    name = exchanged[0]
    assert diff.first_divergence.module == name, str(diff)
    assert f"in the other   {TO_FLAX[name]}.output: same order" in str(diff)
    back = tenscope.diff(tmp_path / "flax", tmp_path / "torch")
    assert back.first_divergence.seen_as == f"{TO_FLAX[name]}.add.0", str(back)
