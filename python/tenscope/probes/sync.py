"""tenscope.check_sync(model): what should be equal on all ranks and is not."""

from __future__ import annotations

import dataclasses

from torch import distributed, nn

from tenscope import _core
from tenscope.probes.modules import check_module, unwrapped_paths
from tenscope.recording.run import current


@dataclasses.dataclass(frozen=True)
class OutOfSync:
    """A tensor that differs between ranks."""

    name: str
    io: str  # param, buffer, grad
    groups: tuple[tuple[int, ...], ...]  # ranks that agree with each other; those that lack it stand last
    missing: tuple[int, ...] = ()

    def __str__(self) -> str:
        groups = " | ".join(", ".join(map(str, ranks)) for ranks in self.groups)
        lacking = f"; missing on {', '.join(map(str, self.missing))}" if self.missing else ""
        return f"{self.name} ({self.io}): ranks {groups} differ{lacking}"


class SyncReport(list):
    """The tensors out of sync, in the model's order; falsy where all agree."""

    def __str__(self) -> str:
        if not self:
            return "all ranks agree"
        return "\n".join([f"{len(self)} tensors differ between ranks:", *(f"  {entry}" for entry in self)])


def check_sync(model: nn.Module, *, buffers: bool = True, grads: bool = True, group=None) -> SyncReport:
    """Compares parameters, buffers and gradients over the ranks by fingerprint. Collective: all ranks must call it.

    Every rank gets the same report. Without a process group there is nothing to compare, and the report is empty.
    What is out of sync is also noted in the current run.
    """
    check_module(model, "check_sync")
    report = SyncReport()
    if not (distributed.is_available() and distributed.is_initialized()):
        return report
    world_size = distributed.get_world_size(group)
    everyone: list[dict | None] = [None] * world_size
    distributed.all_gather_object(everyone, _fingerprints(model, buffers, grads), group=group)
    names = list(dict.fromkeys(name for prints in everyone for name in prints))
    for name, io in names:
        by_print: dict[object, list[int]] = {}
        for rank, prints in enumerate(everyone):
            by_print.setdefault(prints.get((name, io)), []).append(rank)
        if len(by_print) > 1:
            missing = tuple(by_print.pop(None, ()))
            report.append(OutOfSync(name, io, tuple(map(tuple, by_print.values())), missing))
    run = current()
    if run is not None and report:
        run.record("out_of_sync", kind="note", meta={"tensors": [dataclasses.asdict(entry) for entry in report]})
    return report


def _fingerprints(model: nn.Module, buffers: bool, grads: bool) -> dict[tuple[str, str], tuple]:
    prints: dict[tuple[str, str], tuple] = {}

    def add(name: str, io: str, tensor) -> None:
        prints[name, io] = (str(tensor.dtype), tuple(tensor.shape), _core.fingerprint(tensor.detach()))

    seen: set[int] = set()
    for path, module in unwrapped_paths(model):
        if id(module) in seen:
            continue
        seen.add(id(module))
        prefix = f"{path}." if path else ""
        for name, parameter in module._parameters.items():
            if parameter is not None:
                add(prefix + name, "param", parameter)
                if grads and parameter.grad is not None:
                    add(f"{prefix}{name}{_core.GRADIENT_SUFFIX}", "grad", parameter.grad)
        for name, buffer in module._buffers.items():
            if buffers and buffer is not None:
                add(prefix + name, "buffer", buffer)
    return prints
