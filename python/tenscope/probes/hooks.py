"""The module probe: global module hooks that turn calls into events. docs/trace.md says what is written.

Overview. One pre-hook and one forward hook, registered for all modules, push and pop a Frame per call on a stack of
the thread. Nothing is put on the model itself, so that copying, saving and sharing it stays what it was. Hooks only
look: they return None, and what goes wrong in them is warned of once and never reaches the program. Inside a region
that torch.compile traces they do nothing, and the region is said not to be seen. A forward that runs during backward
is an activation checkpoint's recomputation and is no call; nor is one that is made to learn shapes (rehearsal.py).
"""

from __future__ import annotations

import dataclasses
import json
import sys
import threading
import warnings
from collections.abc import Mapping
from time import perf_counter_ns
from typing import TYPE_CHECKING

import torch
from torch.nn.modules import module as _hooks

from tenscope import _core
from tenscope._core import CHANGED_INPUT_SUFFIX
from tenscope.errors import Divergence
from tenscope.probes import grads
from tenscope.probes.attributes import Attributes
from tenscope.probes.build import Builder, autocast_in_force, form_of
from tenscope.probes.describe import describe
from tenscope.probes.forward import forward_of
from tenscope.probes.modules import ModuleInfo, Registry, class_of, forward_arguments
from tenscope.probes.rehearsal import pipeline_stage, without_values
from tenscope.recording import moments

if TYPE_CHECKING:
    from tenscope.probes.ops import Scope
    from tenscope.probes.program_lines import ProgramLines

_MAX_MEMBERS = 1000  # of one nest of arguments or results
_MAX_DEPTH = 64
_MAX_NAMES = 20  # of what is left out, in a note
_LEAVES = (torch.Tensor, bool, int, float, str)
_graph_task_id = torch._C._current_graph_task_id


@dataclasses.dataclass
class What:
    """What of a module call is recorded."""

    inputs: bool = True
    outputs: bool = True
    grads: bool = False
    buffers: bool = False
    values: str = "full"


class Frame:
    """A module call under way."""

    __slots__ = (
        "call", "edges", "info", "is_first", "module", "on", "saw_child", "scope_of_ops", "spent_ns", "started_ns",
        "versions",
    )  # fmt: skip

    def __init__(self, info: ModuleInfo, module, call: int, on: bool):
        self.info = info
        self.module = module
        self.call = call
        self.on = on
        self.is_first = on and not info.is_described
        self.edges = None
        self.saw_child = False
        self.versions = None
        self.scope_of_ops = False  # of operations in it, once it was asked for (ops.Wanted)


