"""Watching variables line by line: @watch, watching(), and what the native tracer asks of Python per code object."""

from __future__ import annotations

import ast
import contextlib
import dis
import inspect
import linecache
import os
import re
import sys
import weakref
from collections.abc import Callable, Sequence
from functools import lru_cache
from types import CodeType

import numpy as np

from . import _core

__all__ = ["make_watcher", "parse", "unwrap", "watch", "watching"]

# --- expressions


_TOKEN = re.compile(r"\s*(?:(?P<dot>\.)\s*(?P<name>\w+|\*)|(?P<open>\[))")


@lru_cache(maxsize=1024)
def parse(text: str) -> tuple[str, str, tuple[tuple[str, object], ...]]:
    """`self.a[0].*.w` as ("self.a[0].*.w", "self", (("attr", "a"), ("item", 0), ("any", None), ("attr", "w")))."""
    if not isinstance(text, str):
        raise TypeError(f"an expression to watch is text, not {type(text).__name__}")
    source = text.strip()
    root = re.match(r"[^\W\d]\w*", source)
    if root is None:
        raise ValueError(f"cannot watch {text!r}: it does not begin with a variable's name")
    steps: list[tuple[str, object]] = []
    position = root.end()
    while position < len(source):
        token = _TOKEN.match(source, position)
        if token is None:
            raise ValueError(f"cannot watch {text!r}: expected .name, .* or [index] at {source[position:]!r}")
        if token["dot"]:
            steps.append(("any", None) if token["name"] == "*" else ("attr", sys.intern(token["name"])))
            position = token.end()
        else:
            index, position = _parse_index(source, token.end(), text)
            steps.append(index)
    return text, root[0], tuple(steps)


def _parse_index(source: str, start: int, text: str) -> tuple[tuple[str, object], int]:
    for end in (i for i in range(start, len(source)) if source[i] == "]"):
        inside = source[start:end].strip()
        if inside == "*":
            return ("any", None), end + 1
        try:
            tree = ast.parse(f"_[{inside}]", mode="eval").body
        except (SyntaxError, ValueError):
            continue  # the bracket is inside a text or a nested one
        if isinstance(tree, ast.Subscript):
            return _index_step(tree.slice, text), end + 1
    raise ValueError(f"cannot watch {text!r}: no ] to end the index at {source[start:]!r}")


def _index_step(node: ast.expr, text: str) -> tuple[str, object]:
    if isinstance(node, ast.Name):
        return "var", sys.intern(node.id)
    return "item", _constant(node, text)


def _constant(node: ast.expr | None, text: str) -> object:
    if isinstance(node, ast.Slice):
        return slice(*(_constant(part, text) if part else None for part in (node.lower, node.upper, node.step)))
    if isinstance(node, ast.Tuple) and any(isinstance(item, ast.Slice) for item in node.elts):
        return tuple(_constant(item, text) for item in node.elts)
    try:
        return ast.literal_eval(node)
    except ValueError:
        raise ValueError(f"cannot watch {text!r}: an index is a constant or a variable's name") from None


# --- what the tracer wants to know of a code object


_INERT, _IGNORED = 1, 2
_IGNORE_MARKS = ("tenscope: ignore", "ztrace: ignore")

# Instructions that call nothing that could write into a list, a tensor or an object's attributes. Arithmetic is here:
# an operator that is not in-place does not write into its operands.
_INERT_OPS = re.compile(
    r"^(NOP|CACHE|RESUME|EXTENDED_ARG|PUSH_NULL|POP_TOP|COPY|SWAP|DUP_TOP.*|ROT_.*|LOAD_FAST.*|LOAD_CONST.*|LOAD_SMALL_INT|"
    r"LOAD_DEREF|LOAD_CLASSDEREF|LOAD_CLOSURE|LOAD_GLOBAL|STORE_FAST.*|STORE_DEREF|COMPARE_OP|IS_OP|UNARY_.*|TO_BOOL|"
    r"BINARY_OP|BINARY_(ADD|SUBTRACT|MULTIPLY|TRUE_DIVIDE|FLOOR_DIVIDE|MODULO|POWER|AND|OR|XOR|LSHIFT|RSHIFT|"
    r"MATRIX_MULTIPLY)|BUILD_TUPLE|JUMP_.*|POP_JUMP_.*|RETURN_.*|MAKE_CELL|COPY_FREE_VARS|NOT_TAKEN)$"
)
_STORES = re.compile(r"^(STORE_FAST|STORE_DEREF)")
_CALLS = re.compile(r"^(CALL|CALL_FUNCTION)$")
_PURE_LOOP_OPS = re.compile(r"^(PRECALL|KW_NAMES|CALL|CALL_FUNCTION|GET_ITER|FOR_ITER|END_FOR|POP_ITER)$")
_PURE_GLOBALS = {"range", "len"}


