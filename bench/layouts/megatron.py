"""Layers that are cut by hand: columns, rows and the vocabulary over the ranks of a group."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn.functional as F
from model import GPT, VOCABULARY, WIDTH
from torch import Tensor, nn


def reduce(x: Tensor, group: dist.ProcessGroup) -> Tensor:
    x = x.clone(memory_format=torch.contiguous_format)
    dist.all_reduce(x, group=group)
    return x


def gather(x: Tensor, axis: int, group: dist.ProcessGroup) -> Tensor:
    parts = [torch.empty_like(x, memory_format=torch.contiguous_format) for _ in range(group.size())]
    dist.all_gather(parts, x.contiguous(), group=group)
    return torch.cat(parts, axis)


def split(x: Tensor, axis: int, group: dist.ProcessGroup) -> Tensor:
    return x.chunk(group.size(), axis)[group.rank()].contiguous()


class Copy(torch.autograd.Function):
    """The same on all ranks; its gradient is the sum of theirs."""

    @staticmethod
    def forward(ctx, x: Tensor, group: dist.ProcessGroup) -> Tensor:
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient: Tensor) -> tuple:
        return reduce(gradient, ctx.group), None


class Reduce(torch.autograd.Function):
    """The sum over the ranks."""

    @staticmethod
    def forward(ctx, x: Tensor, group: dist.ProcessGroup) -> Tensor:
        return reduce(x, group)

    @staticmethod
    def backward(ctx, gradient: Tensor) -> tuple:
        return gradient, None


class Gather(torch.autograd.Function):
    """All ranks' parts; where each rank uses them in its own way, their gradients are summed."""

    @staticmethod
    def forward(ctx, x: Tensor, axis: int, group: dist.ProcessGroup, is_summed: bool) -> Tensor:
        ctx.axis, ctx.group, ctx.is_summed = axis, group, is_summed
        return gather(x, axis, group)

    @staticmethod
    def backward(ctx, gradient: Tensor) -> tuple:
        if ctx.is_summed:
            gradient = reduce(gradient, ctx.group)
        return split(gradient, ctx.axis, ctx.group), None, None, None


class Split(torch.autograd.Function):
    """This rank's part, of the sum over the ranks where they have parts of it."""

    @staticmethod
    def forward(ctx, x: Tensor, axis: int, group: dist.ProcessGroup, is_summed: bool) -> Tensor:
        ctx.axis, ctx.group = axis, group
        return split(reduce(x, group) if is_summed else x, axis, group)

    @staticmethod
    def backward(ctx, gradient: Tensor) -> tuple:
        return gather(gradient, ctx.axis, ctx.group), None, None, None


