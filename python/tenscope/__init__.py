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
from tenscope._run import Run, close, current, init

__all__ = [
    "CorruptError",
    "Error",
    "IoError",
    "NotFoundError",
    "RecordingWarning",
    "Run",
    "UnsupportedError",
    "UsageError",
    "VersionError",
    "close",
    "current",
    "disable",
    "enable",
    "init",
    "record",
    "step",
]
