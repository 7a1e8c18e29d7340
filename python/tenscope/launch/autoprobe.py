"""What `tenscope run` watches in a program that uses torch: outermost modules, backward, optimizers, steps.

Overview. Every module that is called while no other runs is a root; the probe's hooks record what happens below it.
What else is watched, program_watch.py tells. A step is a completed step of an optimizer, or in a program without
backward a completed outermost call; a program that opens a run by itself has its own steps. An optimizer that is no
torch.optim.Optimizer is seen by its effect, at the next moment something else begins. docs/trace.md is the contract.
"""

from __future__ import annotations

import functools
import json
import os
import platform
import sys
import weakref
from math import isfinite

import torch

from tenscope import _core
from tenscope.launch import session
from tenscope.launch.layout import Layout
from tenscope.launch.moved import Moves
from tenscope.launch.options import Options
from tenscope.launch.oracle import Oracle
from tenscope.metadata.packages import imported_versions
from tenscope.probes.build import autocast_in_force
from tenscope.probes.hooks import Probe, What
from tenscope.probes.modules import ModuleInfo, Names, PathFilter, Registry, Root
from tenscope.probes.ops import Scope, Wanted
from tenscope.probes.program_lines import ProgramLines
from tenscope.probes.rehearsal import is_made_by_compiler
from tenscope.probes.state import State
from tenscope.recording import moments
from tenscope.recording.run import Run
from tenscope.recording.say import say
from tenscope.recording.selectors import Unmatched, tell

_graph_task_id = torch._C._current_graph_task_id


def _contained(method):
    """What goes wrong in here never reaches the program."""

    @functools.wraps(method)
    def call(self, *args):
        try:
            return method(self, *args)
        except Exception as error:
            self.trouble(error)

    return call


class _ByHand:
    """A root's parameters after backward, some of them owned by no torch optimizer.

    Keeps them alive: the last step of a program is seen when it ends, and the model may be gone by then.
    """

    def __init__(self, parameters: list, by_hand, fingerprint):
        self.parameters = parameters
        self.prints = [(p, fingerprint(p)) for _, _, p in parameters if id(p) in by_hand]

    def has_changed(self, fingerprint) -> bool:
        return any(fingerprint(parameter) != before for parameter, before in self.prints)


