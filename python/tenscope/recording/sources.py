"""The sources of the code that made a run, kept in its folder: `sources/<fingerprint>.py`, once by content.

Overview. Whoever meets a code object or a class for the first time hands it to `KeptSources`, which looks at each file
once: writes its text where it is not there yet, and a note `source` into the journal. What is kept is what the program
ran. Cells of a notebook and the like are in `linecache`; a file that changed after the process had begun is compared,
as code, with what runs. docs/format.md has the form of the note.
"""

from __future__ import annotations

import functools
import inspect
import io
import json
import linecache
import os
import sys
import tokenize
import types
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tenscope import _core
from tenscope.metadata.patches import CLOCK_SLACK_S, process_start, same_code
from tenscope.recording.callers import OWN_FOLDER

FOLDER = "sources"
LARGEST_BYTES = 1 << 20  # of one file
MOST_BYTES = 64 << 20  # of all that one process keeps


@functools.lru_cache(maxsize=4096)
def shown_file(file: str) -> str:
    """As sites of modules and notes have it: below the working folder the path from there, else the whole."""
    if file.startswith("<"):
        return file
    try:
        path = os.path.relpath(file)
    except (OSError, ValueError):  # the working folder is gone
        return file
    return file if path.startswith("..") else path


_real_folder = functools.lru_cache(maxsize=4096)(os.path.realpath)


def _real_file(file: str) -> str:
    """os.path.realpath, which looks at every folder on the way, for files that share their folders."""
    if os.path.islink(file):
        return os.path.realpath(file)
    return os.path.join(_real_folder(os.path.dirname(os.path.abspath(file))), os.path.basename(file))


@functools.lru_cache(maxsize=1024)
def class_file(cls: type) -> str:
    """The file that a class was defined in; empty where nothing tells."""
    module = sys.modules.get(cls.__module__)
    file = getattr(module, "__file__", None)
    if isinstance(file, str) and file.endswith((".py", ".pyw")):
        return file
    return next((code.co_filename for code in _codes_of(cls)), "")


def _contained(method: Callable) -> Callable:
    """What goes wrong in here loses a source, and no event."""

    @functools.wraps(method)
    def call(self: KeptSources, what: Any) -> None:
        try:
            method(self, what)
        except Exception:
            if _core.is_strict():
                raise

    return call


class KeptSources:
    """Keeps the sources of one run, as far as this process meets them. A fork's child notes its own."""

    def __init__(self, run: Any) -> None:
        self._folder = Path(run.path) / FOLDER
        self._run = weakref.proxy(run)  # which holds this
        self._owner = os.getpid()
        self._seen: dict[str, object] = {}  # files
        self._classes: dict[type, object] = {}
        self._bytes = 0

    @_contained
    def keep_class(self, cls: type) -> None:
        """The file of a class, and that of its forward, which it may have from another class."""
        if self._is_news(self._classes, cls):
            forward = _code_of(getattr(cls, "forward", None))
            file = class_file(cls)
            if file:
                here = (code for code in (forward, *_codes_of(cls)) if code is not None and code.co_filename == file)
                self._keep(file, next(here, None))
            if forward is not None and forward.co_filename != file:
                self.keep_code(forward)

    @_contained
    def keep_code(self, code: types.CodeType) -> None:
        self._keep(code.co_filename, code)

    @_contained
    def keep_program(self, folders: list[str]) -> None:
        """The files of all imported modules below these folders, but for installed packages: with these the program
        can be run again as it was."""
        below = tuple(os.path.realpath(folder) + os.sep for folder in folders)
        installed = os.path.realpath(sys.prefix) + os.sep
        for module in list(sys.modules.values()):
            file = vars(module).get("__file__") if isinstance(module, types.ModuleType) else None
            if not isinstance(file, str) or not file.endswith((".py", ".pyw")):
                continue
            path = _real_file(file)
            if path.startswith(below) and not path.startswith(installed):
                self._keep(os.path.abspath(file), None)

    def keep_recording_code(self, code: types.CodeType) -> None:
        """Asked by the core, perhaps in the middle of a line that is watched."""
        _core.call_unwatched(self.keep_code, code)

    def _is_news(self, known: dict, key: object) -> bool:
        if self._owner != os.getpid():
            self._owner = os.getpid()
            self._seen.clear()
            self._classes.clear()
        if not self._run.enabled:
            return False
        mark = object()
        return known.setdefault(key, mark) is mark

    def _keep(self, file: str, code: types.CodeType | None) -> None:
        if file.startswith(OWN_FOLDER) or not self._is_news(self._seen, file):
            return
        try:
            text, trouble = _text_of(file, code)
        except (OSError, SyntaxError, UnicodeError):  # gone, or no source
            return
        if text is None and not trouble:
            return
        meta: dict[str, object] = {"file": shown_file(file)}
        if os.path.isabs(file):
            meta["path"] = os.path.realpath(file)
        if text is not None and self._bytes + len(text) > MOST_BYTES:
            text, trouble = None, f"the sources of this process are more than {MOST_BYTES} bytes"
        if text is not None:
            try:
                meta |= {"fp": self._write(text), "bytes": len(text), "lines": len(text.splitlines())}
                self._bytes += len(text)
            except OSError as error:
                trouble = f"it could not be written: {error.strerror}"
        if trouble:
            meta["left_out"] = trouble
        self._run.record("source", kind="note", site="", meta=json.dumps(meta))

    def _write(self, text: bytes) -> str:
        name = fingerprint(text)
        path = self._folder / f"{name}.py"
        if not path.exists():
            self._folder.mkdir(exist_ok=True)
            draft = self._folder / f".{name}.{os.getpid()}"
            draft.write_bytes(text)
            os.replace(draft, path)
        return name