class Probe:
    """Records the calls of the modules in a registry through `record`, which is Run.record or has its signature."""

    def __init__(self, record, registry: Registry, what: What, fingerprint):
        self.record = record
        self.run = None  # which keeps sources, where it is one that does
        self.registry = registry
        self.what = what
        self.fingerprint = fingerprint
        self.on = True
        self.is_aside = False  # calls that are made now are none of the program's
        self.lines: ProgramLines | None = None  # where operations are recorded: finds the lines that call modules
        self.witness = None  # is shown the calls that are recorded, as they begin and end
        self.builder = Builder(registry.get)
        self.pending: list[grads.Contribution] = []
        self._local = threading.local()
        self._handles: list = []
        self._said: set[tuple] = set()
        self._warned = False

    # What a user of the probe decides.

    def discover(self, module, stack: list[Frame]) -> ModuleInfo | None:
        """A module that is not in the registry is being called; None: not ours."""
        return None

    def begin_outermost(self, info: ModuleInfo, module) -> None:
        pass

    def end_outermost(self, info: ModuleInfo, output) -> None:
        pass

    def scope_of_op(self) -> Scope | None:
        """What the operation that runs now belongs to; None: it is not wanted."""
        return None

    def pass_over(self, reason: str, module, info: ModuleInfo | None) -> None:
        """An outermost call without values is not recorded; that is said."""
        if info is not None and info.wanted:
            self.note_once("shapes_only", {"reason": reason}, info)

    def kept_sources(self):
        """What keeps the run's sources; None where nothing does."""
        return getattr(self.run, "kept_sources", None)

    # Life.

    def install(self) -> None:
        warnings.filterwarnings("ignore", message=r"Using `torch\.compile\(module\)` when there are global hooks")
        self._handles = [
            _hooks.register_module_forward_pre_hook(self._pre_hook()),
            _hooks.register_module_forward_hook(self._post_hook(), with_kwargs=True, always_call=True),
        ]
        moments.add_probe(self._is_inside)

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []
        moments.remove_probe(self._is_inside)

    def _is_inside(self) -> bool:
        return bool(self.stack()) or _graph_task_id() != -1

    def stack(self) -> list[Frame]:
        try:
            return self._local.stack
        except AttributeError:
            self._local.stack = []
            self._local.spent_ns = 0
            return self._local.stack

    def trouble(self, error: Exception) -> None:
        if _core.is_strict() or isinstance(error, Divergence):  # which is raised for the program
            raise error
        if not self._warned:
            self._warned = True
            warnings.warn(f"tenscope: a module call was not recorded: {type(error).__name__}: {error}", stacklevel=4)

    def note(self, name: str, meta: dict, info: ModuleInfo | None = None) -> None:
        where = {} if info is None else {"scope": info.path, "root": info.root.label, "cls": info.cls}
        self.record(name, kind="note", site="", meta=json.dumps(meta), **where)

    def has_compiled_ops(self, scope) -> None:
        """An operation of code that torch.compile has made ran in this scope (ops.Scope)."""
        key = ("compiled ops", scope.root, scope.path)
        if key not in self._said:
            self._said.add(key)
            reason = "torch.compile: operations of compiled code were not seen; --eager runs it as plain Python"
            meta = json.dumps({"what": "operations", "reason": reason})
            self.record("not_seen", kind="note", site="", meta=meta, scope=scope.path, root=scope.root, cls=scope.cls)

    def note_once(self, name: str, meta: dict, info: ModuleInfo) -> None:
        key = (name, info.root.label, info.path, meta.get("what"))
        if key not in self._said:
            self._said.add(key)
            self.note(name, meta, info)

    # The hooks.

    def _pre_hook(self):
        def tenscope_enter(module, args):
            if self.is_aside or torch.compiler.is_compiling():
                return
            try:
                self._enter(module, args)
            except Exception as error:
                self.trouble(error)

        return tenscope_enter

    def _post_hook(self):
        def tenscope_exit(module, args, *rest):
            if self.is_aside or torch.compiler.is_compiling():
                return
            try:
                if len(rest) == 2:
                    self._exit(module, args, rest[0], rest[1], None)
                else:
                    self._exit(module, args, None, None, sys.exc_info()[1])
            except Exception as error:
                self.trouble(error)

        return tenscope_exit

    def _enter(self, module, args) -> None:
        began = perf_counter_ns()
        stack = self.stack()
        if stack and stack[0].module is module:
            self._drop_dead(stack)
        info = self.registry.get(id(module))
        if _graph_task_id() != -1:
            if info is not None and info.wanted:
                self.note_once("recomputed", {"reason": "forward during backward: activation checkpoint"}, info)
            return
        if not stack and (reason := without_values(module, args)):
            self.pass_over(reason, module, info)
            return
        if info is None:
            info = self.discover(module, stack)
            if info is None:
                return
        if stack:
            if stack[-1].info is info and stack[-1].module is not module:  # the module inside its torch.compile wrapper
                return
            stack[-1].saw_child = True
        else:
            self.begin_outermost(info, module)
            if info.path == "" and (stage := pipeline_stage(module)) is not None:
                self.note_once("pipeline_stage", stage, info)
        counter = info.counter
        call = counter[0]
        counter[0] = call + 1
        frame = Frame(info, module, call, self.on and info.wanted)
        stack.append(frame)
        if frame.on:
            self._record_enter(frame, module, args)
            moments.inside_call()
        now = perf_counter_ns()
        self._local.spent_ns += now - began
        frame.spent_ns = self._local.spent_ns
        frame.started_ns = now

    def _record_enter(self, frame: Frame, module, args) -> None:
        info = frame.info
        if info.forward is not forward_of(module):
            info.look_again(module)
        if not info.is_described and (sources := self.kept_sources()) is not None:
            sources.keep_class(class_of(module))
            for code in info.forward_facts.codes:
                sources.keep_code(code)
        kwargs = sys._getframe(3).f_locals.get("kwargs")
        self.record(
            info.path,
            kind="enter",
            phase="forward",
            site=info.site,
            root=info.root.label,
            scope=info.path,
            cls=info.cls,
            call=frame.call,
            meta=self._with_caller(enter_meta(info, module, form_of(args, kwargs), self.builder)),
        )
        if self.witness is not None:
            self.witness.enter(frame, module, args, kwargs or {})
        what = self.what
        tracks_grads = what.grads and torch.is_grad_enabled()
        if not (what.inputs or tracks_grads):
            return
        inputs = Members()
        flatten(args, "", [], inputs)
        if kwargs:
            flatten(kwargs, "", [], inputs)
        if what.inputs:
            self._record_members(frame, f"{info.prefix}input", "input", inputs)
            self._note_left_out(frame, "input", inputs)
            frame.versions = versions_of(inputs)
        if tracks_grads:
            tensors = [member for member in inputs if isinstance(member[2], torch.Tensor)]
            frame.edges = grads.InputEdges(tensors)

    def _with_caller(self, meta: str) -> str:
        """Where this call's operations are recorded: with the line that makes it."""
        if self.lines is None or self.scope_of_op() is None or (line := self.lines.calling()) is None:
            return meta
        return f'{meta[:-1]},"caller":{json.dumps({"site": line.site, **line.words})}}}'

    def _exit(self, module, args, kwargs, output, error: BaseException | None) -> None:
        began = perf_counter_ns()
        stack = self.stack()
        if not stack or _graph_task_id() != -1:
            return
        if stack[-1].module is not module and not any(frame.module is module for frame in stack):
            return
        frame = stack.pop()
        while frame.module is not module:
            frame = stack.pop()
        elapsed = began - frame.started_ns - (self._local.spent_ns - frame.spent_ns)
        if frame.on:
            if error is None:
                self._record_outputs(frame, module, args, kwargs, output)
            self._record_exit(frame, module, elapsed, error)
        if not stack:
            self.end_outermost(frame.info, output)
        if error is None:
            (moments.inside_call if stack else moments.call_ended)()
        self._local.spent_ns += perf_counter_ns() - began

    def _record_outputs(self, frame: Frame, module, args, kwargs, output) -> None:
        info, what = frame.info, self.what
        members = Members()
        flatten(output, "", [], members)
        if frame.versions:
            self._record_changed_inputs(frame, args, kwargs, members)
        if what.outputs:
            self._record_members(frame, f"{info.prefix}output", "output", members)
            self._note_left_out(frame, "output", members)
        if self.witness is not None:
            self.witness.exit(frame, output)
        if what.buffers and module._buffers:
            self._record_buffers(frame, module)
        if not (what.grads and torch.is_grad_enabled()):
            return
        tensors = [member for member in members if isinstance(member[2], torch.Tensor)]
        nodes = grads.watch_outputs(tensors, self._teller(frame, "grad_output"))
        if frame.edges is not None and frame.edges.names and nodes:
            tell = self._teller(frame, "grad_input")
            is_told = grads.watch_inputs(frame.edges, nodes, tell, self.pending)
            if not is_told:
                reason = "the call's graph has too many nodes to look for the gradients of its inputs"
                meta = {"what": "grad_input", "limit": grads.MAX_NODES, "count": len(frame.edges.names)}
                self.note_once("left_out", {**meta, "reason": reason}, info)

    def _record_exit(self, frame: Frame, module, elapsed_ns: int, error: BaseException | None) -> None:
        info = frame.info
        meta = f'{{"duration_ns":{elapsed_ns}}}'
        if error is not None or frame.is_first:
            told: dict = {"duration_ns": elapsed_ns}
            if error is not None:
                told["raised"] = f"{type(error).__name__}: {error}"
            if frame.is_first and (uncalled := self.builder.uncalled(module, info)):
                told["uncalled"] = uncalled
            meta = json.dumps(told)
        self.record(
            info.path,
            kind="exit",
            phase="forward",
            site="",
            root=info.root.label,
            scope=info.path,
            cls=info.cls,
            call=frame.call,
            meta=meta,
        )
        if not frame.saw_child and next(module.children(), None) is not None and is_compiled(module):
            self.note_once("not_seen", {"reason": "torch.compile: calls inside this module were not seen"}, info)

    def _record_members(self, frame: Frame, name: str, io: str, members: list) -> None:
        record, info, call, values = self.record, frame.info, frame.call, self.what.values
        root, path, cls = info.root.label, info.path, info.cls
        for suffix, index, value in members:
            record(
                f"{name}.{suffix}" if suffix else name,
                value,
                io=io,
                phase="forward",
                site="",
                root=root,
                scope=path,
                cls=cls,
                call=call,
                meta=index_meta(index),
                values=values,
            )

    def _note_left_out(self, frame: Frame, what: str, members: Members) -> None:
        """What of a nest was not recorded, once for each module."""
        if members.left_out:
            reason = "a nest of too many members, or nested too deep; the count is of those that were met"
            meta = {"what": what, "limit": _MAX_MEMBERS, "count": members.left_out}
            self.note_once("left_out", {**meta, "reason": reason}, frame.info)
        if members.others:
            names = [f"{what}.{suffix}" if suffix else what for suffix in members.others]
            meta = {"what": f"{what} objects", "count": len(names), "names": names[:_MAX_NAMES]}
            reason = f"not looked into: {', '.join(dict.fromkeys(members.others.values()))}"
            self.note_once("left_out", {**meta, "reason": reason}, frame.info)

    def _record_changed_inputs(self, frame: Frame, args, kwargs, outputs: list) -> None:
        """Arguments that the call changed in place, unless they are what it returned."""
        inputs = Members()
        flatten(args, "", [], inputs)
        if kwargs:
            flatten(kwargs, "", [], inputs)
        now = versions_of(inputs)
        before = frame.versions
        if now == before:
            return
        returned = {id(value) for _, _, value in outputs}
        changed = [
            (f"{suffix}{CHANGED_INPUT_SUFFIX}", index, value)
            for suffix, index, value in inputs
            if suffix in before
            and before[suffix] != now[suffix]
            and before[suffix][0] == id(value)
            and id(value) not in returned
        ]
        self._record_members(frame, f"{frame.info.prefix}input", "output", changed)

    def _record_buffers(self, frame: Frame, module) -> None:
        info = frame.info
        for name, buffer in module._buffers.items():
            if buffer is None:
                continue
            print_ = self.fingerprint(buffer)
            if info.buffer_prints.get(name) != print_:
                info.buffer_prints[name] = print_
                self.record(
                    f"{info.prefix}{name}",
                    buffer,
                    io="buffer",
                    phase="forward",
                    site="",
                    root=info.root.label,
                    scope=info.path,
                    cls=info.cls,
                    call=frame.call,
                    values=self.what.values,
                )

    def _teller(self, frame: Frame, io: str):
        info, call = frame.info, frame.call

        def tell(suffix: str, index, grad) -> None:
            try:
                self.record(
                    f"{info.prefix}{io}.{suffix or 0}",
                    grad,
                    io=io,
                    phase="backward",
                    site="",
                    root=info.root.label,
                    scope=info.path,
                    cls=info.cls,
                    call=call,
                    meta=index_meta(index),
                    values=self.what.values,
                )
            except Exception as error:
                self.trouble(error)

        return tell

    def finish_backward(self) -> None:
        """Tells the gradients of inputs to which only a part of their users gave."""
        pending = list(self.pending)
        self.pending.clear()
        for contribution in pending:
            contribution.finish()

    def _drop_dead(self, stack: list[Frame]) -> None:
        """The outermost module is entered again: by itself, or after a KeyboardInterrupt left the stack behind?"""
        frame = sys._getframe(1)
        code = _hooks.Module._call_impl.__code__
        alive = 0
        while frame is not None:
            alive += frame.f_code is code and frame.f_locals.get("self") is stack[0].module
            frame = frame.f_back
        if alive == 1:
            stack.clear()


