"""Parameters of FullyShardedDataParallel, the first FSDP: on each rank a piece of the parameter as one row, or none."""

from __future__ import annotations

import sys
from typing import Any

import torch

from tenscope.probes.modules import Root


class Pieces:
    """Which part of a parameter, or of its gradient, a root's ranks have."""

    def __init__(self, root: Root):
        # By parameter: the shape of its piece, and the meta of the parameter and of its gradient.
        self._pieces: dict[int, tuple[tuple[int, ...], dict[str, Any], dict[str, Any]]] = {}
        if "torch.distributed.fsdp._flat_param" not in sys.modules:
            return
        for info in root.infos:
            module = info.module()
            handle = None if module is None else module.__dict__.get("_handle")
            if getattr(handle, "uses_sharded_strategy", False):
                self._add(handle)

    def _add(self, handle: Any) -> None:
        flat, rank, ranks = handle.flat_param, handle.rank, handle.world_size
        chunk = flat._sharded_size.numel()
        if getattr(flat, "_params", None) is None:  # use_orig_params=False: one row of all parameters
            self._put(flat, chunk, chunk * ranks, chunk * rank, (rank, ranks), (rank, ranks))
            return
        for parameter, piece, size in zip(flat._params, flat._shard_param_infos, flat._numels, strict=False):
            if not piece.in_shard:
                self._put(parameter, 0, size, 0, (rank, ranks), (rank, ranks))
                continue
            begin = rank * chunk + piece.offset_in_shard - piece.intra_param_start_idx  # of the parameter in all shards
            first, last = begin // chunk, (begin + size - 1) // chunk
            owners = (rank - first, last - first + 1)
            self._put(parameter, piece.numel_in_shard, size, piece.intra_param_start_idx, (rank, ranks), owners)

    def _put(self, parameter, own: int, size: int, begin: int, place: tuple[int, int], owner: tuple[int, int]) -> None:
        def part(at: int, parts: int) -> dict[str, Any]:
            where = {"mesh": [parts], "placements": ["S(0)"], "shape": [size]}
            return {"shard": where | {"coordinate": [at], "offset": [begin]}}

        self._pieces[id(parameter)] = ((own,), part(*place), part(*owner))

    def meta_of(self, parameter: torch.Tensor, value: torch.Tensor) -> dict[str, Any]:
        """For the event of the parameter, or of its gradient: that is there only on ranks that have a piece of it.
        While the parameter is whole it is no piece."""
        shape, own, of_gradient = self._pieces.get(id(parameter), (None, {}, {}))
        if shape != tuple(value.shape):
            return {}
        return own if value is parameter else of_gradient
