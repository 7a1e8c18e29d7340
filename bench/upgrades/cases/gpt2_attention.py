"""GPT-2 of transformers with the attention of the argument, trained with AdamW."""

import sys

import torch
from common import answer, draw_ids, fill, train
from transformers import GPT2Config, GPT2LMHeadModel

config = GPT2Config(
    vocab_size=71,
    n_positions=32,
    n_embd=32,
    n_layer=3,
    n_head=4,
    resid_pdrop=0.0,
    embd_pdrop=0.0,
    attn_pdrop=0.0,
    attn_implementation=sys.argv[1],
)
model = fill(GPT2LMHeadModel(config)).train()
ids = draw_ids("words", 71, 3, 14)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
losses = train(model, lambda step: model(input_ids=ids, labels=ids).loss, steps=4, optimizer=optimizer)
with torch.no_grad():
    answer(losses=losses, logits=model(input_ids=ids).logits)
