"""tenscope.jax.trace(function)(*args): the function's equations, and the Flax modules that it calls, recorded."""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable
from typing import Any

import jax

from tenscope import _core
from tenscope.errors import RecordingWarning, UsageError
from tenscope.jax.arguments import Arguments, Operand, parts_of
from tenscope.jax.evaluate import CALLS, Evaluator, Opened, Value
from tenscope.jax.modules import Mark, marked, marks_in
from tenscope.jax.values import host_value, is_array
from tenscope.recording.calls import calls_of
from tenscope.recording.run import Run, current, init
from tenscope.recording.selectors import NameFilter, tell


class trace:
    """A function whose calls are recorded; it takes and returns what the function does. docs/jax.md has the rest.

    params            which argument holds parameters, by position or name; by default what Flax calls `params`
    open              which calls and loops are looked into: True, or some of "pjit", "remat", "custom_jvp",
                      "custom_vjp" (these four by default), "scan", "while", "cond"
    equations         False: only what goes in and out of modules
    include, exclude  globs over the names and the scopes of values
    jit               compute all of it by one jitted function, as XLA fuses it; by default one equation at a time
    values            "full", or "stats" for statistics only
    run               a Run; the current one by default
    """

    def __init__(
        self,
        function: Callable,
        *,
        params: int | str | None = None,
        open: bool | str | tuple[str, ...] = CALLS,
        equations: bool | None = None,
        include=None,
        exclude=None,
        jit: bool = False,
        values: str = "full",
        run: Run | None = None,
    ):
        if not callable(function):
            raise UsageError(f"trace takes a function, not {type(function).__name__}")
        if values not in ("full", "stats"):
            raise UsageError(f'values must be "full" or "stats", not {values!r}')
        functools.update_wrapper(self, function, updated=())
        self._function = function
        self._key = _key(function)
        self._params = params
        self._opened = Opened(open, is_compiled=jit)
        self._equations = equations
        self._wanted = NameFilter(include, exclude)
        self._jit = jit
        self._values = values
        self._run = run
        self._compiled: dict[Any, _Compiled] = {}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        run = self._run or current() or init()
        arguments = Arguments(self._function, args, kwargs, self._params)
        calls_of(run).begin(run, self._key)
        recorder = _Recorder(run, self._wanted, self._values, self._key)
        traced, results = (self._compute_compiled if self._jit else self._compute)(recorder, arguments)
        result, state = traced.rebuilt(results)
        arguments.update(state)
        for path, leaf in jax.tree_util.tree_flatten_with_path(result)[0]:
            name = ".".join(["result", *parts_of(path)])
            recorder.put(name, leaf, {"io": "output", "phase": "forward", "site": ""})
        recorder.tell_unmatched()
        return result

    def _compute(self, recorder: _Recorder, arguments: Arguments) -> tuple[_Traced, list[Any]]:
        traced = _Traced(self._function, arguments)
        recorder.describe(traced, arguments)
        evaluator = self._evaluator(recorder.put, traced)
        results = evaluator.run(*traced.start(arguments.arrays))
        return traced, [value for value, _ in results]

    def _compute_compiled(self, recorder: _Recorder, arguments: Arguments) -> tuple[_Traced, list[Any]]:
        try:
            key = arguments.key()
            known = self._compiled.get(key)
        except TypeError:  # an argument that has no hash
            key = known = None
        if known is None:
            known = _Compiled(_Traced(self._function, arguments), self._evaluator, self._wanted)
            if key is not None:
                self._compiled[key] = known
        recorder.describe(known.traced, arguments)
        results, values = known.call(arguments.arrays)
        told = iter(values)
        for name, has_value, fields in known.told:
            recorder.put(name, next(told) if has_value else None, fields)
        return known.traced, results

    def _evaluator(self, put: Callable, traced: _Traced) -> Evaluator:
        with_equations = self._equations
        if with_equations is None:
            with_equations = not (self._jit and traced.marks)
        scopes = frozenset(mark.scope for mark in traced.marks)
        return Evaluator(put, self._opened, with_equations, scopes if len(scopes) == 1 else frozenset())


def _key(function: Callable) -> Any:
    """The same for the same function, however it is wrapped, without keeping it alive."""
    inner = inspect.unwrap(function)
    code = getattr(inner, "__code__", None)
    name = getattr(inner, "__qualname__", type(inner).__qualname__)
    return name, type(getattr(inner, "__self__", None)).__qualname__, code and (code.co_filename, code.co_firstlineno)


