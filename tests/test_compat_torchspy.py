"""torchspy's document and its facts, run against the drop-in."""

import asyncio
import copy
import gc
import json
import logging
import subprocess
import sys
import threading

import pytest
import torch
from tenscope.compat import torchspy
from tenscope.compat.torchspy import CallTracer, DebugContext, TensorSaver, get_debug_context, trace_graph
from tenscope.compat.torchspy.saver import spy_save
from torch import nn


class MyModule(nn.Module):
    def __init__(self):
        super().__init__()
        self.proj_q = nn.Linear(4, 4)

    def forward(self, x):
        q = self.proj_q(x)
        spy_save("q", q, self)
        return q


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear1 = nn.Linear(4, 4)
        self.linear2 = nn.Linear(4, 4)

    def forward(self, x):
        return self.linear2(self.linear1(x))


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.ModuleList(Layer() for _ in range(2))

    def forward(self, x):
        for layer in self.layer:
            x = layer(x)
        return x


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = Encoder()

    def forward(self, x):
        return self.encoder(x)


def test_saving_tensors_as_documented(tmp_path):
    model = nn.Sequential(MyModule(), MyModule())
    saver = TensorSaver(tmp_path / "debug_tensors")
    saver.register_modules(model, target_classes=(MyModule,))
    x = torch.randn(2, 4)
    with DebugContext(saver, prefix="step0"):
        output = model(x)
    assert sorted(p.name for p in (tmp_path / "debug_tensors").iterdir()) == [
        "step0.0.q.call0.pt",
        "step0.1.q.call0.pt",
    ]
    saved = torch.load(tmp_path / "debug_tensors" / "step0.1.q.call0.pt", weights_only=True)
    assert torch.equal(saved, output) and not saved.requires_grad
    model(x)
    assert len(list((tmp_path / "debug_tensors").iterdir())) == 2, "outside a context nothing is saved"


def test_tracing_module_calls_as_documented(tmp_path):
    model = Model()
    tracer = CallTracer(tmp_path / "traces")
    tracer.register_hooks(model, target_classes=(nn.Linear,))
    model(torch.randn(2, 4))
    path = tracer.save_trace("forward.txt")
    assert path.read_text().splitlines() == [
        "encoder.layer.0.linear1",
        "encoder.layer.0.linear2",
        "encoder.layer.1.linear1",
        "encoder.layer.1.linear2",
    ]


def test_all_modules_children_before_parents_and_root(tmp_path):
    encoder, tracer = Encoder(), CallTracer(tmp_path)
    tracer.register_hooks(encoder, exclude_names=["linear2"], target_names=["layer", "root"])
    expected = ["root", "layer", "layer.0", "layer.0.linear1", "layer.1", "layer.1.linear1"]
    assert list(tracer.module_paths.values()) == expected
    assert tracer.get_module_path(encoder) == "root" and tracer.get_module_path(nn.Linear(1, 1)) == "unknown"
    del encoder
    gc.collect()
    assert not tracer.module_paths, "a path goes with its module"
    model = nn.Sequential(nn.Linear(4, 4))
    tracer = CallTracer(tmp_path)
    tracer.register_hooks(model)
    model(torch.randn(1, 4))
    assert tracer.get_trace() == ["0", "root"]
    with tracer as same:
        assert same is tracer and tracer.get_trace() == []
    with pytest.raises(RuntimeError):
        model(torch.randn(1, 3))
    assert tracer.get_trace() == [], "a module that raised is not listed"
    tracer.enabled = False
    model(torch.randn(1, 4))
    tracer.enabled = True
    assert tracer.get_trace() == []
    tracer.remove_hooks()
    model(torch.randn(1, 4))
    assert tracer.get_trace() == [] and tracer.hooks == []


def test_hooks_end_with_their_tracer_and_do_not_follow_copies(tmp_path):
    model = nn.Linear(4, 4)
    tracer = CallTracer(tmp_path)
    tracer.register_hooks(model)
    copy.deepcopy(model)(torch.randn(1, 4))
    assert tracer.get_trace() == []
    torch.save(model, tmp_path / "m.pt")
    del tracer
    assert not model._forward_hooks


def test_counts_explicit_index_disabled_and_reset(tmp_path):
    saver = TensorSaver(tmp_path)
    value = torch.arange(6.0)
    for _ in range(2):
        saver.save("a", value)
    saver.save("a", value, call_idx=7)
    saver.save("a", value)
    assert {p.name for p in tmp_path.iterdir()} == {"a.call0.pt", "a.call1.pt", "a.call2.pt", "a.call7.pt"}
    saver.enabled = False
    saver.save("b", value)
    assert saver.call_counts == {"a": 3} and saver.call_counts["never saved"] == 0
    assert saver.call_counts == {"a": 3}, "asking does not count"
    saver.reset_counts()
    assert saver.call_counts == {}


