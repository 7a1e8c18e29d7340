"""Comparison with a tolerance. The three names are one engine, tenscope.compare."""

from __future__ import annotations

from typing import Any

from tenscope.comparing.values import compare

from .registry import Comparator


class DefaultComparator(Comparator):
    def compare(self, a: Any, b: Any, **kwargs) -> bool:
        return bool(compare(a, b, atol=kwargs.get("atol", 1e-8), rtol=kwargs.get("rtol", 1e-5)))


class TorchComparator(DefaultComparator):
    pass


class NumpyComparator(DefaultComparator):
    pass
