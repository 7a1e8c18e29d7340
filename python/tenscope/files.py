"""Reading and writing tensor files. The work is the core's; here its trees become Python objects and back."""

from __future__ import annotations

import os
import pickle
from typing import Any

import numpy as np

from tenscope import _core
from tenscope.errors import CorruptError, Error, UnsupportedError, UsageError

__all__ = ["load", "save"]

_PICKLES = (".pkl", ".pickle")
_TORCH_FILES = (".pt", ".pth", ".bin", ".ckpt")


def load(
    path: str | os.PathLike[str],
    *,
    trust: bool = False,
    mmap: bool = True,
    verify: bool = False,
    max_inflated_bytes: int = 0,
) -> Any:
    """Reads a .npy, .npz, .pt, .pth, .safetensors, .gguf or .pkl file. Runs nothing that is in it.

    A .npy gives an array, a .npz and a .safetensors a dict of arrays, a .pt torch tensors (arrays where torch is
    missing), a .gguf a dict of arrays, float32 where they are quantised, with an attribute `metadata`. bfloat16 and
    float8, which NumPy lacks, are torch tensors, or arrays of ml_dtypes. A large file is mapped: changes to the arrays
    stay in memory, and the file must not be truncated while they are used; `mmap=False` reads it. `verify=True` checks
    all checksums of a .pt or .npz. `trust=True` lets Python's pickle load a .pkl, and torch a .pt, of any classes,
    which runs whatever the file says: only for files of your own.
    """
    name = _path("load", path)
    if os.path.isdir(name):
        raise UsageError(f"cannot read: this is a folder; tenscope.open reads the run in it: {name}")
    if trust and name.lower().endswith(_PICKLES):
        with open(name, "rb") as file:
            return pickle.load(file)
    if trust and name.lower().endswith(_TORCH_FILES) and (torch := _torch()) is not None:
        return torch.load(name, map_location="cpu", weights_only=False)
    try:
        return _core.load_file(name, mmap, verify, max_inflated_bytes)
    except UnsupportedError as error:
        if not name.lower().endswith(_PICKLES + _TORCH_FILES) or "not on the list" not in str(error):
            raise
        raise UnsupportedError(f"{error} (load it with trust=True if you trust whoever wrote it)") from None
    except (Error, MemoryError):
        raise
    except Exception as error:  # a tree that Python has no place for: a list as a key, text that is no UTF-8
        raise CorruptError(f"cannot read {os.path.splitext(name)[1]}: {error}: {name}") from error


def save(
    path: str | os.PathLike[str], value: Any, *, compress: bool = False, metadata: dict[str, str] | None = None
) -> None:
    """Writes a file by its extension; an old one is replaced only when the new one is whole.

    .npy takes an array, tensor or number; .npz and .safetensors a dict of them; .pt, .pth and .pkl any nest of plain
    values, arrays and tensors. A .pkl of other classes is written by Python's pickle. `compress` deflates a .npz,
    `metadata` goes into a .safetensors.
    """
    name = _path("save", path)
    try:
        _core.save_file(name, value, compress, list((metadata or {}).items()))
    except UnsupportedError:
        if not name.lower().endswith(_PICKLES):
            raise
        _pickle(name, value)


def _path(verb: str, path: Any) -> str:
    if not isinstance(path, (str, os.PathLike)):
        raise TypeError(f"{verb} takes the path of a file first, not {type(path).__name__}")
    return os.fspath(path)


def _pickle(name: str, value: Any) -> None:
    temporary = f"{name}.{os.getpid()}.tmp"
    try:
        with open(temporary, "wb") as file:
            pickle.dump(value, file)
        os.replace(temporary, name)
    except BaseException:
        if os.path.exists(temporary):
            os.unlink(temporary)
        raise


# What the core calls (python/bindings/value_adapter.cpp)

_NUMPY, _NUMPY_SCALAR, _TORCH, _PARAMETER = range(4)  # TensorOrigin


def _torch() -> Any:
    try:
        import torch
    except ImportError:
        return None
    return torch


def _numpy_dtype(name: str) -> np.dtype | None:
    try:
        return np.dtype(name)
    except TypeError:
        try:
            import ml_dtypes
        except ImportError:
            return None
        return np.dtype(getattr(ml_dtypes, name))


