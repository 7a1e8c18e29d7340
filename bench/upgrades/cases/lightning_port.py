"""A plain loop, or the same training under Lightning, which also tries the validation before it begins."""

import logging
import sys

import torch
from common import answer, draw, draw_ids, fill
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(10, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Dropout(0.1), nn.Linear(24, 24))
        self.head = nn.Linear(24, 4)

    def forward(self, x):
        return self.head(F.relu(self.body(x)))


def batches(name, count):
    return [(draw(f"{name} x {i}", 8, 10), draw_ids(f"{name} y {i}", 4, 8)) for i in range(count)]


def plain(model):
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    model.train()
    torch.manual_seed(5)
    for x, y in batches("train", 4):
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    model.eval()
    with torch.no_grad():
        return losses, [F.cross_entropy(model(x), y).item() for x, y in batches("test", 2)]


def under_lightning(model):
    import lightning

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

    class Task(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = model
            self.losses, self.tests = [], []

        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters(), lr=1e-2)

        def on_train_start(self):
            torch.manual_seed(5)
            self.tests.clear()

        def training_step(self, batch, index):
            loss = F.cross_entropy(self.net(batch[0]), batch[1])
            self.losses.append(loss.item())
            return loss

        def validation_step(self, batch, index):
            self.tests.append(F.cross_entropy(self.net(batch[0]), batch[1]).item())

    task = Task()
    trainer = lightning.Trainer(
        max_epochs=1,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    loaders = [DataLoader(batches(name, count), batch_size=None) for name, count in (("train", 4), ("test", 2))]
    trainer.fit(task, *loaders)
    return task.losses, task.tests


losses, tests = (plain if sys.argv[1] == "plain" else under_lightning)(fill(Classifier()))
answer(losses=losses, tests=tests)
