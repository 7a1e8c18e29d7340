"""A small GPT learns text that this script makes, and records what its tensors did.

    python examples/demo_gpt.py runs --steps 20

With --acknowledge it writes a line to stdout after each record: what has a line is promised to be in the recording.
"""

import argparse
import hashlib
import random

import tenscope
import torch
from torch import nn
from torch.nn import functional as F

CONTEXT, WIDTH, HEADS, LAYERS, BATCH = 64, 96, 4, 3, 16


def make_text(seed=0, sentences=2000):
    """Sentences of a tiny grammar: regular enough to be learnt in a few hundred steps."""
    draw = random.Random(seed)
    who, does = ["the cat", "a tensor", "my gradient", "the model"], ["sees", "follows", "forgets", "becomes"]
    return " ".join(f"{draw.choice(who)} {draw.choice(does)} {draw.choice(who)}." for _ in range(sentences))


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        batch, time, _ = x.shape
        q, k, v = self.qkv(x).view(batch, time, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(batch, time, WIDTH))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.attn, self.norm2 = nn.LayerNorm(WIDTH), Attention(), nn.LayerNorm(WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    def __init__(self, vocabulary):
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, vocabulary, bias=False)

    def forward(self, ids):
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def batches(ids, generator):
    while True:
        starts = torch.randint(len(ids) - CONTEXT - 1, (BATCH,), generator=generator)
        windows = torch.stack([ids[s : s + CONTEXT + 1] for s in starts])
        yield windows[:, :-1], windows[:, 1:]


def train(steps, record, on_step=lambda step, loss: None):
    """Trains and hands each tensor of interest to `record(name, tensor)`; returns the model."""
    torch.set_num_threads(1)  # a model this small is faster so
    torch.manual_seed(0)
    text = make_text()
    letters = sorted(set(text))
    ids = torch.tensor([letters.index(c) for c in text])
    model = GPT(len(letters))
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for step, (inputs, targets) in zip(range(steps), batches(ids, torch.Generator().manual_seed(0)), strict=False):
        logits = model(inputs)
        loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        record("inputs", inputs)
        record("logits", logits)
        record("loss", loss)
        for name, parameter in model.named_parameters():
            record(f"{name}.grad", parameter.grad)
        optimizer.step()
        for name, parameter in model.named_parameters():
            record(name, parameter)
        on_step(step, loss.item())
        tenscope.step()
    return model


def digest(tensor):
    return hashlib.sha256(tensor.detach().contiguous().numpy().tobytes()).hexdigest()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", help="the folder of runs to record into")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument(
        "--acknowledge", action="store_true", help="a line on stdout after each record: name, step, SHA-256"
    )
    options = parser.parse_args()

    tenscope.init(options.runs)
    step = 0

    def record(name, tensor):
        told = f"{name} {step} {digest(tensor)}" if options.acknowledge else ""
        tenscope.record(name, tensor)
        if told:
            print(told, flush=True)

    def on_step(number, loss):
        nonlocal step
        step = number + 1
        if not options.acknowledge:
            print(f"step {number:3}  loss {loss:.4f}")

    train(options.steps, record, on_step)
    tenscope.close()


if __name__ == "__main__":
    main()