@pytest.mark.parametrize("layout", ["plain", "transposed", "one-d", "scalar", "integer"])
def test_norm_only_any_layout(tmp_path, layout):
    value = {
        "plain": torch.randn(3, 4, 5),
        "transposed": torch.randn(5, 4, 3).transpose(0, 2),
        "one-d": torch.randn(4),
        "scalar": torch.tensor(-2.0),
        "integer": torch.arange(6).reshape(2, 3),
    }[layout]
    TensorSaver(tmp_path).save("n", value, norm_only=True)
    got = torch.load(tmp_path / "n.call0.pt")
    want = [row.double().norm().item() for row in (value if value.dim() else value[None])]
    assert got.tolist() == pytest.approx(want)


def test_a_view_is_saved_alone(tmp_path):
    TensorSaver(tmp_path).save("v", torch.randn(1_000_000)[:4])
    assert (tmp_path / "v.call0.pt").stat().st_size < 10_000


def test_contexts_nest_override_and_come_back(tmp_path):
    saver = TensorSaver(tmp_path)
    context = DebugContext(saver, prefix="p", module_path_override="here")
    assert context.saver is saver and context.debugger is saver and context.module_path_override == "here"
    with context as same:
        assert same is context
        with DebugContext(saver) as inner:
            assert get_debug_context() is inner
            spy_save("x", torch.ones(1))
        assert get_debug_context() is context
        with pytest.raises(ValueError), context:
            raise ValueError
        assert get_debug_context() is context
        spy_save("x", torch.ones(1), nn.Linear(1, 1))
    assert get_debug_context() is None
    assert {p.name for p in tmp_path.iterdir()} == {"manual.x.call0.pt", "p.here.x.call0.pt"}


def test_a_context_saves_by_a_method_that_subclasses_replace(tmp_path, caplog):
    model = nn.Sequential(MyModule())
    saver = TensorSaver(tmp_path)
    saver.register_modules(model)
    DebugContext(saver, prefix="p")._save("x", torch.ones(1), model[0])
    DebugContext(saver)._save("x", torch.ones(1))
    assert {p.name for p in tmp_path.iterdir()} == {"p.0.x.call0.pt", "manual.x.call0.pt"}

    class Doubled(DebugContext):
        def _save(self, name, tensor, module=None):
            super()._save(f"{name}_doubled", tensor * 2, module)

    with Doubled(saver):
        model(torch.ones(1, 4))
    assert (tmp_path / "0.q_doubled.call0.pt").exists() and not (tmp_path / "0.q.call0.pt").exists()


def test_saving_is_logged(tmp_path, caplog):
    saver, tracer = TensorSaver(tmp_path), CallTracer(tmp_path)
    with caplog.at_level(logging.DEBUG, logger="tenscope.compat.torchspy"):
        saver.save("x", torch.ones(2, 3))
        tracer.save_trace()
        saver.enabled = False
        saver.save("y", torch.ones(1))
    said = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert [level for level, _ in said] == ["INFO", "DEBUG", "INFO"]
    assert "x.call0.pt" in said[0][1] and "(2, 3)" in said[1][1] and "call_trace.txt" in said[2][1]


def test_unregistered_module_warns_and_saves_nothing(tmp_path, caplog):
    with DebugContext(TensorSaver(tmp_path)), caplog.at_level(logging.WARNING):
        spy_save("x", torch.ones(1), nn.Linear(1, 1))
    assert [r.levelname for r in caplog.records] == ["WARNING"] and not list(tmp_path.iterdir())


def test_threads_start_without_and_tasks_are_separate(tmp_path):
    seen = []
    with DebugContext(TensorSaver(tmp_path)):
        thread = threading.Thread(target=lambda: seen.append(get_debug_context()))
        thread.start()
        thread.join()
    assert seen == [None]

    async def task(prefix):
        with DebugContext(TensorSaver(tmp_path), prefix=prefix):
            await asyncio.sleep(0.001)
            return get_debug_context().prefix

    async def both():
        return await asyncio.gather(task("a"), task("b"))

    assert asyncio.run(both()) == ["a", "b"]


