"""The operands of a traced function: the arrays among its arguments, what they are called, which are parameters.

An nnx module, also one that is the function itself, is taken apart: the arrays of its state are operands, and what the
function makes of the state is written back after the call.
"""

from __future__ import annotations

import collections
import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax

from tenscope.errors import UsageError
from tenscope.jax.values import is_array

_COLLECTIONS = {"params": "param", "batch_stats": "buffer"}  # of Flax


@dataclass(frozen=True)
class Operand:
    name: str
    io: str
    owner: str  # the argument that it is part of

    @property
    def scope(self) -> str:
        return "" if self.io == "input" else self.name.rpartition(".")[0]


@dataclass(frozen=True)
class _Slot:
    """Where an nnx module stood."""

    number: int


def parts_of(path: tuple[Any, ...]) -> list[str]:
    return [str(getattr(key, "key", getattr(key, "idx", getattr(key, "name", key)))) for key in path]


class Arguments:
    def __init__(self, function: Callable, args: tuple, kwargs: dict[str, Any], params: int | str | None):
        self._nnx = nnx = sys.modules.get("flax.nnx")
        kinds = (getattr(nnx, "Pytree", nnx.Module),) if nnx is not None else ()
        names = _argument_names(function, args)
        chosen = _chosen(params, names, kwargs)
        found, self._tree = jax.tree_util.tree_flatten_with_path((args, kwargs), lambda x: isinstance(x, kinds))
        paths = [parts_of(path) for path, _ in found]
        paths = [[names[int(parts[1])] if parts[0] == "0" else parts[1], *parts[2:]] for parts in paths]
        self.modules: list[Any] = []
        self._leaves = [self._slot(leaf) if isinstance(leaf, kinds) else leaf for _, leaf in found]
        self._function = self._slot(function) if isinstance(function, kinds) else function
        owners = [parts[0] for parts, leaf in zip(paths, self._leaves, strict=True) if isinstance(leaf, _Slot)]
        self._graph, self._state_tree, self._state, of_state = None, None, [], []
        if self.modules:
            of_state = self._take_state([*owners, "model"])
        self._positions = [i for i, leaf in enumerate(self._leaves) if is_array(leaf)]
        described = _apart([*of_state, *(_describe(parts, chosen) for parts in paths)])
        self.operands = described[: len(of_state)] + [described[len(of_state) + i] for i in self._positions]
        self.arrays = [*self._state, *(self._leaves[i] for i in self._positions)]
        plain = (bool, int, float, complex, str)
        left = [(described[len(of_state) + i], leaf) for i, leaf in enumerate(self._leaves)]
        self.others = [(operand, leaf) for operand, leaf in left if isinstance(leaf, plain)]

    def _slot(self, module: Any) -> _Slot:
        self.modules.append(module)
        return _Slot(len(self.modules) - 1)

    def _take_state(self, owners: list[str]) -> list[Operand]:
        nnx = self._nnx
        self._graph, state = nnx.split(tuple(self.modules))
        variables, _ = jax.tree_util.tree_flatten_with_path(state, lambda x: isinstance(x, nnx.Variable))
        operands = []
        for path, variable in variables:
            number, *parts = parts_of(path)
            io = "param" if isinstance(variable, nnx.Param) else "buffer"
            operand = Operand(".".join(parts), io, owners[int(number)])
            operands.extend([operand] * len(jax.tree_util.tree_leaves(variable)))
        self._state, self._state_tree = jax.tree_util.tree_flatten(state)
        return operands

    def key(self) -> Any:
        """Equal for calls that JAX would compile once."""
        kinds = tuple((x.shape, str(x.dtype), getattr(x, "weak_type", False)) for x in self.arrays)
        return self._tree, self._graph, kinds, tuple(leaf for leaf in self._leaves if not is_array(leaf))

    def rebuilt(self, arrays: list[Any]) -> tuple[Callable, tuple, dict[str, Any], tuple[Any, ...]]:
        """The function, its arguments, and the nnx modules among them, with other arrays."""
        modules: tuple[Any, ...] = ()
        if self.modules:
            state = jax.tree_util.tree_unflatten(self._state_tree, arrays[: len(self._state)])
            modules = self._nnx.merge(self._graph, state)
        leaves = list(self._leaves)
        for i, array in zip(self._positions, arrays[len(self._state) :], strict=True):
            leaves[i] = array
        leaves = [modules[leaf.number] if isinstance(leaf, _Slot) else leaf for leaf in leaves]
        args, kwargs = jax.tree_util.tree_unflatten(self._tree, leaves)
        function = modules[self._function.number] if isinstance(self._function, _Slot) else self._function
        return function, args, kwargs, modules

    def state_of(self, modules: tuple[Any, ...]) -> Any:
        return self._nnx.state(modules) if modules else {}

    def update(self, state: Any) -> None:
        if self.modules:
            self._nnx.update(tuple(self.modules), state)


def _argument_names(function: Callable, args: tuple) -> list[str]:
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    by_position = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = [parameter.name for parameter in parameters if parameter.kind in by_position]
    return [names[i] if i < len(names) else str(i) for i in range(len(args))]


def _chosen(params: int | str | None, names: list[str], kwargs: dict[str, Any]) -> str | None:
    if params is None:
        return None
    if isinstance(params, int) and -len(names) <= params < len(names):
        return names[params]
    if isinstance(params, str) and params in (*names, *kwargs):
        return params
    raise UsageError(f"params={params!r} is no argument; there are {', '.join([*names, *kwargs]) or 'none'}")


def _describe(parts: list[str], chosen: str | None) -> Operand:
    if chosen is not None and parts[0] == chosen:
        below = parts[2:] if len(parts) > 2 and parts[1] == "params" else parts[1:]
        return Operand(".".join(below or parts), "param", parts[0])
    for depth in range(min(2, len(parts)) if chosen is None else 0):
        if parts[depth] in _COLLECTIONS:
            return Operand(".".join(parts[depth + 1 :] or parts), _COLLECTIONS[parts[depth]], parts[0])
    return Operand(".".join(parts), "input", parts[0])


def _apart(operands: list[Operand]) -> list[Operand]:
    """Parameters of one name in two arguments get the argument's name before theirs."""
    count = collections.Counter(operand.name for operand in operands)
    return [replace(o, name=f"{o.owner}.{o.name}") if count[o.name] > 1 and o.io != "input" else o for o in operands]
