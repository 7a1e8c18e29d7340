"""What the first call of a module says of it: its class and its plain attributes."""

import argparse
import dataclasses
import enum
import functools
import json
import math

import numpy as np
import pytest
import tenscope
import torch
import torch.nn.functional as F
from torch import nn
from traced import events


class Kind(enum.Enum):
    FAST = 1


class Level(enum.IntEnum):
    HIGH = 3


@dataclasses.dataclass
class Config:
    dim: int = 4
    dropout: float = 0.1
    act: str = "gelu"
    rope: dict = dataclasses.field(default_factory=lambda: {"theta": 1e4, "kind": None, "table": torch.ones(2)})
    labels: dict = dataclasses.field(default_factory=lambda: {str(i): i for i in range(100)})
    _private: int = 1


class Odd(nn.Module):
    def __init__(self):
        super().__init__()
        self.truth, self.count, self.eps, self.word, self.nothing = True, 3, 1e-6, "relu", None
        self.nan, self.inf, self.big, self.huge = math.nan, -math.inf, 2**70, 1 << 10000
        self.dtype, self.device, self.size = torch.bfloat16, torch.device("cpu"), torch.Size([2, 3])
        self.kind, self.level = Kind.FAST, Level.HIGH
        self.shape, self.nest, self.names = (2, 3), [[1, 2], [3.5, None]], {"b", "a"}
        self.function, self.method, self.cls, self.native = F.softmax, self.helper, nn.Linear, torch.relu
        self.partial = functools.partial(F.gelu, approximate="tanh")
        self.scalar, self.half = np.float32(0.5), np.int64(7)
        self.long_text, self.long_list = "x" * 1000, list(range(1000))
        self.tensor, self.array, self.child = torch.ones(3), np.ones(3), nn.Identity()
        self.parameter = nn.Parameter(torch.ones(1))
        self.anything, self.of_modules = object(), [nn.Identity()]
        self._secret = 1

    @property
    def costly(self):
        raise AssertionError("no property is asked")

    def helper(self):
        pass

    def forward(self, x):
        return x * self.parameter


class Inner(nn.Module):
    class Deep(nn.Module):
        def forward(self, x):
            return x

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.deep = Inner.Deep()

    def forward(self, x):
        return self.deep(x)


class Outer(nn.Module):
    def __init__(self, config, other):
        super().__init__()
        self.config = config
        self.first, self.second, self.third = Inner(config), Inner(config), Inner(other)

    def forward(self, x):
        return self.third(self.second(self.first(x)))


@pytest.fixture
def run(tmp_path):
    with tenscope.Run(tmp_path, name="run", strict=True) as run:
        yield run


def described(run) -> dict[str, dict]:
    enters = events(run, kind="enter")
    assert all("attributes" not in event.meta for event in enters if event.call > 0)
    return {event.scope: event.meta for event in enters if event.call == 0}


def test_plain_values_and_nothing_else(run):
    model = Odd()
    with tenscope.trace(model):
        model(torch.ones(2))
        model(torch.ones(2))
    meta = described(run)[""]
    assert meta["class_path"] == f"{__name__}:Odd"
    assert meta["attributes"] == {
        "truth": True,
        "count": 3,
        "eps": 1e-6,
        "word": "relu",
        "nothing": None,
        "nan": "nan",
        "inf": "-inf",
        "big": str(2**70),
        "dtype": "torch.bfloat16",
        "device": "cpu",
        "size": "torch.Size([2, 3])",
        "kind": "Kind.FAST",
        "level": "Level.HIGH",
        "shape": [2, 3],
        "nest": [[1, 2], [3.5, None]],
        "names": ["a", "b"],
        "function": "torch.nn.functional.softmax",
        "method": f"{__name__}.Odd.helper",
        "cls": "torch.nn.modules.linear.Linear",
        "native": f"{torch.relu.__module__}.{torch.relu.__qualname__}",
        "partial": f"functools.partial({F.gelu.__module__}.{F.gelu.__qualname__}, approximate='tanh')",
        "scalar": 0.5,
        "half": 7,
    }
    assert meta["attributes_left_out"] == 3  # huge, long_text and long_list


def test_a_configuration_is_told_once_where_it_is_met_first(run):
    config = Config()
    model = Outer(config, Config(dim=5))
    with tenscope.trace(model):
        model(torch.ones(2))
    found = described(run)
    members = {"config.dim": 4, "config.dropout": 0.1, "config.act": "gelu"}
    members |= {"config.rope.theta": 1e4, "config.rope.kind": None}
    assert found[""]["attributes"] == members and found[""]["attributes_left_out"] == 1  # labels
    assert found["first"]["attributes"] == found["second"]["attributes"] == {}
    assert found["third"]["attributes"] == members | {"config.dim": 5}
    assert found["first.deep"]["class_path"] == f"{__name__}:Inner.Deep"


