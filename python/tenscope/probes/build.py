"""What a module is made of, so that `tenscope repro --call` builds it again without its constructor. docs/trace.md has
the form: told once, in a module's first enter event; of modules below it that were not called, in its first exit.

Values are written as JSON where JSON has them, and else as an object with one of these members: `import` (a function,
class or constant by its path), `call` (a function by its path, then its arguments), `dict` (pairs), `object` (a class,
`state`, and an `id` that `same` refers to), `module`, `tensor` (of the model's state, by name), `bytes` (a small tensor
that is no part of it), `method`. What cannot be written is named with the reason.
"""

from __future__ import annotations

import base64
import enum
import functools
import math
import sys
import types
import weakref
from collections import OrderedDict
from collections.abc import Mapping, Sized
from dataclasses import fields, is_dataclass

import torch
from torch import nn

from tenscope.metadata.runtime import is_credential
from tenscope.probes.describe import members_of
from tenscope.probes.modules import ModuleInfo, Root, class_of

_MAX_VALUES = 2000  # of one module
_MAX_DEPTH = 12
_MAX_TEXT = 4000
_MAX_BYTES = 4096  # of a tensor that is no parameter and no buffer
_MAX_UNCALLED = 500  # modules
_MAX_NEST = 1000  # members of a nest of arguments
_HELD_BY_TORCH = {*nn.Module().__dict__, "_compiled_call_impl"}
_HOOKS = ("_forward_pre_hooks", "_forward_hooks")
_WHERE_BUILTINS_ARE = ("torch.nn.functional", "torch", "torch._C._nn", "math", "operator")
_LEAVES = (torch.Tensor, bool, int, float, str)


class NotDescribable(Exception):
    pass


