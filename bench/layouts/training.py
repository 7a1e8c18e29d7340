"""What all layouts have in common: arguments, data, loss, optimizer, and the check against one process."""

from __future__ import annotations

import argparse
import os
import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from model import GPT, SEQUENCE, VOCABULARY
from torch import Tensor, nn

BATCH, STEPS = 8, 3
NOISE, HALF_NOISE = 1e-4, 0.3  # as a part of the update

criterion: list[nn.Module] = []  # where the loss is a module


def parser(*bugs: str) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser()
    made.add_argument("--bug", choices=bugs)
    made.add_argument("--check", action="store_true", help="compare the final parameters with those of one process")
    made.add_argument("--fused", action="store_true", help="q, k and v in one weight")
    made.add_argument("--grouped", action="store_true", help="and two heads of q share one of k and v")
    made.add_argument("--criterion", action="store_true", help="the loss is a module")
    made.add_argument("--tied", action="store_true", help="the head has the embedding's weight")
    made.add_argument("--moe", action="store_true", help="experts in place of the MLP")
    made.add_argument("--bf16", action="store_true")
    made.add_argument("--adamw", action="store_true")
    made.add_argument("--clip", action="store_true", help="clip the gradients by their norm")
    return made


def start() -> tuple[int, int]:
    """Rank and number of ranks."""
    if "RANK" not in os.environ:
        return 0, 1
    dist.init_process_group("gloo")
    return dist.get_rank(), dist.get_world_size()


def make_model(options: argparse.Namespace, kind: type[GPT] = GPT) -> GPT:
    if options.criterion:
        criterion.append(nn.CrossEntropyLoss())
    torch.manual_seed(0)
    attention = "grouped" if options.grouped else "fused" if options.fused else ""
    model = kind(attention=attention, tied=options.tied, moe=options.moe)
    return model.bfloat16() if options.bf16 else model


def make_optimizer(options: argparse.Namespace, model: nn.Module) -> torch.optim.Optimizer:
    if options.adamw:
        return torch.optim.AdamW(model.parameters(), lr=1e-3)
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def batch(step: int) -> tuple[Tensor, Tensor]:
    """Inputs and targets of the whole batch."""
    random = torch.Generator().manual_seed(1000 + step)
    ids = torch.randint(VOCABULARY, (BATCH, SEQUENCE + 1), generator=random)
    return ids[:, :-1].contiguous(), ids[:, 1:].contiguous()


def part_of(step: int, part: int, parts: int) -> tuple[Tensor, Tensor]:
    ids, targets = batch(step)
    return ids.chunk(parts)[part], targets.chunk(parts)[part]


def loss_of(logits: Tensor, targets: Tensor) -> Tensor:
    return (criterion or [F.cross_entropy])[0](logits.flatten(0, 1), targets.flatten())


def norm_of(gradients: list[Tensor]) -> Tensor:
    return torch.stack([gradient.float().square().sum() for gradient in gradients]).sum().sqrt()


def clip(model: nn.Module, norm: Tensor, limit: float = 0.5) -> None:
    for parameter in model.parameters():
        parameter.grad.mul_(min(1.0, limit / float(norm)))


def train_alone(options: argparse.Namespace, model: GPT) -> None:
    optimizer = make_optimizer(options, model)
    for step in range(STEPS):
        ids, targets = batch(step)
        optimizer.zero_grad()
        loss_of(model(ids), targets).backward()
        if options.clip:
            clip(model, norm_of([parameter.grad for parameter in model.parameters()]))
        optimizer.step()


def state(model: nn.Module) -> dict[str, Tensor]:
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


def check(options: argparse.Namespace, mine: dict[str, Tensor]) -> None:
    """Exits with 1 unless every whole parameter, on every rank that has it, is that of one process but for noise."""
    everyone = [mine]
    if dist.is_initialized():
        everyone = [None] * dist.get_world_size()
        dist.all_gather_object(everyone, mine)
        dist.destroy_process_group()
    model = make_model(options)
    before = state(model)
    train_alone(options, model)
    after = state(model)
    updates = {name: (after[name] - before[name]).float().norm().item() for name in after}
    least = 1e-3 * max(updates.values())
    missing = set(after) - set().union(*everyone)
    if missing:
        sys.exit(f"no rank has {', '.join(sorted(missing))}")
    worst = 0.0
    for rank, parameters in enumerate(everyone):
        for name, value in parameters.items():
            is_free = options.adamw and name.endswith("k.bias")  # its gradient is nothing but noise
            error = (value - after[name]).float().norm().item() / max(updates[name], least)
            worst = max(worst, 0.0 if is_free else error)
            if error > (HALF_NOISE if options.bf16 else NOISE) and not is_free:
                sys.exit(f"{name} of rank {rank} is {error:.1e} of its update away from that of one process")
    print(f"{worst:.1e} of the update away from one process", flush=True)