def _describe(code: CodeType) -> tuple[int, bytes, bool, tuple[tuple[int, int], ...]]:
    """First line, one flag byte per line, whether a loop stands on one line, and where comprehensions are (see
    tracer/watcher.hpp)."""
    kinds: dict[int, bool] = {}
    stores: dict[int, int] = {}
    range_loops = _range_loops(code)
    line_of: dict[int, int | None] = {}
    jumps: list[tuple[int, int]] = []
    line, unplaced = None, False
    for instruction in dis.get_instructions(code):
        starts = instruction.line_number if hasattr(instruction, "line_number") else instruction.starts_line
        if starts is not None or hasattr(instruction, "line_number"):
            line = starts
        line_of[instruction.offset] = line
        name = instruction.opname
        inert = bool(_INERT_OPS.match(name)) and not (name == "BINARY_OP" and instruction.argrepr.endswith("="))
        if instruction.opcode in dis.hasjrel or instruction.opcode in dis.hasjabs:
            jumps.append((instruction.offset, instruction.argval))
        if not inert and line in range_loops:
            inert = bool(_PURE_LOOP_OPS.match(name))
        if line is None:
            unplaced = unplaced or not inert
            continue
        kinds[line] = kinds.get(line, True) and inert
        if _STORES.match(name):
            stores[line] = stores.get(line, 0) + (2 if name.startswith("STORE_FAST_") else 1)
    comprehensions = _comprehensions(code)
    one_line_loops = any(
        target <= offset
        and line_of.get(target) == line_of[offset]
        and not any(start <= offset <= end for start, end in comprehensions)
        for offset, target in jumps
    )
    if not kinds:
        return code.co_firstlineno, b"", one_line_loops, comprehensions
    ignored = _ignored_lines(code.co_filename)
    first, last = min(kinds), max(kinds)
    flags = bytearray(last - first + 1)
    for line, inert in kinds.items():
        if inert and not unplaced and stores.get(line, 0) <= 1:
            flags[line - first] |= _INERT
        if line in ignored:
            flags[line - first] |= _IGNORED
    return first, bytes(flags), one_line_loops, comprehensions


_RESTORES = ("SWAP", "STORE_FAST", "STORE_FAST_STORE_FAST", "POP_TOP", "END_FOR", "POP_ITER")


def _comprehensions(code: CodeType) -> tuple[tuple[int, int], ...]:
    """Where the code is a comprehension that Python 3.12 and later run in the function's own frame: first and last
    offset, from after the first of its variables was taken (and the function's own of that name put aside) until the
    last is given back. Also where an exception that leaves it gives them back."""
    found: list[tuple[int, int]] = []
    instructions = list(dis.get_instructions(code))
    if not any(instruction.opname == "LOAD_FAST_AND_CLEAR" for instruction in instructions):
        return ()
    at = {instruction.offset: index for index, instruction in enumerate(instructions)}

    def last_restore(index: int) -> int:
        while index + 1 < len(instructions) and instructions[index + 1].opname in _RESTORES:
            index += 1
        return index

    for index, instruction in enumerate(instructions):
        if instruction.opname == "LOAD_FAST_AND_CLEAR":
            loop = index
            while instructions[loop].opname not in ("FOR_ITER", "GET_ANEXT", "RETURN_VALUE"):
                loop += 1
            if instructions[loop].opname == "FOR_ITER":
                end = last_restore(at[instructions[loop].argval])
                found.append((instructions[index + 1].offset, instructions[end].offset))
        elif instruction.opname == "SWAP":
            end = last_restore(index)
            if end + 1 < len(instructions) and instructions[end + 1].opname == "RERAISE":
                found.append((instruction.offset, instructions[end].offset))
    return tuple(found)