class Builder:
    """Describes modules. Remembers which objects it has described, without keeping them alive."""

    def __init__(self, info_of):
        self._info_of = info_of  # of a module's id: ModuleInfo or None
        self._objects: dict[int, tuple[weakref.ref, int]] = {}
        self._names: weakref.WeakKeyDictionary[Root, dict[int, tuple[weakref.ref, str]]] = weakref.WeakKeyDictionary()
        self._values = 0
        self._missing: dict[str, str] = {}

    def describe(self, module: nn.Module, info: ModuleInfo) -> dict:
        try:
            return self._describe(module, info.root, info.prefix)
        except Exception as error:
            return {"missing": {"": f"{type(error).__name__}: {error}"}}

    def changes(self, module: nn.Module, info: ModuleInfo, changed: dict) -> dict:
        """Of these attributes (those of a configuration as `config.member`), `rebuild`: the values that are written in
        another form here, and `missing`."""
        self._values = 0
        self._missing = {}
        state: dict = {}
        for name in changed:
            attribute, *member = name.split(".")[:2]
            value = vars(module)[attribute]
            if member:
                value = members_of(value).get(member[0])
            whole = ".".join([attribute, *member])
            self._add(state, whole, value, whole, info.root)
        other = {name: value for name, value in state.items() if name not in changed or value != changed[name]}
        return {key: value for key, value in (("rebuild", other), ("missing", self._missing)) if value}

    def uncalled(self, module: nn.Module, info: ModuleInfo) -> dict[str, dict]:
        """The modules below it, by path, that have no description yet: the first call of it is over."""
        found: dict[str, dict] = {}
        try:
            self._add_uncalled(module, info.root, info.prefix, found)
        except Exception as error:
            found[""] = {"missing": {"": f"{type(error).__name__}: {error}"}}
        return found

    def _add_uncalled(self, module: nn.Module, root: Root, prefix: str, found: dict[str, dict]) -> None:
        for name, child in module._modules.items():
            if child is None or len(found) >= _MAX_UNCALLED:
                continue
            info = self._info_of(id(child))
            if info is not None and info.is_described:
                continue
            path = prefix + name if info is None else info.path
            if path not in found:
                found[path] = self._describe(child, root, f"{path}.")
                self._add_uncalled(child, root, f"{path}.", found)

    def _describe(self, module: nn.Module, root: Root, prefix: str) -> dict:
        self._values = 0
        self._missing = {}
        cls = class_of(module)
        told: dict = {"class": import_path(cls)}
        if resolve(told["class"]) is not cls:
            self._missing[""] = f"its class cannot be imported: {told['class']}"
        elif isinstance(module, torch.jit.ScriptModule):
            self._missing[""] = "it is compiled by torch.jit"
        state = {}
        for name, value in vars(module).items():
            if name not in _HELD_BY_TORCH:
                self._add(state, name, value, name, root)
        told["state"] = state
        for table in ("_parameters", "_buffers"):
            held = getattr(module, table)
            if held:
                told[table[1:]] = {n: t if t is None else self._name(t, root, prefix + n) for n, t in held.items()}
        frozen = [n for n, p in module._parameters.items() if p is not None and not p.requires_grad]
        if frozen:
            told["frozen"] = frozen
        if module._non_persistent_buffers_set:
            told["not_persistent"] = sorted(module._non_persistent_buffers_set)
        children = module._modules
        if children:
            told["children"] = {n: c if c is None else self._path(c, root, prefix + n) for n, c in children.items()}
        if any(getattr(module, hooks, None) for hooks in _HOOKS):
            self._missing["forward hooks"] = "what they do is not described"
        if self._missing:
            told["missing"] = self._missing
        return told

    def _path(self, module: nn.Module, root: Root, otherwise: str) -> str:
        info = self._info_of(id(module))
        return info.path if info is not None and info.root is root else otherwise

    def _name(self, tensor: torch.Tensor, root: Root, otherwise: str = "") -> str:
        """The name under which a parameter or buffer is recorded: its first one."""
        names = self._names.get(root)
        if names is None:
            names = self._names[root] = {}
            for members in (root.parameters(), root.buffers()):
                for info, name, each in members:
                    names.setdefault(id(each), (weakref.ref(each), info.prefix + name))
        ref, name = names.get(id(tensor), (None, ""))
        return name if ref is not None and ref() is tensor else otherwise

    def _add(self, out: dict, key: str, value, shown: str, root: Root, depth: int = 0) -> None:
        try:
            if is_credential(key, value):
                raise NotDescribable("it looks like a credential")
            out[key] = self._value(value, shown, root, depth)
        except NotDescribable as error:
            self._missing[shown] = str(error)
        except Exception as error:  # a property of the program's own that raises, say
            self._missing[shown] = f"{type(error).__name__}: {error}"

    def _value(self, value, shown: str, root: Root, depth: int):
        self._values += 1
        if self._values > _MAX_VALUES or depth > _MAX_DEPTH:
            raise NotDescribable("too large to be described")

        def of(each, more=""):
            return self._value(each, shown + more, root, depth + 1)

        kind = type(value)
        if value is None or kind in (bool, int, float, str):
            return plain(value)
        if kind is list:
            return [of(each) for each in value]
        if kind in (tuple, set, frozenset, torch.Size):
            path = "torch:Size" if kind is torch.Size else f"builtins:{kind.__name__}"
            return {"call": [path, [of(each) for each in value]]}
        if kind in (dict, OrderedDict):
            if any(is_credential(str(key), each) for key, each in value.items()):
                raise NotDescribable("something in it looks like a credential")
            pairs = [[of(key), of(each, f"[{key!r}]")] for key, each in value.items()]
            return {"dict": pairs} if kind is dict else {"call": ["collections:OrderedDict", pairs]}
        if (named := constant(value)) is not None:
            return named
        if kind is functools.partial:
            call = {"call": ["functools:partial", of(value.func), *map(of, value.args)]}
            return {**call, "with": {k: of(v) for k, v in value.keywords.items()}} if value.keywords else call
        if kind is types.MethodType:
            return {"method": value.__name__, "of": of(value.__self__)}
        if isinstance(value, weakref.ref):
            return {"call": ["weakref:ref", of(value())]}
        if isinstance(value, nn.Module):
            info = self._info_of(id(value))
            if info is None or info.root is not root:
                raise NotDescribable(f"a module that is not registered: {kind.__name__}")
            return {"module": info.path}
        if isinstance(value, torch.Tensor):
            return self._tensor(value, root)
        if kind.__module__ == "numpy" and getattr(value, "shape", None) == ():
            return {"call": [f"numpy:{kind.__name__}", plain(value.item())]}
        return self._object(value, shown, root, depth)

    def _tensor(self, tensor: torch.Tensor, root: Root) -> dict:
        if name := self._name(tensor, root):
            return {"tensor": name}
        if tensor.numel() * tensor.element_size() > _MAX_BYTES or type(tensor) is not torch.Tensor:
            raise NotDescribable(f"a tensor that is neither a parameter nor a buffer, {list(tensor.shape)}")
        data = tensor.detach().cpu().contiguous().view(-1).view(torch.uint8) if tensor.numel() else b""
        text = base64.b64encode(bytes(data.tolist()) if len(data) else b"").decode()
        return {"bytes": text, "dtype": str(tensor.dtype).removeprefix("torch."), "shape": list(tensor.shape)}

    def _object(self, value, shown: str, root: Root, depth: int):
        """An object of a class of the program or of a library, by its attributes: a configuration, say."""
        kind = type(value)
        path = import_path(kind)
        is_plain = kind.__reduce_ex__ is object.__reduce_ex__ and kind.__reduce__ is object.__reduce__
        if not is_plain or not hasattr(value, "__dict__") or resolve(path) is not kind or isinstance(value, type):
            raise NotDescribable(f"of a kind that cannot be described: {kind.__module__}.{kind.__qualname__}")
        ref, number = self._objects.get(id(value), (None, 0))
        if ref is not None and ref() is value:
            return {"same": number}
        number = len(self._objects)
        told = {"object": path, "id": number, "state": {}}
        try:
            self._objects[id(value)] = (weakref.ref(value), number)
        except TypeError:  # a subclass of dict, say
            told.pop("id")
        if isinstance(value, (dict, list)):
            items = list(value.items()) if isinstance(value, dict) else list(value)
            told["items"] = self._value(items, shown, root, depth + 1)
        for name, member in vars(value).items():
            self._add(told["state"], name, member, f"{shown}.{name}", root, depth + 1)
        return told


