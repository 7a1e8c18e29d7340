"""Small models in the usual styles, and an observer with plain hooks that is the judge of what a probe must see."""

import dataclasses

import torch
import torch.nn.functional as F
from torch import nn


class Attention(nn.Module):
    def __init__(self, dim, heads, max_len=64):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)
        self.register_buffer("cache_k", torch.zeros(1, heads, max_len, dim // heads), persistent=False)
        self.register_buffer("cache_v", torch.zeros(1, heads, max_len, dim // heads), persistent=False)

    def forward(self, x, start=None):
        b, t, d = x.shape
        q, k, v = (z.view(b, t, self.heads, -1).transpose(1, 2) for z in self.qkv(x).chunk(3, dim=-1))
        if start is not None:
            self.cache_k[:, :, start : start + t] = k
            self.cache_v[:, :, start : start + t] = v
            k, v = self.cache_k[:, :, : start + t], self.cache_v[:, :, : start + t]
        y = F.scaled_dot_product_attention(q, k, v, is_causal=start is None)
        return self.proj(y.transpose(1, 2).reshape(b, t, d))


class Expert(nn.Sequential):
    def __init__(self, dim):
        super().__init__(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))


class MoE(nn.Module):
    def __init__(self, dim, experts=3):
        super().__init__()
        self.router = nn.Linear(dim, experts)
        self.experts = nn.ModuleList(Expert(dim) for _ in range(experts))

    def forward(self, x):
        weight, which = self.router(x).softmax(-1).topk(2, dim=-1)
        out = torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            picked = (which == i).any(-1)
            if picked.any():
                share = (weight * (which == i)).sum(-1, keepdim=True)
                out = out.masked_scatter(picked[..., None], out[picked] + expert(x[picked]) * share[picked])
        return out, {"load": weight.sum((0, 1)), "which": which}


class Block(nn.Module):
    def __init__(self, dim, heads, moe=False):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attn = Attention(dim, heads)
        self.mlp = MoE(dim) if moe else Expert(dim)

    def forward(self, x, *, start=None):
        x = x + self.attn(self.norm1(x), start=start)
        y = self.mlp(self.norm2(x))
        return x + (y[0] if isinstance(y, tuple) else y)


@dataclasses.dataclass
class Output:
    logits: torch.Tensor
    hidden: tuple


class GPT(nn.Module):
    def __init__(self, vocab=31, dim=16, heads=2, layers=2, moe=False):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.blocks = nn.ModuleList(Block(dim, heads, moe) for _ in range(layers))
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, vocab, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids, start=None):
        x = self.embed(ids)
        hidden = [x]
        for block in self.blocks:
            x = block(x, start=start)
            hidden.append(x)
        return Output(self.head(self.norm(x)), tuple(hidden))


class BasicBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        y += x
        return self.relu(y)


class ResNet(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(inplace=True))
        self.layers = nn.Sequential(BasicBlock(width), BasicBlock(width))
        self.pool, self.fc = nn.AdaptiveAvgPool2d(1), nn.Linear(width, 5)

    def forward(self, x):
        return self.fc(self.pool(self.layers(self.stem(x))).flatten(1))


class UNet(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.down = nn.Conv2d(2, width, 3, padding=1)
        self.mid = nn.Sequential(
            nn.GroupNorm(2, width), nn.SiLU(inplace=True), nn.Conv2d(width, width, 3, stride=2, padding=1)
        )
        self.up = nn.ConvTranspose2d(width, width, 2, stride=2)
        self.out = nn.Conv2d(2 * width, 2, 1)
        self.act = nn.SiLU()

    def forward(self, x):
        skip = self.act(self.down(x))
        return self.out(torch.cat([self.up(self.mid(skip.clone())), skip], 1))


class Tagger(nn.Module):
    def __init__(self, vocab=20, dim=8):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.lstm = nn.LSTM(dim, dim, num_layers=2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(2 * dim, 4)

    def forward(self, ids):
        out, (h, c) = self.lstm(self.embed(ids))
        return self.head(out) + h.mean() + c.mean()


def leaves(value, out):
    """Tensors of a nest, in order."""
    if isinstance(value, torch.Tensor):
        out.append(value.detach().clone())
    elif isinstance(value, dict):
        for item in value.values():
            leaves(item, out)
    elif isinstance(value, (tuple, list)):
        for item in value:
            leaves(item, out)
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            leaves(getattr(value, field.name), out)
    return out


class Observer:
    """The tensors of each module call, seen by hooks on the modules themselves: (path, io, values)."""

    def __init__(self, model):
        self.seen = []
        self._handles = []
        for path, module in model.named_modules():
            self._handles.append(module.register_forward_pre_hook(self._before(path), with_kwargs=True))
            self._handles.append(module.register_forward_hook(self._after(path)))

    def _before(self, path):
        def hook(module, args, kwargs):
            self.seen.append((path, "input", leaves((args, kwargs), [])))

        return hook

    def _after(self, path):
        def hook(module, args, output):
            self.seen.append((path, "output", leaves(output, [])))

        return hook

    def remove(self):
        for handle in self._handles:
            handle.remove()

    def flat(self):
        return [(path, io, value) for path, io, values in self.seen for value in values]
