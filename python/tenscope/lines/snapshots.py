"""What a watched tensor was, as NumPy and torch see it: methods of the core's TensorValue."""

from __future__ import annotations

import operator
from typing import NoReturn

import numpy as np

from tenscope import _core
from tenscope.errors import NotFoundError


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


_change_at = _core.Changes.__getitem__


def _changes(self: _core.Changes, key: object) -> object:
    """The change at a place, those of a slice, or those of a name: `changes[0]`, `changes[-3:]`, `changes["loss"]`."""
    if isinstance(key, slice):
        return [_change_at(self, i) for i in range(*key.indices(len(self)))]
    if isinstance(key, str):
        found = [change for change in (_change_at(self, i) for i in range(len(self))) if change.name == key]
        return found or no_changes_of(key, self)
    try:
        return _change_at(self, operator.index(key))
    except TypeError:
        raise TypeError(
            f"changes are found by their place or by a name, changes[0] or changes['loss']: not {key!r}"
        ) from None


def no_changes_of(name: str, changes: object) -> NoReturn:
    seen = list(dict.fromkeys(change.name for change in changes))
    near = _core.nearest(name, seen)
    hint = (
        f" (did you mean {' or '.join(near)}?)" if near else f"; there are those of {', '.join(seen)}" if seen else ""
    )
    raise NotFoundError(f"{name!r} has not changed{hint}")


_core.Changes.__getitem__ = _changes
_core.TensorValue.numpy = _numpy
_core.TensorValue.torch = _torch
_core.TensorValue.tolist = lambda self: self.numpy().tolist()
_core.Changes.__reduce__ = lambda self: (tuple, ())  # a function pickled by value goes without its last changes
