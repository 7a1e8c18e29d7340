"""Every rank has a part of the batch: DistributedDataParallel, gradients averaged by hand, or FSDP2."""

from __future__ import annotations

import contextlib

import torch
import torch.distributed as dist
import training
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

BUGS = ("unsynced", "summed", "same_batch", "init_seed", "no_sync", "frozen_shard")
UNSYNCED = "blocks.1.mlp.up.weight"

options = training.parser(*BUGS)
options.add_argument("--kind", choices=("ddp", "hand", "fsdp"), required=True)
options.add_argument("--replicas", type=int, default=1, help="copies of the shards of FSDP")
options = options.parse_args()
rank, ranks = training.start()
model = training.make_model(options)


def shard(model: nn.Module) -> None:
    if options.replicas > 1:
        mesh = init_device_mesh("cpu", (options.replicas, ranks // options.replicas), mesh_dim_names=("dp", "shard"))
    else:
        mesh = init_device_mesh("cpu", (ranks,))
    left_out = {model.blocks[1].norm1.weight} if options.bug == "unsynced" else None
    for block in model.blocks:
        fully_shard(block, mesh=mesh, ignored_params=left_out)
    fully_shard(model, mesh=mesh, ignored_params=left_out)
    if options.bug == "summed":
        for module in (*model.blocks, model):
            module.set_force_sum_reduction_for_comms(True)
            module.set_gradient_divide_factor(1.0)


def average_gradients(model: nn.Module) -> None:
    for name, parameter in model.named_parameters():
        if options.bug == "unsynced" and name == UNSYNCED:
            continue
        dist.all_reduce(parameter.grad)
        if options.bug != "summed":
            parameter.grad /= ranks


if options.bug == "init_seed" and rank == 1:
    torch.manual_seed(1)
    model.blocks[0].mlp.down.reset_parameters()
wrapped = model
if options.kind == "ddp":
    wrapped = DistributedDataParallel(model)
elif options.kind == "fsdp":
    shard(model)
optimizer = training.make_optimizer(options, wrapped)
for step in range(training.STEPS):
    ids, targets = training.part_of(step, 0 if options.bug == "same_batch" else rank, ranks)
    optimizer.zero_grad()
    with wrapped.no_sync() if options.bug == "no_sync" and step == 1 else contextlib.nullcontext():
        training.loss_of(wrapped(ids), targets).backward()
    if options.kind == "hand":
        average_gradients(model)
    if options.bug == "frozen_shard" and rank == 1:
        model.blocks[1].attn.proj.weight.grad = None
    optimizer.step()

if options.check:
    whole = training.state(model)
    training.check(options, {n: p.full_tensor() if hasattr(p, "full_tensor") else p for n, p in whole.items()})
else:
    dist.destroy_process_group()
