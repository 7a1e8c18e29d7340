"""An attention of one's own with the rotary embedding of rotary-embedding-torch, which decays with the distance."""

import torch
from common import answer, draw_ids, fill, train
from rotary_embedding_torch import RotaryEmbedding
from torch import nn
from torch.nn import functional as F


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width)
        self.rotary = RotaryEmbedding(dim=width // heads, use_xpos=True, xpos_scale_base=16)
        self.out = nn.Linear(width, width)
        self.heads = heads

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        q, k = self.rotary.rotate_queries_and_keys(q, k)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, width=32, heads=4):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.attn = Attention(width, heads)

    def forward(self, x):
        return x + self.attn(self.norm(x))


model = fill(nn.Sequential(nn.Embedding(41, 32), Block(), Block(), nn.Linear(32, 41))).train()
ids = draw_ids("words", 41, 3, 10)
losses = train(model, lambda step: F.cross_entropy(model(ids[:, :-1]).transpose(1, 2), ids[:, 1:]))
with torch.no_grad():
    answer(losses=losses, logits=model(ids))
