"""JAX's values as a run can hold them."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from tenscope.recording.arrays import storable


def is_array(value: Any) -> bool:
    """What a traced function takes as an operand; numbers and texts stay what they are, as in a plain call."""
    return isinstance(value, (jax.Array, np.ndarray, np.generic))


def host_value(value: Any) -> tuple[Any, str]:
    """An array in this process' memory, and the name of its type where a run holds another. A key is its words."""
    if isinstance(value, jax.Array):
        if jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key):
            return np.asarray(jax.random.key_data(value)), str(value.dtype)
        value = np.asarray(value)
    return storable(value) if isinstance(value, np.ndarray) else (value, "")
