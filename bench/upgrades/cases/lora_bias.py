"""LoRA with a bias and a scaling that is not 1: tried, then merged into the model and tried again."""

import torch
from common import answer, draw, fill
from peft import LoraConfig, get_peft_model
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(12, 24)
        self.act = nn.Tanh()
        self.outer = nn.Linear(24, 5)

    def forward(self, x):
        return self.outer(self.act(self.inner(x)))


config = LoraConfig(r=4, lora_alpha=16, lora_bias=True, target_modules=["inner"], init_lora_weights=False)
model = fill(get_peft_model(Net(), config)).eval()
x = draw("x", 6, 12)
with torch.no_grad():
    before = model(x)
    after = model.merge_and_unload()(x)
answer(before=before, after=after)
