"""The vision tower of Idefics 3: as many patches as it has positions."""

import torch
from common import answer, draw, fill, train
from transformers.models.idefics3.configuration_idefics3 import Idefics3VisionConfig
from transformers.models.idefics3.modeling_idefics3 import Idefics3VisionTransformer

config = Idefics3VisionConfig(
    hidden_size=24,
    intermediate_size=48,
    num_hidden_layers=2,
    num_attention_heads=2,
    image_size=32,
    patch_size=8,
)
model = fill(Idefics3VisionTransformer(config)).train()
images = draw("images", 2, 3, 32, 32)
losses = train(model, lambda step: model(pixel_values=images).last_hidden_state.square().mean())
with torch.no_grad():
    answer(losses=losses, states=model(pixel_values=images).last_hidden_state)
