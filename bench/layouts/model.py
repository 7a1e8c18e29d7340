"""A small GPT, with variants: q, k and v in one weight, fewer heads of keys and values, a head tied to the embedding, a
mixture of experts."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

VOCABULARY, WIDTH, HEADS, BLOCKS, EXPERTS = 62, 32, 4, 2, 4
SEQUENCE, POSITIONS = 16, 18
HEAD_WIDTH = WIDTH // HEADS


def by_head(x: Tensor) -> Tensor:
    return x.unflatten(-1, (-1, HEAD_WIDTH)).transpose(1, 2)


def from_heads(x: Tensor) -> Tensor:
    return x.transpose(1, 2).flatten(2)


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.proj = nn.Linear(WIDTH, WIDTH)

    def project(self, x: Tensor) -> tuple[Tensor, ...]:
        return self.q(x), self.k(x), self.v(x)

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (by_head(part) for part in self.project(x))
        return self.proj(from_heads(self.attend(q, k, v)))


class FusedAttention(Attention):
    def __init__(self) -> None:
        nn.Module.__init__(self)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.proj = nn.Linear(WIDTH, WIDTH)

    def project(self, x: Tensor) -> tuple[Tensor, ...]:
        return self.qkv(x).chunk(3, dim=-1)


class GroupedAttention(FusedAttention):
    """Two heads of queries share one of keys and values."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 2 * WIDTH)

    def project(self, x: Tensor) -> tuple[Tensor, ...]:
        both = self.qkv(x)
        shared = both.shape[-1] // 4
        return both.split([2 * shared, shared, shared], dim=-1)

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return super().attend(q, k.repeat_interleave(2, 1), v.repeat_interleave(2, 1))


ATTENTIONS = {"": Attention, "fused": FusedAttention, "grouped": GroupedAttention}


class MLP(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.gelu(self.up(x)))


class MoE(nn.Module):
    """Every token goes to two of the experts."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(WIDTH, EXPERTS, bias=False)
        self.experts = nn.ModuleList(MLP() for _ in range(EXPERTS))

    def route(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        return self.router(tokens).softmax(-1).topk(2)

    def forward(self, x: Tensor) -> Tensor:
        tokens = x.flatten(0, 1)
        weights, chosen = self.route(tokens)
        result = torch.zeros_like(tokens)
        for number, expert in enumerate(self.experts):
            rows, slot = torch.where(chosen == number)
            result = result.index_add(0, rows, expert(tokens[rows]) * weights[rows, slot, None])
        return result.view_as(x)


class Block(nn.Module):
    def __init__(self, attention: str = "", moe: bool = False) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attn = ATTENTIONS[attention]()
        self.mlp = MoE() if moe else MLP()

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    def __init__(self, attention: str = "", tied: bool = False, moe: bool = False) -> None:
        super().__init__()
        self.tok, self.pos = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(POSITIONS, WIDTH)
        self.blocks = nn.ModuleList(Block(attention, moe) for _ in range(BLOCKS))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        if tied:
            nn.init.normal_(self.tok.weight, std=0.2)
            self.head.weight = self.tok.weight

    def embed(self, ids: Tensor) -> Tensor:
        return self.tok(ids) + self.pos(torch.arange(ids.shape[1]))

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))