def kinds_of(rows: int, ranks: int = 1) -> list[int]:
    """How many rows of a fused weight, or of a rank's part of it, are q, k and v."""
    queries = WIDTH // ranks
    return [queries, (rows - queries) // 2, (rows - queries) // 2]


def cut_heads(weight: Tensor, group: dist.ProcessGroup) -> Tensor:
    """q, k and v of this rank's heads, of a weight with all q, all k, all v."""
    return torch.cat([split(part, 0, group) for part in weight.split(kinds_of(len(weight)))])


@dataclass
class Style:
    group: dist.ProcessGroup
    sequence: bool = False  # whether norms work on parts of the sequence
    is_fused: bool = False
    bug: str | None = None


class ColumnParallelLinear(nn.Module):
    def __init__(self, whole: nn.Linear, style: Style, gather_output: bool = False, bug: str | None = None) -> None:
        super().__init__()
        self.style, self.gather_output, self.bug = style, gather_output, bug
        is_fused = whole.out_features in (2 * WIDTH, 3 * WIDTH) and bug != "qkv_contiguous"
        cut = cut_heads if is_fused else lambda tensor, group: split(tensor, 0, group)
        self.weight = nn.Parameter(cut(whole.weight.detach(), style.group))
        self.bias = None if whole.bias is None else nn.Parameter(cut(whole.bias.detach(), style.group))
        if bug == "swapped":
            others = gather(self.weight.detach(), 0, style.group).chunk(style.group.size())
            self.weight = nn.Parameter(others[(style.group.rank() + 1) % style.group.size()].clone())

    def forward(self, x: Tensor) -> Tensor:
        if self.style.sequence:
            x = Gather.apply(x, 1, self.style.group, True)
            if self.bug == "gather_order":
                x = torch.cat(x.chunk(self.style.group.size(), 1)[::-1], 1)
        elif self.bug != "no_backward_reduce":
            x = Copy.apply(x, self.style.group)
        x = F.linear(x, self.weight, self.bias)
        return Gather.apply(x, -1, self.style.group, False) if self.gather_output else x


class RowParallelLinear(nn.Module):
    def __init__(self, whole: nn.Linear, style: Style, bug: str | None = None) -> None:
        super().__init__()
        self.style, self.bug = style, bug
        self.weight = nn.Parameter(split(whole.weight.detach(), 1, style.group))
        self.bias = nn.Parameter(whole.bias.detach().clone())

    def forward(self, x: Tensor) -> Tensor:
        x = F.linear(x, self.weight, self.bias if self.bug == "bias_each" else None)
        if self.style.sequence:
            x = Split.apply(x, 1, self.style.group, True)
        elif self.bug != "no_reduce":
            x = Reduce.apply(x, self.style.group)
        if self.bug == "reduce_twice":
            x = Reduce.apply(x, self.style.group)
        return x if self.bug == "bias_each" else x + self.bias


class VocabParallelEmbedding(nn.Module):
    def __init__(self, whole: nn.Embedding, style: Style, bug: str | None = None) -> None:
        super().__init__()
        self.style = style
        self.weight = nn.Parameter(split(whole.weight.detach(), 0, style.group))
        self.first = style.group.rank() * (VOCABULARY // style.group.size())
        if bug == "vocab_offset" and style.group.rank() > 0:
            self.first += 1

    def forward(self, ids: Tensor) -> Tensor:
        ids = ids - self.first
        is_outside = (ids < 0) | (ids >= len(self.weight))
        x = F.embedding(ids.masked_fill(is_outside, 0), self.weight)
        return Reduce.apply(x.masked_fill(is_outside[..., None], 0), self.style.group)


class SequenceParallelGPT(GPT):
    group: dist.ProcessGroup

    def embed(self, ids: Tensor) -> Tensor:
        return Split.apply(super().embed(ids), 1, self.group, False)


# The place of each mistake; all others are right.
PLACES = {
    "no_reduce": "blocks.0.mlp.down",
    "reduce_twice": "blocks.1.attn.proj",
    "swapped": "blocks.0.mlp.up",
    "bias_each": "blocks.0.attn.proj",
    "no_backward_reduce": "blocks.1.mlp.up",
    "gather_order": "blocks.1.mlp.up",
    "vocab_offset": "tok",
}


def parallelize(model: GPT, style: Style) -> None:
    """Replaces the layers of a whole model by this rank's parts. The vocabulary is cut where it can be."""

    def bug_at(name: str) -> str | None:
        return style.bug if PLACES.get(style.bug, name) == name else None

    for number, block in enumerate(model.blocks):
        for name in ("q", "k", "v", "qkv"):
            if hasattr(block.attn, name):
                path = f"blocks.{number}.attn.{name}"
                setattr(block.attn, name, ColumnParallelLinear(getattr(block.attn, name), style, bug=bug_at(path)))
        block.attn.proj = RowParallelLinear(block.attn.proj, style, bug_at(f"blocks.{number}.attn.proj"))
        block.mlp.up = ColumnParallelLinear(block.mlp.up, style, bug=bug_at(f"blocks.{number}.mlp.up"))
        block.mlp.down = RowParallelLinear(block.mlp.down, style, bug_at(f"blocks.{number}.mlp.down"))
    if VOCABULARY % style.group.size() == 0:
        model.tok = VocabParallelEmbedding(model.tok, style, bug_at("tok"))
        model.head = ColumnParallelLinear(model.head, style, gather_output=True)
    if style.sequence:
        model.group = style.group


def is_cut(module: nn.Module, name: str) -> bool:
    if isinstance(module, RowParallelLinear):
        return name == "weight"
    return isinstance(module, (ColumnParallelLinear, VocabParallelEmbedding))


def whole_state(model: nn.Module, group: dist.ProcessGroup) -> dict[str, Tensor]:
    """The parameters as one process has them."""
    found = {}
    for path, module in model.named_modules():
        for name, parameter in module.named_parameters(recurse=False):
            value = parameter.detach().clone()
            if is_cut(module, name):
                value = gather(value, 1 if isinstance(module, RowParallelLinear) else 0, group)
            if path.endswith("qkv"):
                ranks = group.size()
                parts = [part.split(kinds_of(len(part), ranks)) for part in value.chunk(ranks)]
                value = torch.cat([torch.cat(of_kind) for of_kind in zip(*parts, strict=True)])
            found[f"{path}.{name}"] = value
    return found
