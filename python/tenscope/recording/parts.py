"""Tensors without plain bytes: what they are made of, or else what they are called. Called by the recorder, rarely."""

from __future__ import annotations

import json
import sys
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
        return tensor._local_tensor, f'"dtensor":{json.dumps(placement_of(tensor))}'
    return None


def is_dtensor(tensor: Any) -> bool:
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, getattr(module, "DTensor", ()))


def placement_of(tensor: Any) -> dict[str, Any]:
    """Which part of the whole this rank's part of a DTensor is."""
    spec = tensor._spec
    coordinate = spec.mesh.get_coordinate()
    return {
        "mesh": list(spec.mesh.shape),
        "placements": [str(placement) for placement in spec.placements],
        "coordinate": None if coordinate is None else list(coordinate),
        "shape": list(spec.shape),
    }


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
