"""The flight recorder and debugger for tensors."""

from tenscope._errors import (
    CorruptError,
    Error,
    IoError,
    NotFoundError,
    UnsupportedError,
    UsageError,
    VersionError,
)

__all__ = [
    "CorruptError",
    "Error",
    "IoError",
    "NotFoundError",
    "UnsupportedError",
    "UsageError",
    "VersionError",
]
