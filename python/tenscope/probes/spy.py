"""tenscope.spy and tenscope.context: values from inside a forward, only while somebody listens."""

from __future__ import annotations

import contextvars
import weakref
from typing import Any

from tenscope import _core
from tenscope.recording.run import current, init

spy = _core.spy  # native: with no listener it returns at once

_active: contextvars.ContextVar[context | None] = contextvars.ContextVar("tenscope_context", default=None)
_probes: list = []  # of the traces under way


def listen(probe) -> None:
    _probes.append(probe)
    _core.spy_listen(1)


def unlisten(probe) -> None:
    _probes.remove(probe)
    _core.spy_listen(-1)


class context:
    """While inside, tenscope.spy records. A context manager, held per thread and per asyncio task.

    prefix  comes before the names
    model   paths of its modules become part of the names; without it they are known while a trace runs
    run     a Run; the current one by default
    """

    def __init__(self, prefix: str = "", *, model=None, run=None):
        self.prefix = prefix
        self.run = run
        self._paths: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()
        self._tokens: list[contextvars.Token] = []
        if model is not None:
            from tenscope.probes.modules import unwrapped_paths

            for path, module in unwrapped_paths(model):
                self._paths.setdefault(module, path)

    def path_of(self, module) -> str | None:
        return self._paths.get(module)

    def __enter__(self) -> context:
        self._tokens.append(_active.set(self))
        _core.spy_listen(1)
        return self

    def __exit__(self, *_) -> None:
        _core.spy_listen(-1)
        _active.reset(self._tokens.pop())


def _spy(name: str, value: Any, module=None) -> None:
    within = _active.get()
    prefix = within.prefix if within is not None else ""
    for probe in _probes:
        frame = _frame_of(probe, module)
        if frame is None:
            continue
        if frame.on:
            info = frame.info
            full = f"{prefix}.{info.prefix}{name}" if prefix else f"{info.prefix}{name}"
            probe.record(
                full,
                value,
                phase="forward",
                root=info.root.label,
                scope=info.path,
                cls=info.cls,
                call=frame.call,
                values=probe.what.values,
            )
        return
    if within is None:
        return
    path = within.path_of(module) if module is not None else None
    full = ".".join(part for part in (prefix, path, name) if part)
    run = within.run or current() or init()
    if run is not None:
        run.record(full, value, scope=path or "", cls="" if module is None else type(module).__name__)


def _frame_of(probe, module):
    """The call under way of a module, or the innermost of this thread."""
    stack = probe.stack()
    if module is None:
        return stack[-1] if stack else None
    return next((frame for frame in reversed(stack) if frame.module is module), None)


_core.spy_active = _spy
