"""tenscope.spy and context, and the locals of a trace."""

import threading

import pytest
import tenscope
import torch
from torch import nn
from traced import events


@pytest.fixture
def run(tmp_path):
    with tenscope.Run(tmp_path, name="run", strict=True) as run:
        yield run


# spy and context


class Spied(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(2, 2)

    def forward(self, x):
        q = self.fc(x)
        tenscope.spy("q", q, self)
        return q * 2


def test_spy_does_nothing_without_listeners(run):
    nn.Sequential(Spied())(torch.ones(1, 2))
    assert events(run) == []


def test_spy_in_a_trace_and_a_context(run):
    model = nn.Sequential(Spied(), Spied())
    x = torch.ones(1, 2)
    with tenscope.trace(model, inputs=False, outputs=False):
        model(x)
        with tenscope.context(prefix="step1"):
            y = model(x)
    spied = events(run)
    assert [(e.name, e.scope, e.call) for e in spied] == [
        ("0.q", "0", 0), ("1.q", "1", 0), ("step1.0.q", "0", 1), ("step1.1.q", "1", 1),
    ]  # fmt: skip
    assert torch.equal(spied[3].torch() * 2, y)


def test_spy_in_a_context_alone(run):
    model = nn.Sequential(Spied())
    with tenscope.context(prefix="batch3", model=model):
        model(torch.ones(1, 2))
        thread = threading.Thread(target=lambda: model(torch.ones(1, 2)))
        thread.start()
        thread.join()
    with tenscope.context():
        tenscope.spy("plain", 3)
    assert [(e.name, e.scope) for e in events(run)] == [("batch3.0.q", "0"), ("plain", "")]


# locals


class Holder(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(2)

    def forward(self, x):
        y = self.norm(x)
        cache = {"k": y * 2}
        return cache["k"] + 1


def test_locals_by_path(run):
    model = nn.Sequential(Holder())
    with tenscope.trace(
        model, inputs=False, outputs=False, locals=["0.forward.y", "*.forward.cache.k", "0.forward.self.*.running_mean"]
    ):
        out = model(torch.randn(3, 2))
        model(torch.randn(3, 2))
    changes = events(run, kind="change")
    assert {e.io for e in changes} == {"local"} and {e.scope for e in changes} == {"0"}
    by_name = {}
    for e in changes:
        by_name.setdefault(e.name, []).append(e)
    assert set(by_name) == {"0.forward.y", "0.forward.cache.k", "0.forward.self.norm.running_mean"}
    assert torch.equal(by_name["0.forward.cache.k"][0].torch() + 1, out)
    assert [e.meta["iteration"] for e in by_name["0.forward.y"]] == [0, 1]
    assert len(by_name["0.forward.self.norm.running_mean"]) == 3, "before, after the first call, after the second"


def test_locals_deep_inside_at_an_interval_and_only_what_changed(run):
    class Layer(nn.Module):
        def forward(self, x):
            attn = x.softmax(-1)
            return attn * 2

    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(Layer() for _ in range(2))

        def forward(self, x):
            for layer in self.layers:
                x = layer(x)
            return x

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder, self.norm = Encoder(), nn.BatchNorm1d(2)

        def forward(self, x):
            fixed = 3
            cache = {"k": x * fixed}
            cache["k"].add_(1)
            return self.norm(self.encoder(x)) + cache["k"]

    paths = ["forward.x", "encoder.layers.*.forward.attn", "forward.self.*.running_var", "forward.cache.k"]
    model = Model()
    with tenscope.trace(model, inputs=False, outputs=False, every=2, locals=[*paths, "forward.fixed", "encoder"]):
        inputs = [torch.randn(3, 2) for _ in range(4)]
        for x in inputs:
            model(x)
    told = {}
    for e in events(run, kind="change"):
        told.setdefault(e.name, []).append((e.meta["iteration"], e.value))
    assert {name: [i for i, _ in values] for name, values in told.items()} == {
        "forward.x": [0, 2],
        "encoder.layers.0.forward.attn": [0, 2],
        "encoder.layers.1.forward.attn": [0, 2],
        "encoder": [0, 2],
        "forward.self.norm.running_var": [0, 0, 2, 2],
        "forward.cache.k": [0, 0, 2, 2],
        "forward.fixed": [0],
    }
    before, after = (torch.tensor(value) for _, value in told["forward.cache.k"][2:])
    assert torch.equal(before, inputs[2] * 3) and torch.equal(after, inputs[2] * 3 + 1)
