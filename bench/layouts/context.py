"""Context parallel by hand: every rank has a part of each sequence, and the keys and values of all."""

from __future__ import annotations

import megatron
import torch
import torch.distributed as dist
import torch.nn.functional as F
import training
from model import GPT, SEQUENCE, Attention
from torch import Tensor

BUGS = ("positions", "mask", "zigzag_order", "kv_detached", "labels", "unsynced")

options = training.parser(*BUGS)
options.add_argument("--zigzag", action="store_true", help="rank i has chunks i and 2N-1-i, not chunk i of N")
options = options.parse_args()
rank, ranks = training.start()
everyone = dist.group.WORLD


def places_of(rank: int) -> Tensor:
    """The positions in the sequence that a rank has."""
    if not options.zigzag:
        return torch.arange(SEQUENCE).chunk(ranks)[rank]
    chunks = torch.arange(SEQUENCE).chunk(2 * ranks)
    return torch.cat([chunks[rank], chunks[2 * ranks - 1 - rank]])


mine = places_of(rank)


class ContextAttention(Attention):
    bug: str | None = None

    def gathered(self, x: Tensor) -> Tensor:
        if self.bug == "kv_detached":
            parts = list(megatron.gather(x.detach(), 2, everyone).chunk(ranks, 2))
            return torch.cat([*parts[:rank], x, *parts[rank + 1 :]], 2)
        return megatron.Gather.apply(x, 2, everyone, True)

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        keys = torch.cat([places_of(other) for other in range(ranks)])
        if self.bug == "zigzag_order":
            keys = torch.arange(SEQUENCE)
        queries = torch.arange(len(mine)) if self.bug == "mask" else mine
        mask = keys[None, :] <= queries[:, None]
        return F.scaled_dot_product_attention(q, self.gathered(k), self.gathered(v), attn_mask=mask)


class ContextGPT(GPT):
    def __init__(self, **options) -> None:
        super().__init__(**options)
        for block in self.blocks:
            block.attn.__class__ = ContextAttention

    def embed(self, ids: Tensor) -> Tensor:
        positions = torch.arange(ids.shape[1]) if options.bug == "positions" else mine
        return self.tok(ids) + self.pos(positions)


model = training.make_model(options, ContextGPT)
if options.bug in ("mask", "zigzag_order", "kv_detached"):
    model.blocks[1 if options.bug == "zigzag_order" else 0].attn.bug = options.bug
optimizer = training.make_optimizer(options, model)
for step in range(training.STEPS):
    ids, targets = training.batch(step)
    ids, targets = ids[:, mine], targets[:, mine]
    if options.bug == "labels":
        targets = ids.roll(-1, 1)
    optimizer.zero_grad()
    training.loss_of(model(ids), targets).backward()
    for name, parameter in model.named_parameters():
        if options.bug != "unsynced" or name != "pos.weight":
            dist.all_reduce(parameter.grad)
            parameter.grad /= ranks
    optimizer.step()
if options.check:
    training.check(options, training.state(model))
else:
    dist.destroy_process_group()