def test_old_name_shares_state(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torchspy", torchspy)
    from torchspy.context import DebugContext as Old
    from torchspy.saver import spy_save as old_spy

    assert Old is DebugContext and old_spy is spy_save
    assert set(torchspy.__all__) <= set(dir(torchspy))
    with pytest.raises(AttributeError):
        _ = torchspy.nothing
    for name in [name for name in sys.modules if name.startswith("torchspy.")]:
        del sys.modules[name]


PATHS = [
    "encoder.layers.0.attn.q",
    "encoder.layers.0.attn.k",
    "encoder.layers.10.attn.q",
    "encoder.layers.2.mlp",
    "head",
    "0.first",
]


def test_tree(tmp_path):
    file = tmp_path / "t.txt"
    file.write_text("\n a.b \n\nc\n")
    assert trace_graph.parse_trace(file) == ["a.b", "c"]
    file.write_text("\n \n")
    with pytest.raises(ValueError, match="trace file is empty"):
        trace_graph.parse_trace(file)
    with pytest.raises(FileNotFoundError):
        trace_graph.parse_trace(tmp_path / "missing")

    tree = trace_graph.build_tree(PATHS)
    assert tree.name == "root" and list(tree.children) == ["encoder", "head", "0"]
    layers = tree.children["encoder"].children["layers"]
    assert layers.indices == {"0", "2", "10"} and layers.count == 3
    assert list(layers.children) == ["attn", "mlp"]
    assert trace_graph.squash_numeric_indices(tree) is tree

    pruned = trace_graph.prune_leaves(tree)
    kept = pruned.children["encoder"].children["layers"]
    assert list(kept.children) == ["attn"] and not kept.children["attn"].children and kept.indices == layers.indices
    assert "head" in pruned.children and list(layers.children) == ["attn", "mlp"]

    trace_graph.save_tree_json(tree, tmp_path / "t.json")
    data = json.loads((tmp_path / "t.json").read_text())
    assert data["name"] == "root" and data["count"] == 0
    saved = data["children"][0]["children"][0]
    assert (saved["name"], saved["count"], saved["indices"]) == ("layers", 3, ["0", "2", "10"])


def test_graph():
    pytest.importorskip("graphviz")
    tree = trace_graph.build_tree([*PATHS, "decoder.layers.0.attn.q", "decoder.layers.1.attn.q"])
    dot = trace_graph.construct_graph(tree)
    assert dot.format == "png" and "rankdir=TB" in dot.source and "dpi" not in dot.source
    assert '"layers x 3"' in dot.source and '"layers x 2"' in dot.source and "label=q" not in dot.source
    assert "root" not in dot.source and dot.source.count("->") == 4
    whole = trace_graph.construct_graph(tree, show_repetition=False, prune_leaves_flag=False)
    assert "x 3" not in whole.source and "label=q" in whole.source
    squashed = trace_graph.construct_graph(tree, squash_name=True)
    assert '"layers x 5"' in squashed.source and squashed.source.count("layers ->") == 1
    sized = trace_graph.render_graph(tree, dpi=72, figwidth=4)
    assert "dpi=72" in sized.source and 'size="4,4!"' in sized.source and "ratio=fill" in sized.source
    assert trace_graph.apply_graph_render_options(dot, figwidth=4, figheight=3) is None and 'size="4,3!"' in dot.source


def run_command(*words):
    return subprocess.run(
        [sys.executable, "-m", "tenscope.compat.torchspy.trace_to_graph", *map(str, words)],
        capture_output=True,
        text=True,
    )


def test_command(tmp_path):
    pytest.importorskip("graphviz")
    trace = tmp_path / "t.txt"
    trace.write_text("\n".join(PATHS))
    out = tmp_path / "pictures"
    out.mkdir()
    done = run_command("--trace-file", trace, "--out", out / "a.png", "--save-json", tmp_path / "t.json")
    assert done.returncode == 0 and done.stdout == "" and [p.name for p in out.iterdir()] == ["a.png"]
    assert (out / "a.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads((tmp_path / "t.json").read_text())["children"][1]["name"] == "head"
    done = run_command("--trace-file", trace, "--out", out / "b", "--verbose", "--squash-name", "--no-prune-leaves")
    assert done.returncode == 0 and "b.png" in done.stdout
    assert sorted(p.name for p in out.iterdir()) == ["a.png", "b.png"]
    assert run_command("--trace-file", tmp_path / "none", "--out", out / "c").returncode != 0
    assert run_command("--trace-file", trace).returncode != 0
    assert sorted(p.name for p in out.iterdir()) == ["a.png", "b.png"]
