"""T5 of transformers: training of the encoder and the decoder, then greedy generation."""

import torch
from common import answer, draw_ids, fill, train
from transformers import T5Config, T5ForConditionalGeneration

config = T5Config(
    vocab_size=61,
    d_model=32,
    d_kv=8,
    d_ff=48,
    num_layers=2,
    num_heads=4,
    dropout_rate=0.0,
    decoder_start_token_id=0,
)
model = fill(T5ForConditionalGeneration(config)).train()
ids, labels = draw_ids("words", 61, 2, 9, low=2), draw_ids("labels", 61, 2, 7, low=2)
mask = torch.ones_like(ids)
mask[1, 6:] = 0
losses = train(model, lambda step: model(input_ids=ids, attention_mask=mask, labels=labels).loss)
model.eval()
words = model.generate(ids, attention_mask=mask, max_new_tokens=5, min_new_tokens=5, do_sample=False)
answer(losses=losses, words=words)
