"""Watched expressions that never had a value: told when the function dies, its run is closed or the program ends.

A misspelt variable would otherwise look like one that never changed. A variable that the function has, but that no
call came to set, is noted in the run and not warned of.
"""

from __future__ import annotations

import atexit
import os
import weakref
from collections.abc import Callable, Iterable
from types import FunctionType

from tenscope import _core
from tenscope.lines.expressions import parse
from tenscope.recording.run import before_close, current
from tenscope.recording.selectors import Unmatched, note, tell


class _Followed:
    def __init__(self, watcher: _core.Watcher, function: FunctionType, where: str):
        self.watcher = watcher
        self.where = where
        self.code = function.__code__
        self.globals = function.__globals__
        self.pid = os.getpid()
        self.told: set[str] = set()

    def report(self, record: Callable | None) -> None:
        if self.watcher.calls == 0 or self.pid != os.getpid():
            return
        names = [*self.code.co_varnames, *self.code.co_cellvars, *self.code.co_freevars]
        report(self.watcher, self.where, names, self.globals, self.told, record)

    def end(self) -> None:
        """The function is gone."""
        self.report(_current_record())
        self.watcher.close()
        _followed.pop(id(self), None)


_followed: dict[int, _Followed] = {}


def follow(watcher: _core.Watcher, function: FunctionType, where: str) -> None:
    """The watcher is closed when the function dies, and what it never saw is told."""
    followed = _Followed(watcher, function, where)
    _followed[id(followed)] = followed
    weakref.finalize(function, followed.end).atexit = False


def report(
    watcher: _core.Watcher,
    where: str,
    names: Iterable[str],
    others: Iterable[str] = (),
    told: set[str] | None = None,
    record: Callable | None = None,
) -> None:
    """Tells the expressions that had no value. `names` are the variables that there can be, `others` those around."""
    told = set() if told is None else told
    record = _current_record() if record is None else record
    names = list(names)
    for text in watcher.unseen:
        if text in told:
            continue
        told.add(text)
        _, root, steps = parse(text)
        if root in names and not steps:
            note(Unmatched(text, where, [text], "never had a value"), record)
        elif root in names or root in others:
            tell([Unmatched(text, where, [root])], record)
        else:
            tell([Unmatched(text, where, [*names, *others])], record)


def _current_record() -> Callable | None:
    run = current()
    return None if run is None else run.record


def _report_all(record: Callable | None) -> None:
    for followed in list(_followed.values()):
        followed.report(record)


before_close(_report_all)
atexit.register(lambda: _report_all(_current_record()))
