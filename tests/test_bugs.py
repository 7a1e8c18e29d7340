"""Small programs with a known mistake, or with none: does the first divergence name it? More in bench/bugs.py."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from forked import compare  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402


class Attention(nn.Module):
    def __init__(self, size=16, fused=False):
        super().__init__()
        self.qkv, self.out, self.fused = nn.Linear(size, 3 * size), nn.Linear(size, size), fused

    def forward(self, x):
        q, k, v = self.qkv(x).view(*x.shape[:2], 3, 4, -1).permute(2, 0, 3, 1, 4)
        if self.fused:
            y = F.scaled_dot_product_attention(q, k, v)
        else:
            y = (q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5).softmax(-1) @ v
        return self.out(y.transpose(1, 2).reshape(x.shape))


class Block(nn.Module):
    def __init__(self, size=16):
        super().__init__()
        self.norm, self.attn = nn.LayerNorm(size), Attention(size)
        self.mlp = nn.Sequential(nn.Linear(size, 32), nn.GELU(), nn.Linear(32, size))

    def forward(self, x):
        x = x + self.attn(self.norm(x))
        return x + self.mlp(x)


class Model(nn.Module):
    cut = False

    def __init__(self):
        super().__init__()
        self.embed, self.blocks = nn.Embedding(20, 16), nn.ModuleList([Block(), Block()])
        self.head = nn.Linear(16, 20)

    def forward(self, ids):
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x.detach() if self.cut else x)
        return self.head(x)


class Tagger(nn.Module):
    keeps = False

    def __init__(self):
        super().__init__()
        self.embed, self.rnn, self.out = nn.Embedding(20, 8), nn.GRU(8, 8, batch_first=True), nn.Linear(8, 20)
        self.state = None

    def forward(self, ids):
        y, state = self.rnn(self.embed(ids), self.state)
        self.state = state.detach() if self.keeps else None
        return self.out(y)


class WrongSquare(torch.autograd.Function):
    @staticmethod
    def forward(context, x, factor):
        context.save_for_backward(x)
        context.factor = factor
        return x * x

    @staticmethod
    def backward(context, grad):
        return grad * context.factor * context.saved_tensors[0], None


class Square(nn.Module):
    factor = 2

    def forward(self, x):
        return WrongSquare.apply(x, self.factor)


class Centred(nn.Module):
    updates = True

    def __init__(self):
        super().__init__()
        self.register_buffer("center", torch.zeros(20))

    def forward(self, x):
        y = x - self.center
        if self.updates:
            self.center = 0.9 * self.center + 0.1 * x.detach().mean((0, 1))
        return y


def batches(count=3):
    torch.manual_seed(1)
    return [(torch.randint(0, 20, (3, 6)), torch.randint(0, 20, (3, 6))) for _ in range(count)]


def train(model, optimizer, data=None, forward=None):
    for x, y in data or batches():
        optimizer.zero_grad()
        F.cross_entropy((forward or model)(x).flatten(0, 1), y.flatten()).backward()
        optimizer.step()


def adam(model, **options):
    return torch.optim.AdamW(model.parameters(), **{"lr": 1e-3, **options})


def sgd(model, **options):
    return torch.optim.SGD(model.parameters(), **{"lr": 0.1, **options})


def epsilon(bug):
    model = Model()
    if bug:
        model.blocks[1].norm.eps = 1e-6
    with torch.no_grad():
        model(batches()[0][0])


def approximation(bug):
    model = Model()
    model.blocks[1].mlp[1].approximate = "tanh" if bug else "none"
    train(model, sgd(model))


def state_leak(bug):
    model = Tagger()
    model.keeps = bug
    train(model, sgd(model))


def stale_buffer(bug):
    model = nn.Sequential(nn.Embedding(20, 20), Centred())
    model[1].updates = not bug
    train(model, sgd(model))


def needless_buffer(bug):
    stale_buffer(not bug)


def cut_gradient(bug):
    model = Model()
    model.cut = bug
    train(model, sgd(model))


def wrong_backward(bug):
    model = nn.Sequential(nn.Embedding(20, 8), nn.Linear(8, 8), Square(), nn.Linear(8, 20))
    model[2].factor = 1.9 if bug else 2
    train(model, sgd(model))


def second_moment(bug):
    """At first the same but for rounding: the bias correction takes the difference out."""
    model = Model()
    train(model, adam(model, betas=(0.9, 0.99 if bug else 0.999)))


def small_decay(bug):
    model = Model()
    train(model, adam(model, lr=1e-4, weight_decay=0.02 if bug else 0.01))


def learning_rate_under_noise(bug):
    model = Model()
    model.blocks[0].attn.fused = bug
    train(model, sgd(model, lr=0.102 if bug else 0.1))


def decay_under_noise(bug):
    model = Model()
    model.blocks[0].attn.fused = bug
    train(model, adam(model, weight_decay=0.3 if bug else 0.01))


def lost_state(bug):
    model = Model()
    data = batches(4)
    first = adam(model)
    train(model, first, data[:2])
    second = adam(model)
    if not bug:
        second.load_state_dict(first.state_dict())
    train(model, second, data[2:])


def wrong_after_warm_up(bug):
    model = Model().eval()
    if bug:
        with torch.no_grad():
            model(torch.zeros(1, 3, dtype=torch.long))
        model.blocks[0].attn.out.weight.register_hook(lambda grad: grad * 0.5)
    train(model, sgd(model))


def noise(bug):
    model = Model()
    model.blocks[0].attn.fused = model.blocks[1].attn.fused = bug
    train(model, adam(model))


def warm_up(bug):
    model = Model()
    data = batches()
    if bug:
        with torch.no_grad():
            model(data[0][0])
    train(model, sgd(model), data)


def evaluated(bug):
    model = Model()
    optimizer = sgd(model)
    for batch in batches():
        train(model, optimizer, [batch])
        if bug:
            with torch.no_grad():
                model(torch.ones(2, 4, dtype=torch.long))


def layers(*between):
    torch.manual_seed(0)
    return nn.Sequential(nn.Embedding(20, 8), nn.Linear(8, 8), *between, nn.Tanh(), nn.Linear(8, 20))


def inserted(bug):
    model = layers(nn.Identity()) if bug else layers()
    train(model, sgd(model))


def wrapped(bug):
    model = nn.Sequential(layers(), nn.Identity()) if bug else layers()
    train(model, sgd(model))


@pytest.mark.parametrize(
    ("program", "where"),
    [
        (epsilon, ("blocks.1.norm", "blocks.1.norm.output", 0, "forward")),
        (approximation, ("blocks.1.mlp.1", "blocks.1.mlp.1.output", 0, "forward")),
        (state_leak, ("", "rnn.input.1", 1, "forward")),
        (stale_buffer, ("1", "1.center", 0, "forward")),
        (needless_buffer, ("1", "1.center", 0, "forward")),
        (cut_gradient, ("", "embed.weight", 0, "backward")),
        (wrong_backward, ("2", "0.weight", 0, "backward")),
        (second_moment, ("embed", "embed.weight", 0, "optimizer")),
        (small_decay, ("embed", "embed.weight", 0, "optimizer")),
        (learning_rate_under_noise, ("embed", "embed.weight", 0, "optimizer")),
        (decay_under_noise, ("embed", "embed.weight", 0, "optimizer")),
        (lost_state, ("embed", "embed.weight", 2, "optimizer")),
        (wrong_after_warm_up, ("blocks.0.attn.out", "blocks.0.attn.out.weight", 0, "backward")),
    ],
    ids=lambda case: getattr(case, "__name__", ""),
)
def test_mistakes(tmp_path, program, where):
    found = compare(tmp_path, program).first_divergence or SimpleNamespace(
        module=None, name=None, step=None, phase=None
    )
    assert (found.module, found.name, found.step, found.phase) == where


class Weighing(Attention):
    """Returns its weights as well, which nobody uses, and takes a mask of another form."""

    def forward(self, x, mask=None):
        q, k, v = self.qkv(x).view(*x.shape[:2], 3, 4, -1).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5
        if mask is not None and mask.dtype == torch.bool:
            mask = torch.zeros(mask.shape).masked_fill(~mask, float("-inf"))
        weights = (scores if mask is None else scores + mask).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).reshape(x.shape)), weights


class Caller(nn.Module):
    def __init__(self, form):
        super().__init__()
        self.embed, self.attn, self.head, self.form = nn.Embedding(20, 16), Weighing(), nn.Linear(16, 20), form

    def forward(self, ids):
        allowed = torch.ones(6, 6).tril().bool()
        mask = allowed if self.form == "bool" else torch.zeros(6, 6).masked_fill(~allowed, float("-inf"))
        y, weights = self.attn(self.embed(ids), mask)
        if self.form == "bool":
            y = y + 0 * weights.sum()  # the weights have a gradient in one run only
        return self.head(y)


def other_form(bug):
    model = Caller("bool" if bug else "float")
    train(model, adam(model))


class Compiled(nn.Module):
    """Has torch.compile's names."""

    def __init__(self, model):
        super().__init__()
        self._orig_mod = model

    def forward(self, *inputs):
        return self._orig_mod(*inputs)


