"""@tree: the call tree of decorated functions, with inputs, outputs, durations and the changes of watched variables."""

from __future__ import annotations

import contextlib
import contextvars
import functools
import inspect
import json
import os
import time
from collections.abc import Callable
from types import ModuleType

from tenscope import _core
from tenscope.lines import unseen
from tenscope.lines.expressions import parse
from tenscope.lines.show import Painter, change_text, describe
from tenscope.lines.watch import unwrap
from tenscope.notebook import kernel
from tenscope.recording.callers import callers
from tenscope.recording.run import current_or_opened

__all__ = ["tree"]

_depth = contextvars.ContextVar("depth", default=0)  # threads and asyncio tasks have their own
_UNIT = "│  "


def tree(
    target: object = None,
    *,
    watch: str | tuple[str, ...] | list[str] = (),
    chain: int = 3,
    show: object = True,
    record: bool = True,
) -> object:
    """Shows each call of a function as a branch: its definition, its callers, inputs, outputs, duration, exceptions.

        @tenscope.tree
        def process(batch): ...

        @tenscope.tree(watch=["video"])       # the changes of `video` appear in place
        def transform(video): ...

        tenscope.tree(MyDataset)              # every method of a class
        tenscope.tree(my_package.transforms)  # every function and class of a module

    Decorated functions called from decorated ones stand below their caller, per thread and asyncio task. It is printed
    to stderr (`show`: a file, or False) and, with a run open, recorded as enter and exit events with inputs and outputs
    between; `tenscope tree RUN` shows it later.
    """
    options = {
        "watch": (watch,) if isinstance(watch, str) else tuple(watch),
        "chain": chain,
        "show": show,
        "record": record,
    }
    if target is None:
        return lambda real: tree(real, **options)
    if isinstance(target, ModuleType):
        return _decorate_module(target, options)
    if isinstance(target, type):
        return _decorate_class(target, options)
    if isinstance(target, (staticmethod, classmethod)):
        return type(target)(tree(target.__func__, **options))
    if not callable(target):
        raise TypeError(f"tree takes a function, a class or a module, not {target!r}")
    return _decorate(target, **options)


def _decorate_module(module: ModuleType, options: dict) -> ModuleType:
    for name, member in list(vars(module).items()):
        if getattr(member, "__module__", None) != module.__name__:
            continue
        if inspect.isfunction(member):
            setattr(module, name, _decorate(member, **options))
        elif isinstance(member, type):
            _decorate_class(member, options)
    return module


def _decorate_class(cls: type, options: dict) -> type:
    for name, member in list(vars(cls).items()):
        if inspect.isfunction(member) or isinstance(member, (staticmethod, classmethod)):
            if not (
                name.startswith("__") and name.endswith("__") and name not in ("__init__", "__call__", "__getitem__")
            ):
                setattr(cls, name, tree(member, **options))
        elif isinstance(member, type) and member.__qualname__.startswith(f"{cls.__qualname__}."):
            _decorate_class(member, options)
    return cls


