"""A video transformer of diffusers whose heads cannot be split into three even parts."""

import torch
from common import answer, draw, fill, train
from diffusers import WanTransformer3DModel

model = WanTransformer3DModel(
    num_attention_heads=2,
    attention_head_dim=16,
    in_channels=4,
    out_channels=4,
    text_dim=12,
    freq_dim=32,
    ffn_dim=48,
    num_layers=2,
    rope_max_seq_len=32,
)
model = fill(model).train()
video, text, noise = draw("video", 1, 4, 3, 8, 8), draw("text", 1, 5, 12), draw("noise", 1, 4, 3, 8, 8)


def predict():
    return model(hidden_states=video, timestep=torch.tensor([40]), encoder_hidden_states=text).sample


losses = train(model, lambda step: (predict() - noise).square().mean())
with torch.no_grad():
    answer(losses=losses, prediction=predict())