def _make_tensor(
    storage: np.ndarray,
    offset: int,
    dtype: str,
    shape: tuple[int, ...],
    strides: tuple[int, ...] | None,
    origin: int,
    requires_grad: bool,
) -> Any:
    is_numpy = origin in (_NUMPY, _NUMPY_SCALAR)
    if not is_numpy or dtype == "bfloat16" or dtype.startswith("float8"):
        torch = _torch()
        if torch is not None:
            return _make_torch(torch, storage, offset, dtype, shape, strides, origin == _PARAMETER, requires_grad)
    numpy_dtype = _numpy_dtype(dtype)
    if numpy_dtype is None:
        raise UnsupportedError(f"cannot give a tensor of {dtype}: NumPy lacks it, and torch and ml_dtypes are missing")
    if strides is not None:
        strides = tuple(stride * numpy_dtype.itemsize for stride in strides)
    array = np.ndarray(shape, numpy_dtype, storage, offset, strides)
    return array[()] if origin == _NUMPY_SCALAR else array


def _make_torch(
    torch: Any,
    storage: np.ndarray,
    offset: int,
    dtype: str,
    shape: tuple[int, ...],
    strides: tuple[int, ...] | None,
    is_parameter: bool,
    requires_grad: bool,
) -> Any:
    item = getattr(torch, dtype).itemsize
    if strides is None:
        strides = torch.empty(shape, device="meta").stride()
    tensor = torch.empty(0, dtype=getattr(torch, dtype))
    tensor.set_(torch.from_numpy(storage).untyped_storage(), offset // item, shape, strides)
    if is_parameter:
        return torch.nn.Parameter(tensor, requires_grad)
    return tensor.requires_grad_(requires_grad) if requires_grad else tensor


def _tensor_facts(tensor: Any) -> tuple[int, bool]:
    if isinstance(tensor, np.generic):
        return _NUMPY_SCALAR, False
    if isinstance(tensor, np.ndarray):
        return _NUMPY, False
    torch = _torch()
    origin = _PARAMETER if isinstance(tensor, torch.nn.Parameter) else _TORCH
    return origin, bool(tensor.requires_grad)


def _describe(value: Any) -> tuple[str, tuple | None, Any] | None:
    """Type, arguments and state of an object of a class that files may name; None for others."""
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    if kind == "torch.Size":
        return kind, (tuple(value),), None
    if kind == "torch.dtype":
        return str(value), None, None
    if kind == "torch.device":
        return kind, (value.type,) if value.index is None else (value.type, value.index), None
    if kind in ("builtins.slice", "builtins.range"):
        return kind, (value.start, value.stop, value.step), None
    if isinstance(value, type) and f"{value.__module__}.{value.__qualname__}" in _CONSTANTS:
        return f"{value.__module__}.{value.__qualname__}", None, None
    if kind in _REDUCED:
        made_by, arguments = value.__reduce__()[:2]
        return (kind, arguments, None) if made_by is type(value) else None
    if kind in ("argparse.Namespace", "types.SimpleNamespace"):
        return kind, (), dict(vars(value))
    return None


_CONSTANTS = {f"builtins.{name}" for name in ("object", "int", "float", "bool", "str", "list", "dict", "tuple")}
_REDUCED = {
    "datetime.date",
    "datetime.datetime",
    "datetime.time",
    "datetime.timedelta",
    "decimal.Decimal",
    "fractions.Fraction",
    "pathlib.PosixPath",
    "pathlib.PurePosixPath",
    "pathlib._local.PosixPath",
    "pathlib._local.PurePosixPath",
}


def _make_object(kind: str, arguments: tuple | None, state: Any) -> Any:
    """An object of a class on the core's list (src/format/pickle_globals.cpp), by its known constructor."""
    module, _, name = kind.rpartition(".")
    if kind == "numpy.dtype":
        return _numpy_dtype(*arguments)
    if module == "builtins":
        made = getattr(__import__("builtins"), name)
    elif module == "torch" or kind == "torch.serialization._get_layout":
        torch = _torch()
        if torch is None:
            return (kind, arguments)
        made = torch.serialization._get_layout if name == "_get_layout" else getattr(torch, name)
    elif module.startswith("pathlib"):
        import pathlib

        return getattr(pathlib, f"Pure{name}" if name.startswith("Windows") else name)(*arguments)
    else:
        made = getattr(__import__(module), name)
    if arguments is None:
        return made
    value = made(*arguments)
    if state is not None:
        if kind not in ("argparse.Namespace", "types.SimpleNamespace"):
            raise UnsupportedError(f"cannot give an object of {kind}: a state is not expected")
        vars(value).update(state)
    return value
