"""The debug context in force, held in a context variable: threads start without one, asyncio tasks are separate."""

from __future__ import annotations

import contextvars

_active: contextvars.ContextVar[DebugContext | None] = contextvars.ContextVar("torchspy_context", default=None)


class DebugContext:
    def __init__(self, saver, prefix: str = "", module_path_override: str | None = None):
        self.saver = saver
        self.prefix = prefix
        self.module_path_override = module_path_override
        self._entered: contextvars.ContextVar[tuple] = contextvars.ContextVar("torchspy_entered", default=())

    @property
    def debugger(self):
        return self.saver

    def __enter__(self) -> DebugContext:
        self._entered.set((*self._entered.get(), _active.get()))
        _active.set(self)
        return self

    def __exit__(self, *_) -> None:
        *rest, outer = self._entered.get()
        self._entered.set(tuple(rest))
        _active.set(outer)


def get_debug_context() -> DebugContext | None:
    return _active.get()
