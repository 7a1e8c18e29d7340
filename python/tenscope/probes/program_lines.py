"""The program's own lines: of an operation, and of a module's call."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import sys
import sysconfig
from types import CodeType, FrameType

import torch

from tenscope.probes.statements import statement_at
from tenscope.recording.callers import OWN_FOLDER

_TORCH_FOLDER = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
_PYTHON_FOLDER = sysconfig.get_paths()["stdlib"] + os.sep
_PACKAGES = tuple(os.path.join(_PYTHON_FOLDER, name) + os.sep for name in ("site-packages", "dist-packages"))


@dataclasses.dataclass(frozen=True)
class Line:
    file: str = ""
    number: int = 0
    function: str = ""

    @functools.cached_property
    def site(self) -> str:
        if not self.file:
            return ""
        folder = os.getcwd() + os.sep
        shown = self.file.removeprefix(folder) if self.file.startswith(folder) else os.path.basename(self.file)
        return f"{shown}:{self.number}"

    @functools.cached_property
    def words(self) -> dict[str, str]:
        statement = statement_at(self.file, self.number)
        words = {"function": self.function, "text": statement.text}
        return {**words, "assigns": statement.assigns} if statement.assigns else words

    @functools.cached_property
    def meta(self) -> str:
        """Members of an event's meta, as JSON."""
        return json.dumps(self.words)[1:-1]


COMPILED = Line()  # of code that torch.compile has made


class ProgramLines:
    """Finds lines, and knows again those that it has found. `new_codes`: whose sources are still to be kept."""

    def __init__(self):
        self.new_codes: list[CodeType] = []
        self._lines: dict[tuple[CodeType, int], Line] = {}

    def innermost(self, frame: FrameType | None, is_backward: bool = False) -> Line | None:
        """The line of the innermost frame, from this one on, that is of neither torch, Python's own library nor ours.
        None where there is none, and in a backward pass for what the autograd engine runs by itself."""
        while frame is not None:
            code = frame.f_code
            if is_backward and code.co_name == "_engine_run_backward":
                return None
            if code.co_filename.startswith("<eval_with_key>") or "torchinductor" in code.co_filename:
                return COMPILED
            if _is_of_program(code.co_filename):
                key = (code, frame.f_lineno)
                line = self._lines.get(key)
                if line is None:
                    line = self._lines[key] = Line(code.co_filename, frame.f_lineno, code.co_name)
                    self.new_codes.append(code)
                return line
            frame = frame.f_back
        return None

    def calling(self) -> Line | None:
        """The line that makes the module's call whose hook asks."""
        return self.innermost(sys._getframe(2))


@functools.lru_cache(maxsize=4096)
def _is_of_program(file: str) -> bool:
    if file.startswith((_TORCH_FOLDER, OWN_FOLDER, "<frozen ")):
        return False
    return not file.startswith(_PYTHON_FOLDER) or file.startswith(_PACKAGES)
