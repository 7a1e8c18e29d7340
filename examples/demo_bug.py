"""Two training steps of the demo's GPT; with --rewritten its attention is written by hand, and has a mistake in it.

    tenscope run --name good examples/demo_bug.py
    tenscope run --name bad examples/demo_bug.py --rewritten
    tenscope diff runs/good runs/bad

The diff names the module in which it is.
"""

import sys

import demo_gpt
import torch
from demo_gpt import HEADS, WIDTH
from torch.nn import functional as F


def rewritten_attention(self, x):
    batch, time, _ = x.shape
    q, k, v = self.qkv(x).view(batch, time, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
    scores = q @ k.transpose(-2, -1) / WIDTH**0.5  # the mistake: it should be the width of a head
    scores = scores.masked_fill(torch.ones(time, time, dtype=torch.bool).triu(1), float("-inf"))
    y = scores.softmax(-1) @ v
    return self.out(y.transpose(1, 2).reshape(batch, time, WIDTH))


def main():
    if "--rewritten" in sys.argv:
        demo_gpt.Attention.forward = rewritten_attention
    torch.set_num_threads(1)
    torch.manual_seed(0)
    text = demo_gpt.make_text()
    letters = sorted(set(text))
    ids = torch.tensor([letters.index(c) for c in text])
    model = demo_gpt.GPT(len(letters))
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    batches = demo_gpt.batches(ids, torch.Generator().manual_seed(0))
    for _ in range(2):
        inputs, targets = next(batches)
        loss = F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
