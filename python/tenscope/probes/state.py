"""Parameters, buffers and gradients of a model as events: docs/trace.md says which, when."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from tenscope._core import GRADIENT_SUFFIX, sample
from tenscope.probes.flat_parameters import Pieces
from tenscope.probes.hooks import Probe
from tenscope.probes.modules import ModuleInfo, Root


def stamp(tensor: torch.Tensor) -> tuple:
    """Differs when a tensor was replaced or written to by torch's in-place operations, or when most of it was written
    to past torch's version counters (p.data.add_); cheap."""
    content = sample(tensor) if tensor.device.type == "cpu" else None
    try:
        return id(tensor), tensor._version, tensor.data_ptr(), content
    except RuntimeError:  # an inference tensor has no version, a functional one no address
        return id(tensor), content


class State:
    """Records the state of roots, and remembers what of it is known."""

    def __init__(self, probe: Probe):
        self._probe = probe
        self.compare_content = False  # also see every single write that goes around torch's version counters
        self._stamps: dict[tuple[str, str], tuple] = {}
        self._prints: dict[tuple[str, str], object] = {}
        self._grad_prints: dict[tuple[str, str], object] = {}
        self._pieces: dict[str, Pieces] = {}  # by root

    def record_changed(self, root: Root, buffers: bool = True) -> None:
        """Parameters and buffers that are new or were written to since they were last seen."""
        for info, name, tensor in root.parameters():
            if self._is_new(info, name, tensor):
                self._record(info, name, tensor, "param", "init")
        for info, name, tensor in root.buffers() if buffers else ():
            if self._is_new(info, name, tensor):
                print_ = self._probe.fingerprint(tensor)
                if info.buffer_prints.get(name) != print_:
                    info.buffer_prints[name] = print_
                    self._record(info, name, tensor, "buffer", "init")

    def record_parameters(self, parameters: Iterable[tuple[ModuleInfo, str, torch.Tensor]], step: int) -> None:
        """After an optimizer's step: all."""
        for info, name, tensor in parameters:
            self._remember((info.root.label, info.prefix + name), tensor)
            self._record(info, name, tensor, "param", "optimizer", step=step)

    def record_grads(
        self, root: Root, backward: int, step: int, returned: dict[int, torch.Tensor] | None = None
    ) -> None:
        """After backward(): all that there are; or those that torch.autograd.grad returned, by parameter."""
        for info, name, parameter in root.parameters():
            grad = parameter.grad if returned is None else returned.get(id(parameter))
            if grad is not None:
                self._grad_prints[root.label, info.prefix + name] = self._probe.fingerprint(grad)
                what = f"{name}{GRADIENT_SUFFIX}"
                self._record(info, what, grad, "grad", "backward", of=parameter, call=backward, step=step)

    def record_changed_grads(self, root: Root, backward: int, step: int) -> None:
        """When an optimizer's step begins: those that are others than after backward()."""
        for info, name, parameter in root.parameters():
            key = (root.label, info.prefix + name)
            if parameter.grad is None or key not in self._grad_prints:
                continue
            print_ = self._probe.fingerprint(parameter.grad)
            if print_ != self._grad_prints[key]:
                self._grad_prints[key] = print_
                what, where = f"{name}{GRADIENT_SUFFIX}", {"call": backward, "step": step}
                self._record(info, what, parameter.grad, "grad", "optimizer", of=parameter, **where)

    def _is_new(self, info: ModuleInfo, name: str, tensor: torch.Tensor) -> bool:
        key = (info.root.label, info.prefix + name)
        known, print_ = self._stamps.get(key), self._prints.get(key)
        self._remember(key, tensor)
        if known != self._stamps[key]:
            return True
        return print_ is not None and print_ != self._prints[key]

    def _remember(self, key: tuple[str, str], tensor: torch.Tensor) -> None:
        self._stamps[key] = stamp(tensor)
        if self.compare_content and tensor.device.type == "cpu":
            self._prints[key] = self._probe.fingerprint(tensor)

    def _record(self, info: ModuleInfo, name: str, tensor: torch.Tensor, io: str, phase: str, of=None, **where) -> None:
        if info.wanted:
            pieces = self._pieces.get(info.root.label)
            if pieces is None:
                pieces = self._pieces[info.root.label] = Pieces(info.root)
            if meta := pieces.meta_of(tensor if of is None else of, tensor):
                where["meta"] = meta
            self._probe.record(
                f"{info.prefix}{name}",
                tensor.detach(),
                io=io,
                phase=phase,
                root=info.root.label,
                scope=info.path,
                cls=info.cls,
                site="",
                values=self._probe.what.values,
                **where,
            )
