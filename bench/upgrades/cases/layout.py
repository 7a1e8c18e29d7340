"""Convolutions with the memory format of the argument."""

import sys

import torch
from common import answer, draw, draw_ids, fill, train
from torch import nn
from torch.nn import functional as F


class Down(nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        self.conv = nn.Conv2d(inner, outer, 3, stride=2, padding=1)
        self.norm = nn.GroupNorm(2, outer)

    def forward(self, x):
        return F.silu(self.norm(self.conv(x)))


layout = getattr(torch, sys.argv[1])
model = nn.Sequential(Down(3, 8), Down(8, 16), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(64, 5))
model = fill(model).to(memory_format=layout)
x, y = draw("images", 6, 3, 24, 24).to(memory_format=layout), draw_ids("classes", 5, 6)
losses = train(model, lambda step: F.cross_entropy(model(x), y), steps=4)
with torch.no_grad():
    answer(losses=losses, logits=model(x))
