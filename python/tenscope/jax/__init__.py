"""Recording JAX: every equation of a function, Flax modules, and values inside jitted functions. See docs/jax.md."""

from __future__ import annotations

import importlib.util

if importlib.util.find_spec("jax") is None:
    raise ImportError("tenscope.jax needs jax: pip install jax")

from tenscope.jax.callbacks import record
from tenscope.jax.trace import trace

__all__ = ["record", "trace"]