class _Branch:
    """One decorated function: how its calls are shown and recorded."""

    def __init__(self, function: Callable, watch: tuple[str, ...], chain: int, show: object, record: bool):
        plain = unwrap(function)
        self.name = plain.__qualname__.rsplit("<locals>.", 1)[-1]
        self.code = plain.__code__
        file, line = self.code.co_filename, self.code.co_firstlineno
        self.site = f"{os.path.basename(file)}:{line}"
        self.place = f"{os.path.basename(kernel.shown_file(file))}:{line}"
        with contextlib.suppress(OSError):  # the working folder may be gone
            self.site = f"{os.path.relpath(file)}:{line}" if file.startswith(os.getcwd() + os.sep) else self.site
        self.chain = chain
        self.record = record
        self.paint = Painter(show if hasattr(show, "write") else None) if show else None
        try:
            self.signature = inspect.signature(function)
        except (TypeError, ValueError):
            self.signature = None
        if watch:
            watcher = _core.make_watcher([parse(text) for text in watch], {"on_change": self.changed, "globals": True})
            watcher.add(plain.__code__, plain)
            unseen.follow(watcher, plain, "tree(watch=)")

    def line(self, depth: int, text: str) -> None:
        if self.paint is not None:
            _core.call_unwatched(self.paint.line, self.paint("dim", _UNIT * depth) + text)

    def note(self, kind: str, name: str, value: object = None, **what: object) -> None:
        if self.record:
            _core.call_unwatched(_record, kind, name, value, what)

    def changed(self, change: _core.Change) -> None:
        if self.paint is not None:
            self.line(_depth.get(), f"├─ {change.line:>4}  {change_text(change, self.paint)}")

    def enter(self, depth: int, args: tuple, kwargs: dict) -> None:
        who = [caller for caller in callers(max(1, self.chain)) if not kernel.is_machinery(caller.file)]
        called = f" from {who[0].function}:{who[0].line}" if who else ""
        path = " <- ".join(f"{os.path.basename(kernel.shown_file(caller.file))}:{caller.line}" for caller in who)
        if self.paint is not None:
            head = f"┌─ {self.paint('head', self.name)} {self.paint('dim', f'[{self.place}]{called} ({path})')}"
            self.line(depth, head)
        run = current_or_opened() if self.record else None
        if run is not None and run.kept_sources is not None:
            _core.call_unwatched(run.kept_sources.keep_code, self.code)
        self.note(
            "enter", self.name, site=self.site, scope=self.name, cls=self.name, meta=json.dumps({"callers": path})
        )
        for name, value in self.inputs(args, kwargs).items():
            if self.paint is not None:
                self.line(depth + 1, f"{self.paint('name', name)}: {describe(value)}")
            self.note("value", f"{self.name}.{name}", value, io="input", scope=self.name)

    def inputs(self, args: tuple, kwargs: dict) -> dict[str, object]:
        if self.signature is not None:
            try:
                return dict(self.signature.bind(*args, **kwargs).arguments)
            except TypeError:
                pass  # the call itself will say so
        return {"args": args, "kwargs": kwargs}

    def leave(self, depth: int, started_ns: int, result: object, error: BaseException | None) -> None:
        elapsed_ns = time.perf_counter_ns() - started_ns
        meta: dict[str, object] = {"duration_ns": elapsed_ns}
        if error is not None:
            meta["raised"] = f"{type(error).__name__}: {error}"
        if self.paint is not None:
            outcome = describe(result) if error is None else self.paint("bad", meta["raised"])
            self.line(depth, f"└─ {outcome} {self.paint('dim', f'({elapsed_ns / 1e6:.3g} ms)')}")
        if result is not None:
            self.note("value", f"{self.name}.output", result, io="output", scope=self.name)
        self.note("exit", self.name, scope=self.name, cls=self.name, meta=json.dumps(meta))


def _record(kind: str, name: str, value: object, what: dict) -> None:
    what = {"site": "", **what}
    if kind == "value":
        _core.record(name, value, kind=kind, **what)
    else:
        _core.record(name, kind=kind, **what)


def _safely(step: Callable, *args: object) -> None:
    """What is shown or recorded never stops the program."""
    try:
        step(*args)
    except Exception as error:
        if _core.is_strict():
            raise
        import warnings

        warnings.warn(f"tenscope.tree: a call could not be shown: {error!r}", stacklevel=3)


def _decorate(function: Callable, **options) -> Callable:
    branch = _Branch(function, **options)

    def begin(args: tuple, kwargs: dict) -> tuple[int, int, contextvars.Token]:
        depth = _depth.get()
        _safely(branch.enter, depth, args, kwargs)
        return depth, time.perf_counter_ns(), _depth.set(depth + 1)

    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def shown(*args, **kwargs):
            depth, started_ns, token = begin(args, kwargs)
            try:
                result = await function(*args, **kwargs)
            except BaseException as error:
                _safely(branch.leave, depth, started_ns, None, error)
                raise
            finally:
                _depth.reset(token)
            _safely(branch.leave, depth, started_ns, result, None)
            return result

        return shown

    @functools.wraps(function)
    def shown(*args, **kwargs):
        depth, started_ns, token = begin(args, kwargs)
        try:
            result = function(*args, **kwargs)
        except BaseException as error:
            _safely(branch.leave, depth, started_ns, None, error)
            raise
        finally:
            _depth.reset(token)
        _safely(branch.leave, depth, started_ns, result, None)
        return result

    return shown
