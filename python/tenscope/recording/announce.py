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


def end(folder: Path, events: int, dropped: int, spent_ns: int) -> None:
    """How much was recorded and lost, what it cost, and what to type next. The numbers are those of this process."""
    if is_quiet() or not folder.is_dir():
        return
    writers = [entry for entry in folder.iterdir() if entry.is_dir() and entry.name.startswith("rank-")]
    whose = "event" if events == 1 else "events"
    if len(writers) > 1:
        with contextlib.suppress(Exception):  # the line is a courtesy
            events, whose = len(_core.Reader(folder)), f"events from {len(writers)} processes"
    size = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):
            size += path.stat().st_size if path.is_file() else 0
    shown = shlex.quote(shown_path(folder))
    lost = f", {dropped:,} lost" if dropped else ""
    say(f"recorded {events:,} {whose}{lost}, {size_text(size)}, in {_time(spent_ns)}; next: tenscope ls {shown}")


def _time(elapsed_ns: int) -> str:
    for unit, length in (("s", 10**9), ("ms", 10**6)):
        if elapsed_ns >= length:
            return f"{elapsed_ns / length:.3g} {unit}"
    return f"{elapsed_ns / 1000:.3g} µs"
