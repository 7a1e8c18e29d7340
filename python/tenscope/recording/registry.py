"""tenscope.register: how objects of the user's own types are recorded, dumped and compared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tenscope import _core


@dataclass(frozen=True)
class Entry:
    to_value: Callable[[Any], Any]
    from_value: Callable[[Any], Any] | None
    compare: Callable[..., bool] | None


_entries: dict[type, Entry] = {}
_to_value: dict[type, Callable[[Any], Any]] = {}  # what the core looks at
_core.set_registered(_to_value)


def register(
    cls: type,
    *,
    to_value: Callable[[Any], Any],
    from_value: Callable[[Any], Any] | None = None,
    compare: Callable[..., bool] | None = None,
) -> None:
    """Makes a type, and its subclasses, known to `record`, `compare`, `diff` and the dumper.

    to_value(obj)      the tensors, numbers and text it is made of, in any nest: what is recorded and compared
    from_value(value)  the object again, where `tenscope.open(run)[name]` finds one
    compare(a, b, atol=, rtol=, equal_nan=) -> bool   instead of comparing what to_value gives
    """
    if not isinstance(cls, type):
        raise TypeError(f"register: not a type: {cls!r}")
    _entries[cls] = Entry(to_value, from_value, compare)
    _to_value[cls] = to_value


def entry_of(obj: Any) -> Entry | None:
    return next((_entries[cls] for cls in type(obj).__mro__ if cls in _entries), None) if _entries else None


def entry_named(name: str) -> Entry | None:
    """By "module.Class", as an event's meta has it."""
    return next((e for cls, e in _entries.items() if f"{cls.__module__}.{cls.__qualname__}" == name), None)


def plain(obj: Any, depth: int = 0) -> Any:
    """The object with everything registered in it, in dicts, lists and tuples, replaced by its value."""
    if not _entries or depth > 200:
        return obj
    entry = entry_of(obj)
    if entry is not None:
        return plain(entry.to_value(obj), depth + 1)
    if type(obj) is dict:
        return {key: plain(value, depth + 1) for key, value in obj.items()}
    if type(obj) in (list, tuple):
        return type(obj)(plain(value, depth + 1) for value in obj)
    return obj
