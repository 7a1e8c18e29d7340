"""Callbacks that make one tensor of a list of them."""

from __future__ import annotations

from tenscope.probes.gather import stacked


def stack_tensors(name, values, iterations, ranks=None) -> None:
    values[:] = [stacked(values)]


def stack_padded_tensors(name, values, iterations, ranks=None) -> None:
    """As stack_tensors, after leading axes of size 1 and zeros at the end of each axis have made the shapes equal."""
    values[:] = [stacked(values, pad=True)]
