"""Calls that are no part of the computation: a module is run to learn shapes, on tensors that have no values."""

from __future__ import annotations

import sys

import torch

_PIPELINING = "torch.distributed.pipelining"
_COMPILERS = ("torch._dynamo", "torch._functorch", "torch._inductor")
_CALLERS = 16  # frames between a compiler's and the module that it calls, at most


def without_values(module, args) -> str:
    """Why an outermost call has no values: it is made to learn shapes. Empty: it has."""
    if any(map(_is_without_values, args)) or _is_without_values(next(module.parameters(), None)):
        return "a call on meta or fake tensors, which have no values"
    if _PIPELINING in sys.modules and _stage_frame(is_inference=True) is not None:
        return "torch.distributed.pipelining called it on empty tensors to learn shapes"
    return ""


def pipeline_stage(module) -> dict | None:
    """Which stage of a pipeline the module is that is being called; None where it is none."""
    frame = _stage_frame(is_inference=False) if _PIPELINING in sys.modules else None
    stage = None if frame is None else frame.f_locals.get("self")
    if getattr(stage, "submod", None) is not module:
        return None
    told = {"stage": stage.stage_index, "stages": stage.num_stages}
    ranks = getattr(stage, "stage_index_to_group_rank", None)
    if stage.stage_index and ranks and stage.stage_index - 1 in ranks:
        distributed = sys.modules["torch.distributed"]
        group = stage.group or distributed.group.WORLD
        told["receives_from"] = distributed.get_global_rank(group, ranks[stage.stage_index - 1])
    return told


def is_made_by_compiler(module) -> bool:
    """A graph that torch.compile has made, being run by its backend: no module of the program's."""
    if not isinstance(module, torch.fx.GraphModule):
        return False
    frame = sys._getframe(1)
    for _ in range(_CALLERS):
        if frame is None:
            return False
        if frame.f_globals.get("__name__", "").startswith(_COMPILERS):
            return True
        frame = frame.f_back
    return False


def _is_without_values(value) -> bool:
    if not isinstance(value, torch.Tensor):
        return False
    if type(value).__name__ == "FakeTensor":
        return True
    with torch._C.DisableTorchFunction():
        return value.is_meta


def _stage_frame(is_inference: bool):
    """The frame of a pipeline's stage that has called; of its inference of shapes, or any other."""
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_globals.get("__name__", "").startswith(_PIPELINING) and "self" in frame.f_locals:
            name = frame.f_code.co_name
            if is_inference and "inference" in name:
                return frame
            if not is_inference and hasattr(frame.f_locals["self"], "submod"):
                return frame
        frame = frame.f_back
    return None
