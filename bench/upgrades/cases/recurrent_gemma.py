"""RecurrentGemma: the rotary embedding turns half of each head."""

import torch
from common import answer, draw_ids, fill, train
from transformers import RecurrentGemmaConfig, RecurrentGemmaForCausalLM

config = RecurrentGemmaConfig(
    vocab_size=61,
    hidden_size=32,
    intermediate_size=48,
    lru_width=32,
    num_hidden_layers=3,
    num_attention_heads=2,
    attention_window_size=16,
)
model = fill(RecurrentGemmaForCausalLM(config)).train()
ids = draw_ids("words", 61, 2, 12)
losses = train(model, lambda step: model(input_ids=ids, labels=ids, use_cache=False).loss)
with torch.no_grad():
    answer(losses=losses, logits=model(input_ids=ids, use_cache=False).logits)
