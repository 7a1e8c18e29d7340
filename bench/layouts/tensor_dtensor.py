"""Tensor and sequence parallel by DTensor, alone or with FSDP2 over the other axis of the mesh."""

from __future__ import annotations

import torch
import torch.distributed as dist
import training
from model import GPT
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

BUGS = ("no_reduce", "swapped", "norm_left_out", "wrong_batch", "norm_drift")


def tensor_plan() -> dict:
    columns = {f"attn.{name}": ColwiseParallel() for name in "qkv"} | {"mlp.up": ColwiseParallel()}
    return columns | {"attn.proj": RowwiseParallel(), "mlp.down": RowwiseParallel()}


def sequence_plan() -> dict:
    gather = PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),))
    columns = {f"attn.{name}": ColwiseParallel() for name in "qkv"} | {"mlp.up": ColwiseParallel()}
    rows = {name: RowwiseParallel(output_layouts=Shard(1)) for name in ("attn.proj", "mlp.down")}
    return {"norm1": SequenceParallel(), "norm2": SequenceParallel(), "attn": gather, "mlp": gather} | columns | rows


def parallelize(model: GPT, mesh: DeviceMesh, sequence: bool, bug: str | None) -> None:
    for number, block in enumerate(model.blocks):
        plan = sequence_plan() if sequence else tensor_plan()
        if bug == "no_reduce" and number == 0:
            plan["mlp.down"] = RowwiseParallel(output_layouts=Partial())
        if bug == "norm_left_out" and number == 1:
            del plan["norm1"]
        parallelize_module(block, mesh, plan)
    outside: dict = {"tok": RowwiseParallel(input_layouts=Replicate())}
    outside["head"] = ColwiseParallel(output_layouts=Replicate())
    if sequence:
        split = PrepareModuleInput(
            input_layouts=(Replicate(),), desired_input_layouts=(Shard(1),), use_local_output=True
        )
        outside |= {"blocks.0": split, "norm": SequenceParallel()}
        outside["head"] = ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate())
    parallelize_module(model, mesh, outside)


def swap_parts(weight: DTensor, mesh: DeviceMesh) -> None:
    """The first rank gets the second's part, and the other way round."""
    parts = [torch.empty_like(weight.to_local()) for _ in range(mesh.size())]
    dist.all_gather(parts, weight.to_local().detach(), group=mesh.get_group())
    with torch.no_grad():
        weight.to_local().copy_(parts[(mesh.get_local_rank() + 1) % mesh.size()])


def whole(parameter: nn.Parameter) -> torch.Tensor:
    return parameter.full_tensor() if isinstance(parameter, DTensor) else parameter


def main() -> None:
    options = training.parser(*BUGS)
    options.add_argument("--sequence", action="store_true", help="norms work on parts of the sequence")
    options.add_argument("--data", type=int, default=1, help="ranks along the axis of FSDP2")
    options = options.parse_args()
    rank, ranks = training.start()
    mesh = init_device_mesh("cpu", (options.data, ranks // options.data), mesh_dim_names=("dp", "tp"))
    model = training.make_model(options)
    parallelize(model, mesh["tp"], options.sequence, options.bug)
    if options.bug == "swapped":
        swap_parts(model.blocks[1].attn.q.weight, mesh["tp"])
    if options.data > 1:
        for block in model.blocks:
            fully_shard(block, mesh=mesh["dp"])
        fully_shard(model, mesh=mesh["dp"])
    replica = mesh["dp"].get_local_rank()
    optimizer = training.make_optimizer(options, model)
    for step in range(training.STEPS):
        part = rank % options.data if options.bug == "wrong_batch" else replica
        ids, targets = training.part_of(step, part, options.data)
        optimizer.zero_grad()
        training.loss_of(model(ids), targets).backward()
        if options.bug == "norm_drift" and rank == 1:
            model.blocks[0].norm2.weight.grad = None
        optimizer.step()
    if options.check:
        training.check(options, {name: whole(value) for name, value in training.state(model).items()})
    else:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
