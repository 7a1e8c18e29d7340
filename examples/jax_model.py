"""A model in PyTorch and its port to Flax, recorded and compared: `python examples/jax_model.py [--bug]`.

With --bug the port has another epsilon in its normalisation. Needs torch, jax and flax.
"""

import sys
import tempfile
from pathlib import Path

import flax.linen
import jax.numpy as jnp
import tenscope
import tenscope.jax
import torch


class TorchNet(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up = torch.nn.Linear(8, 16)
        self.norm = torch.nn.LayerNorm(16)
        self.down = torch.nn.Linear(16, 4)

    def forward(self, x):
        return self.down(torch.relu(self.norm(self.up(x))))


class FlaxNet(flax.linen.Module):
    epsilon: float = 1e-5

    @flax.linen.compact
    def __call__(self, x):
        x = flax.linen.Dense(16, name="wi")(x)
        x = flax.linen.LayerNorm(self.epsilon, name="ln")(x)
        return flax.linen.Dense(4, name="wo")(flax.linen.relu(x))


torch.manual_seed(0)
model = TorchNet()
x = torch.randn(5, 8)
array = {name: jnp.asarray(parameter.detach().numpy()) for name, parameter in model.named_parameters()}
params = {
    "wi": {"kernel": array["up.weight"].T, "bias": array["up.bias"]},
    "ln": {"scale": array["norm.weight"], "bias": array["norm.bias"]},
    "wo": {"kernel": array["down.weight"].T, "bias": array["down.bias"]},
}
folder = Path(tempfile.mkdtemp())

with tenscope.Run(folder, name="torch"), tenscope.trace(model, params=True), torch.no_grad():
    model(x)

port = FlaxNet(1e-3 if "--bug" in sys.argv else 1e-5)
with tenscope.Run(folder, name="flax"):
    tenscope.jax.trace(port.apply)({"params": params}, jnp.asarray(x.numpy()))

print(tenscope.diff(folder / "torch", folder / "flax"))
