"""A recorded tensor as Python sees it: a NumPy array over the mapped file."""

from __future__ import annotations

import sys
import warnings
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from tenscope.reading import page

if TYPE_CHECKING:
    import torch

# Exponent bits, mantissa bits, bias, and how the top of the range is used.
_SMALL_FLOATS = {
    "float8_e4m3fn": (4, 3, 7, "fn"),
    "float8_e5m2": (5, 2, 15, "ieee"),
    "float8_e4m3fnuz": (4, 3, 8, "fnuz"),
    "float8_e5m2fnuz": (5, 2, 16, "fnuz"),
}


class Tensor(np.ndarray):
    """A recorded tensor: a read-only view of the file's bytes, no copy.

    `tensor_dtype` is the recorded dtype by name. NumPy has no bfloat16 and no float8: with ml_dtypes installed the
    array has its dtype; without, it holds the same values as float32 (a copy; all are exact in float32). `bits` is
    the raw view in any case, and `torch()` the tensor in its own dtype. What is computed from it is a plain ndarray.
    """

    tensor_dtype: str
    bits: np.ndarray

    def __array_finalize__(self, source: Any) -> None:
        self.tensor_dtype = str(self.dtype)
        self.bits = None

    def __array_wrap__(self, array: np.ndarray, context: Any = None, return_scalar: bool = False) -> Any:
        plain = array.view(np.ndarray)
        return plain[()] if return_scalar or plain.ndim == 0 else plain

    def numpy(self) -> np.ndarray:
        """The same elements as a plain ndarray, no copy."""
        return self.view(np.ndarray)

    def torch(self, *, copy: bool = True) -> torch.Tensor:
        """A CPU tensor of the recorded dtype. With copy=False it shares the mapped bytes and must not be written to."""
        torch = sys.modules.get("torch") or __import__("torch")
        dtype = getattr(torch, self.tensor_dtype)
        if not self.size:
            return torch.empty(self.shape, dtype=dtype)
        bits = np.ascontiguousarray(self.bits if self.bits is not None else self.view(np.ndarray))
        flat = bits.reshape(-1).view(np.uint8)
        if copy:
            raw = torch.from_numpy(flat.copy())
        else:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)
                raw = torch.from_numpy(flat)
        return raw.view(dtype).reshape(self.shape)

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        if not 0 < self.nbytes <= page.LARGEST_TENSOR or self.ndim == 0 or self.dtype.kind not in "biufc":
            return {"text/plain": repr(self)}
        return page.bundle(repr(self), lambda: page.of_array(self.view(np.ndarray)), height=520)

    def __reduce__(self) -> Any:
        return self.view(np.ndarray).copy().__reduce__()


def from_bytes(raw: np.ndarray, dtype: str, shape: tuple[int, ...]) -> Tensor:
    """A Tensor over the bytes of a recorded tensor in C order."""
    if dtype == "bfloat16" or dtype in _SMALL_FLOATS:
        bits = raw.view(np.uint16 if dtype == "bfloat16" else np.uint8).reshape(shape)
        values = _small_values(bits, dtype)
    else:
        values = bits = raw.view(dtype).reshape(shape)
    tensor = values.view(Tensor)
    tensor.tensor_dtype = dtype
    tensor.bits = bits
    if tensor.flags.writeable:
        tensor.flags.writeable = False
    return tensor


@lru_cache
def _ml_dtype(name: str) -> np.dtype | None:
    try:
        import ml_dtypes
    except ImportError:
        return None
    return np.dtype(getattr(ml_dtypes, name))


def _small_values(bits: np.ndarray, dtype: str) -> np.ndarray:
    exact = _ml_dtype(dtype)
    if exact is not None:
        return bits.view(exact)
    if dtype == "bfloat16":
        return (bits.astype(np.uint32) << 16).view(np.float32)
    return float8_values(dtype)[bits]


@lru_cache
def float8_values(dtype: str) -> np.ndarray:
    """The value of each of the 256 codes of a float8 type, as float32."""
    exponent_bits, mantissa_bits, bias, top = _SMALL_FLOATS[dtype]
    code = np.arange(256)
    exponent = (code >> mantissa_bits) & ((1 << exponent_bits) - 1)
    mantissa = code & ((1 << mantissa_bits) - 1)
    fraction = mantissa / (1 << mantissa_bits)
    magnitude = np.where(exponent == 0, np.ldexp(fraction, 1 - bias), np.ldexp(1 + fraction, exponent - bias))
    values = np.where(code >= 128, -magnitude, magnitude).astype(np.float32)
    last = exponent == (1 << exponent_bits) - 1
    if top == "fn":
        values[last & (mantissa == (1 << mantissa_bits) - 1)] = np.nan
    elif top == "fnuz":
        values[128] = np.nan
    else:
        values[last] = np.where(mantissa[last] == 0, np.copysign(np.inf, values[last]), np.nan)
    return values