class _Traced:
    """The jaxpr of a call, and how its results become what the function returns."""

    def __init__(self, function: Callable, arguments: Arguments):
        self._out_tree: Any = None
        self._out_leaves: list[Any] = []

        def flat(*arrays: Any) -> list[Any]:
            called, args, kwargs, modules = arguments.rebuilt(list(arrays))
            with marked(list(modules)):
                output = called(*args, **kwargs)
            leaves, self._out_tree = jax.tree_util.tree_flatten((output, arguments.state_of(modules)))
            self._out_leaves = [None if is_array(leaf) else leaf for leaf in leaves]
            self._is_array = [is_array(leaf) for leaf in leaves]
            return [leaf for leaf in leaves if is_array(leaf)]

        closed = jax.make_jaxpr(flat)(*arguments.arrays)
        self.jaxpr = closed.jaxpr
        self.constants = [(f"closed_over.{i}", const) for i, const in enumerate(closed.consts)]
        self.marks: list[Mark] = list(marks_in(closed.jaxpr))
        self._names = [operand.name for operand in arguments.operands]

    def start(self, arrays: list[Any]) -> tuple[Any, list[Value], list[Value]]:
        values = [Value(jax.numpy.asarray(x), name) for x, name in zip(arrays, self._names, strict=True)]
        return self.jaxpr, [Value(const, name) for name, const in self.constants], values

    def rebuilt(self, results: list[Any]) -> tuple[Any, Any]:
        """What the function returns, and the state of the nnx modules."""
        left = iter(results)
        leaves = [next(left) if is_one else leaf for is_one, leaf in zip(self._is_array, self._out_leaves, strict=True)]
        return jax.tree_util.tree_unflatten(self._out_tree, leaves)


class _Compiled:
    """The evaluation as one jitted function, which returns what is to be told with the results."""

    def __init__(self, traced: _Traced, make_evaluator: Callable, wanted: NameFilter):
        self.traced = traced
        self.told: list[tuple[str, bool, dict[str, Any]]] = []

        def evaluate(arrays: list[Any]) -> tuple[list[Any], list[Any]]:
            values: list[Any] = []
            self.told.clear()

            def put(name: str, value: Any, fields: dict[str, Any]) -> None:
                if not wanted.wants(name, fields.get("scope") or ""):
                    return
                self.told.append((name, value is not None, fields))
                if value is not None:
                    values.append(value)

            results = make_evaluator(put, traced).run(*traced.start(arrays))
            return [value for value, _ in results], values

        self.call = jax.jit(evaluate)


class _Recorder:
    """Writes the values of one call. What goes wrong here is warned of once and does not reach the program."""

    def __init__(self, run: Run, wanted: NameFilter, values: str, key: Any):
        self._run = run
        self._wanted = wanted
        self._values = values
        self._key = key
        self._calls = calls_of(run)
        self._has_warned = False

    def describe(self, traced: _Traced, arguments: Arguments) -> None:
        """Parameters that the run does not have yet, what the function closes over, and the inputs."""
        classes = {mark.path: mark.cls for mark in traced.marks}
        inputs: list[tuple[Operand, Any]] = list(arguments.others)
        for operand, array in zip(arguments.operands, arguments.arrays, strict=True):
            if operand.io == "input":
                inputs.append((operand, array))
            elif self._is_new(operand.name, array):
                where = {"scope": operand.scope, "cls": classes.get(operand.scope)}
                self.put(operand.name, array, {"io": operand.io, "phase": "init", "site": "", **where})
        for name, const in traced.constants:
            is_parameter = getattr(const, "ndim", 0) > 0 and jax.numpy.issubdtype(const.dtype, jax.numpy.floating)
            if self._is_new(name, const):
                self.put(name, const, {"io": "param" if is_parameter else None, "phase": "init", "site": ""})
        for operand, value in inputs:
            self.put(operand.name, value, {"io": "input", "phase": "forward", "site": ""})

    def put(self, name: str, value: Any, fields: dict[str, Any]) -> None:
        try:
            if not self._wanted.wants(name, fields.get("scope") or ""):
                return
            if "kind" in fields:
                self._run.record(name, **fields)
                return
            array, dtype = host_value(value)
            if dtype:
                fields = {**fields, "meta": {**(fields.get("meta") or {}), "dtype": dtype}}
            self._run.record(name, array, values=self._values, **fields)
        except Exception as error:
            self._trouble(name, error)

    def tell_unmatched(self) -> None:
        tell(self._wanted.unmatched("tenscope.jax.trace({}=)"), self._run.record)

    def _is_new(self, name: str, array: Any) -> bool:
        try:
            return self._calls.is_new(self._key, name, host_value(array)[0])
        except Exception as error:
            self._trouble(name, error)
            return False

    def _trouble(self, name: str, error: Exception) -> None:
        if _core.is_strict():
            raise error
        if not self._has_warned:
            self._has_warned = True
            text = f"tenscope.jax: {name!r} was not recorded: {type(error).__name__}: {error}"
            warnings.warn(text, RecordingWarning, stacklevel=4)
