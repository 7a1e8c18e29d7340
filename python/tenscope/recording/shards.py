"""Hand-made parallelism: a tensor of which each rank has a part, recorded under one name with what part it is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tenscope.errors import UsageError
from tenscope.recording.callers import site
from tenscope.recording.parts import describe_shard, offset_of
from tenscope.recording.run import Run, current_or_opened


def shard(
    name: str,
    tensor: Any,
    *,
    axis: int | None = None,
    partial: str | None = None,
    part: int | None = None,
    parts: int | None = None,
    mesh: Any = None,
    placements: Sequence[Any] | None = None,
    coordinate: Sequence[int] | None = None,
    shape: Sequence[int] | None = None,
    offset: Sequence[int] | None = None,
    run: Run | None = None,
    **options: Any,
) -> None:
    """Records this rank's part of a tensor that is spread over ranks. `run[name]` later gives the whole.

        tenscope.shard("q", q, axis=1)                       part `rank` of `world_size` along axis 1
        tenscope.shard("q", q, axis=1, part=3, parts=8)      part 3 of 8
        tenscope.shard("o", o, partial="sum")                a summand: the whole is the sum over ranks
        tenscope.shard("w", w, mesh=mesh, placements=[Replicate(), Shard(0)])        a torch DeviceMesh
        tenscope.shard("w", w, mesh=(2, 4), placements=["R", "S(0)"], coordinate=(1, 3))

    shape     of the whole, where the parts are not of equal size (they are then cut as torch.chunk does)
    offset    where this part begins in it, where they are cut otherwise
    options   as those of `record`: step, io, phase, ...
    """
    run = current_or_opened() if run is None else run
    if run is None or not run.enabled:
        return
    local = tuple(getattr(tensor, "shape", ()))
    if mesh is None:
        if (axis is None) == (partial is None):
            raise UsageError("shard: give axis= (a slice along it), partial= (a summand), or mesh= and placements=")
        mesh, coordinate = (run.world_size if parts is None else parts,), (run.rank if part is None else part,)
        placements = [f"P({partial})" if axis is None else f"S({_checked_axis(axis, local)})"]
    elif axis is not None or partial is not None or placements is None:
        raise UsageError("shard: with mesh= give placements=, one for each axis of the mesh, and no axis= or partial=")
    if hasattr(mesh, "get_coordinate"):
        whole = _whole(local, tuple(mesh.shape), placements) if shape is None else tuple(shape)
        described = describe_shard(mesh, placements, whole)
    else:
        described = _described(tuple(mesh), [str(p) for p in placements], coordinate, local, shape)
    if offset is not None:
        described["offset"] = list(offset)
    _check(described, local)
    options.setdefault("site", site())
    run.record(name, tensor, meta={**options.pop("meta", {}), "shard": described}, **options)


def _checked_axis(axis: int, local: tuple[int, ...]) -> int:
    if not -len(local) <= axis < len(local):
        raise UsageError(f"shard: a part of shape {list(local)} has no axis {axis}")
    return axis % len(local)


def _whole(local: tuple[int, ...], mesh: tuple[int, ...], placements: Sequence[Any]) -> tuple[int, ...]:
    """The shape of the whole where all parts have the same."""
    whole = list(local)
    for parts, placement in zip(mesh, map(str, placements), strict=False):
        if placement.startswith("S("):
            whole[int(placement[2:-1])] *= parts
    return tuple(whole)


def _described(
    mesh: tuple[int, ...],
    placements: list[str],
    coordinate: Sequence[int] | None,
    local: tuple[int, ...],
    shape: Sequence[int] | None,
) -> dict[str, Any]:
    if coordinate is None or not len(mesh) == len(placements) == len(coordinate):
        raise UsageError("shard: mesh=, placements= and coordinate= have one entry for each axis of the mesh")
    if not all(0 <= at < size for at, size in zip(coordinate, mesh, strict=True)):
        raise UsageError(f"shard: part {list(coordinate)} of {list(mesh)}: parts count from 0")
    for placement in placements:
        axis = placement[2:-1]
        is_slice = placement.startswith("S(") and axis.isdigit() and int(axis) < len(local)
        if not (placement == "R" or is_slice or placement in _SUMS):
            allowed = ", ".join(sorted(_SUMS))
            raise UsageError(f"shard: a placement is R, S(axis of the tensor), or one of {allowed}, not {placement}")
    whole = _whole(local, mesh, placements) if shape is None else tuple(shape)
    return {
        "mesh": list(mesh),
        "placements": placements,
        "shape": list(whole),
        "coordinate": list(coordinate),
        "offset": offset_of(whole, mesh, placements, coordinate),
    }


_SUMS = {f"P({operation})" for operation in ("sum", "avg", "max", "min", "product")}


def _check(described: dict[str, Any], local: tuple[int, ...]) -> None:
    whole, offset = described["shape"], described.get("offset", [0] * len(local))
    fits = len(whole) == len(local) == len(offset) and all(
        begin >= 0 and begin + size <= total for begin, size, total in zip(offset, local, whole, strict=True)
    )
    if not fits and math.prod(local):
        raise UsageError(f"shard: a part of shape {list(local)} at {offset} does not lie in the whole of {whole}")
