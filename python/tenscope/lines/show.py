"""How values and changes look on a terminal, and in the live output of a notebook's cell."""

from __future__ import annotations

import linecache
import math
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import TextIO

from tenscope import _core
from tenscope.notebook import kernel, markup

_STYLES = {"dim": "2", "name": "36", "note": "33", "bad": "31", "head": "1"}  # as src/report/style.cpp


class Painter:
    """Colours where the stream is a terminal and NO_COLOR is not set. No stream: stderr, in a notebook the cell."""

    def __init__(self, stream: TextIO | None):
        self._stream = stream
        if stream is None and kernel.shell() is not None:
            self._on = True
            return
        forced = os.environ.get("FORCE_COLOR")
        self._on = not os.environ.get("NO_COLOR") and bool(forced or getattr(self.stream, "isatty", bool)())

    @property
    def stream(self) -> TextIO:
        return self._stream if self._stream is not None else sys.stderr

    def __call__(self, style: str, text: str) -> str:
        return f"\033[{_STYLES[style]}m{text}\033[0m" if self._on else text

    def line(self, text: str) -> None:
        if self._stream is None and kernel.live(text):
            return
        try:
            print(text, file=self.stream, flush=True)
        except UnicodeEncodeError:
            print(text.encode("ascii", "backslashreplace").decode(), file=self.stream, flush=True)
        except (OSError, ValueError):
            pass  # a closed stream is no reason to stop the program


def describe(value: object, limit: int = 100, *, is_snapshot: bool = False) -> str:
    """One line: a tensor's shape, dtype, device, statistics; a container's length and what is in it; else the value."""
    snapshot = value if is_snapshot or isinstance(value, _core.TensorValue) else _core.snapshot(value, 0)
    if isinstance(snapshot, _core.TensorValue):
        return _number(snapshot) if snapshot.shape == () else repr(snapshot)[1:-1]
    if isinstance(snapshot, (list, tuple, set, frozenset)) and not _is_small(snapshot):
        inside = ", ".join(dict.fromkeys(_kind(item) for item in list(snapshot)[:20]))
        return _cut(f"{type(value).__name__} of {_size(snapshot)}: {inside}", limit)
    if isinstance(snapshot, dict) and not _is_small(snapshot.values()):
        inside = ", ".join(f"{key}: {_kind(item)}" for key, item in list(snapshot.items())[:20])
        return _cut(f"{type(value).__name__} of {_size(snapshot.values())}: {inside}", limit)
    return _cut(snapshot if isinstance(snapshot, str) and not isinstance(value, str) else repr(snapshot), limit)


def _number(tensor: _core.TensorValue) -> str:
    """A tensor without axes is its value: 2.31 float32."""
    kind, text = tensor.dtype, repr(tensor)[1:-1]
    if tensor.nan or tensor.inf or kind.startswith("complex"):
        return text
    value = f"{tensor.mean:.6g}" if "float" in kind else bool(tensor.mean) if kind == "bool" else int(tensor.min)
    return f"{value} {kind}" + ("" if tensor.device == "cpu" else f" {tensor.device}")


def _is_small(items) -> bool:
    return len(items) <= 8 and all(item is None or isinstance(item, (int, float, str, bool)) for item in items)


def _size(items) -> int:
    """With those that are not in the snapshot."""
    left_out = [item for item in items if isinstance(item, _core.LeftOut)]
    return len(items) - len(left_out) + sum(item.count for item in left_out)


def _kind(item: object) -> str:
    if isinstance(item, _core.LeftOut):
        return repr(item)
    if isinstance(item, _core.TensorValue):
        return f"{item.dtype}{list(item.shape)}"
    if isinstance(item, str) and item.startswith("<") and " at 0x" in item:
        return item[1:].split(" at ")[0]
    return type(item).__name__


def _cut(text: str, limit: int) -> str:
    text = _core.printable(text.replace("\n", " "))
    return text if len(text) <= limit else text[: limit - 1] + "…"


def change_text(change: _core.Change, paint: Painter) -> str:
    """`x: old → new`, with what is not only another number marked: another shape, dtype or device, NaN, infinity."""
    new = describe(change.new, is_snapshot=True)
    text = f"{paint('name', change.name)}: "
    if not change.first:
        text += f"{describe(change.old, is_snapshot=True)} → "
    text += paint("bad", new) if _is_bad(change.new) else new
    others = _others(change)
    return text + (paint("note", f"  other {others}") if others else "")


def change_html(change: _core.Change) -> tuple[str, str]:
    """Old and new for a table."""
    new = describe(change.new, is_snapshot=True)
    new = markup.toned("bad", new) if _is_bad(change.new) else markup.text(new)
    others = _others(change)
    old = "" if change.first else markup.text(describe(change.old, is_snapshot=True))
    return old, new + (" " + markup.toned("note", f"other {others}") if others else "")


def _others(change: _core.Change) -> str:
    if not isinstance(change.old, _core.TensorValue) or not isinstance(change.new, _core.TensorValue):
        return ""
    return ", ".join(
        part for part in ("shape", "dtype", "device") if getattr(change.old, part) != getattr(change.new, part)
    )


def _is_bad(value: object) -> bool:
    if isinstance(value, _core.TensorValue):
        return bool(value.nan or value.inf)
    return isinstance(value, float) and not math.isfinite(value)


def printer(show: object, hook: Callable | None) -> Callable[[_core.Change], None]:
    """Prints changes as they happen: the call, the source line that ran, then what it changed."""
    paint = Painter(show if hasattr(show, "write") else None)
    last = threading.local()

    def on_change(change: _core.Change) -> None:
        here = (change.function, change.call)
        if getattr(last, "call", None) != here:
            last.call, last.line = here, None
            where = f"  {kernel.shown_file(change.file)}  call {change.call}"
            paint.line(paint("head", f"{change.function}()") + paint("dim", where))
        if change.first and change.line == change.code.co_firstlineno:
            paint.line(f"    {'at entry':>12}  {change_text(change, paint)}")
        else:
            stamp = time.strftime("%H:%M:%S", time.localtime(change.time_ns // 10**9))
            if last.line != (change.line, change.next_line):
                source = linecache.getline(change.file, change.line).strip()
                paint.line(f"    {paint('dim', stamp)} {change.line:>4}  {paint('dim', source)}")
            last.line = (change.line, change.next_line)
            paint.line(f"    {'':>12}    {change_text(change, paint)}")
        if hook is not None:
            hook(change)

    return on_change
