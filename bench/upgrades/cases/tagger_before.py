"""A small encoder as it was: one class for everything, trained on classes of whole sentences and of words."""

import torch
from common import answer, draw, draw_ids
from torch import nn
from torch.nn import functional as F

SIZE, WORDS = 24, 50


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.attn = nn.MultiheadAttention(SIZE, 3, batch_first=True)
        self.ln1 = nn.LayerNorm(SIZE, eps=1e-12)
        self.fc1 = nn.Linear(SIZE, 2 * SIZE)
        self.fc2 = nn.Linear(2 * SIZE, SIZE)
        self.ln2 = nn.LayerNorm(SIZE, eps=1e-12)

    def forward(self, x, padding):
        y, _ = self.attn(x, x, x, key_padding_mask=padding, need_weights=False)
        x = self.ln1(x + y)
        return self.ln2(x + self.fc2(torch.relu(self.fc1(x))))


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, SIZE)
        self.ln = nn.LayerNorm(SIZE, eps=1e-12)
        self.layer0 = Layer()
        self.layer1 = Layer()
        self.score = nn.Linear(SIZE, 1)
        self.tags = nn.Linear(SIZE, 7)
        self.topic = nn.Linear(SIZE, 4)

    def forward(self, ids):
        padding = ids == 0
        x = self.ln(self.words(ids))
        x = self.layer1(self.layer0(x, padding), padding)
        weights = self.score(x).squeeze(-1).masked_fill(padding, -1e9).softmax(dim=1)
        return self.tags(x), self.topic((weights.unsqueeze(-1) * x).sum(dim=1))


torch.manual_seed(3)
model = Tagger().train()
for name, p in model.named_parameters():
    if p.dim() > 1:
        p.data = draw(name, *p.shape, std=0.02)
optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
losses = []
for step in range(3):
    ids = draw_ids(f"sentences {step}", WORDS, 4, 9, low=1)
    ids[1, 6:] = 0
    tags, topics = draw_ids(f"tags {step}", 7, 4, 9), draw_ids(f"topics {step}", 4, 4)
    tags[ids == 0] = -100
    of_words, of_sentences = model(ids)
    loss = F.cross_entropy(of_words.transpose(1, 2), tags) + F.cross_entropy(of_sentences, topics)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
ids = draw_ids("test", WORDS, 2, 9, low=1)
with torch.no_grad():
    of_words, of_sentences = model.eval()(ids)
answer(losses=losses, words=of_words, sentences=of_sentences)
