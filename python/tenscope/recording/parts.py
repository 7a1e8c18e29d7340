"""Tensors without plain bytes: what they are made of, or else what they are called. Called by the recorder, rarely."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from contextlib import contextmanager
from typing import Any

_COMPRESSED = {
    "sparse_csr": ("crow_indices", "col_indices", "values"),
    "sparse_bsr": ("crow_indices", "col_indices", "values"),
    "sparse_csc": ("ccol_indices", "row_indices", "values"),
    "sparse_bsc": ("ccol_indices", "row_indices", "values"),
}


@contextmanager
def _unseen():
    """No __torch_function__ of the user's modes or subclasses is called within."""
    with sys.modules["torch"]._C.DisableTorchFunction():
        yield


def stand_in(tensor: Any) -> tuple[Any, str] | None:
    """The tensor that a wrapper is known by under its own name, and members for the event's meta that say what it is.

    Of a DTensor its local part; of a collective that the program has started, its result, which is waited for. Nothing
    else is waited for and no collective is started.
    """
    collectives = sys.modules.get("torch.distributed._functional_collectives")
    waiting = getattr(collectives, "AsyncCollectiveTensor", None)
    if waiting is not None and isinstance(tensor, waiting):
        with _unseen(), sys.modules["torch"].no_grad():
            return tensor.trigger_wait(), ""
    if is_dtensor(tensor):
        local, placement = _without_masked(tensor)
        return local, f'"shard":{json.dumps(placement)}'
    return None


def is_dtensor(tensor: Any) -> bool:
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, getattr(module, "DTensor", ()))


def _without_masked(tensor: Any) -> tuple[Any, dict[str, Any]]:
    """A DTensor's local part and its placement. What an embedding with a sharded vocabulary gives on each rank has rows
    of ids that the rank does not have; torch sets them to zero when it adds the parts up, by a mask that it forgets
    then. Here they are zero at once, so that the parts are plain summands. Without a mask they are left as they are.
    """
    local, placement = tensor._local_tensor, placement_of(tensor)
    for i, place in enumerate(tensor._spec.placements):
        mask = getattr(getattr(place, "mask_buffer", None), "data", None)
        if mask is None or mask.shape != local.shape[: mask.ndim]:
            continue
        rows = mask.reshape(mask.shape + (1,) * (local.ndim - mask.ndim))
        with _unseen(), sys.modules["torch"].no_grad():
            local = local.masked_fill(rows, 0)
        placement["placements"][i] = f"P({place.reduce_op})"
    return local, placement


def placement_of(tensor: Any) -> dict[str, Any]:
    """Which part of the whole this rank's part of a DTensor is."""
    spec = tensor._spec
    return describe_shard(spec.mesh, spec.placements, spec.shape)


def describe_shard(mesh: Any, placements: Sequence[Any], shape: Sequence[int]) -> dict[str, Any]:
    """The same for a DeviceMesh; coordinate and offset are missing on a rank that is not in it."""
    coordinate = mesh.get_coordinate()
    shard: dict[str, Any] = {"mesh": list(mesh.shape)}
    if mesh.mesh_dim_names:
        shard["names"] = list(mesh.mesh_dim_names)
    shard |= {"placements": [str(placement) for placement in placements], "shape": list(shape)}
    if coordinate is not None:
        shard |= {"coordinate": list(coordinate), "offset": _offset(mesh, placements, shape)}
    return shard


def _offset(mesh: Any, placements: Sequence[Any], shape: Sequence[int]) -> list[int]:
    try:
        from torch.distributed.tensor._utils import compute_local_shape_and_global_offset as compute
    except ImportError:  # other versions of torch: all but strided shards
        return offset_of(shape, mesh.shape, [str(p) for p in placements], mesh.get_coordinate())
    return list(compute(tuple(shape), mesh, placements)[1])


