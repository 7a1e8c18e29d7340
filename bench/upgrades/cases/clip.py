"""CLIP of transformers: both towers, and the contrastive loss."""

import torch
from common import answer, draw, draw_ids, fill, train
from transformers import CLIPConfig, CLIPModel

tower = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
config = CLIPConfig(
    text_config=tower | {"vocab_size": 61, "max_position_embeddings": 16, "eos_token_id": 60, "bos_token_id": 0},
    vision_config=tower | {"image_size": 32, "patch_size": 8},
    projection_dim=16,
)
model = fill(CLIPModel(config)).train()
ids = draw_ids("words", 60, 3, 9, low=1)
ids[:, -1] = 60
mask = torch.ones_like(ids)
images = draw("images", 3, 3, 32, 32)


def run(**more):
    return model(input_ids=ids, attention_mask=mask, pixel_values=images, **more)


losses = train(model, lambda step: run(return_loss=True).loss)
with torch.no_grad():
    answer(losses=losses, logits=run().logits_per_image)
