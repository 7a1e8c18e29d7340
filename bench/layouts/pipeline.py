"""Stages of a pipeline, alone or with data parallel and tensor parallel over the other axes."""

from __future__ import annotations

import argparse

import megatron
import torch
import torch.distributed as dist
import training
from model import BLOCKS, GPT
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

BUGS = (
    "stale",
    "targets_swapped",
    "dropped",
    "no_scale",
    "half_sent",
    "tied_unsynced",
    "stage_unsynced",
    "same_batch",
    "no_reduce",
    "other_init",
)


class Stage(GPT):
    """The part of a model that one rank has, under the names of the whole."""

    def __init__(self, whole: GPT, parts: list[str], sends_half: bool = False) -> None:
        nn.Module.__init__(self)
        self.tok, self.pos = (whole.tok, whole.pos) if "embed" in parts else (None, None)
        names = [name for name in parts if name.isdigit()]
        self.blocks = nn.ModuleDict({name: whole.blocks[int(name)] for name in names})
        self.norm, self.head = (whole.norm, whole.head) if "head" in parts else (None, None)
        self.sends_half = sends_half

    def forward(self, x: Tensor) -> Tensor:
        if self.tok is not None:
            x = self.embed(x)
        for block in self.blocks.values():
            x = block(x)
        if self.head is not None:
            return self.head(self.norm(x))
        return x.bfloat16().float() if self.sends_half else x


class Embed(nn.Module):
    def __init__(self, whole: GPT) -> None:
        super().__init__()
        self.tok, self.pos = whole.tok, whole.pos

    def forward(self, ids: Tensor) -> Tensor:
        return self.tok(ids) + self.pos(torch.arange(ids.shape[1]))


def sequential(whole: GPT, parts: list[str]) -> nn.Sequential:
    """The same part, its children numbered from 0."""
    modules = [Embed(whole)] if "embed" in parts else []
    modules += [whole.blocks[int(name)] for name in parts if name.isdigit()]
    return nn.Sequential(*modules, *([whole.norm, whole.head] if "head" in parts else []))


def parts_of(stage: int, stages: int) -> list[str]:
    units = ["embed", *map(str, range(BLOCKS)), "head"]
    return units[len(units) * stage // stages : len(units) * (stage + 1) // stages]


def make_loss(options: argparse.Namespace):
    seen = 0

    def loss(logits: Tensor, targets: Tensor) -> Tensor:
        nonlocal seen
        seen += 1
        value = training.loss_of(logits, targets)
        return value * 0 if options.bug == "dropped" and seen % options.micro == 0 else value

    return loss


def swap_targets(targets: Tensor, micro: int) -> Tensor:
    parts = list(targets.chunk(micro))
    parts[0], parts[1] = parts[1], parts[0]
    return torch.cat(parts)


def whole_names(options: argparse.Namespace, parts: list[str], state: dict) -> dict[str, Tensor]:
    """The parameters of a stage under the names of the whole model."""
    if not options.sequential:
        return {"tok.weight" if options.tied and name == "head.weight" else name: state[name] for name in state}
    names = [{"embed": "", "head": "norm"}.get(part, f"blocks.{part}.") for part in parts]
    found = {}
    for name, value in state.items():
        number, _, rest = name.partition(".")
        path = "head." if int(number) == len(names) else names[int(number)]
        found[("norm." if path == "norm" else path) + rest] = value
    return found


def main() -> None:
    options = training.parser(*BUGS)
    options.add_argument("--stages", type=int, default=2)
    options.add_argument("--data", type=int, default=1, help="ranks along the data parallel axis")
    options.add_argument("--micro", type=int, default=4, help="micro-batches for a step, of each replica")
    options.add_argument("--schedule", choices=("gpipe", "1f1b"), default="gpipe")
    options.add_argument("--sequential", action="store_true", help="stages whose children are numbered from 0")
    options = options.parse_args()
    _, ranks = training.start()
    shape = (options.stages, options.data, ranks // options.stages // options.data)
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=("pp", "dp", "tp"))
    line, data, tensor = (mesh.get_group(name) for name in ("pp", "dp", "tp"))
    number = line.rank()
    is_first, is_last = number == 0, number == options.stages - 1

    whole = training.make_model(options)
    if tensor.size() > 1:
        megatron.parallelize(whole, megatron.Style(tensor, bug=options.bug))
    if options.bug == "other_init" and is_last:
        torch.manual_seed(1)
        whole.blocks[1].mlp.up.reset_parameters()
    parts = parts_of(number, options.stages)
    sends_half = options.bug == "half_sent" and is_first
    module = sequential(whole, parts) if options.sequential else Stage(whole, parts, sends_half)
    if options.tied and is_last:
        module.head.weight = nn.Parameter(module.head.weight.detach().clone())
    tie = dist.new_group([0, ranks - 1]) if options.tied else None

    kind = ScheduleGPipe if options.schedule == "gpipe" else Schedule1F1B
    stage = PipelineStage(module, number, options.stages, torch.device("cpu"), group=line)
    is_scaled = options.bug != "no_scale"
    schedule = kind(stage, options.micro, loss_fn=make_loss(options), scale_grads=is_scaled)
    optimizer = training.make_optimizer(options, module)
    for step in range(training.STEPS):
        ids, targets = training.part_of(step, 0 if options.bug == "same_batch" else data.rank(), options.data)
        if options.bug == "targets_swapped":
            targets = swap_targets(targets, options.micro)
        optimizer.zero_grad()
        if is_last:
            schedule.step(target=targets, losses=[])
        else:
            schedule.step(*[ids] if is_first else [])
        if options.tied and options.bug != "tied_unsynced" and (is_first or is_last):
            dist.all_reduce((module.tok if is_first else module.head).weight.grad, group=tie)
        if options.data > 1 and not (options.bug == "stage_unsynced" and is_last):
            for parameter in module.parameters():
                dist.all_reduce(parameter.grad, group=data)
                parameter.grad /= options.data
        if not (options.bug == "stale" and is_last and step == 1):
            optimizer.step()
    if options.check:
        state = megatron.whole_state(module, tensor) if tensor.size() > 1 else training.state(module)
        training.check(options, whole_names(options, parts, state))
    else:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
