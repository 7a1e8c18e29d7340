"""Sizes in bytes, as people write them: 1 GB, 500M, 2 KiB."""

from __future__ import annotations

import re

from tenscope.errors import UsageError

_SIZE = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([KMGT]?)(?:I?B)?\s*", re.IGNORECASE)
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def bytes_of(size: int | float | str, what: str = "a size") -> int:
    """The number of bytes that a number or a text says; a KB has 1024 bytes."""
    if isinstance(size, str):
        match = _SIZE.fullmatch(size)
        if match is not None:
            return int(float(match[1]) * _UNITS[match[2].upper()])
    elif isinstance(size, (int, float)) and not isinstance(size, bool) and 0 <= size < 1 << 63:
        return int(size)
    raise UsageError(f'{what} is a number of bytes from 0 on, or a text like "1 GB" or "500 MB": not {size!r}')


def size_text(count: float) -> str:
    """4.0 KB, 1.5 GB: as the command line says it."""
    for unit in ("B", "KB", "MB", "GB"):
        if count < 1024:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TB"
