"""The code of the blamed module where the runs are laid out differently, or compared by rows."""

import importlib.util
import sys

import pytest

torch = pytest.importorskip("torch")

import tenscope  # noqa: E402
from hand_written_run import tenscope as tenscope_cli  # noqa: E402
from hand_written_run import tenscope_json  # noqa: E402
from torch import nn  # noqa: E402

MODEL = """
import torch
from torch import nn


class Squash(nn.Module):
    def __init__(self, slope):
        super().__init__()
        self.slope = slope

    def forward(self, x):
        return torch.tanh(x * self.slope)


class Net(nn.Module):
    def __init__(self, slope=1.0):
        super().__init__()
        self.up, self.squash, self.down = nn.Linear(6, 6), Squash(slope), nn.Linear(6, 6)

    def forward(self, x):
        return self.down(self.squash(self.up(x)))
"""
EDITED = MODEL.replace("torch.tanh(x * self.slope)", "torch.sigmoid(x * self.slope)")


def network(folder, text, **options):
    """The network of a file with this text, with the weights that it always has."""
    folder.mkdir(exist_ok=True)
    path = folder / "squash_model.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location("squash_model", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["squash_model"] = module
    spec.loader.exec_module(module)
    torch.manual_seed(0)
    return module.Net(**options)


@pytest.fixture
def inputs():
    return torch.randn(8, 6, generator=torch.Generator().manual_seed(1))


def record(folder, name, model, parts):
    """Each part of the inputs on a rank of its own."""
    for rank, part in enumerate(parts):
        options = {"rank": rank, "world_size": len(parts), "join": rank > 0, "metadata": False}
        with tenscope.Run(folder, name=name, **options) as run, tenscope.trace(model, run=run, params=True):
            model(part)
    return folder / name


@pytest.fixture(autouse=True)
def forget():
    yield
    sys.modules.pop("squash_model", None)


def test_another_layout(tmp_path, inputs):
    a = record(tmp_path, "a", network(tmp_path / "one", MODEL), [inputs])
    b = record(tmp_path, "b", network(tmp_path / "two", EDITED), inputs.chunk(2))
    text = tenscope_cli("diff", a, b, check=1).stdout
    assert "laid out" in text and "the source of Squash differs: 1 line removed, 1 added" in text
    first = tenscope_json("diff", a, b, check=1)["first_divergence"]
    assert first["module"] == "squash" and first["code"]["source"] == "differs"
    assert "-        return torch.tanh(x * self.slope)" in first["source_diff"]
    assert "+        return torch.sigmoid(x * self.slope)" in first["source_diff"]


def test_attributes_in_another_layout(tmp_path, inputs):
    a = record(tmp_path, "a", network(tmp_path / "one", MODEL), inputs.chunk(2))
    b = record(tmp_path, "b", network(tmp_path / "two", MODEL, slope=2.0), [inputs])
    found = tenscope_json("diff", a, b, check=1)
    first = found["first_divergence"]
    assert first["module"] == "squash" and first["code"]["source"] == "same" and first["source_diff"] is None
    assert [(one["name"], one["a"], one["b"]) for one in first["code"]["attributes"]] == [("slope", 1.0, 2.0)]
    assert [(one["module"], one["name"]) for one in found["attributes"]] == [("squash", "slope")]


def test_rows_in_another_order(tmp_path, inputs):
    def record_rows(name, model, order):
        with tenscope.Run(tmp_path, name=name, metadata=False) as run, tenscope.trace(model, run=run):
            run.record("row", torch.tensor(order))
            model(inputs[order])
            model.squash.slope = 3.0  # what changes on the way has no place in a comparison by rows
            model(inputs[order])
        return tmp_path / name

    a = record_rows("a", network(tmp_path / "one", MODEL), list(range(8)))
    b = record_rows("b", network(tmp_path / "two", EDITED), [3, 1, 4, 0, 5, 7, 2, 6])
    first = tenscope_json("diff", a, b, "--rows", "row", check=1)["first_divergence"]
    assert first["module"] == "squash" and first["code"]["source"] == "differs"
    assert "+        return torch.sigmoid(x * self.slope)" in first["source_diff"]
    assert first["code"]["attributes"] == []


def test_plain_modules_have_no_attributes_that_differ(tmp_path, inputs):
    model = nn.Sequential(nn.Linear(6, 6), nn.Tanh())
    a, b = record(tmp_path, "a", model, [inputs]), record(tmp_path, "b", model, inputs.chunk(2))
    found = tenscope_json("diff", a, b, check=0)
    assert found["first_divergence"] is None and found["attributes"] == []
