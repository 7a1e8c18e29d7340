"""A decoder of x-transformers with normalised queries and keys, and a learned scale of them."""

import torch
from common import answer, draw_ids, fill, train
from torch.nn import functional as F
from x_transformers import Decoder, TransformerWrapper

layers = Decoder(
    dim=32,
    depth=2,
    heads=4,
    attn_dim_head=8,
    attn_qk_norm=True,
    attn_qk_norm_dim_scale=True,
    rotary_pos_emb=True,
)
model = fill(TransformerWrapper(num_tokens=61, max_seq_len=16, attn_layers=layers)).train()
ids = draw_ids("words", 61, 2, 12)
losses = train(model, lambda step: F.cross_entropy(model(ids[:, :-1]).transpose(1, 2), ids[:, 1:]))
with torch.no_grad():
    answer(losses=losses, logits=model(ids))