def _range_loops(code: CodeType) -> set[int]:
    """Lines that only head a loop over a range: `for i in range(n)`, `for i in range(len(x))`."""
    facts: dict[int, list] = {}
    line = None
    for instruction in dis.get_instructions(code):
        starts = instruction.line_number if hasattr(instruction, "line_number") else instruction.starts_line
        line = starts if starts is not None else line
        calls, loads, loops = facts.setdefault(line, [0, [], 0])
        name = instruction.opname
        facts[line][0] = calls + bool(_CALLS.match(name))
        facts[line][2] = loops + (name == "FOR_ITER")
        if name in ("LOAD_GLOBAL", "LOAD_NAME"):
            loads.append(instruction.argval)
    return {
        line
        for line, (calls, loads, loops) in facts.items()
        if loops == 1 and "range" in loads and calls == len([name for name in loads if name in _PURE_GLOBALS])
    }


def _ignored_lines(filename: str) -> frozenset[int]:
    """Lines of the file that carry an ignore mark; for a statement of several lines all of its lines."""
    lines = linecache.getlines(filename)
    marked = {number for number, line in enumerate(lines, 1) if any(mark in line for mark in _IGNORE_MARKS)}
    if not marked:
        return frozenset()
    try:
        tree = ast.parse("".join(lines))
    except SyntaxError:
        return frozenset(marked)
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt) and not hasattr(node, "body"):
            covered = range(node.lineno, (node.end_lineno or node.lineno) + 1)
            if len(covered) > 1 and not marked.isdisjoint(covered):
                marked.update(covered)
    return frozenset(marked)


_core.set_describe(_describe, os.path.dirname(__file__) + os.sep)

# --- snapshots of tensors


def _numpy(self: _core.TensorValue) -> np.ndarray:
    """A copy as a NumPy array; types that NumPy lacks as float32."""
    if self.data is None:
        raise ValueError(f"only statistics were kept of {self!r}: watch with values='full'")
    try:
        return np.frombuffer(self.data, self.dtype).reshape(self.shape).copy()
    except TypeError:
        if self.dtype == "bfloat16":
            wide = np.frombuffer(self.data, np.uint16).astype(np.uint32) << 16
            return wide.view(np.float32).reshape(self.shape)
        return self.torch().float().numpy()


def _torch(self: _core.TensorValue) -> object:
    """A copy as a torch tensor on the CPU."""
    import torch

    if self.data is None:
        raise ValueError(f"only statistics were kept of {self!r}: watch with values='full'")
    if not self.data:
        return torch.empty(self.shape, dtype=getattr(torch, self.dtype))
    return torch.frombuffer(bytearray(self.data), dtype=getattr(torch, self.dtype)).reshape(self.shape)


_core.TensorValue.numpy = _numpy
_core.TensorValue.torch = _torch
_core.TensorValue.tolist = lambda self: self.numpy().tolist()
_core.Changes.__reduce__ = lambda self: (tuple, ())  # a function pickled by value goes without its last changes

# --- doors


def make_watcher(expressions: tuple[str, ...] | list[str], **options: object) -> _core.Watcher:
    """The native watcher behind every door. An inner interface; other probes of this package use it too.

    watcher = make_watcher(["x", "self.buf"], on_change=print)
    watcher.add(function.__code__)          # every call of that code, until watcher.close()

    Options: on_change(change) is called for each change; on_value(tag, name, value, line, next_line) instead gets the
    live value and nothing is kept; on_enter(code, self) is asked at each call and returns the tag, or None for a call
    that is not to be watched; on_finish(changes) at a call's end. keep, record, globals, shared, depth, max_changes,
    max_tensor_bytes, stats_only, identity (another tensor object is a change), trust_version, reprs: see
    tracer/watcher.hpp.
    """
    return _core.make_watcher([parse(text) for text in expressions], options)


def unwrap(function: Callable) -> Callable:
    """The plain function below static and class methods, bound methods, partials and `functools.wraps` wrappers."""
    seen = set()
    while id(function) not in seen:
        seen.add(id(function))
        for attribute in ("__wrapped__", "__func__", "func"):
            below = inspect.getattr_static(function, attribute, None)
            if below is None or (attribute == "func" and type(function).__name__ not in ("partial", "partialmethod")):
                continue
            function = getattr(function, attribute)
            break
    if not hasattr(function, "__code__"):
        raise TypeError(f"cannot watch {function!r}: not a Python function")
    return function


