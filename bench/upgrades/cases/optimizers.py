"""A small network trained with the optimizer of the argument: module, class, and options as name=number."""

import importlib
import sys

import torch
from common import answer, draw, draw_ids, fill
from torch import nn
from torch.nn import functional as F

module, name, *options = sys.argv[1:]
options = {key: float(value) if "." in value else int(value) for key, value in (word.split("=") for word in options)}
model = fill(nn.Sequential(nn.Linear(10, 16), nn.Tanh(), nn.LayerNorm(16), nn.Linear(16, 4))).train()
optimizer = getattr(importlib.import_module(module), name)(model.parameters(), **options)
if hasattr(optimizer, "train"):
    optimizer.train()
losses = []
for step in range(8):
    loss = F.cross_entropy(model(draw(f"x {step}", 8, 10)), draw_ids(f"y {step}", 4, 8))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())
with torch.no_grad():
    answer(losses=losses, logits=model(draw("test", 8, 10)))
