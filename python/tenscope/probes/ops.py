"""Operations of torch as events: which one, from which source line, made of what. docs/zoom.md says what is written.

Overview. A TorchDispatchMode sees every operation below autograd: those that composite functions are made of, those
that autocast inserts, and those of the backward pass. An operation's line is that of the innermost frame that is the
program's. One that the autograd engine runs has no such frame of its own: it belongs to the line whose operation made
its node. A node is made just before its operation reaches us, so its number is the last one given out then.

An operation's inputs are named by their content (fingerprints), so that views and in-place operations need no
bookkeeping: whatever holds these bytes now is what went in. What no recorded operation has made is recorded when it
first goes into one, as an `input`.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import sys
from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from tenscope import _core
from tenscope.probes.hooks import Frame
from tenscope.probes.modules import PathFilter
from tenscope.probes.program_lines import COMPILED, Line
from tenscope.recording.selectors import AROUND, Unmatched

_graph_task_id = torch._C._current_graph_task_id
_current_node = torch._C._current_autograd_node
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

    @functools.cached_property
    def in_backward(self) -> Scope:
        return dataclasses.replace(self, phase="backward")


class Wanted:
    """Where operations are wanted: inside the calls of modules, by globs over their paths, and in the code around."""

    def __init__(self, where: str | Iterable[str] | None, call: int | None = None):
        where = [where] if isinstance(where, str) else list(where or ())
        for each in where:
            if each.startswith(":") and each not in AROUND:
                raise ValueError(f"operations around modules are one of {', '.join(AROUND)}, not {each!r}")
        modules = [each for each in where if not each.startswith(":")]
        self._modules = PathFilter(modules) if modules else None
        self._around = {each for each in where if each.startswith(":")}
        self._call = call

    def __bool__(self) -> bool:
        return self._modules is not None or bool(self._around)

    def wants_around(self, what: str) -> bool:
        return ":all" in self._around or what in self._around

    def scope_in(self, stack: list[Frame]) -> Scope | None:
        """The scope of an operation that the innermost of these module calls makes; None: it is not wanted."""
        frame = stack[-1]
        if frame.scope_of_ops is False:
            is_wanted = ":all" in self._around or any(self._wants_call(each) for each in stack)
            info = frame.info
            frame.scope_of_ops = (
                Scope(info.path, info.root.label, info.cls, "forward", frame.call) if is_wanted else None
            )
        return frame.scope_of_ops

    def _wants_call(self, frame: Frame) -> bool:
        return (
            self._modules is not None
            and (self._call is None or self._call == frame.call)
            and self._modules.wants(frame.info.path)
        )

    def unmatched(self, where: str, paths: Iterable[str]) -> list[Unmatched]:
        """`paths` are those of all modules, called or not."""
        found = [] if self._modules is None else self._modules.unmatched(where)
        paths = list(paths)
        for entry in found:
            if any(fnmatchcase(path, entry.selector) for path in paths):
                entry.why = "matched no call that was seen: calls inside compiled code are not (--eager)"
                entry.nearest = ""
        return found


class Function:
    """What is to be known of one of torch's functions."""

    def __init__(self, func):
        schema = func._schema
        namespace, _, self.name = schema.name.rpartition("::")
        self.shown_name = self.name.strip("_")
        self.meta = f'"op":{json.dumps(str(func))}'
        # What a collective returns may still be under way, until it is waited for.
        self.is_collective = "c10d" in namespace and self.name != "wait_tensor"
        self.has_news = self.name not in _WITHOUT_NEWS
        self.makes_unset = self.name in _MAKE_UNSET
        self.lifts = self.name == "lift_fresh"  # a constant of the program: made of nothing
        self.is_mutable = self.name.endswith("_") or schema.is_mutable
        self.arguments = [(each.name, self._is_read(each)) for each in schema.arguments]
        writes = [at for at, each in enumerate(schema.arguments) if each.alias_info and each.alias_info.is_write]
        self.results_at = [] if schema.returns else writes  # what returns nothing has changed its arguments

    def _is_read(self, argument) -> bool:
        writes = argument.alias_info is not None and argument.alias_info.is_write
        return not (writes and (self.name in _OVERWRITE or argument.is_out))


