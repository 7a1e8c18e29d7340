"""Watching variables line by line: @watch, watching(), and the native watcher behind them."""

from __future__ import annotations

import contextlib
import inspect
import sys
from collections.abc import Callable, Sequence

from tenscope import _core
from tenscope.lines import changes, code_facts, snapshots, unseen  # noqa: F401  they make themselves known to the core
from tenscope.lines.expressions import parse

__all__ = ["make_watcher", "unwrap", "watch", "watching"]


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

    values         "full" keeps every tensor's bytes in memory too, "stats" only statistics (also in the run); by
                   default tensors up to 1 KB are kept in memory and all in the run
    hook           called with each change, as it happens
    depth          2 also watches variables of these names in functions called from it, and so on; 0 all below
    max_changes    per call; further ones are counted in `changes.left_out`
    trust_version  believe torch's version counter: faster for large tensors, blind to writes through `.data` and
                   NumPy views
    show           print each change: True for stderr, or a file

    docs/watch.md says what counts as a change.
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
        unseen.follow(watcher, plain, "watch")
        return function

    return decorate


class _LastChanges(Sequence):
    """The changes of the call that ended last, whichever that is. A function's own `changes` is replaced at the end of
    each call; this one stays where another decorator has copied it (functools.wraps) or stands between."""

    def __init__(self, watcher: _core.Watcher):
        self._watcher = watcher

    def _now(self) -> _core.Changes | changes.NoChanges:
        last = self._watcher.last
        return changes.NoChanges() if last is None else last

    def __len__(self) -> int:
        return len(self._now())

    def __getitem__(self, index: int | slice | str) -> _core.Change | list[_core.Change]:
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
    for name, number in (("depth", depth), ("max_changes", max_changes)):
        if not isinstance(number, int) or number < 0:
            raise TypeError(f"{name} is a number, 0 or more, not {number!r}")
    on_change = hook
    if show:
        from tenscope.lines.show import printer

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
    """As `watch`, with its options, for a block of code.

        with tenscope.watching("loss", "self.w", show=True) as watched:
            ...
        watched.changes
    """

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

    def __exit__(self, error_type: object, *_: object) -> None:
        self._watcher.detach()
        if error_type is None:
            frame = sys._getframe(1)
            code = frame.f_code
            names = (*code.co_varnames, *code.co_cellvars, *code.co_freevars)
            unseen.report(self._watcher, "watching", names, frame.f_globals)

    @property
    def changes(self) -> _core.Changes | changes.NoChanges:
        last = self._watcher.last
        return changes.NoChanges() if last is None else last
