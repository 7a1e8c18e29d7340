"""A small GPT that can be written in many correct ways, and made wrong by any amount: for tests of measured noise.

`Settings` chooses how each part is computed. HARMLESS are ways that are all correct; MISTAKES are wrong by a factor of
1 + delta, or so, that can be made as small as one likes.
"""

from __future__ import annotations

import dataclasses
import math

import torch
from torch import nn
from torch.nn import functional as F


@dataclasses.dataclass(frozen=True)
class Settings:
    norm: str = "torch"
    linear: str = "torch"
    attention: str = "by hand"
    gelu: str = "torch"
    loss: str = "torch"
    optimizer: str = "foreach"
    mistake: str = ""
    delta: float = 0.0
    seed: int = 0
    dtype: torch.dtype = torch.float32
    width: int = 32
    layers: int = 3
    steps: int = 3
    chaos: bool = False
    threads: int = 1

    def off(self, mistake: str) -> float:
        return self.delta if self.mistake == mistake else 0.0


class Norm(nn.Module):
    def __init__(self, s: Settings):
        super().__init__()
        self.s = s
        self.weight = nn.Parameter(torch.ones(s.width))
        self.bias = nn.Parameter(torch.zeros(s.width))

    def forward(self, x):
        s = self.s
        eps = 1e-5 * (1 + s.off("epsilon"))
        if s.norm == "torch":
            return F.layer_norm(x, (s.width,), self.weight, self.bias, eps)
        if s.norm == "wide":
            wide = F.layer_norm(x.double(), (s.width,), self.weight.double(), self.bias.double(), eps)
            return wide.to(x.dtype)
        centred = x - x.mean(-1, keepdim=True)
        variance = centred.pow(2).mean(-1, keepdim=True)
        if s.norm == "rsqrt":
            return centred * torch.rsqrt(variance + eps) * self.weight + self.bias
        return centred / torch.sqrt(variance + eps) * self.weight + self.bias


class Linear(nn.Module):
    def __init__(self, s: Settings, inputs: int, outputs: int):
        super().__init__()
        self.s = s
        self.weight = nn.Parameter(torch.randn(outputs, inputs) / math.sqrt(inputs))
        self.bias = nn.Parameter(0.1 * torch.randn(outputs))

    def forward(self, x):
        s, weight, bias = self.s, self.weight, self.bias * (1 + self.s.off("bias"))
        if s.linear == "torch":
            return F.linear(x, weight, bias)
        if s.linear == "matmul":
            return x @ weight.t() + bias
        if s.linear == "einsum":
            return torch.einsum("...i,oi->...o", x, weight) + bias
        if s.linear == "halves":
            half = weight.shape[1] // 2
            return F.linear(x[..., :half], weight[:, :half]) + F.linear(x[..., half:], weight[:, half:], bias)
        if s.linear == "outputs":
            return torch.cat([F.linear(x, w, b) for w, b in zip(weight.chunk(2), bias.chunk(2), strict=True)], -1)
        return F.linear(x.double(), weight.double(), bias.double()).to(x.dtype)  # "wide"


class Attention(nn.Module):
    HEADS = 4

    def __init__(self, s: Settings):
        super().__init__()
        self.s = s
        self.qkv = Linear(s, s.width, 3 * s.width)
        self.out = Linear(s, s.width, s.width)

    def forward(self, x):
        s = self.s
        batch, length, width = x.shape
        size = width // self.HEADS
        q, k, v = (t.view(batch, length, self.HEADS, size).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        scale = (1 + s.off("scale")) / math.sqrt(size)
        mask = torch.ones(length, length, dtype=torch.bool).tril()
        if s.attention == "sdpa":
            heads = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale)
        elif s.attention == "causal":
            heads = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale)
        else:
            if s.attention == "scaled q":
                scores = (q * scale) @ k.transpose(-1, -2)
            elif s.attention == "scaled both":
                scores = (q * math.sqrt(scale)) @ (k * math.sqrt(scale)).transpose(-1, -2)
            elif s.attention == "einsum":
                scores = torch.einsum("bhqd,bhkd->bhqk", q, k) * scale
            else:
                scores = q @ k.transpose(-1, -2) * scale
            scores = scores.masked_fill(~mask, float("-inf"))
            if s.attention == "exponentials":
                weights = (scores - scores.amax(-1, keepdim=True)).exp()
                weights = weights / weights.sum(-1, keepdim=True)
            elif s.attention == "logarithms":
                weights = scores.log_softmax(-1).exp()
            else:
                weights = scores.softmax(-1)
            if s.off("leak"):
                weights = weights + s.off("leak") * (~mask).to(weights.dtype)
            heads = weights @ v
        return self.out(heads.transpose(1, 2).reshape(batch, length, width))