def offset_of(
    shape: Sequence[int], mesh: Sequence[int], placements: Sequence[str], coordinate: Sequence[int]
) -> list[int]:
    """Where a part begins that was cut as torch.chunk cuts, one axis of the mesh after the other."""
    sizes, offset = list(shape), [0] * len(shape)
    for parts, placement, part in zip(mesh, placements, coordinate, strict=True):
        if not placement.startswith("S("):
            continue
        axis = int(placement[2:-1])
        chunk = -(-sizes[axis] // parts)
        begin = min(part * chunk, sizes[axis])
        offset[axis] += begin
        sizes[axis] = min(chunk, sizes[axis] - begin)
    return offset


def parts(tensor: Any) -> dict[str, Any]:
    """The named tensors and numbers that together are this tensor; empty where there are none."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(tensor, torch.Tensor):
        return _masked_parts(tensor)
    try:
        with _unseen(), torch.no_grad():
            return _torch_parts(torch, tensor)
    except (RuntimeError, NotImplementedError, AttributeError, TypeError):
        return {}


def _torch_parts(torch: Any, tensor: Any) -> dict[str, Any]:
    if tensor.is_meta or type(tensor).__name__ == "FakeTensor":
        return {}
    if tensor.is_quantized:
        return _quantised_parts(torch, tensor)
    if tensor.is_nested:
        return {str(i): part.detach() for i, part in enumerate(tensor.unbind())}
    if transformed := _functorch_parts(torch, tensor):
        return transformed
    layout = str(tensor.layout).removeprefix("torch.")
    if layout == "sparse_coo":
        return {"indices": tensor._indices(), "values": tensor._values().detach(), "shape": tuple(tensor.shape)}
    if layout in _COMPRESSED:
        named = {name: getattr(tensor, name)().detach() for name in _COMPRESSED[layout]}
        return named | {"shape": tuple(tensor.shape)}
    if layout == "_mkldnn":
        return {"dense": tensor.detach().to_dense()}
    if hasattr(tensor, "__tensor_flatten__"):  # wrapper subclasses
        names, _ = tensor.__tensor_flatten__()
        return {name.lstrip("_"): getattr(tensor, name) for name in names}
    return {}


def _functorch_parts(torch: Any, tensor: Any) -> dict[str, Any]:
    """Inside torch.func's transforms: grad wraps a tensor, vmap hides the axis of the batch."""
    functorch = getattr(torch._C, "_functorch", None)
    inner = tensor
    while functorch is not None and functorch.is_gradtrackingtensor(inner):
        inner = functorch.get_unwrapped(inner)
    if functorch is not None and functorch.is_batchedtensor(inner):
        return {"batched": functorch.get_unwrapped(inner), "axis": functorch.maybe_get_bdim(inner)}
    return {} if inner is tensor else {"tracked": inner}


def _quantised_parts(torch: Any, tensor: Any) -> dict[str, Any]:
    named = {"int_repr": tensor.int_repr()}
    if tensor.qscheme() in (torch.per_tensor_affine, torch.per_tensor_symmetric):
        return named | {"scale": tensor.q_scale(), "zero_point": tensor.q_zero_point()}
    return named | {
        "scales": tensor.q_per_channel_scales(),
        "zero_points": tensor.q_per_channel_zero_points(),
        "axis": tensor.q_per_channel_axis(),
    }


def _masked_parts(array: Any) -> dict[str, Any]:
    dtype = getattr(array, "dtype", None)
    if dtype is not None and getattr(dtype, "names", None):  # a structured array: its fields
        return {name: array[name] for name in dtype.names}
    return {}


def describe(tensor: Any) -> str:
    """One line that tells what kind of tensor it is."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(tensor, torch.Tensor):
        return f"{type(tensor).__name__} {getattr(tensor, 'dtype', '')} {list(getattr(tensor, 'shape', ()))}".strip()
    with _unseen():
        try:
            dtype = str(tensor.dtype).removeprefix("torch.")
            shape = "nested" if tensor.is_nested else list(tensor.shape)
            return f"{type(tensor).__name__} {dtype} {shape} on {tensor.device}"
        except Exception:
            return type(tensor).__name__
