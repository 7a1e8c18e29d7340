"""Local variables and return values of a model's methods, by path: "encoder.layers.*.forward.attn".

Overview. A path is [module path.]method[.variable[.part...]]; without a variable it is the method's return value, and
a bare module path is that of its forward. Variables are read by the native line tracer, which looks before each line
and tells what is new within a call; return values by a wrapper on the instance, taken off again. What a path matches
is worked out once, over the modules there are when watching begins.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import CodeType

import torch
from torch import nn

from tenscope import _core
from tenscope.lines.watch import make_watcher, unwrap
from tenscope.probes.modules import unwrapped_paths
from tenscope.recording.selectors import Unmatched

Tell = Callable[[str, str, object], None]  # concrete path, module path, live value


def _matches(pattern: list[str], path: str) -> bool:
    parts = path.split(".") if path else []
    return len(parts) == len(pattern) and all(a in ("*", b) for a, b in zip(pattern, parts, strict=True))


def _method(module: nn.Module, name: str) -> Callable | None:
    found = inspect.getattr_static(type(module), name, None)
    if found is None or not name.isidentifier():
        return None
    try:
        return unwrap(found)
    except TypeError:
        return None


def _join(*parts: str) -> str:
    return ".".join(part for part in parts if part)


class LocalsWatch:
    """While active, tells the values at `paths`; `wanted()` is asked at the start of each method call."""

    def __init__(self, model: nn.Module, paths: Iterable[str], tell: Tell, wanted: Callable[[], bool] = lambda: True):
        self._tell = tell
        self._wanted = wanted
        self._watchers: list = []
        self._returns: dict[tuple[nn.Module, str], list[str]] = {}  # what the return value of a method is called
        self._expressions: dict[tuple[CodeType, int], tuple[str, dict[str, None]]] = {}  # by code and module
        self._modules = list(unwrapped_paths(model))
        self._seen = {id(module): path for path, module in reversed(self._modules)}
        self._wrapped: list[tuple[nn.Module, str, Callable | None]] = []
        self._told: dict[str, None] = {}  # concrete paths
        self._found = {path: self._resolve(path) for path in paths}

    def _resolve(self, path: str) -> bool:
        """Whether the model has what the path names, as far as that can be known before it runs."""
        parts = path.split(".")
        is_found = False
        for module_path, module in self._modules:
            if _matches(parts, module_path):
                self._returns.setdefault((module, "forward"), []).append(module_path)
                is_found = True
            depth = len(module_path.split(".")) if module_path else 0
            if depth >= len(parts) or not _matches(parts[:depth], module_path):
                continue
            method, variable = parts[depth], parts[depth + 1 :]
            function = _method(module, method)
            if function is None:
                continue
            prefix = _join(module_path, method)
            is_found = True
            if not variable:
                self._returns.setdefault((module, method), []).append(prefix)
                continue
            code = function.__code__
            names = code.co_varnames + code.co_cellvars if variable[0] == "*" else (variable[0],)
            _, expressions = self._expressions.setdefault((code, id(module)), (prefix, {}))
            for name in names:
                expressions[".".join([name, *variable[1:]])] = None
        return is_found

    def unmatched(self, where: str, was_called: bool) -> list[Unmatched]:
        """Paths under which nothing was told; before a call of the model, only those that it cannot have."""
        silent = [
            path
            for path, is_found in self._found.items()
            if not any(_matches(path.split("."), told) for told in self._told) and (was_called or not is_found)
        ]
        return [Unmatched(path, where, self._candidates()) for path in silent]

    def _candidates(self) -> Iterator[str]:
        for path, module in self._modules:
            yield path
            for cls in type(module).__mro__[: type(module).__mro__.index(nn.Module)]:
                for name, function in vars(cls).items():
                    code = getattr(function, "__code__", None)
                    if code is not None and not name.startswith("__"):
                        yield _join(path, name)
                        yield from (_join(path, name, variable) for variable in code.co_varnames + code.co_cellvars)

    def __enter__(self) -> LocalsWatch:
        groups: dict[tuple[CodeType, tuple[str, ...]], dict[int, str]] = {}
        for (code, module_id), (prefix, expressions) in self._expressions.items():
            groups.setdefault((code, tuple(expressions)), {})[module_id] = prefix
        for (code, expressions), prefixes in groups.items():
            watcher = make_watcher(
                expressions,
                on_enter=functools.partial(self._on_enter, prefixes),
                on_value=self._on_value,
                keep=False,
                record=False,
            )
            watcher.add(code)
            self._watchers.append(watcher)
        for (module, method), names in self._returns.items():
            self._wrap(module, method, names)
        return self

    def __exit__(self, *_) -> None:
        for watcher in self._watchers:
            watcher.close()
        self._watchers.clear()
        for module, method, previous in reversed(self._wrapped):
            if previous is None:
                module.__dict__.pop(method, None)
            else:
                module.__dict__[method] = previous
        self._wrapped.clear()

    def _on_enter(self, prefixes: dict[int, str], _code: CodeType, instance: object) -> tuple[str, str] | None:
        prefix = prefixes.get(id(instance))
        if prefix is None or not self._wanted():
            return None
        return prefix, self._seen[id(instance)]

    def _on_value(self, tag: tuple[str, str], name: str, value: object, _line: int, _next_line: int) -> None:
        prefix, module_path = tag
        self._told[f"{prefix}.{name}"] = None
        self._tell(f"{prefix}.{name}", module_path, value)

    def _wrap(self, module: nn.Module, method: str, names: list[str]) -> None:
        original = getattr(module, method)
        scope = self._seen[id(module)]

        @functools.wraps(original)
        def call(*args, **kwargs):
            result = original(*args, **kwargs)
            if self._wanted():
                for name in names:
                    self._told[name] = None
                    self._tell(name, scope, result)
            return result

        self._wrapped.append((module, method, module.__dict__.get(method)))
        module.__dict__[method] = call


MAX_DEPTH = 20
_PLAIN = (int, float, complex, str, bytes, bool, type(None))


class Known:
    """What was last told under a name, enough to tell a change, across calls too: no copy of it is kept."""

    def __init__(self):
        self._content: object = Known
        self._tensor = lambda: None
        self.is_cut = False  # what lies deeper than MAX_DEPTH is not compared

    def is_new(self, value: object) -> bool:
        content = _content(value, 0, self)
        if isinstance(value, torch.Tensor):
            same = self._tensor() is value and content == self._content
            self._tensor = weakref.ref(value)
        else:
            same = content == self._content
        self._content = content
        return not same


def deeper_than_compared(name: str) -> dict[str, object]:
    """The meta of a note `left_out`."""
    reason = "changes that lie deeper in the nest than this are not seen"
    return {"what": "changes", "name": name, "limit": MAX_DEPTH, "reason": reason}


def _content(value: object, depth: int, known: Known) -> tuple:
    """A key that is equal for equal content."""
    if isinstance(value, _PLAIN):
        return type(value), repr(value) if isinstance(value, (float, complex)) else value
    if isinstance(value, torch.Tensor):
        print_ = _core.fingerprint(value)
        return "tensor", str(value.dtype), tuple(value.shape), print_ if print_ is not None else id(value)
    if type(value).__module__ == "numpy":
        return (
            "array",
            str(getattr(value, "dtype", "")),
            getattr(value, "shape", ()),
            _core.fingerprint(value) or repr(value),
        )
    if depth > MAX_DEPTH:
        known.is_cut = True
        return "deep", type(value)
    if isinstance(value, Mapping):
        return "mapping", type(value), tuple((repr(k), _content(v, depth + 1, known)) for k, v in value.items())
    if isinstance(value, (list, tuple)):
        return "sequence", type(value), tuple(_content(item, depth + 1, known) for item in value)
    if isinstance(value, (set, frozenset)):
        return "set", type(value), frozenset(repr(item) for item in value)
    if isinstance(value, torch.nn.Module) or callable(value):
        return "object", id(value)
    if dataclasses.is_dataclass(value) or hasattr(value, "__dict__"):
        members = getattr(value, "__dict__", {})
        return "object", type(value), tuple((key, _content(item, depth + 1, known)) for key, item in members.items())
    return "object", type(value), repr(value)
