"""cnn_before.py rewritten: stages of a Sequential, activations as modules, a class for the average, functions.

The argument is the mistake that was made on the way, or none.
"""

import copy
import sys

import torch
from common import answer, draw, draw_ids, fill
from torch import nn

mistake = sys.argv[1]
MOMENTUM = 0.01 if mistake == "bn_momentum" else 0.1


class ConvNorm(nn.Sequential):
    def __init__(self, inner, outer):
        conv = nn.Conv2d(inner, outer, kernel_size=3, padding="same", bias=False)
        super().__init__(conv, nn.BatchNorm2d(outer, momentum=MOMENTUM))


class BasicBlock(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.second = ConvNorm(channels, channels)
        self.first = ConvNorm(channels, channels)
        self.act = nn.ReLU()

    def forward(self, x):
        if mistake == "skip":
            x = self.act(self.first(x))
            return self.act(x + self.second(x))
        return self.act(self.second(self.act(self.first(x))) + x)


class ResNet(nn.Module):
    def __init__(self, channels=8, classes=5):
        super().__init__()
        self.stem = nn.Sequential(ConvNorm(3, channels), nn.ReLU())
        self.stages = nn.Sequential(BasicBlock(channels), BasicBlock(channels))
        self.pool = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(channels, classes))

    def forward(self, images):
        return self.classifier(self.pool(self.stages(self.stem(images))))


class Average:
    def __init__(self, model, decay):
        self.model, self.decay = copy.deepcopy(model).eval(), decay

    @torch.no_grad()
    def update(self, model):
        share = self.decay if mistake == "average" else 1 - self.decay
        for mine, other in zip(self.model.parameters(), model.parameters(), strict=True):
            mine.lerp_(other, share)

    def store(self, model):
        with torch.no_grad():
            for mine, other in zip(self.model.parameters(), model.parameters(), strict=True):
                other.copy_(mine)


def called(name):
    name = name.replace("stem.0.0", "conv").replace("stem.0.1", "bn").replace("classifier.1", "fc")
    name = name.replace("stages.0", "res1").replace("stages.1", "res2")
    for old, new in (("first", "1"), ("second", "2")):
        name = name.replace(f"{old}.0", f"conv{new}").replace(f"{old}.1", f"bn{new}")
    return name


def batch(step):
    images, classes = draw(f"images {step}", 8, 3, 10, 10) * 3 + 1, draw_ids(f"classes {step}", 5, 8)
    if mistake == "normalised_twice":
        images = (images - 1) / 3
    return (images - 1) / 3, classes


def fit(model, average, steps):
    loss_function = nn.CrossEntropyLoss(label_smoothing=0.0 if mistake == "smoothing" else 0.1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-3)
    for step in range(steps):
        images, classes = batch(step)
        loss = loss_function(input=model(images), target=classes)
        loss.backward()
        optimizer.step()
        average.update(model)
        if mistake != "zero_grad":
            optimizer.zero_grad()
        yield loss.item()


model = fill(ResNet(), called=called).train()
average = Average(model, 0.9)
losses = list(fit(model, average, 3))
average.store(model)
if mistake != "eval":
    model.eval()
with torch.no_grad():
    answer(losses=losses, logits=model(draw("test", 4, 3, 10, 10)))
