"""What a module is: its class and plain attributes, told once, in the first enter event. docs/trace.md has the form.

Only what lies in an instance's `__dict__` is looked at, so that no property and no `__getattr__` of the program runs.
"""

from __future__ import annotations

import argparse
import dataclasses
import enum
import functools
import math
import types
import weakref
from collections.abc import Iterator

import torch
from torch import nn

from tenscope.metadata.runtime import REDACTED, is_credential
from tenscope.recording.sources import class_file, shown_file

_MAX_ATTRIBUTES = 64
_MAX_CONFIG = 200  # members of all configuration objects of one module
_MAX_TEXT = 200
MAX_LIST = 64
MAX_TABLE = 16  # members of a dict among the members of a configuration
_WORDS = (torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size)
_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType, types.MethodType, type)

_NOT_PLAIN = object()
_TOO_LARGE = object()


class Told:
    """Which configuration objects a probe has told already, without keeping them alive."""

    def __init__(self):
        self._objects: dict[int, weakref.ref] = {}
        self._texts: set[str] = set()

    def is_new(self, config) -> bool:
        try:
            known = self._objects.get(id(config))
            if known is not None and known() is config:
                return False
            self._objects[id(config)] = weakref.ref(config)
            return True
        except TypeError:  # a dict, say: known by what is in it
            text = repr(list(_plain_members(config)))
            if text in self._texts:
                return False
            self._texts.add(text)
            return True


def describe(cls: type, attributes: dict[str, object], left_out: int) -> dict:
    """`class_path`, `class_file`, `attributes` and, where a limit cut some off, `attributes_left_out`: how many."""
    described = {"class_path": class_path(cls), "class_file": shown_file(class_file(cls)), "attributes": attributes}
    if left_out:
        described["attributes_left_out"] = left_out
    return described


def collect(module: nn.Module, told: Told, own_configs: set[str]) -> tuple[dict[str, object], int, set[str]]:
    """The plain attributes; how many were left out; the configurations whose members are told at this module, as
    those of `own_configs` were before."""
    attributes: dict[str, object] = {}
    configs: set[str] = set()
    left_out = 0
    for name, value in vars(module).items():
        if not is_public(name) or name == "training":
            continue
        plain = _told(name, value)
        if plain is not _NOT_PLAIN:
            if plain is _TOO_LARGE or len(attributes) >= _MAX_ATTRIBUTES:
                left_out += 1
            else:
                attributes[name] = plain
        elif _is_config(name, value) and (told.is_new(value) or name in own_configs):
            configs.add(name)
            left_out += _add_config(name, value, attributes)
    return attributes, left_out, configs


def class_path(cls: type) -> str:
    """`package.module:Outer.Name`."""
    return f"{cls.__module__}:{cls.__qualname__}"


def is_public(name: object) -> bool:
    return isinstance(name, str) and not name.startswith("_")


def _is_config(name: str, value: object) -> bool:
    if isinstance(value, (nn.Module, torch.Tensor, type)):
        return False
    if isinstance(value, dict):
        return len(value) <= _MAX_CONFIG
    if isinstance(value, (argparse.Namespace, types.SimpleNamespace)) or dataclasses.is_dataclass(value):
        return True
    return name == "config" and hasattr(value, "__dict__")


def _add_config(name: str, config: object, attributes: dict[str, object]) -> int:
    """Adds the plain members of a configuration as `name.member`; gives how many were left out."""
    left_out = 0
    room = _MAX_CONFIG - sum("." in known for known in attributes)
    for member, plain in _plain_members(config):
        if plain is _TOO_LARGE or room <= 0:
            left_out += 1
        else:
            attributes[f"{name}.{member}"] = plain
            room -= 1
    return left_out


def _plain_members(config: object) -> Iterator[tuple[str, object]]:
    for name, value in members_of(config).items():
        if not is_public(name):
            continue
        plain = _told(name, value)
        if plain is not _NOT_PLAIN:
            yield name, plain
        elif isinstance(value, dict):
            if len(value) > MAX_TABLE:
                yield name, _TOO_LARGE
                continue
            for key, below in value.items():
                if not is_public(key):
                    continue
                plain = _told(key, below)
                if plain is not _NOT_PLAIN:
                    yield f"{name}.{key}", plain


def members_of(config: object) -> dict:
    """By name, public or not."""
    if isinstance(config, dict):
        return config
    values = getattr(config, "__dict__", None)
    if values is None:  # a dataclass with slots, or no configuration any more
        fields = dataclasses.fields(config) if dataclasses.is_dataclass(config) else ()
        return {field.name: getattr(config, field.name, None) for field in fields}
    return values


def _told(name: str, value: object) -> object:
    """As _plain; what looks like a credential stays out."""
    return REDACTED if is_credential(name, value) else _plain(value)


def _plain(value: object, depth: int = 0) -> object:
    """The value as JSON has it, as text where JSON has no such value, or one of the two marks."""
    if value is None or value is True or value is False:
        return value
    if isinstance(value, enum.Enum):
        return f"{type(value).__qualname__}.{value._name_}"
    if isinstance(value, int):
        number = int(value)
        return number if -(2**63) <= number < 2**63 else str(number) if number.bit_length() < 512 else _TOO_LARGE
    if isinstance(value, float):
        number = float(value)
        return number if math.isfinite(number) else str(number)
    if isinstance(value, str):
        return str(value) if len(value) <= _MAX_TEXT else _TOO_LARGE
    if isinstance(value, _WORDS):
        return str(value)
    if isinstance(value, (list, tuple, set, frozenset)):
        return _plain_list(value, depth)
    if isinstance(value, _FUNCTIONS):
        return _qualified_name(value)
    if isinstance(value, functools.partial):
        return _partial(value)
    if type(value).__module__ == "numpy" and hasattr(value, "item") and getattr(value, "shape", None) == ():
        return _plain(value.item(), depth + 1) if depth < 2 else _NOT_PLAIN
    return _NOT_PLAIN


def _plain_list(values, depth: int) -> object:
    if depth >= 2:
        return _NOT_PLAIN
    if len(values) > MAX_LIST:
        return _TOO_LARGE if all(isinstance(each, (bool, int, float, str)) for each in values) else _NOT_PLAIN
    plain = [_plain(each, depth + 1) for each in values]
    if any(each is _NOT_PLAIN for each in plain):
        return _NOT_PLAIN
    if any(each is _TOO_LARGE for each in plain):
        return _TOO_LARGE
    return sorted(plain, key=repr) if isinstance(values, (set, frozenset)) else plain


def _qualified_name(function) -> str:
    """`torch.nn.functional.relu`; what torch has from C++ bears the name of the module that holds it there."""
    module = getattr(function, "__module__", None)
    name = getattr(function, "__qualname__", None) or getattr(function, "__name__", "?")
    return f"{module}.{name}" if isinstance(module, str) and module else str(name)


def _partial(value: functools.partial) -> object:
    name = _plain(value.func, 1)
    given = [_plain(each, 1) for each in value.args]
    named = {key: _plain(each, 1) for key, each in value.keywords.items()}
    parts = [*given, *named.values()]
    if name is _NOT_PLAIN or any(each is _NOT_PLAIN or each is _TOO_LARGE for each in parts):
        return _NOT_PLAIN
    text = ", ".join([str(name), *map(repr, given), *(f"{key}={each!r}" for key, each in named.items())])
    return f"functools.partial({text})" if len(text) <= _MAX_TEXT else _TOO_LARGE
