"""Callbacks that make one tensor of a list of them."""

from __future__ import annotations

import torch


def stack_tensors(name, values, iterations, ranks=None) -> None:
    values[:] = [torch.stack([torch.as_tensor(value) for value in values]) if values else torch.empty(0)]


def stack_padded_tensors(name, values, iterations, ranks=None) -> None:
    """As stack_tensors, after leading axes of size 1 and zeros at the end of each axis have made the shapes equal."""
    tensors = [torch.as_tensor(value) for value in values]
    if not tensors:
        values[:] = [torch.empty(0)]
        return
    dims = max(tensor.dim() for tensor in tensors)
    tensors = [tensor.reshape((1,) * (dims - tensor.dim()) + tensor.shape) for tensor in tensors]
    shape = [max(sizes) for sizes in zip(*(tensor.shape for tensor in tensors), strict=True)]
    dtype = tensors[0].dtype
    for tensor in tensors[1:]:
        dtype = torch.promote_types(dtype, tensor.dtype)
    stacked = torch.zeros(len(tensors), *shape, dtype=dtype)
    for row, tensor in zip(stacked, tensors, strict=True):
        row[tuple(slice(0, size) for size in tensor.shape)] = tensor
    values[:] = [stacked]
