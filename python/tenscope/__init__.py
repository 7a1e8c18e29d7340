"""The flight recorder and debugger for tensors."""

from tenscope._compare import ValueDiff, compare, diff
from tenscope._core import disable, enable, record, step
from tenscope._errors import (
    CorruptError,
    Error,
    IoError,
    NotFoundError,
    RecordingWarning,
    UnsupportedError,
    UsageError,
    VersionError,
)
from tenscope._files import load, save
from tenscope._reader import Event, Recording, Stats, open
from tenscope._registry import register
from tenscope._run import Run, close, current, init
from tenscope._rundiff import Diff
from tenscope._spy import context, spy
from tenscope._tensor import Tensor
from tenscope._tree import tree
from tenscope._watch import watch, watching

__all__ = [
    "CorruptError",
    "Diff",
    "Error",
    "Event",
    "Hdf5Saver",
    "IoError",
    "NotFoundError",
    "Recording",
    "RecordingWarning",
    "Run",
    "Stats",
    "Tensor",
    "UnsupportedError",
    "UsageError",
    "ValueDiff",
    "VersionError",
    "check_sync",
    "close",
    "compare",
    "context",
    "current",
    "diff",
    "disable",
    "enable",
    "gather",
    "init",
    "load",
    "open",
    "record",
    "register",
    "save",
    "spy",
    "step",
    "trace",
    "tree",
    "watch",
    "watching",
]

_NEEDS_TORCH = {"Hdf5Saver": "_hdf5", "check_sync": "_sync", "gather": "_gather", "trace": "_trace"}


def __getattr__(name: str):
    import importlib

    if name == "testing":
        return importlib.import_module("tenscope.testing")
    if name not in _NEEDS_TORCH:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"tenscope.{_NEEDS_TORCH[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
