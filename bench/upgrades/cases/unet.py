"""A small conditional U-Net of diffusers, trained on noise."""

import torch
from common import answer, draw, fill, train
from diffusers import UNet2DConditionModel

model = UNet2DConditionModel(
    sample_size=8,
    in_channels=2,
    out_channels=2,
    layers_per_block=1,
    block_out_channels=(16, 32),
    down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
    up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
    cross_attention_dim=12,
    attention_head_dim=4,
    norm_num_groups=8,
)
model = fill(model, std=0.1).train()
x, text, noise = draw("x", 2, 2, 8, 8), draw("text", 2, 5, 12), draw("noise", 2, 2, 8, 8)


def predict():
    return model(x, torch.tensor([10, 700]), encoder_hidden_states=text).sample


losses = train(model, lambda step: (predict() - noise).square().mean(), steps=2)
with torch.no_grad():
    answer(losses=losses, prediction=predict())
