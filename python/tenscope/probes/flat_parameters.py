"""Parameters of FullyShardedDataParallel, the first FSDP: on each rank a piece of the parameter as one row, or none."""

from __future__ import annotations

import sys
from typing import Any

import torch

from tenscope.probes.modules import Root


class Pieces:
    """Which part of a parameter, or of its gradient, a root's ranks have."""

    def __init__(self, root: Root):
        self._pieces: dict[int, tuple[tuple[int, ...], dict[str, Any]]] = {}  # by parameter: the local shape, the part
        if "torch.distributed.fsdp._flat_param" not in sys.modules:
            return
        for info in root.infos:
            module = info.module()
            handle = None if module is None else module.__dict__.get("_handle")
            if getattr(handle, "uses_sharded_strategy", False):
                self._add(handle)

    def _add(self, handle: Any) -> None:
        flat = handle.flat_param
        if getattr(flat, "_params", None) is None:  # use_orig_params=False: one row of all parameters
            size = flat._sharded_size.numel()
            self._put(handle, flat, size, size * handle.world_size, size * handle.rank)
            return
        for parameter, piece, size in zip(flat._params, flat._shard_param_infos, flat._numels, strict=False):
            self._put(handle, parameter, piece.numel_in_shard or 0, size, piece.intra_param_start_idx or 0)

    def _put(self, handle: Any, parameter: torch.Tensor, own: int, size: int, begin: int) -> None:
        part = {"mesh": [handle.world_size], "placements": ["S(0)"], "shape": [size]}
        self._pieces[id(parameter)] = ((own,), part | {"coordinate": [handle.rank], "offset": [begin]})

    def meta_of(self, parameter: torch.Tensor, value: torch.Tensor) -> dict[str, Any]:
        """For the event of the parameter or its gradient; while the parameter is whole it is no piece."""
        shape, part = self._pieces.get(id(parameter), (None, None))
        return {"shard": part} if shape == tuple(value.shape) else {}