class Operations(TorchDispatchMode):
    """Records operations through `record_op` of the probe that `probe()` returns. Its `scope_of_op` is asked for each:
    the scope that it belongs to, or None where it is not wanted; its `lines` find the program's lines.
    `has_compiled_ops` is told where code runs that torch.compile has made: its operations have no lines and are not
    recorded; `trouble`, what goes wrong in here."""

    def __init__(self, probe: Callable, values: str = "full"):
        super().__init__()
        self._probe = probe
        self._values = values
        self._functions: dict[object, Function] = {}
        self._made_at: dict[int, tuple[Line | None, Scope]] = {}  # by the number of a node of the graph
        self._known: set[str] = set()  # contents that an event has
        # Storages that were never written to. A weak reference keeps its address from being given to another.
        self._unset: dict[int, StorageWeakRef] = {}
        self._index = 0

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Without this nothing would be compiled while we look, and the program would be another."""
        return True

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        seen = None
        try:
            seen = self._before(func, args, kwargs)
        except Exception as error:
            self._probe().trouble(error)
        result = func(*args, **kwargs)
        if seen is not None:
            try:
                self._after(args, kwargs, result, *seen)
            except Exception as error:
                self._probe().trouble(error)
        return result

    def _before(self, func, args, kwargs):
        function = self._functions.get(func)
        if function is None:
            function = self._functions[func] = Function(func)
        if function.is_collective:
            return None
        scope = self._probe().scope_of_op()
        if _graph_task_id() != -1:
            scope, line = self._in_backward(scope)
            if scope is None:
                return None
        elif scope is None:
            return None
        else:
            line = self._probe().lines.innermost(sys._getframe(2))
            if len(self._made_at) < _MAX_NODES:
                self._made_at.setdefault(_next_sequence_nr() - 1, (line, scope))
        if line is COMPILED:
            self._probe().has_compiled_ops(scope)
            return None
        inputs = self._inputs(function, args, kwargs, scope) if function.has_news else []
        return (function, scope, line, inputs)

    def _in_backward(self, scope: Scope | None) -> tuple[Scope | None, Line | None]:
        node = _current_node()
        made_at = self._made_at.get(node._sequence_nr()) if node is not None else None
        if made_at is None and scope is None:
            return None, None
        line = self._probe().lines.innermost(sys._getframe(3), is_backward=True)
        if made_at is not None:
            return made_at[1].in_backward, line or made_at[0]
        # Gradients are added up: by whoever called backward.
        return scope.in_backward, line or self._probe().lines.innermost(sys._getframe(3))

    def _inputs(self, function: Function, args, kwargs, scope: Scope) -> list[str]:
        """Fingerprints of the tensors that go in, as JSON; those that are news are recorded."""
        found: list[str] = []
        if function.lifts:
            return found
        count = len(args)
        for position, (name, is_read) in enumerate(function.arguments):
            value = args[position] if position < count else kwargs.get(name)
            if value is None or not is_read:
                continue
            for tensor in tensors_in(value):
                if self._unset and storage_of(tensor) in self._unset:
                    continue
                print_ = fingerprint_text(tensor)
                found.append(f'"{print_}"')
                if print_ and print_ not in self._known:
                    self._write("input", tensor, scope, None, "")
                    self._known.add(print_)
        return found

    def _after(self, args, kwargs, result, function: Function, scope: Scope, line: Line | None, inputs: list[str]):
        if not function.has_news:
            if function.makes_unset:
                self._add_unset(result)
            return
        outputs = list(tensors_in(result))
        if not outputs and isinstance(result, (bool, int, float)):
            outputs = [result]
        for position in function.results_at:
            outputs.extend(tensors_in(args[position] if position < len(args) else None))
        if function.is_mutable and self._unset:
            self._set(outputs, bool(inputs))
        meta = f'{function.meta},"at":{self._index},"from":[{",".join(inputs)}]'
        if words := arguments_text(function, args, kwargs):
            meta += f',"args":{json.dumps(words)}'
        if line is not None:
            meta += f",{line.meta}"
        self._index += 1
        several = len(outputs) > 1
        for position, value in enumerate(outputs):
            if isinstance(value, torch.Tensor):
                if self._unset and storage_of(value) in self._unset:
                    continue
                self._known.add(fingerprint_text(value))
            self._write(function.shown_name, value, scope, line, f'{meta},"out":{position}' if several else meta)

    def _write(self, name: str, value, scope: Scope, line: Line | None, meta: str) -> None:
        if scope.call >= 0:
            meta = f'{meta}{"," if meta else ""}"module_call":{scope.call}'
        self._probe().record_op(
            f"{scope.path}:{name}",
            value,
            io="op",
            phase=scope.phase,
            site=line.site if line is not None else "",
            root=scope.root,
            scope=scope.path,
            cls=scope.cls,
            meta=f"{{{meta}}}",
            values=self._values,
        )
        new_codes = self._probe().lines.new_codes
        while new_codes:
            code = new_codes.pop()
            if (sources := self._probe().kept_sources()) is not None:
                sources.keep_code(code)

    def _add_unset(self, result) -> None:
        self._unset = {key: ref for key, ref in self._unset.items() if not ref.expired()}
        for tensor in tensors_in(result):
            if key := storage_of(tensor):
                self._unset[key] = StorageWeakRef(tensor.untyped_storage())

    def _set(self, outputs: list, has_inputs: bool) -> None:
        """These were written to; all of them where the operation covers the whole storage, or has read something."""
        for tensor in outputs:
            if isinstance(tensor, torch.Tensor) and storage_of(tensor) in self._unset:
                whole = tensor.numel() * tensor.element_size() >= tensor.untyped_storage().nbytes()
                if whole or has_inputs:
                    self._unset.pop(storage_of(tensor), None)


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
        found = _core.fingerprint(tensor)
    except Exception:
        return ""
    return "" if found is None else found[::-1].hex()


def arguments_text(function: Function, args, kwargs) -> str:
    """What is no tensor, as it would be written: `dim=-1, half_to_float=False`."""
    words = []
    count = len(args)
    for position, (name, _) in enumerate(function.arguments):
        value = args[position] if position < count else kwargs.get(name)
        if value is None or name == "generator" or isinstance(value, torch.Tensor):
            continue
        if not (isinstance(value, (tuple, list)) and next(tensors_in(value), None) is not None):
            words.append(f"{name}={value}")
    text = ", ".join(words)
    return text if len(text) <= _MAX_ARGUMENTS else text[: _MAX_ARGUMENTS - 3] + "..."
