"""tenscope.check_sync(model): what should be equal on all ranks and is not."""

from __future__ import annotations

import dataclasses

from torch import distributed, nn

from tenscope import _core
from tenscope.probes.modules import check_module, unwrapped_paths
from tenscope.recording.parts import is_dtensor, placement_of
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
    """The tensors out of sync, in the model's order; falsy where all agree. `not_compared` has the names of those that
    no two ranks have alike: shards, partial sums, and what has no bytes."""

    def __init__(self):
        super().__init__()
        self.not_compared: list[str] = []

    def __str__(self) -> str:
        lines = [f"{len(self)} tensors differ between ranks:", *(f"  {entry}" for entry in self)]
        lines = lines if self else ["all ranks agree"]
        if self.not_compared:
            some = ", ".join(self.not_compared[:3]) + (", ..." if len(self.not_compared) > 3 else "")
            lines.append(f"not compared, shards or without bytes: {len(self.not_compared)} ({some})")
        return "\n".join(lines)


def check_sync(model: nn.Module, *, buffers: bool = True, grads: bool = True, group=None) -> SyncReport:
    """Compares parameters, buffers and gradients over the ranks by fingerprint. Collective: all ranks must call it.

    Of a DTensor ranks that have the same part are compared; shards that one rank alone has are in `not_compared`.
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
        by_part: dict[object, dict[object, list[int]]] = {}
        missing = []
        for rank, prints in enumerate(everyone):
            if (name, io) not in prints:
                missing.append(rank)
                continue
            part, print_ = prints[name, io]
            by_part.setdefault(part, {}).setdefault(print_, []).append(rank)
        groups = [tuple(ranks) for prints in by_part.values() if len(prints) > 1 for ranks in prints.values()]
        if groups or missing:
            groups = groups or [tuple(ranks) for prints in by_part.values() for ranks in prints.values()]
            report.append(OutOfSync(name, io, tuple(groups), tuple(missing)))
        elif _is_alone(by_part):
            report.not_compared.append(name)
    run = current()
    if run is not None and report:
        run.record("out_of_sync", kind="note", meta={"tensors": [dataclasses.asdict(entry) for entry in report]})
    return report


def _is_alone(by_part: dict[object, dict[object, list[int]]]) -> bool:
    """Has no rank a part that another has too, or has none of them bytes?"""
    everything = [(print_, ranks) for prints in by_part.values() for print_, ranks in prints.items()]
    return all(print_[-1] is None or (len(ranks) == 1 and len(by_part) > 1) for print_, ranks in everything)


def _fingerprints(model: nn.Module, buffers: bool, grads: bool) -> dict[tuple[str, str], tuple]:
    """For each tensor which part of it this rank has, and what it is."""
    prints: dict[tuple[str, str], tuple] = {}

    def add(name: str, io: str, tensor) -> None:
        print_ = (str(tensor.dtype), tuple(tensor.shape), _core.fingerprint(tensor.detach()))
        prints[name, io] = (_part_of(tensor), print_)

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


def _part_of(tensor) -> tuple:
    """Where this rank is along those axes of the mesh along which a DTensor is not replicated; empty: it is whole."""
    if not is_dtensor(tensor):
        return ()
    placement = placement_of(tensor)
    places = zip(placement["placements"], placement.get("coordinate", ()), strict=False)
    return tuple((axis, *place) for axis, place in enumerate(places) if place[0] != "R")
