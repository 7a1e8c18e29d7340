"""Tensor Tracker's names: `@auto_diff` logs inputs and outputs as a tree, `@var_tracker("x")` also each change."""

from __future__ import annotations

import contextlib
import functools
import inspect
import linecache
import logging
import os
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Callable
from pathlib import Path

import numpy as np

from tenscope import _core
from tenscope.lines.expressions import parse
from tenscope.lines.watch import unwrap
from tenscope.recording.callers import callers

# --- the channel


class ThreadFileHandler(logging.Handler):
    """Appends each record to a file of the process and thread that emits it."""

    def __init__(self, base_path: str | os.PathLike):
        super().__init__()
        self.base_path = Path(base_path).absolute()
        self.setFormatter(logging.Formatter("%(asctime)s - %(levelname)s - %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        try:
            path = self.base_path / f"process_{os.getpid()}_thread_{threading.get_ident()}.log"
            written = record.__dict__.setdefault("_ttracker_files", set())
            if path in written:
                return  # a second handler on the same logger
            written.add(path)
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("a", encoding="utf-8", errors="backslashreplace") as file:
                file.write(self.format(record) + "\n")
        except Exception:
            self.handleError(record)


def h4logger() -> logging.Handler:
    handler = ThreadFileHandler(Path("logs") / os.environ.get("LTAG", "NOTAG"))
    with contextlib.suppress(OSError):  # said when the first record cannot be written
        handler.base_path.mkdir(parents=True, exist_ok=True)
    return handler


def setup_logger() -> logging.Logger:
    logger = logging.getLogger(__name__)
    logger.setLevel(logging.DEBUG)
    if not any(isinstance(handler, ThreadFileHandler) for handler in logger.handlers):
        logger.addHandler(h4logger())
    return logger


def log2file(message: object) -> None:
    """Prints the message and sends it to the logger."""
    _core.call_unwatched(_log, str(message))


def _log(message: str) -> None:
    try:
        print(message, file=sys.stdout, flush=True)
    except UnicodeEncodeError:
        print(message.encode("ascii", "backslashreplace").decode(), file=sys.stdout, flush=True)
    except (OSError, ValueError, AttributeError):
        pass  # stdout is closed or gone: the file has it
    logger.info("%s", message)


# --- the tree


class IndentManager:
    _local = threading.local()

    @staticmethod
    def get_indent() -> str:
        return "│   " * getattr(IndentManager._local, "depth", 0)

    @staticmethod
    def increase() -> None:
        IndentManager._local.depth = getattr(IndentManager._local, "depth", 0) + 1

    @staticmethod
    def decrease() -> None:
        IndentManager._local.depth = max(0, getattr(IndentManager._local, "depth", 0) - 1)


def _is_tensor(value: object) -> bool:
    if isinstance(value, np.ndarray):
        return True
    torch = sys.modules.get("torch")
    return torch is not None and hasattr(torch, "Tensor") and isinstance(value, torch.Tensor)


def _statistics(value: object) -> str:
    """Sum, mean and range of the finite elements, and how many are not."""
    try:
        seen = _core.snapshot(value, 0)
    except Exception:  # a tensor without elements of its own, say: the line is there, its numbers are not
        return ""
    if not isinstance(seen, _core.TensorValue):
        return ""
    finite = seen.count - seen.nan - seen.inf
    parts = []
    if finite > 0 and not seen.dtype.startswith("complex"):
        numbers = {"sum": seen.mean * finite, "mean": seen.mean, "min": seen.min, "max": seen.max}
        parts += [f"{name}={number:.7g}" for name, number in numbers.items()]
    parts += [f"{kind}={count}" for kind, count in (("nan", seen.nan), ("inf", seen.inf)) if count]
    return "".join(f" | {part}" for part in parts)


def _log_change(prestr: str, name: object, value: object, indent: str, lineno: int = 0) -> None:
    """One line for a tensor, array, container, number or text; none for anything else."""
    where = f"{name}@{lineno}"
    if _is_tensor(value):
        line = f"{indent}{prestr} [Tensor] {where} → shape={value.shape} | dtype={value.dtype}"
        device = getattr(value, "device", None)
        if device is not None and str(device) != "cpu":
            line += f" | device={device}"
        log2file(line + _statistics(value))
    elif isinstance(value, (list, tuple, dict, set, frozenset)):
        log2file(f"{indent}{prestr} [Var] {where} len(value): {len(value)}")
    elif isinstance(value, (int, float, str, np.generic)):
        log2file(f"{indent}{prestr} [Var] {where} value: {value}")


def _display_name(function: Callable) -> str:
    name = getattr(function, "__name__", type(function).__name__)
    qualified = getattr(function, "__qualname__", name).rsplit("<locals>.", 1)[-1]
    return f"{qualified.split('.')[0]}.{name}" if "." in qualified else name


def get_call_stack() -> str:
    return " <- ".join(f"{os.path.basename(caller.file)}:{caller.line}" for caller in callers(3))


def _log_head(function: Callable, indent: str) -> None:
    try:
        code = unwrap(function).__code__
        home = f"{os.path.basename(code.co_filename)}:{code.co_firstlineno}"
    except TypeError:
        home = "?:0"
    caller = next(iter(callers(1)), None)
    where = f"{caller.function}:{caller.line}" if caller else "?:0"
    log2file(f"{indent}┌── [{home}] 函数 [{_display_name(function)}] 被调用于 {where} ({get_call_stack()})")


def _log_output(result: object, indent: str) -> None:
    if _is_tensor(result):
        log2file(f"{indent}└─ 输出 shape={result.shape}")
    elif isinstance(result, (tuple, list)):
        for index, item in enumerate(result):
            _log_change("└─ 输出", index, item, indent)
    else:
        _log_change("└─ 输出", "result", result, indent)


class _TrackedCall:
    """One call of a `var_tracker` function.

    What happens in it is seen by those around it too: the innermost call that watches a name reports it.
    """

    _local = threading.local()

    def __init__(self, names: tuple[str, ...]):
        self.names = names

    @staticmethod
    def stack() -> list[_TrackedCall]:
        """Those that this thread is in, outermost first."""
        if not hasattr(_TrackedCall._local, "stack"):
            _TrackedCall._local.stack = []
        return _TrackedCall._local.stack

    def reports(self, name: str) -> bool:
        stack = _TrackedCall.stack()
        innermost = next((call for call in reversed(stack) if name in call.names), None)
        return innermost is self or self not in stack  # a generator's body runs after its call

    def __enter__(self) -> None:
        _TrackedCall.stack().append(self)

    def __exit__(self, *_) -> None:
        _TrackedCall.stack().pop()


def auto_diff(func: Callable) -> Callable:
    """Logs where a function is called from, its inputs, its outputs and its duration, nested calls indented."""
    return _logged(func, contextlib.nullcontext)


def _logged(func: Callable, around: Callable) -> Callable:
    """`auto_diff`, with the function called inside the context that `around` makes."""
    try:
        signature = inspect.signature(func)
    except (TypeError, ValueError):
        signature = None

    @functools.wraps(func)
    def logged(*args, **kwargs):
        indent = IndentManager.get_indent()
        _log_head(func, indent)
        if signature is not None:
            bound = _core.call_unwatched(functools.partial(signature.bind, *args, **kwargs))
            for name, value in bound.arguments.items():
                _log_change("├─ 输入", name, value, indent)
        IndentManager.increase()
        started = time.perf_counter()
        try:
            with around():
                result = func(*args, **kwargs)
        finally:
            IndentManager.decrease()
        _log_output(result, indent)
        log2file(f"{indent}└─ 耗时 {_display_name(func)} 执行耗时: {time.perf_counter() - started:.4f} 秒")
        return result

    return logged


def var_tracker(*names: str) -> Callable[[Callable], Callable]:
    """`auto_diff`, and a line for each change of the named variables in the function and in everything it calls."""
    expressions = [parse(name) for name in names]

    def on_enter(code: object, instance: object) -> _TrackedCall:
        stack = _TrackedCall.stack()
        return stack[-1] if stack and stack[-1].names is names else _TrackedCall(names)

    def on_value(call: _TrackedCall, name: str, value: object, line: int, next_line: int) -> None:
        if call.reports(name):
            _log_change("├─", name, value, IndentManager.get_indent(), next_line)

    def decorate(func: Callable) -> Callable:
        plain = unwrap(func)
        options = {"on_enter": on_enter, "on_value": on_value, "shared": True, "depth": 0, "record": False}
        watcher = _core.make_watcher(expressions, options)
        watcher.add(plain.__code__, plain)
        weakref.finalize(plain, watcher.close).atexit = False
        return _logged(func, functools.partial(_TrackedCall, names))

    return decorate


# --- the rest of the old module


def is_content_changed(last: object, current: object) -> bool:
    return type(last) is not type(current) or _core.digest(last) != _core.digest(current)


def extract_tensor_info(data: object, max_elements: int = 25) -> object:
    """Shapes and dtypes of the tensors in a nest; numbers and texts as they are."""
    if _is_tensor(data):
        return f"shape={data.shape} | dtype={data.dtype}"
    if isinstance(data, dict):
        return {key: extract_tensor_info(value, max_elements) for key, value in list(data.items())[:max_elements]}
    if isinstance(data, (list, tuple)):
        return [extract_tensor_info(value, max_elements) for value in data[:max_elements]]
    return data if isinstance(data, (int, float, str)) else type(data).__name__


def pskip() -> bool:
    return True


def fstack(func: Callable) -> Callable:
    """Prints the whole call stack, outermost first, then calls."""

    @functools.wraps(func)
    def shown(*args, **kwargs):
        for frame in traceback.extract_stack()[:-1]:
            log2file(f"{os.path.basename(frame.filename)}:{frame.lineno} {frame.name}")
        return func(*args, **kwargs)

    return shown


def trace_lines(frame, event: str, arg: object):
    if event == "line":
        source = linecache.getline(frame.f_code.co_filename, frame.f_lineno).rstrip()
        log2file(f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno} {source}")
    return trace_lines


def trace_calls(frame, event: str, arg: object):
    if event == "call" and frame.f_code.co_filename != __file__:
        log2file(f"→ {frame.f_code.co_name} ({os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno})")
        return trace_lines
    return None


def debug_trace(func: Callable) -> Callable:
    """Prints entered functions and every source line while the function runs."""

    @functools.wraps(func)
    def traced(*args, **kwargs):
        before = sys.gettrace()
        sys.settrace(trace_calls)
        try:
            return func(*args, **kwargs)
        finally:
            sys.settrace(before)

    return traced


def check_run_count(unique_id: object, max_allow: int, remove_when_exit: bool = True) -> None:
    """Counts calls in a file; `max_allow` of them pass, the next one ends the program with status 1."""
    path = Path(f"/tmp/run_count_{os.getpid()}_{threading.get_ident()}_{unique_id}.txt")
    try:
        count = int(path.read_text())
    except (OSError, ValueError):
        count = 0
    count += 1
    print(f"{unique_id}: {count}")
    if count > max_allow:
        if remove_when_exit:
            path.unlink(missing_ok=True)
        sys.exit(1)
    path.write_text(str(count))


logger = setup_logger()
logger.info("Main process started.")