os.register_at_fork(after_in_child=_core.forget_codes)


def fingerprint(text: bytes) -> str:
    """32 hex digits, as of a tensor's bytes."""
    return _core.fingerprint(np.frombuffer(text, dtype=np.uint8))[::-1].hex()


def _code_of(function: object) -> types.CodeType | None:
    return getattr(inspect.unwrap(function), "__code__", None) if callable(function) else None


def _codes_of(cls: type) -> Iterator[types.CodeType]:
    """Of the methods that the class has itself."""
    for value in list(vars(cls).values()):
        if isinstance(value, (types.FunctionType, staticmethod, classmethod)):
            code = _code_of(getattr(value, "__func__", value))
            if code is not None and code.co_filename != "<string>":
                yield code


def _text_of(file: str, code: types.CodeType | None) -> tuple[bytes | None, str]:
    """The source that the program ran, as UTF-8, or why it is not kept; neither where there is none."""
    entry = linecache.cache.get(file)
    if file.startswith("<") or (entry is not None and len(entry) > 1 and entry[1] is None):
        return _bounded("".join(linecache.getlines(file)).encode())  # given to linecache by who made the code
    if not os.path.isfile(file):
        return _bounded(_text_of_loader(file))
    with open(file, "rb") as opened:
        status = os.fstat(opened.fileno())
        if status.st_size > LARGEST_BYTES:
            return None, f"it is larger than {LARGEST_BYTES} bytes"
        text = opened.read(LARGEST_BYTES + 1)
    if status.st_mtime > process_start() + CLOCK_SLACK_S and not (code and _is_source_of(text, code)):
        return None, "it changed after the program had begun, and what ran is not known to be this text"
    encoding, _ = tokenize.detect_encoding(io.BytesIO(text).readline)
    return _bounded(text if encoding in ("utf-8", "utf-8-sig") else text.decode(encoding).encode())


def _bounded(text: bytes) -> tuple[bytes | None, str]:
    if len(text) > LARGEST_BYTES:
        return None, f"it is larger than {LARGEST_BYTES} bytes"
    return (text or None), ""


def _text_of_loader(file: str) -> bytes:
    """Of a module that is in an archive."""
    for name, module in list(sys.modules.items()):
        if isinstance(module, types.ModuleType) and vars(module).get("__file__") == file:
            loader = getattr(module.__spec__, "loader", None)
            if hasattr(loader, "get_source"):
                return (loader.get_source(name) or "").encode()
    return b""


def _is_source_of(text: bytes, code: types.CodeType) -> bool:
    """Whether the text compiles to this code, among others."""
    try:
        left = [compile(text, code.co_filename, "exec", dont_inherit=True)]
    except (SyntaxError, ValueError):
        return False
    while left:
        one = left.pop()
        if one.co_name == code.co_name and one.co_firstlineno == code.co_firstlineno and same_code(one, code):
            return True
        left += [const for const in one.co_consts if isinstance(const, types.CodeType)]
    return False
