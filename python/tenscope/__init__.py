"""The flight recorder and debugger for tensors."""

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
from tenscope._reader import Event, Recording, Stats, open
from tenscope._run import Run, close, current, init
from tenscope._tensor import Tensor

__all__ = [
    "CorruptError",
    "Error",
    "Event",
    "IoError",
    "NotFoundError",
    "Recording",
    "RecordingWarning",
    "Run",
    "Stats",
    "Tensor",
    "UnsupportedError",
    "UsageError",
    "VersionError",
    "close",
    "current",
    "disable",
    "enable",
    "init",
    "open",
    "record",
    "step",
]