def wrapped_twice(bug):
    model = Model()
    model.blocks[0] = Compiled(model.blocks[0]) if bug else model.blocks[0]
    model = Compiled(Compiled(model)) if bug else model
    train(model, adam(model))


def test_wrappers_are_seen_through(tmp_path):
    diff = compare(tmp_path, wrapped_twice)
    assert not diff and diff.counts.compared == diff.counts.first_run, str(diff)
    assert diff.renamed == {"": "_orig_mod._orig_mod", "blocks.0": "_orig_mod._orig_mod.blocks.0._orig_mod"}


@pytest.mark.parametrize("program", [noise, warm_up, evaluated, other_form], ids=lambda program: program.__name__)
def test_nothing_wrong(tmp_path, program):
    diff = compare(tmp_path, program)
    assert not diff and not diff.equal, str(diff)


def loss_in_a_module(bug):
    model, loss = Model(), nn.CrossEntropyLoss() if bug else F.cross_entropy
    optimizer = sgd(model)
    for x, y in batches():
        optimizer.zero_grad()
        loss(model(x).flatten(0, 1), y.flatten()).backward()
        optimizer.step()


def test_a_loss_that_is_a_module_in_one_run(tmp_path):
    diff = compare(tmp_path, loss_in_a_module)
    assert not diff and diff.counts.compared == diff.counts.bit_equal == diff.counts.first_run, str(diff)


def scaled(bug, is_unscaled=True):
    model = Model()
    optimizer, scaler = sgd(model), torch.amp.GradScaler("cpu", enabled=bug, init_scale=2.0**16)
    for x, y in batches():
        optimizer.zero_grad()
        scaler.scale(F.cross_entropy(model(x).flatten(0, 1), y.flatten())).backward()
        if is_unscaled:
            scaler.step(optimizer)
            scaler.update()
        else:
            optimizer.step()


def test_a_loss_that_is_scaled_in_one_run(tmp_path):
    diff = compare(tmp_path / "right", scaled)
    assert not diff and diff.counts.compared == diff.counts.first_run and diff.notes == [], str(diff)
    wrong = compare(tmp_path / "wrong", lambda bug: scaled(bug, is_unscaled=False)).first_divergence
    assert (wrong.module, wrong.phase) == ("", "backward")


@pytest.mark.parametrize("program", [inserted, wrapped], ids=lambda program: program.__name__)
def test_other_modules_around_the_same_numbers(tmp_path, program):
    diff = compare(tmp_path, program)
    assert not diff and diff.equal and diff.renamed, str(diff)
