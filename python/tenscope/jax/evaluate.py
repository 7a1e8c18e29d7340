"""Evaluates a jaxpr one equation after the other and tells each value, under a name that stays the same.

Overview. An equation is called by the scope of its name stack (jax.named_scope, Flax modules), its primitive, and its
number among those: `layers_0.attn.dot_general.2`. Calls (jit, remat, custom_jvp) of the program's own functions are
opened, so that their equations are seen as if they were written out; functions of JAX itself stay one equation, called
by their names: `silu`, `where`. Loops and branches are opened on request; each turn of a loop has the same names.
"""

from __future__ import annotations

import collections
import functools
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import numpy as np

from tenscope.errors import UsageError
from tenscope.jax.modules import Mark, mark_of
from tenscope.recording.callers import OWN_FOLDER

_KINDS = {
    "jit": "pjit",
    "pjit": "pjit",
    "remat": "remat",
    "remat2": "remat",
    "checkpoint": "remat",
    "custom_jvp_call": "custom_jvp",
    "custom_vjp_call": "custom_vjp",
    "custom_vjp_call_jaxpr": "custom_vjp",
    "closed_call": "pjit",
    "core_call": "pjit",
    "scan": "scan",
    "while": "while",
    "cond": "cond",
}
CALLS = ("pjit", "remat", "custom_jvp", "custom_vjp")
_OWN_JAX = os.path.dirname(os.path.abspath(jax.__file__)) + os.sep
_NOT_THE_PROGRAM = (_OWN_JAX, OWN_FOLDER, f"{os.sep}flax{os.sep}", f"{os.sep}jaxlib{os.sep}")


class Value(NamedTuple):
    value: Any
    name: str | None  # as recorded


class Opened:
    """Which equations are looked into."""

    def __init__(self, kinds: bool | str | tuple[str, ...] | list[str], is_compiled: bool = False):
        known = sorted({*_KINDS.values()})
        self._is_all = kinds is True
        kinds = known if kinds is True else () if kinds is False else (kinds,) if isinstance(kinds, str) else kinds
        unknown = [kind for kind in kinds if kind not in known]
        if unknown:
            raise UsageError(f"open={unknown[0]!r} is none of {', '.join(known)}")
        self._kinds = set(kinds) - ({"while", "cond"} if is_compiled else set())  # they need numbers

    def kind(self, equation: Any) -> str | None:
        kind = _KINDS.get(equation.primitive.name)
        if kind not in self._kinds:
            return None
        return kind if self._is_all or kind not in CALLS or not _is_of_jax(equation) else None


def _inner(equation: Any) -> Any:
    return equation.params.get("jaxpr", equation.params.get("call_jaxpr"))


def _is_of_jax(equation: Any) -> bool:
    inner = _inner(equation)
    info = getattr(getattr(inner, "jaxpr", inner), "debug_info", None)
    source = getattr(info, "func_src_info", None) or ""
    return source.partition(" at ")[2].startswith(_OWN_JAX)


@dataclass
class _Frame:
    """A module call under way."""

    mark: Mark
    path: str
    last_index: int = -1
    last_io: str = "input"


