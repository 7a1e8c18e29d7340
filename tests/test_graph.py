"""The graph of a run's modules: what is drawn, in which format, and how it is coloured."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import tenscope  # noqa: E402
from torch import nn  # noqa: E402

TENSCOPE = Path(sys.executable).parent / "tenscope"
needs_dot = pytest.mark.skipif(shutil.which("dot") is None, reason="Graphviz is not installed")


def graph(*words, code=0, **more):
    done = subprocess.run([TENSCOPE, "graph", *map(str, words)], capture_output=True, text=True, timeout=60, **more)
    assert done.returncode == code, done.stderr
    return done


def document(*words):
    return json.loads(graph(*words, "--json").stdout)


def by_path(found):
    return {path: node for node in found["nodes"] for path in node["paths"]}


class Layer(nn.Module):
    def __init__(self, factor=1.0):
        super().__init__()
        self.norm, self.fc, self.factor = nn.LayerNorm(4), nn.Linear(4, 4), factor

    def forward(self, x):
        return x + self.factor * self.fc(self.norm(x))


class Net(nn.Module):
    def __init__(self, factors=(1.0, 1.0, 1.0, 1.0)):
        super().__init__()
        self.embed = nn.Embedding(10, 4)
        self.layers = nn.ModuleList(Layer(factor) for factor in factors)
        self.head = nn.Linear(4, 7)

    def forward(self, ids):
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def record(path, **options):
    torch.manual_seed(0)
    net = Net(**options)
    with tenscope.init(path), tenscope.trace(net), torch.no_grad():
        net(torch.tensor([[1, 2, 3]]))
    return path


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    return {
        "good": record(folder / "good"),
        "bad": record(folder / "bad", factors=(1.0, 1.0, 1.5, 1.0)),
        "nan": record(folder / "nan", factors=(1.0, float("nan"), 1.0, 1.0)),
    }


def test_repeated_layers_are_folded(runs):
    found = document(runs["good"])
    names = [node["name"] for node in found["nodes"]]
    assert names == ["Net#0", "embed", "layers × 4", "norm", "fc", "head"]
    layers = found["nodes"][2]
    assert layers["class"] == "Layer"
    assert layers["calls"] == 4
    assert layers["paths"] == [f"layers.{i}" for i in range(4)]
    assert layers["duration_ns"] > layers["own_ns"] > 0
    assert {(edge["from"], edge["to"]) for edge in found["edges"]} == {(0, 1), (0, 2), (2, 3), (2, 4), (0, 5)}


def test_shapes_are_those_of_the_first_call(runs):
    nodes = by_path(document(runs["good"]))
    assert nodes["head"]["inputs"] == [[1, 3, 4]]
    assert nodes["head"]["outputs"] == [[1, 3, 7]]
    assert nodes["embed"]["inputs"] == [[1, 3]]


def test_unfolded_pruned_and_merged(runs):
    modules = dict(Net().named_modules())
    called = {name for name, module in modules.items() if not isinstance(module, nn.ModuleList)}
    assert set(by_path(document(runs["good"], "--no-fold"))) == called
    pruned = document(runs["good"], "--depth", 2)
    assert [node["name"] for node in pruned["nodes"]] == ["Net#0", "embed", "layers × 4", "head"]
    assert pruned["nodes"][2]["hidden"] == 8
    merged = document(runs["good"], "--no-fold", "--merge", "class")
    counts = {node["name"]: len(node["paths"]) for node in merged["nodes"]}
    assert counts == {"Net": 1, "Embedding": 1, "Layer × 4": 4, "LayerNorm × 4": 4, "Linear × 5": 5}


def test_a_thousand_modules_stay_readable(tmp_path):
    net = nn.Sequential(*(nn.Sequential(nn.Linear(i, i + 1), nn.ReLU()) for i in range(1, 334)))
    with tenscope.init(tmp_path / "run"), tenscope.trace(net, values="stats"), torch.no_grad():
        net(torch.ones(1, 1))
    found = document(tmp_path / "run")
    assert [node["name"] for node in found["nodes"]] == ["Sequential#0", "[0-332] × 333", "0", "1"], (
        "shapes told them apart"
    )
    merged = document(tmp_path / "run", "--no-fold", "--merge", "class")
    assert {node["name"] for node in merged["nodes"]} == {"Sequential × 334", "Linear × 333", "ReLU × 333"}
    assert {edge["count"] for edge in merged["edges"]} == {333}
    folded = document(tmp_path / "run", "--merge", "class")
    assert folded["edges"] == merged["edges"], "an edge counts modules, not what they were folded to"
    flat = document(tmp_path / "run", "--no-fold")
    assert len(flat["nodes"]) == 334, "two levels at least"
    if shutil.which("dot"):
        graph(tmp_path / "run", "--no-fold", "--depth", 0, "-o", tmp_path / "all.png")
        assert (tmp_path / "all.png").read_bytes().startswith(b"\x89PNG")


def test_coloured_by_difference(runs):
    found = document(runs["good"], "--against", runs["bad"])
    nodes = by_path(found)
    assert nodes["layers.2"]["mark"] == "first divergence"
    assert nodes["layers.2"]["diff"] == "differs"
    assert {nodes[path]["diff"] for path in ("embed", "layers.0", "layers.1", "layers.2.fc")} == {"equal"}
    assert {nodes[path]["diff"] for path in ("", "layers.3", "layers.3.norm", "head")} == {"differs"}
    assert nodes["layers.0"] is nodes["layers.1"]
    assert nodes["layers.2"]["paths"] == ["layers.2"]
    assert "layers.2" in found["answer"]
    same = document(runs["good"], "--against", runs["good"])
    assert {node["diff"] for node in same["nodes"]} == {"equal"}


def test_coloured_by_nan(runs):
    nodes = by_path(document(runs["nan"], "--color", "nan"))
    assert nodes["layers.1"]["nonfinite"] == "output"
    assert nodes["layers.1"]["mark"] == "first NaN or Inf"
    assert nodes["layers.1.fc"]["nonfinite"] == "none"
    assert nodes["layers.0"]["nonfinite"] == "none"
    assert nodes["head"]["nonfinite"] == "output"
    assert nodes["head"]["mark"] == ""


@needs_dot
@pytest.mark.parametrize("color", [(), ("--color", "nan"), ("--color", "time"), ("--against", "bad")])
def test_pictures(runs, tmp_path, color):
    words = [runs["bad"] if word == "bad" else word for word in color]
    svg, png, dot = (tmp_path / f"graph.{kind}" for kind in ("svg", "png", "dot"))
    graph(runs["good"], *words, "-o", svg)
    shown = "".join(ET.parse(svg).getroot().itertext())
    assert "Net#0" in shown
    assert "layers" in shown
    assert "1×3×4" in shown
    graph(runs["good"], *words, "-o", png, "--size", "5,3", "--dpi", 50)
    data = png.read_bytes()
    assert data.startswith(b"\x89PNG")
    width, height = (int.from_bytes(data[at : at + 4], "big") for at in (16, 20))
    assert width <= 5 * 50 + 2
    assert height <= 3 * 50 + 2
    graph(runs["good"], *words, "-o", dot)
    canonical = subprocess.run(["dot", "-Tcanon", dot], capture_output=True, text=True, check=True)
    assert canonical.stderr == ""
    assert sorted(path.name for path in tmp_path.iterdir()) == ["graph.dot", "graph.png", "graph.svg"]


@needs_dot
def test_any_name_can_be_drawn(tmp_path):
    names = ['a"b', "a<b>&amp;", "a\\n\\", "übung→", "]>", "x" * 500, "a\x01\x1b", "{|}", "0", "<B>", "--", "%s"]
    trace = tmp_path / "trace.txt"
    trace.write_text("\n".join(f"{name}.{name}" for name in names))
    for kind in ("svg", "dot"):
        graph(trace, "-o", tmp_path / f"out.{kind}")
    canonical = subprocess.run(["dot", "-Tcanon", tmp_path / "out.dot"], capture_output=True, text=True, check=True)
    assert canonical.stderr == ""
    shown = "".join(ET.parse(tmp_path / "out.svg").getroot().itertext())
    assert all(name in shown for name in ('a"b', "a<b>&amp;", "a\\n\\", "]>", "{|}", "<B>"))


def test_a_text_of_paths(tmp_path):
    trace = tmp_path / "trace.txt"
    trace.write_text("".join(f"encoder.layer.{i}.linear{j}\n" for i in range(3) for j in (1, 2)))
    out = tmp_path / "graph.json"
    assert graph(trace, "-o", out).stdout == f"{out}: 4 nodes, 3 edges\n"
    found = json.loads(out.read_text())
    assert [node["name"] for node in found["nodes"]] == ["encoder", "layer × 3", "linear1", "linear2"]
    assert [node["calls"] for node in found["nodes"]] == [0, 0, 3, 3]


def test_a_large_model_is_drawn_to_a_readable_depth(tmp_path):
    trace = tmp_path / "trace.txt"
    trace.write_text("".join(f"stage_{i}x.part_{j}x\n" for i in range(40) for j in range(i % 20 + 15)))
    done = graph(trace, "-o", tmp_path / "some.json")
    assert "--depth 0 draws all" in done.stderr
    assert done.stdout.endswith("some.json: 41 nodes, 40 edges\n")
    assert len(document(trace, "--depth", 0)["nodes"]) == 1 + 40 + sum(i % 20 + 15 for i in range(40))


def test_without_graphviz(runs, tmp_path):
    environment = {**os.environ, "PATH": str(tmp_path)}
    done = graph(runs["good"], "-o", tmp_path / "graph.svg", code=2, env=environment)
    assert "Graphviz" in done.stderr
    assert ".dot or .json" in done.stderr
    assert list(tmp_path.iterdir()) == []
    graph(runs["good"], "-o", tmp_path / "graph.dot", env=environment)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "-o graph.svg"),
        (["-o", "graph.gif"], ".svg, .png, .dot or .json"),
        (["-o", "x.dot", "--color", "diff"], "--against"),
        (["-o", "x.dot", "--size", "3"], "W,H"),
        (["-o", "no/such/folder/x.dot"], "no/such/folder/x.dot"),
    ],
)
def test_wrong_use(runs, tmp_path, words, said):
    assert said in graph(runs["good"], *words, code=2, cwd=tmp_path).stderr


def test_what_has_no_modules(tmp_path):
    with tenscope.init(tmp_path / "run"):
        tenscope.record("x", torch.zeros(2))
    assert "no module calls" in graph(tmp_path / "run", "-o", tmp_path / "x.dot", code=2).stderr
    (tmp_path / "empty.txt").write_text("\n")
    graph(tmp_path / "empty.txt", "-o", tmp_path / "x.dot", code=2)
    (tmp_path / "binary.txt").write_bytes(bytes(range(256)))
    assert "a trace is a text" in graph(tmp_path / "binary.txt", "-o", tmp_path / "x.dot", code=2).stderr