def watch(
    *expressions: str,
    values: str | None = None,
    hook: Callable | None = None,
    depth: int = 1,
    max_changes: int = 100_000,
    trust_version: bool = False,
    show: object = False,
) -> Callable:
    """Records each change of the named variables while the decorated function runs.

        @tenscope.watch("loss", "arr[1]", 'cfg["lr"]', "self.layers[0].weight", "self.*.running_var")
        def train(...): ...

    The function stays the same object. After a call its changes are in `train.changes`; with a run open (tenscope.init)
    they are events in it; `hook` is called with each; `show=True` (or a file) prints them as they happen.

    values: "full" keeps every tensor's bytes in memory too, "stats" only statistics (also in the run); by default
    tensors up to 1 KB are kept in memory and all in the run. depth: 2 also watches variables of these names in
    functions called from it, and so on; 0 all below. max_changes: per call; further ones are counted in
    `changes.left_out`. trust_version: believe torch's version counter (faster for large tensors, blind to writes
    through `.data` and NumPy views).
    """
    options = _options(values, hook, depth, max_changes, trust_version, show)
    if not expressions or not all(isinstance(text, str) for text in expressions):
        raise TypeError('watch() takes the expressions to watch: @tenscope.watch("x", "self.w")')
    watcher_parts = [parse(text) for text in expressions]

    def decorate(function: Callable) -> Callable:
        plain = unwrap(function)
        watcher = _core.make_watcher(watcher_parts, options)
        watcher.add(plain.__code__, plain)
        watcher.publish(plain.__dict__)
        plain.changes = _LastChanges(watcher)
        if function is not plain:
            with contextlib.suppress(AttributeError, TypeError):
                function.changes = plain.changes
        weakref.finalize(plain, watcher.close).atexit = False
        return function

    return decorate


class _LastChanges(Sequence):
    """The changes of the call that ended last, whichever that is. A function's own `changes` is replaced at the end of
    each call; this one stays where another decorator has copied it (functools.wraps) or stands between."""

    def __init__(self, watcher: _core.Watcher):
        self._watcher = watcher

    def _now(self) -> _core.Changes | tuple[()]:
        last = self._watcher.last
        return () if last is None else last

    def __len__(self) -> int:
        return len(self._now())

    def __getitem__(self, index: int) -> _core.Change:
        return self._now()[index]

    def __getattr__(self, name: str) -> object:
        return getattr(self._now(), name)

    def __eq__(self, other: object) -> bool:
        return self._now() == other

    __hash__ = None

    def __repr__(self) -> str:
        return repr(self._now())

    def __reduce__(self) -> tuple[type, tuple]:
        return tuple, ()


def _options(
    values: str | None, hook: Callable | None, depth: int, max_changes: int, trust_version: bool, show: object
) -> dict[str, object]:
    if values not in (None, "full", "stats"):
        raise ValueError(f'values is "full" or "stats", not {values!r}')
    if hook is not None and not callable(hook):
        raise TypeError("hook is a callable that gets each change")
    on_change = hook
    if show:
        from ._watch_show import printer

        on_change = printer(show, hook)
    return {
        "on_change": on_change,
        "depth": depth,
        "max_changes": max_changes,
        "max_tensor_bytes": {None: 1024, "full": sys.maxsize, "stats": 0}[values],
        "stats_only": values == "stats",
        "trust_version": trust_version,
        "globals": True,
    }


class watching:
    """The same for a block: `with tenscope.watching("loss", "self.w") as watched: ...; watched.changes`."""

    def __init__(
        self,
        *expressions: str,
        values: str | None = None,
        hook: Callable | None = None,
        depth: int = 1,
        max_changes: int = 100_000,
        trust_version: bool = False,
        show: object = False,
    ):
        options = _options(values, hook, depth, max_changes, trust_version, show)
        self._watcher = _core.make_watcher([parse(text) for text in expressions], options)

    def __enter__(self) -> watching:
        self._watcher.attach(sys._getframe(1))
        return self

    def __exit__(self, *error: object) -> None:
        self._watcher.detach()

    @property
    def changes(self) -> _core.Changes | tuple[()]:
        last = self._watcher.last
        return () if last is None else last
