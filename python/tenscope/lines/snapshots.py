"""What a watched tensor was, as NumPy and torch see it: methods of the core's TensorValue."""

from __future__ import annotations

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


_core.TensorValue.numpy = _numpy
_core.TensorValue.torch = _torch
_core.TensorValue.tolist = lambda self: self.numpy().tolist()
_core.Changes.__reduce__ = lambda self: (tuple, ())  # a function pickled by value goes without its last changes
