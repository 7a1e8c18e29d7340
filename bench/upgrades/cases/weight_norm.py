"""A vocoder's convolutions with weight normalisation, by the function that the argument names."""

import sys

import torch
from common import answer, draw, train
from torch import nn
from torch.nn import functional as F

normalised = torch.nn.utils.weight_norm if sys.argv[1] == "old" else torch.nn.utils.parametrizations.weight_norm


class Block(nn.Module):
    def __init__(self, name, channels, dilation):
        super().__init__()
        conv = nn.Conv1d(channels, channels, 3, dilation=dilation, padding=dilation)
        conv.weight.data = draw(f"{name}.weight", *conv.weight.shape, std=0.2)
        conv.bias.data = draw(f"{name}.bias", channels, std=0.1)
        self.conv = normalised(conv)

    def forward(self, x):
        return x + self.conv(F.leaky_relu(x, 0.1))


model = nn.Sequential(*(Block(f"block {i}", 6, 3**i) for i in range(3)))
x, y = draw("x", 2, 6, 40), draw("y", 2, 6, 40)
losses = train(model, lambda step: (model(x) - y).abs().mean())
with torch.no_grad():
    answer(losses=losses, sound=model(x))
