"""What runs as a module's forward: its class' own, or whatever the program has put there or around it.

A forward may be replaced on the class or on one module, and wrapped: by a decorator, or by a library's hooks. Each
function of that chain is told by its place, so that a diff looks at the source of what ran.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import nn

from tenscope.recording.sources import shown_file

_LONGEST_CHAIN = 32
_TORCH = str(torch.__path__[0])


class Forward(NamedTuple):
    """The functions that run as a forward."""

    site: str  # of the innermost, file:line; empty for what is torch's own, and where it has no source
    wrappers: tuple[str, ...]  # of those around it, the outermost first
    without_source: str  # what has none; empty: all have one
    codes: tuple[types.CodeType, ...]


def forward_of(module: nn.Module) -> Any:
    """What a call of the module calls: the same object as long as nobody replaces it."""
    return module.__dict__.get("forward") or getattr(type(module), "forward", None)


def look_at(forward: Any, cls: type) -> Forward:
    if isinstance(forward, torch.ScriptMethod) or issubclass(cls, torch.jit.ScriptModule):
        return Forward("", (), "TorchScript", ())
    chain = _chain(forward)
    codes = [_code_of(each) for each in chain]
    missing = next((_name_of(each) for each, code in zip(chain, codes, strict=True) if code is None), "")
    known = tuple(code for code in codes if code is not None)
    *around, innermost = [f"{shown_file(code.co_filename)}:{code.co_firstlineno}" for code in known] or [""]
    is_torchs_own = bool(known) and cls.__module__.startswith("torch.") and known[-1].co_filename.startswith(_TORCH)
    return Forward("" if is_torchs_own else innermost, tuple(around), missing, known)


def _chain(function: Any) -> list:
    """A function and what it wraps, as functools.wraps says, the outermost first."""
    chain: list = []
    while function is not None and len(chain) < _LONGEST_CHAIN and not any(each is function for each in chain):
        chain.append(function)
        function = getattr(function, "__wrapped__", None)
    return chain


def _code_of(function: Any) -> types.CodeType | None:
    for _ in range(_LONGEST_CHAIN):
        if isinstance(function, functools.partial):
            function = function.func
        elif isinstance(function, (types.MethodType, staticmethod, classmethod)):
            function = function.__func__
        elif isinstance(function, types.FunctionType):
            return function.__code__
        elif isinstance(function, (types.BuiltinFunctionType, type)):
            return None
        else:  # an object that can be called
            calls = (vars(cls).get("__call__") for cls in type(function).__mro__)
            function = next((call for call in calls if call is not None), None)
    return None


def _name_of(function: Callable) -> str:
    named = function if hasattr(function, "__qualname__") else type(function)
    return f"{getattr(named, '__module__', None) or 'builtins'}.{named.__qualname__}"
