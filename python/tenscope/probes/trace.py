"""tenscope.trace(model): module inputs, outputs, gradients and call order of one model, with no change to it."""

from __future__ import annotations

import contextlib
import functools
import json

import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from tenscope import _core
from tenscope.probes.hooks import Probe, What, is_compiled, nodes_of
from tenscope.probes.locals import Known, LocalsWatch, deeper_than_compared
from tenscope.probes.modules import (
    ModuleInfo,
    Names,
    PathFilter,
    Registry,
    check_module,
    unwrap,
    unwrapped_paths,
)
from tenscope.probes.ops import Operations, Scope, Wanted
from tenscope.probes.program_lines import ProgramLines
from tenscope.probes.rehearsal import is_made_by_compiler
from tenscope.probes.spy import listen, unlisten
from tenscope.probes.state import State
from tenscope.recording import moments
from tenscope.recording.run import current, init
from tenscope.recording.selectors import Unmatched, globs, tell


class trace:
    """Records a model's calls while active; a context manager and a decorator. docs/trace.md says what is written.

    include, exclude   globs over module paths
    classes            only modules of these
    inputs, outputs    tensors that go in and out
    grads              gradients of outputs and inputs
    param_grads        of parameters, after each backward
    params             parameters and buffers at the beginning, parameters after each optimizer step
    buffers            a module's own that its call changed; by default as params
    values             "full", or "stats" for statistics only
    every              only each N-th call of the model
    mode               "train" or "eval": only calls in that mode
    locals             paths of local variables, as "blocks.*.forward.x"
    ops                globs over module paths: every torch operation inside their calls, with its source line
    run                a Run; the current one by default
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        include=None,
        exclude=None,
        classes=None,
        inputs: bool = True,
        outputs: bool = True,
        grads: bool = False,
        param_grads: bool = False,
        params: bool = False,
        buffers: bool | None = None,
        values: str = "full",
        every: int = 1,
        mode: str | None = None,
        locals=None,
        ops=None,
        run=None,
    ):
        if mode not in (None, "train", "eval"):
            raise ValueError(f'mode must be "train" or "eval", not {mode!r}')
        if values not in ("full", "stats"):
            raise ValueError(f'values must be "full" or "stats", not {values!r}')
        if every < 1:
            raise ValueError(f"every must be at least 1, not {every}")
        check_module(model, "trace")
        self.model = unwrap(model)
        self._wanted = PathFilter(include, exclude, classes)
        self._what = What(inputs, outputs, grads, params if buffers is None else buffers, values)
        self._param_grads = param_grads
        self._params = params
        self._every = every
        self._mode = mode
        self._locals = locals
        self._ops = Wanted(check_ops(ops))
        self._run = run
        self._depth = 0
        self._probe: TraceProbe | None = None
        self._closing = contextlib.ExitStack()
        self._has_failed = False
        self._unmatched: set[str] = set()  # told before
        self.not_called: list[str] = []

    def __enter__(self) -> trace:
        self._depth += 1
        if self._depth == 1:
            self._start()
        return self

    def __exit__(self, error_type, *_) -> None:
        self._depth -= 1
        if self._depth == 0:
            self._has_failed = error_type is not None
            self._closing.close()

    def __call__(self, function):
        @functools.wraps(function)
        def traced(*args, **kwargs):
            with self:
                return function(*args, **kwargs)

        return traced

    def _start(self) -> None:
        run = self._run or current() or init()
        names = _names_of(run)
        registry = Registry(names, self._wanted, unwrapped_paths)
        self._probe = probe = TraceProbe(self, run, registry)
        registry.add_root(self.model)
        calls = {id(info): info.counter[0] for info in registry.roots[0].infos}
        with contextlib.ExitStack() as closing:
            probe.install()
            closing.callback(probe.remove)
            closing.callback(register_optimizer_step_pre_hook(probe.before_optimizer).remove)
            closing.callback(register_optimizer_step_post_hook(probe.after_optimizer).remove)
            watch = None
            if self._locals is not None:
                watch = LocalsWatch(self.model, globs(self._locals), probe.record_local, probe.is_inside)
                closing.enter_context(watch)
            if self._ops:
                probe.lines = ProgramLines()
                closing.enter_context(Operations(lambda: probe, self._what.values))
            listen(probe)
            closing.callback(unlisten, probe)
            closing.callback(self._tell_not_called, registry.roots[0].infos, calls)
            closing.callback(self._tell_unmatched, watch)
            self._closing = closing.pop_all()

    def _tell_unmatched(self, watch: LocalsWatch | None) -> None:
        probe = self._probe
        paths = [info.path for info in probe.registry.roots[0].infos]
        found = self._wanted.unmatched("trace({}=)") + self._ops.unmatched("trace(ops=)", paths)
        if watch is not None:
            was_called = probe.calls_by_mode.get(self._mode or "any", 0) > 0 and not self._has_failed
            found += watch.unmatched("trace(locals=)", was_called)
        other = {"train": "eval", "eval": "train"}.get(self._mode)
        if other and probe.calls_by_mode.get(other) and not probe.calls_by_mode.get(self._mode):
            found.append(Unmatched(self._mode, "trace(mode=)", [other]))
        tell([entry for entry in found if str(entry) not in self._unmatched], probe.record)
        self._unmatched.update(map(str, found))

    def _tell_not_called(self, infos: list[ModuleInfo], calls: dict[int, int]) -> None:
        probe = self._probe
        self.not_called = [
            info.path for info in infos if info.wanted and info.callable and info.counter[0] == calls.get(id(info), 0)
        ]
        if self.not_called:
            reason = "never called while traced; calls inside what torch.compile or torch.jit compiled are not seen"
            probe.note("not_seen", {"reason": reason, "modules": self.not_called}, infos[0])


class TraceProbe(Probe):
    def __init__(self, owner: trace, run, registry: Registry):
        super().__init__(run.record, registry, owner._what, _core.fingerprint)
        self.run = run
        self._owner = owner
        self._state = State(self)
        self._outermost = 0
        self.calls_by_mode: dict[str, int] = {}
        self._backwards = 0
        self._task = -1
        self._locals: dict[str, Known] = {}
        self._cut: set[str] = set()
        self._owed_step = -1  # an optimizer ended this step; the next call begins a new one, unless the program does

    def discover(self, module, stack) -> ModuleInfo | None:
        if "_orig_mod" in module._modules:  # a call of what torch.compile returned is a call of the module inside
            return self.registry.get(id(unwrap(module)))
        if not stack or unwrap(module) is not module:  # somebody else's, or a wrapper
            return None
        if is_made_by_compiler(module) or (is_compiled(stack[-1].module) and isinstance(module, torch.fx.GraphModule)):
            return None
        return self.registry.add_inside(stack[-1].info, module)

    def begin_outermost(self, info: ModuleInfo, module) -> None:
        owner = self._owner
        moments.between_calls()
        if self._owed_step == self.run.current_step:
            self.run.step()
        self._owed_step = -1
        for mode in ("any", "train" if module.training else "eval"):
            self.calls_by_mode[mode] = self.calls_by_mode.get(mode, 0) + 1
        self.on = self._outermost % owner._every == 0
        if owner._mode is not None:
            self.on = self.on and module.training == (owner._mode == "train")
            if module.training != (owner._mode == "train"):
                return
        self._outermost += 1
        if owner._params and self.on:
            self._state.record_changed(info.root)

    def end_outermost(self, info: ModuleInfo, output) -> None:
        if self.on and (self._owner._param_grads or self.what.grads) and torch.is_grad_enabled():
            for node in nodes_of(output):
                node.register_prehook(self._backward_runs)

    def _backward_runs(self, _) -> None:
        """First gradient of a backward pass: asks to be called when it is over, after DDP's own callback."""
        task = torch._C._current_graph_task_id()
        if task == self._task:
            return
        self._task = task
        queue = torch.autograd.Variable._execution_engine.queue_callback
        queue(lambda: queue(self._backward_over))

    def _backward_over(self) -> None:
        try:
            self.finish_backward()
            if self._owner._param_grads:
                for root in self.registry.roots:
                    self._state.record_grads(root, self._backwards, self.run.current_step)
            self._backwards += 1
        except Exception as error:
            self.trouble(error)

    def before_optimizer(self, optimizer, _args, _kwargs) -> None:
        try:
            if self.on and self._owner._param_grads:
                for root in self._roots_of(optimizer):
                    self._state.record_changed_grads(root, max(self._backwards - 1, 0), self.run.current_step)
        except Exception as error:
            self.trouble(error)

    def after_optimizer(self, optimizer, _args, _kwargs) -> None:
        try:
            for root in self._roots_of(optimizer):
                self._owed_step = self.run.current_step
                if self.on and self._owner._params:
                    self._state.record_parameters(root.parameters(), self.run.current_step)
            moments.trains()
        except Exception as error:
            self.trouble(error)

    def _roots_of(self, optimizer) -> list:
        owned = {id(p) for group in optimizer.param_groups for p in group["params"]}
        return [root for root in self.registry.roots if any(id(p) in owned for _, _, p in root.parameters())]

    def scope_of_op(self) -> Scope | None:
        stack = self.stack()
        return self._owner._ops.scope_in(stack) if self.on and stack else None

    def record_op(self, *args, **kwargs) -> None:
        self.record(*args, step=self.run.current_step, **kwargs)

    def is_inside(self) -> bool:
        return self.on and bool(self.stack())

    def record_local(self, path: str, scope: str, value: object) -> None:
        try:
            known = self._locals.setdefault(path, Known())
            is_new, was_cut = known.is_new(value), path in self._cut
            if known.is_cut and not was_cut:
                self._cut.add(path)
                self.note("left_out", deeper_than_compared(path))
            if not is_new:
                return
            root = self.registry.roots[0]
            meta = json.dumps({"iteration": self._outermost - 1})
            self.record(
                path,
                value,
                kind="change",
                io="local",
                phase="forward",
                root=root.label,
                scope=scope,
                site="",
                meta=meta,
                values=self.what.values,
            )
        except Exception as error:
            self.trouble(error)


def check_ops(ops) -> tuple[str, ...]:
    """The code around the model is the program's, which a trace does not see as a whole."""
    for glob in globs(ops):
        if glob.startswith(":"):
            raise ValueError(
                f"trace(ops=) takes paths of modules, not {glob!r}: tenscope run --ops {glob} records that"
            )
    return globs(ops)


_names: dict[str, Names] = {}


def _names_of(run) -> Names:
    """Labels and counters go on from trace to trace within a run."""
    return _names.setdefault(str(run.path), Names())