def enter_meta(info: ModuleInfo, module, given: dict | int, builder: Builder) -> str:
    """The modes; how the arguments are nested, where that is news; the module's other names; in the first such event
    of a module, the arguments of its forward, its class and its attributes, in later ones those that have changed."""
    has_grad, autocast = torch.is_grad_enabled(), autocast_in_force()
    changes = info.attributes.changes(module) if info.attributes is not None else None
    if info.is_described and not info.aliases and given == info.given and not autocast and changes is None:
        training = "true" if module.training else "false"
        return f'{{"training":{training}}}' if has_grad else f'{{"training":{training},"grad":false}}'
    meta: dict = {"training": module.training}
    if not has_grad:
        meta["grad"] = False
    if autocast:
        meta["autocast"] = autocast
    if info.aliases:
        meta["aliases"] = info.aliases
    if given != info.given:
        meta["given"] = info.given = given
    if not info.is_described:
        info.is_described = True
        meta["arguments"] = forward_arguments(module)
        if info.forward_facts.wrappers:
            meta["wrappers"] = info.forward_facts.wrappers
        if info.forward_facts.without_source:
            meta["without_source"] = info.forward_facts.without_source
        if info.attributes is None:
            info.attributes = Attributes(module, info.root.told)
        meta.update(describe(class_of(module), info.attributes.values, info.attributes.left_out))
        meta["build"] = builder.describe(module, info)
    if changes is not None:
        changed, gone = changes
        meta["changed"] = changed
        if gone:
            meta["gone"] = gone
        meta.update(builder.changes(module, info, changed))
    return json.dumps(meta)


