"""Operations of torch as events: which one, from which source line, made of what. docs/zoom.md says what is written.

Overview. A TorchDispatchMode sees every operation below autograd: those that composite functions are made of, those
that autocast inserts, and those of the backward pass. An operation's line is that of the innermost frame that is not
torch's. One that the autograd engine runs has no such frame of its own: it belongs to the line whose operation made
its node. A node is made just before its operation reaches us, so its number is the last one given out then.

An operation's inputs are named by their content (fingerprints), so that views and in-place operations need no
bookkeeping: whatever holds these bytes now is what went in. What no recorded operation has made is recorded when it
first goes into one, as an `input`.
"""

from __future__ import annotations

import dataclasses
import json
import linecache
import os
import sys

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from tenscope import _core
from tenscope.recording.callers import OWN_FOLDER

_TORCH_FOLDER = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
_graph_task_id = torch._C._current_graph_task_id
_next_sequence_nr = torch._C._autograd._get_sequence_nr
_MAX_ARGUMENTS = 200  # characters
_MAX_NODES = 1_000_000  # whose lines are remembered

# Their result is the tensor that went in, or nothing that has a value yet.
_WITHOUT_NEWS = {"detach", "alias", "empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "resize_"}
_MAKE_UNSET = {name for name in _WITHOUT_NEWS if "empty" in name}
# What they write to is no input: all of it is written over.
_OVERWRITE = {
    "bernoulli_", "cauchy_", "copy_", "exponential_", "eye_", "fill_", "geometric_", "log_normal_", "normal_",
    "random_", "uniform_", "zero_",
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Scope:
    """Where in the program an operation ran: the module's call, or nothing outside of all."""

    path: str = ""
    root: str = ""
    cls: str = ""
    phase: str = ""
    call: int = -1  # of the module


@dataclasses.dataclass(frozen=True)
class Line:
    file: str = ""
    number: int = 0
    function: str = ""

    @property
    def site(self) -> str:
        if not self.file:
            return ""
        folder = os.getcwd() + os.sep
        shown = self.file.removeprefix(folder) if self.file.startswith(folder) else os.path.basename(self.file)
        return f"{shown}:{self.number}"


class Operations(TorchDispatchMode):
    """Records operations through `record`, which is Run.record or has its signature. `where()` is asked for each: the
    scope that it belongs to, or None where it is not wanted. `trouble` is told what goes wrong in here."""

    def __init__(self, record, where, trouble, values: str = "full"):
        super().__init__()
        self.record = record
        self.where = where
        self.trouble = trouble
        self.values = values
        self._made_at: dict[int, tuple[Line, Scope]] = {}  # by the number of a node of the graph
        self._known: set[str] = set()  # contents that an event has
        # Storages that were never written to. A weak reference keeps its address from being given to another.
        self._unset: dict[int, StorageWeakRef] = {}
        self._index = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        seen = None
        try:
            seen = self._before(func, args, kwargs)
        except Exception as error:
            self.trouble(error)
        result = func(*args, **kwargs)
        if seen is not None:
            try:
                self._after(func, args, kwargs, result, *seen)
            except Exception as error:
                self.trouble(error)
        return result

    def _before(self, func, args, kwargs):
        scope = self.where()
        namespace, _, name = func._schema.name.rpartition("::")
        if namespace == "c10d":  # what a collective returns may still be under way
            return None
        is_backward = _graph_task_id() != -1
        if scope is None and not is_backward:
            return None
        line = user_line(is_backward)
        if is_backward:
            node = torch._C._current_autograd_node()
            made_at = self._made_at.get(node._sequence_nr()) if node is not None else None
            if made_at is None and scope is None:
                return None
            if made_at is not None:
                scope = dataclasses.replace(made_at[1], phase="backward")
                line = line or made_at[0]
            else:
                scope = dataclasses.replace(scope, phase="backward")
                line = line or user_line(False)  # gradients are added up: by whoever called backward
        elif len(self._made_at) < _MAX_NODES:
            self._made_at.setdefault(_next_sequence_nr() - 1, (line, scope))
        if name in _WITHOUT_NEWS:
            return (scope, line, name, [])
        return (scope, line, name, self._inputs(func, name, args, kwargs, scope))

    def _inputs(self, func, name: str, args, kwargs, scope: Scope) -> list[str]:
        """Fingerprints of the tensors that go in; those that are news are recorded."""
        found = []
        for position, argument in enumerate(func._schema.arguments):
            value = args[position] if position < len(args) else kwargs.get(argument.name)
            writes = argument.alias_info is not None and argument.alias_info.is_write
            if value is None or (writes and (name in _OVERWRITE or argument.is_out)):
                continue
            for tensor in tensors_in(value):
                if self._is_unset(tensor):
                    continue
                print_ = fingerprint_text(tensor)
                found.append(print_)
                if print_ and print_ not in self._known and name != "lift_fresh":
                    self._write("input", tensor, scope, None, {})
                    self._known.add(print_)
        return found if name != "lift_fresh" else []

    def _after(self, func, args, kwargs, result, scope: Scope, line: Line | None, name: str, inputs: list[str]) -> None:
        if name in _WITHOUT_NEWS:
            if name in _MAKE_UNSET:
                self._unset = {key: ref for key, ref in self._unset.items() if not ref.expired()}
                for tensor in tensors_in(result):
                    if key := storage_of(tensor):
                        self._unset[key] = StorageWeakRef(tensor.untyped_storage())
            return
        outputs = list(tensors_in(result))
        if not outputs and isinstance(result, (bool, int, float)):
            outputs = [result]
        for argument, value in zip(func._schema.arguments, args):  # noqa: B905
            if not func._schema.returns and argument.alias_info is not None and argument.alias_info.is_write:
                outputs.extend(tensors_in(value))
        if name.endswith("_") or func._schema.is_mutable:
            for tensor in outputs:
                if isinstance(tensor, torch.Tensor) and self._is_unset(tensor):
                    whole = tensor.numel() * tensor.element_size() >= tensor.untyped_storage().nbytes()
                    if whole or inputs:
                        self._unset.pop(storage_of(tensor), None)
        meta = {"at": self._index, "from": inputs, "args": arguments_text(func, args, kwargs)}
        self._index += 1
        for position, value in enumerate(outputs):
            if isinstance(value, torch.Tensor):
                if self._is_unset(value):
                    continue
                self._known.add(fingerprint_text(value))
            more = {"out": position} if len(outputs) > 1 else {}
            self._write(name.strip("_"), value, scope, line, {**meta, **more, "op": str(func)})

    def _write(self, name: str, value, scope: Scope, line: Line | None, meta: dict) -> None:
        text = linecache.getline(line.file, line.number).strip() if line else ""
        if line:
            meta = {**meta, "function": line.function, "text": text}
        if scope.call >= 0:
            meta["module_call"] = scope.call
        self.record(
            f"{scope.path}:{name}",
            value.detach() if isinstance(value, torch.Tensor) else value,
            io="op",
            phase=scope.phase,
            site=line.site if line else "",
            root=scope.root,
            scope=scope.path,
            cls=scope.cls,
            meta=json.dumps(meta),
            values=self.values,
        )

    def _is_unset(self, tensor: torch.Tensor) -> bool:
        return bool(self._unset) and storage_of(tensor) in self._unset


def user_line(is_backward: bool) -> Line | None:
    """The innermost frame that is neither torch's nor ours; None for what the autograd engine runs by itself."""
    frame = sys._getframe(2)
    while frame is not None:
        code = frame.f_code
        file = code.co_filename
        if is_backward and code.co_name == "_engine_run_backward":
            return None
        if not file.startswith((_TORCH_FOLDER, OWN_FOLDER, "<frozen ")):
            return Line(file, frame.f_lineno, code.co_name)
        frame = frame.f_back
    return None


def tensors_in(value):
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for member in value:
            yield from tensors_in(member)


def storage_of(tensor: torch.Tensor) -> int:
    try:
        return tensor.untyped_storage()._cdata
    except (RuntimeError, NotImplementedError):  # a wrapper without storage
        return 0


def fingerprint_text(tensor: torch.Tensor) -> str:
    """Empty where the tensor has no plain bytes."""
    try:
        found = _core.fingerprint(tensor.detach())
    except Exception:
        return ""
    return "" if found is None else found[::-1].hex()


def arguments_text(func, args, kwargs) -> str:
    """What is no tensor, as it would be written: `dim=-1, half_to_float=False`."""
    words = []
    for position, argument in enumerate(func._schema.arguments):
        value = args[position] if position < len(args) else kwargs.get(argument.name, argument.default_value)
        if value is None or next(tensors_in(value), None) is not None or argument.name == "generator":
            continue
        if position >= len(args) and argument.name not in kwargs:
            continue
        words.append(f"{argument.name}={value}")
    text = ", ".join(words)
    return text if len(text) <= _MAX_ARGUMENTS else text[: _MAX_ARGUMENTS - 3] + "..."
