"""Tensor and sequence parallel by hand, alone or with data parallel over the other axis."""

from __future__ import annotations

import argparse

import megatron
import torch
import torch.distributed as dist
import training
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh

BUGS = (*megatron.PLACES, "qkv_contiguous", "norm_grad", "clip_local", "wrong_group", "wrong_batch", "other_init")


def sync_sequence(options: argparse.Namespace, model: nn.Module, group: dist.ProcessGroup) -> None:
    """What worked on a part of the sequence has a part of its gradient."""
    for path, module in model.named_modules():
        is_bias = isinstance(module, megatron.RowParallelLinear)
        if options.bug == "norm_grad" and path == "blocks.0.norm2":
            continue
        if isinstance(module, nn.LayerNorm) or is_bias:
            for parameter in [module.bias] if is_bias else module.parameters():
                dist.all_reduce(parameter.grad, group=group)


def norm_of_all(options: argparse.Namespace, model: nn.Module, group: dist.ProcessGroup) -> Tensor:
    cut, common = [], []
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            (cut if megatron.is_cut(module, name) else common).append(parameter.grad)
    squares = training.norm_of(cut) ** 2
    if options.bug != "clip_local":
        dist.all_reduce(squares, group=group)
    return (squares + training.norm_of(common) ** 2).sqrt()


def main() -> None:
    options = training.parser(*BUGS)
    options.add_argument("--sequence", action="store_true", help="norms work on parts of the sequence")
    options.add_argument("--data", type=int, default=1, help="ranks along the data parallel axis")
    options = options.parse_args()
    rank, ranks = training.start()
    mesh = init_device_mesh("cpu", (options.data, ranks // options.data), mesh_dim_names=("dp", "tp"))
    data, tensor = mesh.get_group("dp"), mesh.get_group("tp")
    model = training.make_model(options, megatron.SequenceParallelGPT if options.sequence else megatron.GPT)
    megatron.parallelize(model, megatron.Style(tensor, options.sequence, options.fused, options.bug))
    if options.bug == "other_init" and rank == 1:
        torch.manual_seed(1)
        nn.init.normal_(model.blocks[1].norm2.weight, 1.0, 0.1)
    optimizer = training.make_optimizer(options, model)
    for step in range(training.STEPS):
        part = rank % options.data if options.bug == "wrong_batch" else data.rank()
        ids, targets = training.part_of(step, part, options.data)
        optimizer.zero_grad()
        training.loss_of(model(ids), targets).backward()
        if options.sequence:
            sync_sequence(options, model, tensor)
        if options.data > 1:
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad, group=tensor if options.bug == "wrong_group" else data)
                parameter.grad /= options.data
        if options.clip:
            training.clip(model, norm_of_all(options, model, tensor))
        optimizer.step()
    if options.check:
        training.check(options, megatron.whole_state(model, tensor))
    else:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