def is_compiled(module) -> bool:
    return getattr(module, "_compiled_call_impl", None) is not None or hasattr(module, "_orig_mod")


def versions_of(members: list) -> dict[str, tuple[int, int]]:
    """Which tensors they are, and how often each was changed in place; those of inference mode do not count it."""
    with torch._C.DisableTorchFunction():
        return {
            suffix: (id(value), value._version)
            for suffix, _, value in members
            if isinstance(value, torch.Tensor) and not value.is_inference()
        }


def nodes_of(output) -> list:
    """The nodes of the graph that made the tensors of a nest of results."""
    members = Members()
    flatten(output, "", [], members)
    return [value.grad_fn for _, _, value in members if isinstance(value, torch.Tensor) and value.grad_fn is not None]


def index_meta(index: list) -> str:
    if not index:
        return ""
    if len(index) == 1 and isinstance(index[0], int):
        return f'{{"index":{index[0]}}}'
    return json.dumps({"index": index[0] if len(index) == 1 else index})


class Members(list):
    """(suffix, index, leaf) of each tensor, number and text in a nest; and what of the nest is not among them."""

    def __init__(self):
        super().__init__()
        self.nests = 0
        self.left_out = 0  # beyond the limits, at least
        self.others: dict[str, str] = {}  # suffix and type of objects that are not looked into


def flatten(value, suffix: str, index: list, out: Members) -> None:
    """Appends (suffix, index, leaf) for each tensor, number and text in a nest of arguments or results."""
    if isinstance(value, _LEAVES) or type(value).__module__ == "numpy":
        out.append((suffix, index, value))
        return
    if value is None:
        return
    if isinstance(value, Mapping):
        items, size = value.items(), len(value)
    elif isinstance(value, (tuple, list)):
        items, size = enumerate(value), len(value)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        items, size = ((field.name, getattr(value, field.name, None)) for field in fields), len(fields)
    else:
        if len(out.others) < _MAX_MEMBERS:
            out.others[suffix] = type(value).__name__
        return
    out.nests += 1
    for position, (key, member) in enumerate(items):
        if len(out) >= _MAX_MEMBERS or out.nests > _MAX_MEMBERS or len(index) >= _MAX_DEPTH:
            out.left_out += size - position
            return
        if member is not None:
            below = f"{suffix}.{key}" if suffix else str(key)
            flatten(member, below, [*index, key if isinstance(key, int) else str(key)], out)
