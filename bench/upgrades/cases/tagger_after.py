"""tagger_before.py rewritten: an encoder and two heads, a list of layers, a pooling module, keyword arguments.

The argument is the mistake that was made on the way, or none.
"""

import sys

import torch
from common import answer, draw, draw_ids
from torch import nn
from torch.nn import functional as F

mistake = sys.argv[1]
NORM = {"eps": 1e-5 if mistake == "eps" else 1e-12}


class EncoderLayer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.self_attn = nn.MultiheadAttention(width, heads, batch_first=True)
        self.feed = nn.Sequential(nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width))
        self.norms = nn.ModuleList(nn.LayerNorm(width, **NORM) for _ in range(2))

    def forward(self, states, *, padding):
        bias = torch.zeros(padding.shape).masked_fill(padding, float("-inf"))
        attended = self.self_attn(query=states, key=states, value=states, key_padding_mask=bias, need_weights=False)[0]
        states = self.norms[0](states + attended)
        return self.norms[1](states + self.feed(states))


class Encoder(nn.Module):
    def __init__(self, words, width, heads, depth):
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.layers = nn.ModuleList(EncoderLayer(width, heads) for _ in range(depth))
        self.norm = nn.LayerNorm(width, **NORM)

    def forward(self, ids, padding):
        states = self.norm(self.embedding(ids))
        for layer in self.layers:
            states = layer(states, padding=padding)
        return states


class AttentionPool(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.score = nn.Linear(width, 1)

    def forward(self, states, padding):
        scores = self.score(states).masked_fill(padding[..., None], -1e9)
        weights = scores.softmax(dim=0 if mistake == "softmax" else 1)
        return torch.einsum("btd,bto->bd", states, weights)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.pool = AttentionPool(24)
        self.topic_head = nn.Linear(24, 4)
        self.tag_head = nn.Linear(24, 7)
        self.encoder = Encoder(50, 24, 3, 2)

    def forward(self, input_ids):
        padding = input_ids.eq(0)
        states = self.encoder(input_ids, padding)
        pooled = self.pool(states.detach() if mistake == "detach" else states, padding)
        tags = self.tag_head(states)
        return {"tags": tags.softmax(-1) if mistake == "two_softmaxes" else tags, "topics": self.topic_head(pooled)}


NAMES = (
    ("encoder.embedding", "words"),
    ("encoder.norm", "ln"),
    ("encoder.layers.", "layer"),
    ("self_attn", "attn"),
    ("feed.0", "fc1"),
    ("feed.2", "fc2"),
    ("norms.0", "ln1"),
    ("norms.1", "ln2"),
    ("pool.score", "score"),
    ("tag_head", "tags"),
    ("topic_head", "topic"),
)


def called(name):
    for new, old in NAMES:
        name = name.replace(new, old)
    return name


@torch.no_grad()
def initialised(model):
    """As a fresh tagger_before.py: biases come from what the layers draw there, in that order."""
    biases = {}
    torch.manual_seed(3)
    nn.Embedding(50, 24)
    for layer in range(2):
        nn.MultiheadAttention(24, 3, batch_first=True)
        biases[f"layer{layer}.fc1.bias"] = nn.Linear(24, 48).bias
        biases[f"layer{layer}.fc2.bias"] = nn.Linear(48, 24).bias
    for name, outer in (("score", 1), ("tags", 7), ("topic", 4)):
        biases[f"{name}.bias"] = nn.Linear(24, outer).bias
    for name, parameter in model.named_parameters():
        old = called(name)
        if parameter.dim() > 1:
            wide = mistake == "init" and name == "encoder.layers.0.feed.0.weight"
            parameter.copy_(draw(old, *parameter.shape, std=0.2 if wide else 0.02))
        elif old in biases:
            parameter.copy_(biases[old])
    return model


def loss_of(outputs, tags, topics):
    how = "sum" if mistake == "reduction" else "mean"
    words = F.cross_entropy(outputs["tags"].flatten(0, 1), tags.flatten(), reduction=how)
    return words + F.cross_entropy(outputs["topics"], topics, reduction=how)


model = initialised(Model())
optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
losses = []
for step in range(3):
    ids = draw_ids(f"sentences {step}", 50, 4, 9, low=1)
    ids[1, 6:] = 0
    tags = draw_ids(f"tags {step}", 7, 4, 9).masked_fill(ids == 0, -100)
    loss = loss_of(model(input_ids=ids), tags, draw_ids(f"topics {step}", 4, 4))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())
model.eval()
with torch.no_grad():
    outputs = model(input_ids=draw_ids("test", 50, 2, 9, low=1))
answer(losses=losses, words=outputs["tags"], sentences=outputs["topics"])