class Mlp(nn.Module):
    def __init__(self, s: Settings):
        super().__init__()
        self.s = s
        self.up = Linear(s, s.width, 4 * s.width)
        self.down = Linear(s, 4 * s.width, s.width)

    def forward(self, x):
        s = self.s
        x = self.up(x)
        if s.gelu == "torch":
            y = F.gelu(x)
        elif s.gelu == "erf":
            y = 0.5 * x * (1 + torch.erf(x / math.sqrt(2)))
        else:
            y = x * torch.special.ndtr(x)
        delta = s.off("gelu")
        return self.down(y if delta == 0 else y + delta * (F.gelu(x, approximate="tanh") - y))


class Chaos(nn.Module):
    """Makes numbers of rounding errors: a logistic map, forty times."""

    def forward(self, x):
        y = torch.sigmoid(x.float())
        for _ in range(40):
            y = 3.99 * y * (1 - y)
        return x + 0.01 * y.to(x.dtype)


class Block(nn.Module):
    def __init__(self, s: Settings):
        super().__init__()
        self.s = s
        self.norm1, self.attention, self.norm2, self.mlp = Norm(s), Attention(s), Norm(s), Mlp(s)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + (1 + self.s.off("residual")) * self.mlp(self.norm2(x))


class Gpt(nn.Module):
    VOCABULARY = 50

    def __init__(self, s: Settings):
        super().__init__()
        self.s = s
        self.tokens = nn.Embedding(self.VOCABULARY, s.width)
        self.positions = nn.Embedding(16, s.width)
        self.blocks = nn.ModuleList(Block(s) for _ in range(s.layers))
        self.chaos = Chaos() if s.chaos else nn.Identity()
        self.norm = Norm(s)
        self.head = Linear(s, s.width, self.VOCABULARY)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1]))
        for i, block in enumerate(self.blocks):
            x = block(x)
            if i == 0:
                x = self.chaos(x)
        spot = self.s.off("spot")
        if spot:
            x = x + spot * x.detach().abs().max() * F.one_hot(torch.tensor(3), x.shape[-1])
        return self.head(self.norm(x))


def loss_of(s: Settings, logits, targets):
    logits, targets = logits.flatten(0, 1), targets.flatten()
    if s.loss == "torch":
        loss = F.cross_entropy(logits, targets, label_smoothing=s.off("smoothing"))
    elif s.loss == "gathered":
        loss = -logits.log_softmax(-1).gather(1, targets[:, None]).mean()
    else:
        loss = (logits.logsumexp(-1) - logits.gather(1, targets[:, None])[:, 0]).mean()
    return loss * (1 + s.off("loss"))


def train(s: Settings) -> None:
    torch.set_num_threads(s.threads)
    torch.manual_seed(s.seed)
    model = Gpt(s).to(s.dtype)
    kind = {"foreach": {"foreach": True}, "loop": {"foreach": False}, "fused": {"fused": True}}[s.optimizer]
    lr, decay = 1e-3 * (1 + s.off("rate")), 0.1 * (1 + s.off("decay"))
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=decay, **kind)
    for _ in range(s.steps):
        tokens = torch.randint(0, Gpt.VOCABULARY, (4, 17))
        loss = loss_of(s, model(tokens[:, :-1]), tokens[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


HARMLESS = [
    *({"norm": way} for way in ("by hand", "rsqrt", "wide")),
    *({"linear": way} for way in ("matmul", "einsum", "halves", "outputs", "wide")),
    *(
        {"attention": way}
        for way in ("sdpa", "causal", "scaled q", "scaled both", "einsum", "exponentials", "logarithms")
    ),
    *({"gelu": way} for way in ("erf", "ndtr")),
    *({"loss": way} for way in ("gathered", "logsumexp")),
    *({"optimizer": way} for way in ("loop", "fused")),
    {"threads": 2},
    {"norm": "rsqrt", "linear": "halves", "attention": "sdpa", "gelu": "erf", "loss": "gathered", "optimizer": "loop"},
]


def harmless(dtype: torch.dtype) -> list[dict]:
    """In a half type the optimizers' arithmetic differs by more than rounding: only the fused one is in float32, and
    only it sees a decay of 1e-4."""
    is_half = dtype in (torch.bfloat16, torch.float16)
    return [way for way in HARMLESS if not (is_half and way.get("optimizer") == "fused")]


# What is off, and what is to blame: the module's last name, or the phase where it is none.
MISTAKES = {
    "epsilon": ("norm1", "forward"),
    "bias": ("qkv", "forward"),
    "scale": ("attention", "forward"),
    "leak": ("attention", "forward"),
    "gelu": ("mlp", "forward"),
    "residual": ("0", "forward"),  # of block 0
    "spot": ("", "forward"),
    "smoothing": ("", "backward"),
    "loss": ("", "backward"),
    "rate": ("", "optimizer"),
    "decay": ("", "optimizer"),
}