class AutoProbe(Probe):
    def __init__(self, options: Options):
        what = What(grads=True, buffers=True, values="stats" if options.stats else "full")
        self._wanted = PathFilter(options.include, options.exclude)
        registry = Registry(Names(), self._wanted)
        super().__init__(None, registry, what, _core.fingerprint)
        self.options = options
        self.run: Run | None = None
        self.on = options.wants_step(0)
        self._state = State(self)
        self._step = 0
        self._owed_step = -1  # an optimizer ended this step; the next is the program's to begin, if it steps by itself
        self._trains = False  # the program has an optimizer, or called backward
        self._outermost = 0  # completed outermost calls of roots with parameters or buffers
        self._backwards = 0
        self._last_root = ""
        self._optimizers: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()  # steps completed
        self._stepped: dict[int, tuple[weakref.ref, int]] = {}  # steps completed, by parameter
        self._by_hand: list[_ByHand] = []
        self._was_on = False  # a step that is wanted came
        self._finished = False
        self._passed_over: set[str] = set()
        self._scaled: dict[int, tuple] = {}  # what GradScaler made: a reference to it, the loss, and the scale
        self._layout = Layout()
        self._versions: dict[str, str] = {}
        self._noted_optimizers: weakref.WeakSet = weakref.WeakSet()
        self._around = ":data"  # what the code outside of modules is doing, for operations
        self._ops = Wanted(options.ops, options.ops_call)
        self.lines = ProgramLines() if options.ops else None
        self.moves = None if options.move is None else Moves(options.move)
        if options.oracle is not None:
            self.witness = Oracle(self, options.oracle, options.oracle_call)

    # Outermost calls.

    def discover(self, module, stack) -> ModuleInfo | None:
        if is_made_by_compiler(module):
            return None
        if stack:
            return self.registry.add_inside(stack[-1].info, module)
        if torch.utils.data.get_worker_info() is not None:
            return None
        return self.registry.add_root(module)

    def pass_over(self, reason: str, module, info: ModuleInfo | None) -> None:
        if self.on and torch.utils.data.get_worker_info() is None:
            self._open()
            if reason not in self._passed_over:
                self._passed_over.add(reason)
                self.note("shapes_only", {"reason": reason, "class": type(module).__name__})

    def begin_outermost(self, info: ModuleInfo, module) -> None:
        self._open()
        self._note_layout()
        self._follow_program(begins=True)
        self._look_for_hand_made_step()
        if not self._trains and _has_state(info.root) and not session.is_joined():
            self._set_step(self._outermost)
        self._last_root = info.root.label
        self._was_on = self._was_on or self.on
        if self.moves is not None:
            self.moves.move_parameters(info.root)
        if self.on:
            self._state.record_changed(info.root)

    def is_outermost(self) -> bool:
        """A module that is called now is called by the program itself, in its forward."""
        is_of_program = not self.is_aside and _graph_task_id() == -1
        return is_of_program and not self.stack() and torch.utils.data.get_worker_info() is None

    def end_outermost(self, info: ModuleInfo, output) -> None:
        self._around = ":loss"
        if _has_state(info.root):
            self._outermost += 1

    # Operations.

    def scope_of_op(self) -> Scope | None:
        """What the operation that runs now belongs to; None: it is not wanted."""
        if self.is_aside:
            return None
        options = self.options
        stack = self.stack()
        is_wanted_step = options.wants_ops(self._step)
        if not stack and not self._trains and not session.is_joined():
            # Between two outermost calls it is not known yet whether this is of the first, or the second's data.
            is_wanted_step = is_wanted_step or options.wants_ops(self._outermost)
        if not is_wanted_step or self._finished:
            return None
        if stack:
            return self._ops.scope_in(stack)
        phase = "optimizer" if self._around == ":optimizer" else ""
        return Scope(phase=phase) if self._ops.wants_around(self._around) else None

    def record_op(self, *args, **kwargs) -> None:
        self._open()
        self.record(*args, step=self._step, **kwargs)

    def has_compiled_ops(self, scope: Scope) -> None:
        self._open()
        super().has_compiled_ops(scope)

    def _end_if_over(self, next_step: int) -> None:
        """The step that was asked for is over: what was recorded is closed, and the program ends as it would."""
        last = self.options.end_after
        if last is not None and next_step > last and not self._finished:
            self.finish()
            session.finish(None)
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(0)

    # Backward and optimizers.

    @_contained
    def before_backward(self, tensors) -> None:
        self._train()
        self._open()
        self._follow_program(begins=True)
        self._look_for_hand_made_step()
        if not self.on:
            return
        several = isinstance(tensors, (tuple, list)) and len(tensors) > 1
        losses = list(tensors) if isinstance(tensors, (tuple, list)) else [tensors]
        for i, loss in enumerate(losses):
            if isinstance(loss, torch.Tensor):
                scaled, unscaled, scale = self._scaled.get(id(loss), (None, None, None))
                is_scaled = scaled is not None and scaled() is loss
                self.record(
                    f"loss.{i}" if several else "loss",
                    unscaled if is_scaled else loss.detach(),
                    meta=json.dumps({"scale": scale}) if is_scaled else None,
                    io="loss",
                    phase="backward",
                    site="",
                    root=self._last_root,
                    call=self._backwards,
                    values=self.what.values,
                )
        moments.trains()

    @_contained
    def has_scaled(self, scaler, losses, results) -> None:
        """What GradScaler.scale has made of which losses: backward() is called on it, and the loss is what counts."""
        self._scaled = {key: entry for key, entry in self._scaled.items() if entry[0]() is not None}
        losses, results = ([x] if isinstance(x, torch.Tensor) else x for x in (losses, results))
        if not isinstance(losses, (tuple, list)) or not isinstance(results, (tuple, list)):
            return
        for loss, result in zip(losses, results, strict=True):
            if isinstance(loss, torch.Tensor) and result is not loss:
                self._scaled[id(result)] = (weakref.ref(result), loss.detach(), scaler.get_scale())

    def owns_any(self, tensors) -> bool:
        """Whether a parameter of a known root is among them: then torch.autograd.grad serves as backward."""
        tensors = [tensors] if isinstance(tensors, torch.Tensor) else tensors
        ids = {id(tensor) for tensor in tensors if isinstance(tensor, torch.nn.Parameter)}
        return bool(ids) and any(id(p) in ids for root in self.registry.roots for _, _, p in root.parameters())

    @_contained
    def after_grad(self, parameters: list, grads) -> None:
        self.finish_backward()
        found = {id(parameter): grad for parameter, grad in zip(parameters, grads, strict=True) if grad is not None}
        for root in self.registry.roots if self.on else ():
            self._state.record_grads(root, self._backwards, self._step, found)
        roots = [_ByHand(list(root.parameters()), found, self.fingerprint) for root in self.registry.roots]
        self._by_hand = [root for root in roots if root.prints]
        self._backwards += 1
        moments.trains()

    @_contained
    def after_backward(self) -> None:
        self.finish_backward()
        self._around = ":optimizer"
        owned = {id(p) for optimizer in self._optimizers for group in optimizer.param_groups for p in group["params"]}
        for root in self.registry.roots:
            if self.on:
                self._state.record_grads(root, self._backwards, self._step)
        roots = [list(root.parameters()) for root in self.registry.roots]
        by_hand = {id(p) for root in roots for _, _, p in root if p.grad is not None and id(p) not in owned}
        self._by_hand = [
            found for found in (_ByHand(root, by_hand, self.fingerprint) for root in roots) if found.prints
        ]
        self._backwards += 1
        moments.trains()

    @_contained
    def has_optimizer(self, optimizer) -> None:
        self._train()
        self._optimizers.setdefault(optimizer, 0)

    @_contained
    def before_step(self, optimizer) -> None:
        self._follow_program()
        if self.run is not None and optimizer not in self._noted_optimizers:
            self._noted_optimizers.add(optimizer)
            self._note_settings("optimizer", optimizer_settings(optimizer))
        if self.run is not None and self._ops and self.options.wants_ops(self._step):
            meta = json.dumps(optimizer_settings(optimizer) | {"steps": optimizer_steps(optimizer)})
            self.record("optimizer", kind="note", phase="optimizer", step=self._step, site="", meta=meta)
        if self.on and self.run is not None:
            for root in self._roots_of(optimizer):
                self._state.record_changed_grads(root, max(self._backwards - 1, 0), self._step)

    @_contained
    def after_step(self, optimizer) -> None:
        self._train()
        completed, most = self._count_step(optimizer), max(self._optimizers.values(), default=0)
        self._optimizers[optimizer] = completed + 1
        self._follow_program()
        if self.on and self.run is not None:
            for root in self._roots_of(optimizer):
                self._state.record_parameters(root.parameters(), self._step if session.is_joined() else completed)
        moments.trains()
        if not session.is_joined():
            self._set_step(max(self._optimizers.values()))
        elif completed + 1 > most:
            self._owed_step = self._step
        self._around = ":data"

    def _count_step(self, optimizer) -> int:
        """Completed steps of its parameters before this one: a new optimizer for them (a resumed one) counts on."""
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        known = [self._stepped.get(id(p), (None, 0)) for p in parameters]
        completed = 0
        for parameter, (ref, count) in zip(parameters, known, strict=True):
            if ref is not None and ref() is parameter:
                completed = max(completed, count)
        self._stepped.update((id(p), (weakref.ref(p), completed + 1)) for p in parameters)
        return completed

    def _roots_of(self, optimizer) -> list:
        owned = {id(p) for group in optimizer.param_groups for p in group["params"]}
        return [root for root in self.registry.roots if any(id(p) in owned for _, _, p in root.parameters())]

    def _look_for_hand_made_step(self) -> None:
        """Parameters whose content changed since backward, owned by no torch optimizer: somebody made a step."""
        changed = [root for root in self._by_hand if root.has_changed(self.fingerprint)]
        if not changed:
            return
        self._by_hand = []
        if self.on:
            for root in changed:
                self._state.record_parameters(root.parameters, self._step)
        if session.is_joined():
            self._owed_step = self._step
            self._follow_program(begins=True)
        else:
            self._set_step(self._step + 1)

    # Steps and the run.

    def _train(self) -> None:
        if not self._trains:
            self._trains = True
            self._state.compare_content = True
            if not session.is_joined():
                self._set_step(0)

    def _set_step(self, step: int) -> None:
        if step != self._step:
            self._step = step
            self.on = self.options.wants_step(step)
            if self.run is not None:
                self.run.step(step)
            self._end_if_over(step)

    def _follow_program(self, begins: bool = False) -> None:
        """A program that has opened a run by itself steps by itself. Where it does not, the steps of its optimizers
        count: the one that is over ends when something `begins`."""
        if not session.is_joined() or self.run is None:
            return
        if begins:
            if self._owed_step == self.run.current_step:
                self.run.step()
            self._owed_step = -1
        self._step = self.run.current_step
        self.on = self.options.wants_step(self._step)

    def _open(self) -> None:
        """Opens this process' part of the run; again where torch.distributed has given it another rank since."""
        run = session.open_run()
        if run is self.run:
            return
        is_first = self.run is None
        self.run = run
        self.record = run.record
        if self._step and not session.is_joined():
            run.step(self._step)
        for name, settings in settings_in_force().items():
            self._note_settings(name, settings)
        self._keep_program()
        self._layout.forget()
        self._note_layout()
        self._versions = imported_versions()
        self._note_settings("versions", {"python": platform.python_version(), **self._versions})
        util = sys.modules.get("multiprocessing.util")
        if util is not None and is_first:
            # A worker ends without atexit; the run is closed after that.
            util.Finalize(None, self.finish_at_end, exitpriority=10)

    def _keep_program(self) -> None:
        if (sources := self.kept_sources()) is not None:
            script = getattr(sys.modules.get("__main__"), "__file__", None)
            sources.keep_program([os.getcwd(), *([os.path.dirname(os.path.abspath(script))] if script else [])])

    @_contained
    def has_mesh(self, mesh) -> None:
        self._layout.add(mesh)

    def _note_layout(self) -> None:
        """At the first call, and again where the program has made a mesh since, or torch.distributed has begun."""
        layout = self._layout.news()
        if layout is not None:
            self._note_settings("layout", layout)

    def _note_settings(self, name: str, settings: dict) -> None:
        self.record(name, kind="note", phase="init", site="", meta=json.dumps(settings))

    def finish_at_end(self) -> None:
        try:
            self.finish()
        except Exception as error:
            self.trouble(error)

    def finish(self) -> None:
        if self._finished:
            return
        self._finished = True
        if self.run is None:
            return
        self._look_for_hand_made_step()
        self.finish_backward()
        self._keep_program()
        self._note_layout()
        for root in self.registry.roots:
            silent = [info.path for info in root.infos if info.wanted and info.callable and not info.counter[0]]
            if silent:
                self.note("not_seen", {"reason": "never called", "modules": silent}, root.infos[0])
        imported_since = {name: v for name, v in imported_versions().items() if name not in self._versions}
        if imported_since:
            self._note_settings("versions", imported_since)
        self._tell_unmatched()
        self.remove()

    def _tell_unmatched(self) -> None:
        paths = [info.path for root in self.registry.roots for info in root.infos]
        found = self._wanted.unmatched("tenscope run --{}") + self._ops.unmatched("tenscope run --ops", paths)
        if not self._was_on:
            first, end = self.options.first_step, self.options.end_step
            asked = f"{first}:{'' if end is None else end}"
            found.append(Unmatched(asked, "tenscope run --steps", [f"0:{self._step + 1}"]))
        tell(found, self.record, say if self.run.rank == 0 else lambda _: None)


