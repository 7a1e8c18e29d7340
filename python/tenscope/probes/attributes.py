"""The plain attributes of a module as they were told last, and which of them are others by its next call.

Overview. Every recorded call asks, so looking must cost next to nothing: numbers, texts and what else cannot change is
the same where it is the same object, which one pass in C says; lists and sets are compared. Only where something is
another, or where an attribute was added or removed, are all looked at anew. Nothing of the program's is kept alive:
of functions, which may hold the module itself, the address is remembered.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from operator import is_, itemgetter
from types import NoneType

import torch
from torch import nn

from tenscope.probes.describe import MAX_LIST, MAX_TABLE, Told, collect, is_public, members_of

_UNCHANGING = (bool, int, float, complex, str, NoneType, torch.dtype, torch.device, torch.Size, enum.Enum)
_PLAIN_MEMBERS = (bool, int, float, str, NoneType)


class Attributes:
    """Must not outlive the probe that it belongs to; does not keep the module alive."""

    def __init__(self, module: nn.Module, told: Told):
        self._told = told
        self._configs: set[str] = set()  # attributes whose members are told at this module
        self._look(module)

    def _look(self, module: nn.Module) -> None:
        self.values, self.left_out, self._configs = collect(module, self._told, self._configs)
        self._own = _Table(vars(module))
        self._members = {name: _Table(members_of(vars(module)[name]), has_tables=True) for name in self._configs}

    def changes(self, module: nn.Module) -> tuple[dict, list[str]] | None:
        """What has another value than when this was asked last, and the names of what is gone; None: nothing."""
        held = vars(module)
        if self._own.is_same(held) and all(
            name in held and table.is_same(members_of(held[name])) for name, table in self._members.items()
        ):
            return None
        before = self.values
        self._look(module)
        changed = {
            name: value
            for name, value in self.values.items()
            if name not in before or not _is_same(value, before[name])
        }
        gone = [name for name in before if name not in self.values]
        return (changed, gone) if changed or gone else None


def _is_same(x: object, y: object) -> bool:
    return type(x) is type(y) and x == y


class _Table:
    """The members of a dict: which objects they were, as far as these may be kept."""

    __slots__ = ("_addresses", "_addresses_of", "_copies", "_objects", "_objects_of", "_size", "_tables")

    def __init__(self, members: dict, has_tables: bool = False):
        self._size = len(members)
        objects, addresses, self._copies, self._tables = {}, {}, [], []
        for name, value in members.items():
            if not is_public(name) or name == "training":
                continue
            if isinstance(value, _UNCHANGING):
                objects[name] = value
            elif isinstance(value, (list, set, tuple, frozenset)):
                if len(value) > MAX_LIST or not all(isinstance(each, _PLAIN_MEMBERS) for each in value):
                    continue
                if isinstance(value, (tuple, frozenset)):
                    objects[name] = value
                else:
                    self._copies.append((name, type(value), list(value)))
            elif isinstance(value, dict):
                if has_tables and len(value) <= MAX_TABLE:
                    self._tables.append((name, _Table(value)))
            elif callable(value):
                addresses[name] = id(value)
        self._objects_of, self._objects = _getter(objects), tuple(objects.values())
        self._addresses_of, self._addresses = _getter(addresses), tuple(addresses.values())

    def is_same(self, members: dict) -> bool:
        try:
            return (
                len(members) == self._size
                and all(map(is_, self._objects_of(members), self._objects))
                and (not self._addresses or tuple(map(id, self._addresses_of(members))) == self._addresses)
                and all(type(members[name]) is kind and _has(members[name], was) for name, kind, was in self._copies)
                and all(
                    isinstance(members[name], dict) and table.is_same(members[name]) for name, table in self._tables
                )
            )
        except KeyError:  # one is gone, and another has come
            return False


def _has(values, was: list) -> bool:
    """Whether a list has the members that it had. What is no plain value now is not asked for equality."""
    return len(values) == len(was) and all(
        now is then or (isinstance(now, _PLAIN_MEMBERS) and now == then) for now, then in zip(values, was, strict=True)
    )


def _getter(names: dict) -> Callable[[dict], tuple]:
    keys = list(names)
    if not keys:
        return lambda members: ()
    return itemgetter(*keys) if len(keys) > 1 else lambda members: (members[keys[0]],)
