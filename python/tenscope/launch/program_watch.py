"""Where `tenscope run` looks into a program that uses torch, besides its modules' calls (autoprobe.py).

Overview. torch.autograd.backward (the loss before, the gradients after), GradScaler.scale (whose result backward is
called on), Optimizer's constructor (the program has an optimizer, which owns these parameters) and the global hooks
before and after optimizer.step(); on request operations, and inputs that are moved. All of it asks the process' one
probe, which is another in a fork's child.
"""

from __future__ import annotations

import atexit
import functools
import os
import sys

import torch
from torch.optim import optimizer as _optim

from tenscope.launch import session
from tenscope.launch.autoprobe import AutoProbe
from tenscope.launch.layout import watch_meshes
from tenscope.launch.when_imported import WhenImported
from tenscope.probes.ops import Operations

_graph_task_id = torch._C._current_graph_task_id
_probe: AutoProbe | None = None


def start() -> None:
    """Installs the watching in this process; a fork's child begins a recording of its own."""
    global _probe
    _probe = AutoProbe(session.options())
    _probe.install()
    _watch_backward()
    _watch_optimizers()
    _watch_scaler(torch.amp.GradScaler)
    sharded = "torch.distributed.fsdp.sharded_grad_scaler"
    WhenImported(sharded, lambda: _watch_scaler(sys.modules[sharded].ShardedGradScaler)).install()
    watch_meshes(lambda mesh: _probe.has_mesh(mesh))
    if _probe.options.ops:
        _watch_operations()
    if _probe.options.move is not None:
        _move_inputs()
    if _probe.options.other_kernels:
        torch.backends.cuda.enable_flash_sdp(False)  # which the processor's kernel listens to as well
    os.register_at_fork(after_in_child=_forked)
    atexit.register(_finish)


def _forked() -> None:
    global _probe
    before = _probe
    _probe = AutoProbe(before.options)
    before.remove()
    _probe.install()


def _finish() -> None:
    _probe.finish_at_end()


def _watch_backward() -> None:
    original = torch.autograd.backward

    @functools.wraps(original)
    def backward(tensors, *args, **kwargs):
        if _graph_task_id() != -1:  # inside a backward pass: a reentrant checkpoint
            return original(tensors, *args, **kwargs)
        _probe.before_backward(tensors)
        result = original(tensors, *args, **kwargs)
        _probe.after_backward()
        return result

    torch.autograd.backward = backward
    original_grad = torch.autograd.grad

    @functools.wraps(original_grad)
    def grad(outputs, inputs, *args, **kwargs):
        if _graph_task_id() != -1 or not _probe.owns_any(inputs):
            return original_grad(outputs, inputs, *args, **kwargs)
        _probe.before_backward(outputs)
        result = original_grad(outputs, inputs, *args, **kwargs)
        _probe.after_grad([inputs] if isinstance(inputs, torch.Tensor) else list(inputs), result)
        return result

    torch.autograd.grad = grad


def _watch_optimizers() -> None:
    original = _optim.Optimizer.__init__

    @functools.wraps(original)
    def init(self, *args, **kwargs):
        original(self, *args, **kwargs)
        _probe.has_optimizer(self)

    _optim.Optimizer.__init__ = init
    _optim.register_optimizer_step_pre_hook(lambda optimizer, *_: _begin_step(optimizer))
    _optim.register_optimizer_step_post_hook(lambda optimizer, *_: _end_step(optimizer))


def _begin_step(optimizer) -> None:
    if not _is_part_of_step(optimizer):
        _probe.before_step(optimizer)


def _end_step(optimizer) -> None:
    if not _is_part_of_step(optimizer):
        _probe.after_step(optimizer)


def _is_part_of_step(optimizer) -> bool:
    """An optimizer may leave its step to others that have some of its parameters: ZeroRedundancyOptimizer does."""
    own = {id(p) for group in optimizer.param_groups for p in group["params"]}
    step = sys._getframe(3)  # torch's wrapper of step(), whose hook calls a lambda, and that the caller of this
    outer = step.f_back
    while outer is not None:
        if outer.f_code is step.f_code:
            other = outer.f_locals.get("self")
            groups = () if other is None or other is optimizer else other.param_groups
            if any(id(p) in own for group in groups for p in group["params"]):
                return True
        outer = outer.f_back
    return False


def _watch_scaler(scaler_type) -> None:
    original = scaler_type.scale

    @functools.wraps(original)
    def scale(self, outputs):
        result = original(self, outputs)
        if result is not outputs:
            _probe.has_scaled(self, outputs, result)
        return result

    scaler_type.scale = scale


def _watch_operations() -> None:
    """In this thread, as long as it lives. A fork's child records operations with a probe of its own."""
    Operations(lambda: _probe, _probe.options.ops_values).__enter__()


def _move_inputs() -> None:
    """What outermost calls are given, by hooks with which arguments given by name can be changed, too."""
    original = torch.nn.Module.__call__

    @functools.wraps(original)
    def call(self, *args, **kwargs):
        if not torch.compiler.is_compiling() and _probe.is_outermost():
            args, kwargs = _probe.moves.move_inputs(args, kwargs)
        return original(self, *args, **kwargs)

    torch.nn.Module.__call__ = call
