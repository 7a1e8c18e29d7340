"""gpt_before.py rewritten: q, k and v apart, SDPA, an embedding module, other names and order, a trainer.

The argument is the mistake that was made on the way, or none.
"""

import sys

import torch
from common import answer, draw, draw_ids, fill
from torch import nn
from torch.nn import functional as F

mistake = sys.argv[1]


class CausalSelfAttention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.out_proj = nn.Linear(width, width)
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(width, width) for _ in range(3))
        self.heads = heads

    def split(self, x):
        b, t, d = x.shape
        if mistake == "transposition":
            return x.reshape(b, self.heads, t, d // self.heads)
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def forward(self, hidden):
        q, k, v = self.split(self.q_proj(hidden)), self.split(self.k_proj(hidden)), self.split(self.v_proj(hidden))
        length = hidden.shape[1]
        visible = torch.ones(length, length, dtype=torch.bool).tril(diagonal=1 if mistake == "mask" else 0)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=visible)
        return self.out_proj(y.transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up = nn.Linear(width, 4 * width)
        self.act = nn.GELU(approximate="tanh" if mistake == "gelu" else "none")
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        return self.down(self.act(self.up(x)))


class DecoderLayer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.attention = CausalSelfAttention(width, heads)
        self.feed_forward = FeedForward(width)
        self.input_norm = nn.LayerNorm(width)
        self.output_norm = nn.LayerNorm(width)

    def forward(self, hidden):
        hidden = hidden + self.attention(hidden=self.input_norm(hidden))
        return hidden + self.feed_forward(self.output_norm(hidden))


class Embeddings(nn.Module):
    def __init__(self, words, positions, width):
        super().__init__()
        self.word = nn.Embedding(words, width)
        self.position = nn.Embedding(positions, width)

    def forward(self, ids):
        first = 1 if mistake == "positions" else 0
        return self.position(torch.arange(first, first + ids.shape[1])) + self.word(ids)


class Decoder(nn.Module):
    def __init__(self, words=61, positions=16, width=32, heads=4, depth=2):
        super().__init__()
        self.embeddings = Embeddings(words, positions, width)
        self.layers = nn.ModuleList(DecoderLayer(width, heads) for _ in range(depth))
        self.final_norm = nn.LayerNorm(width)
        self.scale = 1.0 if mistake == "head_scale" else width**-0.5

    def forward(self, ids):
        hidden = self.embeddings(ids)
        for layer in self.layers:
            hidden = layer(hidden)
        return F.linear(self.final_norm(hidden) * self.scale, self.embeddings.word.weight)


NAMES = {
    "embeddings.word": "tok",
    "embeddings.position": "pos",
    "layers": "blocks",
    "feed_forward.up": "mlp.0",
    "feed_forward.down": "mlp.2",
    "attention.out_proj": "attn.proj",
    "input_norm": "norm1",
    "output_norm": "norm2",
    "final_norm": "norm",
}


def called(name):
    for new, old in NAMES.items():
        name = name.replace(new, old)
    return name


@torch.no_grad()
def port(model):
    """The weights of gpt_before.py, its fused projection in three parts."""
    fill(model, called=called)
    for i, layer in enumerate(model.layers):
        attention = layer.attention
        width = attention.out_proj.out_features
        weights = draw(f"blocks.{i}.attn.qkv.weight", 3 * width, width, std=0.2).chunk(3)
        biases = draw(f"blocks.{i}.attn.qkv.bias", 3 * width, std=0.1).chunk(3)
        parts = (attention.q_proj, attention.k_proj, attention.v_proj)
        for part, weight, bias in zip(parts, weights, biases, strict=True):
            part.weight.copy_(weight)
            part.bias.copy_(bias)
    return model


class Trainer:
    def __init__(self, model):
        self.model = model
        groups = {0.0: [], 0.1: []}
        for name, parameter in model.named_parameters():
            if mistake == "left_out" and "position" in name:
                continue
            groups[0.0 if "norm" in name and mistake != "decay" else 0.1].append(parameter)
        groups = [{"params": p, "weight_decay": decay} for decay, p in groups.items() if p]
        self.optimizer = torch.optim.AdamW(groups, lr=2e-3)
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda step: min(1.0, (step + 1) / 4))

    def step(self, ids):
        loss = F.cross_entropy(self.model(ids[:, :-1]).transpose(1, 2), ids[:, 1:])
        loss.backward()
        if mistake == "scheduler":
            self.scheduler.step()
        if mistake != "clipping":
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 0.5)
        self.optimizer.step()
        if mistake != "scheduler":
            self.scheduler.step()
        self.optimizer.zero_grad()
        return loss.item()


def main():
    trainer = Trainer(port(Decoder()))
    losses = [trainer.step(draw_ids(f"batch {step}", 61, 4, 13)) for step in range(4)]
    trainer.model.eval()
    with torch.no_grad():
        answer(losses=losses, logits=trainer.model(draw_ids("test", 61, 2, 12)))


if __name__ == "__main__":
    main()
