"""Registration with MONAI: a local cross-correlation under a Gaussian window."""

import torch
from common import answer, draw, fill, train
from monai.losses import LocalNormalizedCrossCorrelationLoss
from torch import nn

model = fill(nn.Sequential(nn.Conv2d(1, 6, 3, padding=1), nn.Tanh(), nn.Conv2d(6, 1, 3, padding=1)))
criterion = LocalNormalizedCrossCorrelationLoss(spatial_dims=2, kernel_size=7, kernel_type="gaussian")
moving, fixed = draw("moving", 2, 1, 16, 16), draw("fixed", 2, 1, 16, 16)
losses = train(model, lambda step: criterion(model(moving), fixed))
with torch.no_grad():
    answer(losses=losses, warped=model(moving))
