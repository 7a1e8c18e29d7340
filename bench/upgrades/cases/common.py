"""What the scripts share: one thread, weights that depend on nothing but names, and the numbers for the judge."""

import os
import warnings
import zlib
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
warnings.filterwarnings("ignore")

import numpy as np  # noqa: E402
import torch  # noqa: E402

torch.set_num_threads(1)
torch.manual_seed(0)


def draw(name, *shape, std=1.0):
    """Normal numbers, the same for the same name everywhere."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(zlib.crc32(name.encode()))) * std


def draw_ids(name, high, *shape, low=0):
    return torch.randint(low, high, shape, generator=torch.Generator().manual_seed(zlib.crc32(name.encode())))


@torch.no_grad()
def fill(model, std=0.2, called=lambda name: name):
    """Weights by name: matrices are normal, vectors near what a layer begins with.

    `called` says what a parameter was called before it was renamed.
    """
    for name, parameter in model.named_parameters():
        if parameter.dim() > 1:
            parameter.copy_(draw(called(name), *parameter.shape, std=std))
        else:
            parameter.copy_(draw(called(name), *parameter.shape, std=0.1) + float(name.endswith(("weight", "gamma"))))
    return model


def train(model, loss_of, steps=3, optimizer=None):
    """The losses of some steps of plain gradient descent, or of another optimizer."""
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.05)
    losses = []
    for step in range(steps):
        optimizer.zero_grad()
        loss = loss_of(step)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def answer(**values):
    """Final numbers, for the judge who knows nothing of tenscope."""
    folder = os.environ.get("UPGRADES_NUMBERS")
    for name, value in values.items():
        if isinstance(value, torch.Tensor):
            value = value.detach().to(torch.float64).numpy()
        value = np.asarray(value, dtype=np.float64)
        print(name, value.ravel()[:6])
        if folder:
            np.save(Path(folder) / f"{name}.npy", value)