@pytest.mark.parametrize("make", [dict, argparse.Namespace], ids=["dict", "namespace"])
def test_other_forms_of_a_configuration(run, make):
    config = make(width=3, act="silu")
    model = Outer(config, make(width=4, act="silu"))
    with tenscope.trace(model):
        model(torch.ones(2))
    found = described(run)
    assert found[""]["attributes"] == {"config.width": 3, "config.act": "silu"}
    assert found["first"]["attributes"] == found["second"]["attributes"] == {}
    assert found["third"]["attributes"] == {"config.width": 4, "config.act": "silu"}


def test_torchs_own_modules(run):
    model = nn.Sequential(nn.LayerNorm(4, eps=1e-3), nn.Dropout(0.25), nn.MultiheadAttention(4, 2))
    norm, dropout = model[0], model[1]
    with tenscope.trace(model):
        dropout(norm(torch.ones(2, 4)))
    found = described(run)
    assert found["0"]["class_path"] == "torch.nn.modules.normalization:LayerNorm"
    assert found["0"]["attributes"] == {"normalized_shape": [4], "eps": 1e-3, "elementwise_affine": True}
    assert found["1"]["attributes"] == {"p": 0.25, "inplace": False}


def test_limits(run):
    model = nn.Identity()
    for i in range(100):
        setattr(model, f"value_{i}", i)
    model.config = {f"member_{i}": i for i in range(200)}
    with tenscope.trace(model):
        model(torch.ones(1))
    meta = described(run)[""]
    assert sum("." not in name for name in meta["attributes"]) == 64
    assert sum("." in name for name in meta["attributes"]) == 200
    assert meta["attributes_left_out"] == 36
    del meta["build"]  # it has limits of its own
    assert len(json.dumps(meta)) < 10_000


def test_transformers_configurations(run):
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2, vocab_size=32
    )
    model = transformers.LlamaForCausalLM(config).eval()
    with tenscope.trace(model), torch.no_grad():
        model(torch.zeros(1, 3, dtype=torch.long))
    found = described(run)
    attributes = found[""]["attributes"]
    assert attributes["config.hidden_act"] == "silu" and attributes["config.rms_norm_eps"] == config.rms_norm_eps
    assert attributes["config.num_hidden_layers"] == 2 and "attributes_left_out" not in found[""]
    holders = [path for path, meta in found.items() if any(name.startswith("config.") for name in meta["attributes"])]
    assert holders == [""]
    assert found["model.layers.0.self_attn"]["attributes"]["scaling"] == 8**-0.5
    assert found["model.layers.1.input_layernorm"]["attributes"]["variance_epsilon"] == config.rms_norm_eps
    assert found["model.layers.1.mlp"]["class_path"] == "transformers.models.llama.modeling_llama:LlamaMLP"


class WithSecrets(nn.Linear):
    def __init__(self):
        super().__init__(2, 2)
        self.api_key = "0123456789abcdef0123"
        self.pad_token, self.eos_token_id, self.num_key_value_heads = "<pad>", 7, 4
        self.note = "use hf_abcdefghijklmnopqrst to log in"
        self.options = {"auth_token": "fedcba9876543210fedc", "depth": 3}
        self.arguments = argparse.Namespace(password="correct-horse-battery", width=8)


def test_what_looks_like_a_credential_stays_out(tmp_path):
    model = WithSecrets()
    with tenscope.Run(tmp_path, name="r") as run, tenscope.trace(model, run=run):
        model(torch.ones(1, 2))
    text = (tmp_path / "r" / "rank-0" / "journal.jsonl").read_text()
    for secret in ("0123456789abcdef0123", "hf_abcdef", "fedcba9876543210", "correct-horse"):
        assert secret not in text
    meta = next(event.meta for event in tenscope.open(tmp_path / "r").events(kind="enter"))
    told = meta["attributes"]
    assert told["api_key"] == told["note"] == told["options.auth_token"] == "<redacted>"
    assert (told["pad_token"], told["eos_token_id"], told["num_key_value_heads"]) == ("<pad>", 7, 4)
    assert told["options.depth"] == 3 and told["arguments.width"] == 8
    assert {"api_key", "note", "options"} <= set(meta["build"]["missing"])