def _has_state(root: Root) -> bool:
    """A criterion or an activation called by itself has neither parameters nor buffers, and counts no steps."""
    return next(root.parameters(), None) is not None or next(root.buffers(), None) is not None


def settings_in_force() -> dict[str, dict]:
    """Seeds and settings on which numbers depend."""
    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    return {
        "seeds": {"torch": torch.initial_seed(), "python_hash_seed": os.environ.get("PYTHONHASHSEED", "")},
        "determinism": {
            "deterministic_algorithms": torch.are_deterministic_algorithms_enabled(),
            "warn_only": torch.is_deterministic_algorithms_warn_only_enabled(),
            "fill_uninitialized_memory": torch.utils.deterministic.fill_uninitialized_memory,
            "cudnn_deterministic": cudnn.deterministic,
            "cudnn_benchmark": cudnn.benchmark,
            "cublas_workspace_config": os.environ.get("CUBLAS_WORKSPACE_CONFIG", ""),
        },
        "precision": {
            "default_dtype": str(torch.get_default_dtype()),
            "float32_matmul_precision": torch.get_float32_matmul_precision(),
            "cuda_matmul_tf32": _quietly(lambda: matmul.allow_tf32),
            "cudnn_tf32": _quietly(lambda: cudnn.allow_tf32),
            "autocast": autocast_in_force(),
        },
        "backends": {
            "mkldnn": torch.backends.mkldnn.enabled,
            "flash_sdp": torch.backends.cuda.flash_sdp_enabled(),
            "mem_efficient_sdp": torch.backends.cuda.mem_efficient_sdp_enabled(),
            "math_sdp": torch.backends.cuda.math_sdp_enabled(),
        },
        "threads": {"num_threads": torch.get_num_threads(), "num_interop_threads": torch.get_num_interop_threads()},
    }


def optimizer_settings(optimizer) -> dict:
    """Class, learning rate, decay and what else is a plain value; of further groups, what they have of their own."""
    settings = {"class": type(optimizer).__name__}
    for index, group in enumerate(optimizer.param_groups):
        prefix = f"group {index} " if index else ""
        for name, value in group.items():
            is_plain = isinstance(value, (bool, int, float, str, type(None), tuple, list)) and name != "params"
            if is_plain and (not index or value != optimizer.param_groups[0].get(name)):
                is_number = isinstance(value, (bool, int, type(None))) or (isinstance(value, float) and isfinite(value))
                settings[prefix + name] = value if is_number else str(value)
    return settings


def optimizer_steps(optimizer) -> float | None:
    """How many steps it has counted before this one, where it counts them: corrections of averages depend on it."""
    counts = [state["step"] for state in optimizer.state.values() if "step" in state]
    return max((float(count) for count in counts), default=None)


def _quietly(read):
    try:
        return read()
    except RuntimeError:  # set through the new interface and the old one
        return None
