"""Who called: the frames of the program, without tenscope's own."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import NamedTuple

OWN_FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


class Caller(NamedTuple):
    function: str
    file: str
    line: int


def callers(limit: int) -> Iterator[Caller]:
    """The nearest frames outside this package, innermost first."""
    frame = sys._getframe(1)
    while frame is not None and limit > 0:
        code = frame.f_code
        if not code.co_filename.startswith(OWN_FOLDER):
            limit -= 1
            yield Caller(code.co_name, code.co_filename, frame.f_lineno)
        frame = frame.f_back


def site() -> str:
    """The program's line that called, as events have it: "file.py:12"."""
    caller = next(callers(1), None)
    if caller is None:
        return ""
    folder = os.getcwd() + os.sep
    file = caller.file.removeprefix(folder) if caller.file.startswith(folder) else os.path.basename(caller.file)
    return f"{file}:{caller.line}"
