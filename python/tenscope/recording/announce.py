"""The lines on stderr that say where a run is recorded and, at the end, what became of it. TENSCOPE_QUIET=1: none."""

from __future__ import annotations

import contextlib
import os
import shlex
from pathlib import Path

from tenscope import _core
from tenscope.recording.say import say, shown_path
from tenscope.recording.sizes import size_text


def is_quiet() -> bool:
    return os.environ.get("TENSCOPE_QUIET", "0") not in ("", "0")


def begin(folder: Path) -> None:
    if not is_quiet():
        say(f"recording into {shown_path(folder)}")


def end(folder: Path, spent_ns: int, dropped: int) -> None:
    """How much was recorded, what this process lost and what it cost, and what to type next."""
    if is_quiet():
        return
    with contextlib.suppress(Exception):  # the line is a courtesy
        events = len(_core.Reader(folder))
        writers = sum(entry.is_dir() and entry.name.startswith("rank-") for entry in folder.iterdir())
        size = sum(_size(path) for path in folder.rglob("*"))
        told = f"{events:,} event{'' if events == 1 else 's'}"
        told += f" from {writers} processes" if writers > 1 else ""
        told += f", {dropped:,} lost" if dropped else ""
        told += f", {size_text(size)}" + (f", in {_time(spent_ns)}" if writers == 1 else "")
        say(f"recorded {told}; next: tenscope ls {shlex.quote(shown_path(folder))}")


def _size(path: Path) -> int:
    try:
        return path.stat().st_size if path.is_file() else 0
    except OSError:  # it was renamed meanwhile
        return 0


def _time(elapsed_ns: int) -> str:
    for unit, length in (("s", 10**9), ("ms", 10**6)):
        if elapsed_ns >= length:
            return f"{elapsed_ns / length:.3g} {unit}"
    return f"{elapsed_ns / 1000:.3g} µs"
