"""torchspy's names: save tensors from inside a forward, list module calls, draw them."""

from __future__ import annotations

import importlib

_HOMES = {
    "BaseDebugger": "_base",
    "CallTracer": "tracer",
    "DebugContext": "context",
    "TensorSaver": "saver",
    "get_debug_context": "context",
    "spy_save": "saver",
}

__all__ = ["BaseDebugger", "CallTracer", "DebugContext", "TensorSaver", "get_debug_context", "spy_save"]


def __getattr__(name: str):
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # The full name, so that sys.modules["torchspy"] = this module shares contexts with every import path.
    return getattr(importlib.import_module(f"tenscope.compat.torchspy.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