def plain(value):
    """None, a bool, a number or a text."""
    if isinstance(value, str) and (len(value) > _MAX_TEXT or not is_utf8(value)):
        raise NotDescribable("a text that is too long, or that UTF-8 does not have")
    if isinstance(value, int) and value.bit_length() > 63:
        return {"call": ["builtins:int", hex(value), 16]}
    if isinstance(value, float) and not math.isfinite(value):
        return {"call": ["builtins:float", str(value)]}
    if isinstance(value, complex):
        return {"call": ["builtins:complex", str(value)]}
    return value


def is_utf8(text: str) -> bool:
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)


def constant(value) -> dict | None:
    """What a program can name: a dtype, a device, a member of an Enum, a function, a class. None: something else."""
    if isinstance(value, (torch.dtype, torch.layout, torch.memory_format)):
        return {"import": str(value).replace(".", ":", 1)}
    if isinstance(value, torch.device):
        return {"call": ["torch:device", str(value)]}
    if isinstance(value, enum.Enum):
        path = f"{import_path(type(value))}.{value.name}"
    elif isinstance(value, (complex, slice, range, bytes)):
        return _built_in(value)
    elif isinstance(value, type) or (callable(value) and isinstance(getattr(value, "__qualname__", None), str)):
        path = import_path(value)
        if isinstance(value, types.MethodType) and resolve(path) is not value:
            return None
    else:
        return None
    if resolve(path) is not value:
        name = getattr(value, "__name__", "")
        path = next((f"{m}:{name}" for m in _WHERE_BUILTINS_ARE if resolve(f"{m}:{name}") is value), "")
        if not path:
            raise NotDescribable(f"a function or class that cannot be imported: {import_path(value)}")
    return {"import": path}


def _built_in(value) -> dict:
    if isinstance(value, complex):
        return plain(value)
    if isinstance(value, bytes):
        if len(value) > _MAX_BYTES:
            raise NotDescribable("bytes that are too many to be described")
        return {"call": ["builtins:bytes", list(value)]}
    parts = [value.start, value.stop, value.step]
    if not all(part is None or type(part) is int for part in parts):
        raise NotDescribable(f"a slice of something else than integers: {value!r}")
    return {"call": [f"builtins:{type(value).__name__}", *parts]}


def import_path(value) -> str:
    return f"{getattr(value, '__module__', None)}:{getattr(value, '__qualname__', type(value).__qualname__)}"


def resolve(path: str):
    """What has this path now, in the modules that are imported; None: nothing."""
    module, _, name = path.partition(":")
    found = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None) if found is not None else None
    return found


def form_of(args: tuple, kwargs: dict | None) -> dict | int:
    """How the arguments of a call are nested, and what stands in them besides recorded values, which are "."; where
    all of them are recorded values, by position, their number."""
    if not kwargs and (not args or (len(args) == 1 and isinstance(args[0], _LEAVES))):
        return len(args)
    if not kwargs and all(isinstance(each, _LEAVES) for each in args):
        return len(args)
    budget = [_MAX_NEST]
    form: dict = {"args": [_form(each, budget, 0) for each in args]}
    if kwargs:
        form["kwargs"] = {key: _form(each, budget, 0) for key, each in kwargs.items()}
    return form


def _form(value, budget: list[int], depth: int):
    if value is None:
        return None
    kind = type(value)
    if isinstance(value, _LEAVES) or kind.__module__ == "numpy":
        return "."
    budget[0] -= 1
    if budget[0] < 0 or depth > 64 or (isinstance(value, Sized) and len(value) > _MAX_NEST):
        return {"unknown": "nest that is too large"}
    if kind is list:
        return [_form(each, budget, depth + 1) for each in value]
    if kind in (tuple, torch.Size):
        return {"tuple": [_form(each, budget, depth + 1) for each in value]}
    if isinstance(value, tuple) and hasattr(kind, "_fields"):
        return {"namedtuple": import_path(kind), "members": [_form(each, budget, depth + 1) for each in value]}
    if is_dataclass(value) and not isinstance(value, type):
        members = [[f.name, _form(getattr(value, f.name, None), budget, depth + 1)] for f in fields(value)]
        return {"dataclass": import_path(kind), "members": members}
    if isinstance(value, Mapping) and all(isinstance(key, (str, int)) for key in value):
        members = [[key, _form(each, budget, depth + 1)] for key, each in value.items()]
        return {"dict": members} if kind is dict else {"mapping": import_path(kind), "members": members}
    try:
        return constant(value) or {"unknown": import_path(kind)}
    except NotDescribable:
        return {"unknown": import_path(kind)}


def autocast_in_force() -> str:
    """The device types and dtypes that autocast is on for, "cpu bfloat16"; empty: none."""
    if not torch._C._is_any_autocast_enabled():
        return ""
    kinds = [kind for kind in ("cpu", "cuda") if torch.is_autocast_enabled(kind)]
    return ", ".join(f"{kind} {str(torch.get_autocast_dtype(kind)).removeprefix('torch.')}" for kind in kinds)
