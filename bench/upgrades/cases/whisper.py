"""Whisper of transformers: training on spectrograms, and the logits of one more call."""

import torch
from common import answer, draw, draw_ids, fill, train
from transformers import WhisperConfig, WhisperForConditionalGeneration

config = WhisperConfig(
    vocab_size=61,
    num_mel_bins=8,
    d_model=32,
    encoder_layers=2,
    decoder_layers=2,
    encoder_attention_heads=4,
    decoder_attention_heads=4,
    encoder_ffn_dim=48,
    decoder_ffn_dim=48,
    max_source_positions=20,
    max_target_positions=16,
    dropout=0.0,
    pad_token_id=0,
    bos_token_id=1,
    eos_token_id=2,
    decoder_start_token_id=1,
)
model = fill(WhisperForConditionalGeneration(config)).train()
sound, labels = draw("sound", 2, 8, 40), draw_ids("labels", 61, 2, 7, low=3)
losses = train(model, lambda step: model(input_features=sound, labels=labels).loss)
with torch.no_grad():
    answer(losses=losses, logits=model(input_features=sound, labels=labels).logits)
