"""Tensors from inside a forward, one .pt file each."""

from __future__ import annotations

import logging
from collections import Counter

import torch
from torch import nn

from ._base import BaseDebugger
from .context import get_debug_context

logger = logging.getLogger(__name__)


class TensorSaver(BaseDebugger):
    def __init__(self, output_dir, enabled: bool = True):
        super().__init__(output_dir, enabled)
        self.call_counts: Counter[str] = Counter()  # 0 for a name that was never saved

    def register_modules(self, model, target_classes=(nn.Module,), target_names=None, exclude_names=None) -> None:
        self._register(model, target_classes, target_names, exclude_names)

    def save(self, name: str, tensor: torch.Tensor, call_idx: int | None = None, norm_only: bool = False) -> None:
        if not self.enabled:
            return
        if call_idx is None:
            call_idx = self.call_counts[name]
            self.call_counts[name] = call_idx + 1
        with torch.no_grad():
            value = tensor.detach()
            if norm_only:
                value = _norms(value)
            value = value.to("cpu", copy=True).contiguous()  # a copy: a view would drag its whole storage into the file
        path = self.output_dir / f"{name}.call{call_idx}.pt"
        torch.save(value, path)
        logger.info("Saved %s to %s", name, path)
        logger.debug("%s, call %d: shape %s, %s", name, call_idx, tuple(value.shape), value.dtype)

    def reset_counts(self) -> None:
        self.call_counts.clear()


def _norms(value: torch.Tensor) -> torch.Tensor:
    """L2 norm of each item along the first dimension."""
    if not (value.is_floating_point() or value.is_complex()):
        value = value.float()
    rows = value.reshape(value.shape[0], -1) if value.dim() > 0 else value.reshape(1, 1)
    return torch.linalg.vector_norm(rows, dim=1)


def spy_save(name: str, tensor: torch.Tensor, module: nn.Module | None = None) -> None:
    context = get_debug_context()
    if context is not None:
        context._save(name, tensor, module)