@dataclass
class Evaluator:
    """`put(name, value, fields)` is told each value, in order; value is None for the beginning and end of a call."""

    put: Callable[[str, Any, dict[str, Any]], None]
    opened: Opened
    with_equations: bool = True
    root_scopes: frozenset[str] = frozenset()  # of the outermost module, which is no part of a path
    _counts: collections.Counter = field(default_factory=collections.Counter)
    _frames: list[_Frame] = field(default_factory=list)

    def run(self, jaxpr: Any, consts: list[Value], arguments: list[Value]) -> list[Value]:
        try:
            results = self._evaluate(jaxpr, consts, arguments, ())
        except BaseException as error:
            while self._frames:
                self._leave(self._frames.pop(), raised=f"{type(error).__name__}: {error}")
            raise
        while self._frames:
            self._leave(self._frames.pop())
        return results

    def _evaluate(self, jaxpr: Any, consts: list[Value], arguments: list[Value], stack: tuple) -> list[Value]:
        known: dict[Any, Value] = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*consts, *arguments], strict=True))

        def read(atom: Any) -> Value:
            return Value(atom.val, None) if hasattr(atom, "val") else known[atom]

        for equation, is_last_use in _with_last_uses(jaxpr):
            inputs = [read(atom) for atom in equation.invars]
            outputs = self._equation(equation, inputs, stack)
            known.update(zip(equation.outvars, outputs, strict=True))
            for variable in is_last_use:
                del known[variable]
        return [read(atom) for atom in jaxpr.outvars]

    def _equation(self, equation: Any, inputs: list[Value], stack: tuple) -> list[Value]:
        mark = mark_of(equation)
        if mark is not None:
            self._told(mark, inputs[0])
            return [inputs[0]]
        stack = (*stack, *equation.source_info.name_stack.stack)
        kind = self.opened.kind(equation)
        if kind is not None:
            with equation.ctx.manager:
                return getattr(self, f"_open_{kind}", self._open_call)(equation, inputs, stack)
        values = bind(equation, [value for value, _ in inputs])
        if not self.with_equations:
            return [Value(value, None) for value in values]
        return self._record(equation, inputs, values, stack)

    def _record(self, equation: Any, inputs: list[Value], values: list[Any], stack: tuple) -> list[Value]:
        scope, phase = self._place(stack)
        label = equation.primitive.name
        if _KINDS.get(label) == "pjit":
            label = str(equation.params.get("name", label)).strip("_<>") or label
        number = self._counts[scope, label]
        self._counts[scope, label] += 1
        name = f"{scope}.{label}.{number}" if scope else f"{label}.{number}"
        site, function = _user_line(equation.source_info.traceback)
        meta: dict[str, Any] = {"primitive": equation.primitive.name}
        if function:
            meta["function"] = function
        meta["inputs"] = [name for _, name in inputs if name]
        fields = {"scope": scope, "phase": phase, "site": site, "meta": meta}
        told = []
        for i, (variable, value) in enumerate(zip(equation.outvars, values, strict=True)):
            own = name if len(values) == 1 else f"{name}.{i}"
            is_dropped = type(variable).__name__ == "DropVar" or not hasattr(value, "dtype")
            if not is_dropped and value.dtype != jax.dtypes.float0:
                self.put(own, value, fields)
            told.append(Value(value, own))
        return told

    def _place(self, stack: tuple) -> tuple[str, str]:
        """Where an equation stands, and in which direction. JAX says `transpose` of what the gradient adds."""
        is_backward, scopes = False, []
        for entry in stack:
            if type(entry).__name__ == "Transform":
                is_backward = is_backward or entry.name == "transpose"
            elif scopes or entry.name not in self.root_scopes:
                scopes.extend(part for part in entry.name.split("/") if part and "->" not in part)  # of einsum
        return ".".join(scopes), "backward" if is_backward else "forward"

    # What is opened.

    def _open_call(self, equation: Any, inputs: list[Value], stack: tuple) -> list[Value]:
        return self._closed(_inner(equation), inputs, stack)

    def _closed(self, inner: Any, inputs: list[Value], stack: tuple) -> list[Value]:
        jaxpr, consts = getattr(inner, "jaxpr", inner), getattr(inner, "consts", ())
        return self._evaluate(jaxpr, [Value(const, None) for const in consts], inputs, stack)

    def _open_scan(self, equation: Any, inputs: list[Value], stack: tuple) -> list[Value]:
        p = equation.params
        consts, rest = inputs[: p["num_consts"]], inputs[p["num_consts"] :]
        carry, xs = rest[: p["num_carry"]], rest[p["num_carry"] :]
        before, turns = self._counts.copy(), []
        for i in reversed(range(p["length"])) if p["reverse"] else range(p["length"]):
            self._counts = before.copy()
            turn = [Value(x[i], name) for x, name in xs]
            results = self._closed(p["jaxpr"], [*consts, *carry, *turn], stack)
            carry = results[: p["num_carry"]]
            turns.append([value for value, _ in results[p["num_carry"] :]])
        if p["reverse"]:
            turns.reverse()
        if not turns:
            return [Value(value, None) for value in bind(equation, [value for value, _ in inputs])]
        return [*carry, *(Value(_stacked(column), None) for column in zip(*turns, strict=True))]

    def _open_while(self, equation: Any, inputs: list[Value], stack: tuple) -> list[Value]:
        p = equation.params
        first, second = p["cond_nconsts"], p["cond_nconsts"] + p["body_nconsts"]
        tests, consts, carry = inputs[:first], inputs[first:second], inputs[second:]
        before = self._counts.copy()
        while _value_of(p["cond_jaxpr"], [value for value, _ in (*tests, *carry)]):
            self._counts = before.copy()
            carry = self._closed(p["body_jaxpr"], [*consts, *carry], stack)
        return carry

    def _open_cond(self, equation: Any, inputs: list[Value], stack: tuple) -> list[Value]:
        branches = equation.params["branches"]
        index = int(np.clip(np.asarray(inputs[0].value), 0, len(branches) - 1))
        return self._closed(branches[index], inputs[1:], stack)

    # Calls of modules.

    def _told(self, mark: Mark, value: Value) -> None:
        frame = self._frame(mark)
        frame.last_index, frame.last_io = mark.index, mark.io
        name = ".".join(part for part in (frame.path, mark.io, mark.suffix) if part)
        self.put(name, value.value, self._fields(frame, io=mark.io))
        if mark.io == "output" and mark.index == mark.count - 1:
            self._leave(self._frames.pop())

    def _frame(self, mark: Mark) -> _Frame:
        """The call that a mark belongs to. One that returned nothing ends when another is seen."""
        while self._frames:
            top = self._frames[-1]
            is_same = (top.mark.root, top.mark.path) == (mark.root, mark.path)
            if is_same and (mark.io, -mark.index) > (top.last_io, -top.last_index - 1):
                return top  # the next input, or an output
            is_around = top.mark.root == mark.root and f"{mark.path}.".startswith(f"{top.mark.path}.".lstrip("."))
            if is_around and not is_same:
                break
            self._leave(self._frames.pop())
        path = mark.path if self.root_scopes else f"{mark.scope}.{mark.path}".rstrip(".")
        frame = _Frame(mark, path)
        self._frames.append(frame)
        fields = self._fields(frame, kind="enter")
        if mark.arguments:
            fields["meta"] = {"arguments": list(mark.arguments)}
        self.put(path, None, fields)
        return frame

    def _leave(self, frame: _Frame, raised: str = "") -> None:
        fields = self._fields(frame, kind="exit")
        if raised:
            fields["meta"] = {"raised": raised}
        self.put(frame.path, None, fields)

    @staticmethod
    def _fields(frame: _Frame, **more: Any) -> dict[str, Any]:
        return {"scope": frame.path, "cls": frame.mark.cls, "phase": "forward", "site": "", **more}


