"""Flax modules, linen and nnx: what goes in and out of each call, marked in the jaxpr.

Overview. While a function is traced, what goes into a module's __call__ and what comes out is passed through
jax.ad_checkpoint.checkpoint_name, an identity that survives jit, grad, vmap and remat. Its name says which module,
which role and which place; evaluate.py turns it into events. A jitted function whose jaxpr JAX has in its cache would
not be traced again, so that nothing could be marked: inside `marked` JAX's caches have entries of their own.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.extend.core
from jax.ad_checkpoint import checkpoint_name

from tenscope.jax.arguments import parts_of
from tenscope.jax.values import is_array

_PREFIX = "tenscope:"


@dataclass(frozen=True)
class Mark:
    """An array that goes into a module call, or comes out of it."""

    root: str
    path: str
    cls: str
    scope: str  # of the root: the first part of the name stack inside it
    io: str
    suffix: str  # behind `input` or `output` in its name
    index: int  # among the arrays of this call and role
    count: int
    arguments: tuple[str, ...] = ()


def mark_of(equation: Any) -> Mark | None:
    name = equation.params.get("name") if equation.primitive.name == "name" else None
    if not isinstance(name, str) or not name.startswith(_PREFIX):
        return None
    fields = json.loads(name.removeprefix(_PREFIX))
    return Mark(**{**fields, "arguments": tuple(fields["arguments"])})


def marks_in(jaxpr: Any) -> Iterator[Mark]:
    for equation in jaxpr.eqns:
        mark = mark_of(equation)
        if mark is not None:
            yield mark
        for inner in jax.extend.core.jaxprs_in_params(equation.params):
            yield from marks_in(inner)


@contextlib.contextmanager
def marked(nnx_modules: list[Any]) -> Iterator[None]:
    """Marks the calls of all Flax modules within; below the nnx modules that are given, by their paths in these."""
    with contextlib.ExitStack() as stack:
        linen, nnx = sys.modules.get("flax.linen"), sys.modules.get("flax.nnx")
        if linen is not None:
            stack.enter_context(linen.intercept_methods(_intercept_linen))
        if nnx is not None:
            stack.enter_context(_NnxCalls(nnx, nnx_modules))
        if linen is not None or nnx is not None:
            from jax.experimental.xla_metadata import set_xla_metadata

            stack.enter_context(set_xla_metadata(tenscope="modules"))
        yield


def _intercept_linen(call: Any, args: tuple, kwargs: dict[str, Any], context: Any) -> Any:
    module = context.module
    if context.method_name != "__call__":
        return call(*args, **kwargs)
    root = module
    while isinstance(root.parent, sys.modules["flax.linen"].Module):
        root = root.parent
    scope = root.name or type(root).__name__
    where = _Where(f"{type(root).__name__}#0", ".".join(module.path), type(module).__name__, scope)
    return where.called(call, type(module), args, kwargs)


class _NnxCalls:
    """Wraps the __call__ of every nnx module class meanwhile: nnx has no interception of its own.

    Paths are those below the outermost module: of one that was given, else of the module that is called outside of any
    other. Inside nnx.jit and its kin the modules are copies, whose paths are taken when the outermost is called.
    """

    def __init__(self, nnx: Any, modules: list[Any]):
        self._nnx = nnx
        self._paths: dict[int, tuple[str, str]] = {}  # root and path, by module
        self._alive: list[Any] = []  # so that no other gets the same id
        self._stack: list[Any] = []
        self._undo: list[tuple[type, Any]] = []
        self._roots: dict[str, int] = {}
        for module in modules:
            self._add(module)

    def __enter__(self) -> None:
        classes = [self._nnx.Module]
        for cls in classes:
            classes.extend(inner for inner in cls.__subclasses__() if inner not in classes)
            own = cls.__dict__.get("__call__")
            if inspect.isfunction(own):
                self._undo.append((cls, own))
                cls.__call__ = self._wrapped(own)

    def __exit__(self, *_: Any) -> None:
        for cls, own in self._undo:
            cls.__call__ = own

    def _add(self, root: Any) -> None:
        cls = type(root).__name__
        number = self._roots.get(cls, 0)
        self._roots[cls] = number + 1
        for path, module in self._nnx.iter_modules(root):
            self._paths.setdefault(id(module), (f"{cls}#{number}", ".".join(map(str, path))))
            self._alive.append(module)

    def _wrapped(self, own: Any) -> Any:
        @functools.wraps(own)
        def tenscope_call(module: Any, *args: Any, **kwargs: Any) -> Any:
            if self._stack and self._stack[-1] is module:  # of a base class, by super()
                return own(module, *args, **kwargs)
            if id(module) not in self._paths and not self._stack:
                self._roots.pop(type(module).__name__, None)  # the same again, or its copy
                self._add(module)
            around = self._stack[-1] if self._stack else None
            if id(module) not in self._paths:
                self._paths[id(module)] = self._by_the_way(module, around)
                self._alive.append(module)
            root, path = self._paths[id(module)]
            below = path.removeprefix(f"{self._paths[id(around)][1]}.".lstrip(".")) if around is not None else path
            self._stack.append(module)
            try:
                with jax.named_scope(below.replace(".", "/") or type(module).__name__):
                    call = functools.partial(own, module)
                    where = _Where(root, path, type(module).__name__, root.partition("#")[0])
                    return where.called(call, type(module), args, kwargs)
            finally:
                self._stack.pop()

        return tenscope_call

    def _by_the_way(self, module: Any, around: Any) -> tuple[str, str]:
        """The path of a module that is no attribute of another."""
        root, path = self._paths[id(around)]
        return root, f"{path}.<{type(module).__name__}>".lstrip(".")


@dataclass(frozen=True)
class _Where:
    root: str
    path: str
    cls: str
    scope: str

    def called(self, call: Any, cls: type, args: tuple, kwargs: dict[str, Any]) -> Any:
        names = [*map(str, range(len(args))), *kwargs]
        inputs = self._mark("input", list(zip(names, [*args, *kwargs.values()], strict=True)), _positional(cls))
        output = call(*inputs[: len(args)], **dict(zip(kwargs, inputs[len(args) :], strict=True)))
        return self._mark("output", [("", output)])[0]

    def _mark(self, io: str, members: list[tuple[str, Any]], arguments: tuple[str, ...] = ()) -> list[Any]:
        flat = [(name, *jax.tree_util.tree_flatten_with_path(member)) for name, member in members]
        count = sum(is_array(leaf) for _, found, _ in flat for _, leaf in found)
        index, marked_members = 0, []
        for name, found, tree in flat:
            leaves = []
            for path, leaf in found:
                if is_array(leaf):
                    suffix = ".".join([*([name] if name else []), *parts_of(path)])
                    mark = Mark(**vars(self), io=io, suffix=suffix, index=index, count=count, arguments=arguments)
                    leaf = checkpoint_name(leaf, _PREFIX + json.dumps(vars(mark)))
                    index += 1
                leaves.append(leaf)
            marked_members.append(jax.tree_util.tree_unflatten(tree, leaves))
        return marked_members


@functools.lru_cache(maxsize=1024)
def _positional(cls: type) -> tuple[str, ...]:
    """The names of the arguments that a module takes by position."""
    try:
        parameters = list(inspect.signature(cls.__call__).parameters.values())[1:]
    except (TypeError, ValueError):
        return ()
    by_position = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return tuple(parameter.name for parameter in parameters if parameter.kind in by_position)
