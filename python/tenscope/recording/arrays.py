"""Arrays of element types that a run cannot hold."""

from __future__ import annotations

import numpy as np

_OWN = frozenset(("bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"))


def storable(array: np.ndarray) -> tuple[np.ndarray, str]:
    """The same values in a type that a run can hold, and the name of the type they had where it is another.

    Of the types of ml_dtypes that the core lacks, integers become 8-bit ones, floats float32.
    """
    name = array.dtype.name
    if array.dtype.isbuiltin == 1 or name in _OWN:
        return array, ""
    if name.startswith(("int", "uint", "float")):
        return array.astype(np.uint8 if name[0] == "u" else np.int8 if name[0] == "i" else np.float32), name
    return array, ""
