"""What a watched tensor was, as NumPy and torch see it: methods of the core's TensorValue."""

from __future__ import annotations

import math

import numpy as np

from tenscope import _core


def _numpy(self: _core.TensorValue) -> np.ndarray:
    """A copy as a NumPy array; types that NumPy lacks as float32."""
    if self.data is None:
        raise ValueError(f"only statistics were kept of {self!r}: watch with values='full'")
    try:
        return np.frombuffer(self.data, self.dtype).reshape(self.shape).copy()
    except TypeError:
        if self.dtype == "bfloat16":
            wide = np.frombuffer(self.data, np.uint16).astype(np.uint32) << 16
            return wide.view(np.float32).reshape(self.shape)
        return self.torch().float().numpy()


def _torch(self: _core.TensorValue) -> object:
    """A copy as a torch tensor on the CPU."""
    import torch

    if self.data is None:
        raise ValueError(f"only statistics were kept of {self!r}: watch with values='full'")
    if not self.data:
        return torch.empty(self.shape, dtype=getattr(torch, self.dtype))
    return torch.frombuffer(bytearray(self.data), dtype=getattr(torch, self.dtype)).reshape(self.shape)


def item(self: _core.TensorValue) -> object:
    """The number that a tensor of one element is. Its statistics are of that element, and exact for what a float is."""
    if self.count != 1:
        raise ValueError(f"only a tensor of one element is a number, not {self!r}")
    if self.data is not None:
        return self.numpy().reshape(()).item()
    is_rounded = self.dtype in ("int64", "uint64") and abs(self.min) > 2**53
    if self.dtype.startswith("complex") or self.inf or is_rounded:
        raise ValueError(f"only statistics were kept of {self!r}: watch with values='full'")
    number = math.nan if self.nan else self.min
    return number if "float" in self.dtype else bool(number) if self.dtype == "bool" else int(number)


_core.TensorValue.numpy = _numpy
_core.TensorValue.torch = _torch
_core.TensorValue.tolist = lambda self: self.numpy().tolist()
_core.TensorValue.item = item
_core.TensorValue.__float__ = lambda self: float(self.item())
_core.TensorValue.__int__ = lambda self: int(self.item())
