"""One program, run in another way: plain, or as the argument says. Each step has two halves, whose gradients add up."""

import os
import sys
import tempfile

import torch
from common import answer, draw_ids, fill
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

way = sys.argv[1]


class Block(nn.Module):
    def __init__(self, width=32, heads=4):
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.SiLU(), nn.Linear(2 * width, width))
        self.heads = heads

    def forward(self, x):
        q, k, v = self.qkv(self.norm1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).flatten(2))
        return x + self.mlp(self.norm2(x))


class LanguageModel(nn.Module):
    def __init__(self, words=53, width=32, depth=3):
        super().__init__()
        if way == "head_first":
            self.head = nn.Linear(width, words, bias=False)
        self.embed = nn.Embedding(words, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        if way == "head_first":
            self.embed.weight = self.head.weight
        else:
            self.head = nn.Linear(width, words, bias=False)
            self.head.weight = self.embed.weight

    def forward(self, ids):
        x = self.embed(ids)
        for block in self.blocks:
            if way.startswith("checkpointed"):
                x = checkpoint(block, x, use_reentrant=way == "checkpointed_reentrant")
            else:
                x = block(x)
        return self.head(self.norm(x))


def called(name):
    return "embed.weight" if name == "head.weight" else name


def wrapped(model):
    if way == "compiled":
        return torch.compile(model, backend="eager")
    if way == "block_compiled":
        model.blocks[1] = torch.compile(model.blocks[1], backend="aot_eager")
    if way == "data_parallel":
        return nn.DataParallel(model)
    if way == "ddp":
        store = tempfile.mkstemp()[1]
        torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=0, world_size=1)
        os.remove(store)
        return nn.parallel.DistributedDataParallel(model)
    return model


def loss_of(step, half):
    ids = draw_ids(f"batch {step} {half}", 53, 3, 11)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=way == "autocast"):
        logits = run(ids=ids[:, :-1]) if way == "keywords" else run(ids[:, :-1])
    return F.cross_entropy(logits.float().flatten(0, 1), ids[:, 1:].flatten())


model = fill(LanguageModel(), called=called).train()
run = wrapped(model)
ways = {"foreach": {"foreach": True}, "fused": {"fused": True}}
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, **ways.get(way, {"foreach": False}))
losses = []
for step in range(3):
    if way == "one_backward":
        loss = (loss_of(step, 0) + loss_of(step, 1)) / 2
        loss.backward()
        losses.append(loss.item())
    else:
        halves = []
        for half in range(2):
            loss = loss_of(step, half) / (1 if way == "undivided" else 2)
            loss.backward()
            halves.append(loss.item())
        losses.append(sum(halves))
    optimizer.step()
    optimizer.zero_grad()
with torch.no_grad():
    answer(losses=losses, logits=run(draw_ids("test", 53, 2, 10)))
if way == "ddp":
    torch.distributed.destroy_process_group()
