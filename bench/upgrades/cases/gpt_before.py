"""A small GPT as it was: fused qkv, one loop, no decay of the norms, warm-up, clipping, a scaled tied head."""

import math

import torch
from common import answer, draw_ids, fill
from torch import nn
from torch.nn import functional as F

SIZE, HEADS, WORDS, LENGTH = 32, 4, 61, 12


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(SIZE, 3 * SIZE)
        self.proj = nn.Linear(SIZE, SIZE)

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = (y.view(b, t, HEADS, -1).transpose(1, 2) for y in self.qkv(x).chunk(3, dim=-1))
        weights = q @ k.transpose(-2, -1) / math.sqrt(SIZE // HEADS)
        hidden = torch.ones(t, t, dtype=torch.bool).triu(diagonal=1)
        weights = weights.masked_fill(hidden, float("-inf")).softmax(dim=-1)
        return self.proj((weights @ v).transpose(1, 2).reshape(b, t, SIZE))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1 = nn.LayerNorm(SIZE)
        self.attn = Attention()
        self.norm2 = nn.LayerNorm(SIZE)
        self.mlp = nn.Sequential(nn.Linear(SIZE, 4 * SIZE), nn.GELU(), nn.Linear(4 * SIZE, SIZE))

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok = nn.Embedding(WORDS, SIZE)
        self.pos = nn.Embedding(LENGTH + 4, SIZE)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.norm = nn.LayerNorm(SIZE)
        self.head = nn.Linear(SIZE, WORDS, bias=False)
        self.head.weight = self.tok.weight

    def forward(self, ids):
        x = self.tok(ids) + self.pos(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x) * SIZE**-0.5)


model = fill(GPT()).train()
norms = [p for name, p in model.named_parameters() if "norm" in name]
others = [p for name, p in model.named_parameters() if "norm" not in name]
groups = [{"params": others, "weight_decay": 0.1}, {"params": norms, "weight_decay": 0.0}]
optimizer = torch.optim.AdamW(groups, lr=2e-3)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 4))
losses = []
for step in range(4):
    ids = draw_ids(f"batch {step}", WORDS, 4, LENGTH + 1)
    logits = model(ids[:, :-1])
    loss = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    optimizer.step()
    scheduler.step()
    losses.append(loss.item())
with torch.no_grad():
    answer(losses=losses, logits=model.eval()(draw_ids("test", WORDS, 2, LENGTH)))
