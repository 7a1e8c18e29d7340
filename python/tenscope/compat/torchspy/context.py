"""The debug context in force, held in a context variable: threads start without one, asyncio tasks are separate."""

from __future__ import annotations

import contextvars
import logging

logger = logging.getLogger(__name__)

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

    def _save(self, name: str, tensor, module=None) -> None:
        """What `spy_save` does inside this context. Subclasses may put something in its place."""
        path = self.module_path_override
        if path is None and module is None:
            path = "manual"
        elif path is None:
            path = self.saver.module_paths.get(id(module))
            if path is None:
                logger.warning("%s of an unregistered %s is not saved", name, type(module).__name__)
                return
        self.saver.save(".".join(part for part in (self.prefix, path, name) if part), tensor)

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
