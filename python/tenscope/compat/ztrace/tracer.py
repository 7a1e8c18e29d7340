"""The decorator: one native watcher per function, one record per call."""

from __future__ import annotations

import functools
import inspect
import os
import sys
import weakref
from collections.abc import Callable, Iterable

from tenscope import _core
from tenscope.compat.ztrace.manager import manager
from tenscope.lines.code_facts import add_ignore_mark
from tenscope.lines.expressions import parse
from tenscope.lines.watch import unwrap

add_ignore_mark("ztrace: ignore")
_DISABLED = bool(os.environ.get("ZEXPER_DISABLED"))


class Tracer:
    """What `ztrace([...])` gives: call it with the function to trace."""

    def __init__(self, names: Iterable[str], hook: Callable | None = None, details: bool = False):
        self.names = list(names)
        self._hook = hook
        self._details = details

    def __call__(self, function: Callable) -> Callable:
        if _DISABLED:
            return function
        manager.start()
        plain = unwrap(function)
        if not (inspect.isgeneratorfunction(plain) or inspect.isasyncgenfunction(plain)):
            self._watch(plain)

        @functools.wraps(function)
        def traced(*args, **kwargs):
            return function(*args, **kwargs)

        return traced

    def _watch(self, plain: Callable) -> None:
        options = {
            "reprs": True,
            "max_tensor_bytes": sys.maxsize,
            "max_changes": -1,
            "on_change": self._hook,
            "on_finish": functools.partial(manager.add, manager.key_of(plain), self.names, self._details),
        }
        watcher = _core.make_watcher([parse(name) for name in dict.fromkeys(self.names) if _is_path(name)], options)
        watcher.add(plain.__code__, plain)
        weakref.finalize(plain, watcher.close).atexit = False


def _is_path(name: str) -> bool:
    try:
        parse(name)
    except (TypeError, ValueError):
        return False
    return True


def ztrace(names: Iterable[str], hook: Callable | None = None, details: bool = False) -> Tracer:
    if not _DISABLED:
        manager.start()
    return Tracer(names, hook, details)
