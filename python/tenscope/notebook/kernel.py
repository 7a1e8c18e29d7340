"""What a terminal would get on stderr, in a notebook: there stderr is a pink box, so it is shown as HTML instead.

Overview. `shell()` is IPython's shell where this process is the kernel of a notebook, and None anywhere else; then
whoever asked writes to stderr. `say` shows one line. Lines that come while a cell runs (the calls of `tenscope.tree`,
the changes of `tenscope.watch(show=True)`) go to the cell's one live output, which is drawn anew a few times a second
and when the cell is done; of very many lines it keeps the first and the last ones.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import threading
import time
import warnings
from collections import deque
from typing import Any

from tenscope import _core
from tenscope.errors import RecordingWarning
from tenscope.notebook import markup

_FIRST, _LAST = 300, 300  # lines of a live output that are kept
_LONGEST = 2_000  # characters of one
_EVERY = 0.25  # seconds from one drawing to the next

_pid = os.getpid()  # a forked child has the kernel's objects, and may not use them

_MACHINERY = f"{os.sep}IPython{os.sep}core{os.sep}"
_TONES = {"2": "dim", "36": "name", "33": "note", "31": "bad", "1": "head"}  # as in lines/show.py
_TONED = re.compile("\033\\[(\\d+)m(.*?)\033\\[0m", re.DOTALL)
_MARGIN = re.compile(r"[ │┌├└─]*")


def shell() -> Any:
    """IPython's shell where this process is a notebook's kernel and nobody has taken stderr away; else None."""
    ipython = sys.modules.get("IPython")
    get = getattr(ipython, "get_ipython", None)
    found = get() if get is not None else None
    is_kernel = getattr(found, "kernel", None) is not None and os.getpid() == _pid
    return found if is_kernel and type(sys.stderr).__module__.startswith("ipykernel") else None


def shown_file(file: str) -> str:
    """The file of a cell's code is a temporary one: "In [3]"."""
    found = shell()
    cells = getattr(getattr(found, "compile", None), "_filename_map", {})
    return f"In [{cells[file]}]" if file in cells else file


def is_machinery(file: str) -> bool:
    """Whether code is IPython's own, which runs a cell: nobody looks for it in a chain of callers."""
    return shell() is not None and _MACHINERY in file


def say(line: str, tone: str = "dim") -> bool:
    """Shows one line below the cell; False where that is not possible."""
    return shell() is not None and _display(_core.printable(line), markup.page(f"<p>{markup.toned(tone, line)}</p>"))


def live(line: str) -> bool:
    """One more line for the live output of the cell that runs; False where there is none."""
    ipython = shell()
    if ipython is None:
        return False
    _output_of(ipython).add(line)
    return True


def show_warnings() -> None:
    """From now on tenscope's own warnings are lines of a notebook; all others are shown as before."""
    if shell() is None or getattr(warnings.showwarning, "of_tenscope", False):
        return
    before = warnings.showwarning

    def show(message: Any, category: type, filename: str, lineno: int, file: Any = None, line: Any = None) -> None:
        is_ours = file is None and issubclass(category, RecordingWarning)
        if not is_ours or not say(f"tenscope warns: {message}", "note"):
            before(message, category, filename, lineno, file, line)

    show.of_tenscope = True
    warnings.showwarning = show


def line_html(line: str) -> str:
    """A line with the colours of a terminal; where it is broken, it goes on behind its margin."""
    margin = len(_MARGIN.match(_plain(line))[0])
    line, is_drawn = line.lstrip(" "), not _plain(line)[:margin].isspace()
    parts, at = [], 0
    for match in _TONED.finditer(line):
        parts += [markup.text(line[at : match.start()]), markup.toned(_TONES.get(match[1], "dim"), match[2])]
        at = match.end()
    parts.append(markup.text(line[at:]))
    hanging = f";text-indent:-{margin}ch" if margin and is_drawn else ""
    return f'<code style="padding-left:{margin}ch{hanging}">{"".join(parts)}</code>'


def _plain(line: str) -> str:
    return _TONED.sub(r"\2", line)


def _display(plain: str, html: str, **where: Any) -> Any:
    try:
        from IPython.display import display

        return display({"text/plain": plain, "text/html": html}, raw=True, **where) or True
    except Exception:  # no line is worth the program
        return False


class _LiveOutput:
    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._first: list[str] = []
        self._last: deque[str] = deque(maxlen=_LAST)
        self._count = 0
        self._handle: Any = None  # of IPython; it redraws what it has shown
        self._drawn_at = 0.0
        self._is_drawn = True

    def add(self, line: str) -> None:
        with self._lock:
            lines = self._first if len(self._first) < _FIRST else self._last
            lines.append(line if len(line) <= _LONGEST else _plain(line)[: _LONGEST - 1] + "…")
            self._count += 1
            self._is_drawn = False
            if time.monotonic() - self._drawn_at >= _EVERY:
                self.draw()

    def draw(self) -> None:
        with self._lock:
            if self._is_drawn:
                return
            self._is_drawn, self._drawn_at = True, time.monotonic()
            left_out = self._count - len(self._first) - len(self._last)
            more = [f"… {left_out:,} lines more"] if left_out else []
            lines = [*self._first, *more, *self._last]
            content = "".join(map(line_html, lines))
            html = markup.page(f'<div class="tenscope-live">{content}</div>')
            plain = "\n".join(map(_plain, lines))
            if not self._handle:
                self._handle = _display(plain, html, display_id=True)
            else:
                with contextlib.suppress(Exception):
                    self._handle.update({"text/plain": plain, "text/html": html}, raw=True)


_outputs: dict[int, _LiveOutput] = {}  # by the number of the cell; those before the running one are drawn and gone


def _output_of(ipython: Any) -> _LiveOutput:
    cell = ipython.execution_count
    if cell not in _outputs:
        if _draw_all not in ipython.events.callbacks["post_run_cell"]:
            ipython.events.register("post_run_cell", _draw_all)
        _outputs[cell] = _LiveOutput()
    return _outputs[cell]


def _draw_all(*_: object) -> None:
    for output in _outputs.values():
        output.draw()
    _outputs.clear()