def bind(equation: Any, values: list[Any]) -> list[Any]:
    """Computes an equation, as jax.core.eval_jaxpr does."""
    bound = equation.primitive.get_bind_params(equation.params)
    functions, params = bound if isinstance(bound, tuple) else ((), bound)
    with equation.ctx.manager:
        result = equation.primitive.bind(*functions, *values, **params)
    return list(result) if equation.primitive.multiple_results else [result]


def _value_of(closed: Any, values: list[Any]) -> bool:
    return bool(jax.core.eval_jaxpr(closed.jaxpr, closed.consts, *values)[0])


def _stacked(values: tuple[Any, ...]) -> Any:
    return jax.numpy.stack(values)


def _with_last_uses(jaxpr: Any) -> Iterator[tuple[Any, list[Any]]]:
    """Each equation with the variables that nothing needs after it."""
    needed = {atom for atom in jaxpr.outvars if not hasattr(atom, "val")}
    last: list[list[Any]] = []
    for equation in reversed(jaxpr.eqns):
        own = dict.fromkeys([*(atom for atom in equation.invars if not hasattr(atom, "val")), *equation.outvars])
        last.append([variable for variable in own if variable not in needed])
        needed.update(own)
    return zip(jaxpr.eqns, reversed(last), strict=True)


@functools.lru_cache(maxsize=4096)
def _user_line(traceback: Any) -> tuple[str, str]:
    """File and line, and the function, of the innermost frame that is the program's own."""
    for frame in traceback.frames if traceback is not None else ():
        if not frame.file_name.startswith(_OWN_JAX) and not any(part in frame.file_name for part in _NOT_THE_PROGRAM):
            path = os.path.relpath(frame.file_name)
            file = frame.file_name if path.startswith("..") else path
            return f"{file}:{frame.line_num}", frame.function_name.rpartition(".")[2]
    return "", ""
