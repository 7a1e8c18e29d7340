"""The flight recorder and debugger for tensors."""

from tenscope._core import disable, enable, record, step
from tenscope._core import version as __version__
from tenscope.comparing.against import against
from tenscope.comparing.checkpoints import CheckpointDiff
from tenscope.comparing.explaining import Explanation, explain
from tenscope.comparing.runs import Diff
from tenscope.comparing.values import ValueDiff, compare, diff
from tenscope.errors import (
    CorruptError,
    Divergence,
    Error,
    IoError,
    NotFoundError,
    RecordingWarning,
    UnsupportedError,
    UsageError,
    VersionError,
)
from tenscope.files import load, save
from tenscope.lines.tree import tree
from tenscope.lines.watch import watch, watching
from tenscope.notebook import kernel as _kernel
from tenscope.probes.spy import context, spy
from tenscope.reading.recording import Event, Recording, Stats, open
from tenscope.reading.tensor import Tensor
from tenscope.recording.registry import register
from tenscope.recording.run import Run, close, current, init
from tenscope.recording.shards import shard

__all__ = [
    "CheckpointDiff",
    "CorruptError",
    "Diff",
    "Divergence",
    "Error",
    "Event",
    "Explanation",
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
    "__version__",
    "against",
    "check_sync",
    "close",
    "compare",
    "context",
    "current",
    "diff",
    "disable",
    "enable",
    "explain",
    "gather",
    "init",
    "load",
    "open",
    "record",
    "register",
    "save",
    "shard",
    "spy",
    "step",
    "trace",
    "tree",
    "watch",
    "watching",
]

_kernel.show_warnings()

_NEEDS_TORCH = {"Hdf5Saver": "hdf5", "check_sync": "sync", "gather": "gather", "trace": "trace"}
_MODULES = ("compat", "integrations", "jax", "onnx", "testing")


def __getattr__(name: str):
    import importlib

    if name in _MODULES:
        return importlib.import_module(f"tenscope.{name}")
    if name not in _NEEDS_TORCH:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"tenscope.probes.{_NEEDS_TORCH[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*__all__, *_MODULES, *(name for name in globals() if name.startswith("__"))})
