"""ONNX models as ONNX Runtime computes them. Judges: onnxruntime itself, and onnx's ReferenceEvaluator (NumPy)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tenscope

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

import tenscope.onnx  # noqa: E402
from onnx import TensorProto, helper, numpy_helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402

TENSCOPE = Path(sys.executable).with_name("tenscope")
RANDOM = np.random.default_rng(0)
X = RANDOM.standard_normal((2, 3)).astype(np.float32)
W = RANDOM.standard_normal((3, 4)).astype(np.float32)
FLOAT = TensorProto.FLOAT


def make_model(nodes, weights=(), inputs=(("x", FLOAT, ["batch", 3]),), outputs=("y",), opset=21, **more):
    weights = [numpy_helper.from_array(value, name) for name, value in dict(weights).items()]
    results = [onnx.ValueInfoProto(name=name) for name in outputs]
    graph = helper.make_graph(nodes, "graph", [helper.make_tensor_value_info(*i) for i in inputs], results, weights)
    opsets = [helper.make_opsetid("", opset), *more.pop("opsets", [])]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10, **more)


def perceptron():
    weights = {"w": W, "b": np.ones(4, np.float32)}
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["xw"], name="/net/layers.0/MatMul"),
        helper.make_node("Add", ["xw", "b"], ["h"], name="/net/layers.0/Add"),
        helper.make_node("Relu", ["h"], ["y"], name="/net/Relu"),
    ]
    return make_model(nodes, weights)


def recorded(folder, model, feeds, name="run", **options):
    with tenscope.Run(folder, name=name):
        outputs = tenscope.onnx.record(model, feeds, **options)
    return outputs, tenscope.open(folder / name)


def notes(run):
    return [event.meta for event in run if event.kind == "note" and event.name == "not_seen"]


@pytest.mark.parametrize("kind", ["path", "proto", "bytes", "session"])
def test_every_tensor_is_recorded_by_its_name(tmp_path, kind):
    model = perceptron()
    onnx.save(model, tmp_path / "model.onnx")
    given = {
        "path": tmp_path / "model.onnx",
        "proto": model,
        "bytes": model.SerializeToString(),
        "session": onnxruntime.InferenceSession(tmp_path / "model.onnx"),
    }[kind]
    before = model.SerializeToString()
    outputs, run = recorded(tmp_path, given, {"x": X})
    assert model.SerializeToString() == before
    judge = ReferenceEvaluator(model).run(None, {"x": X}, intermediate=True)
    plain = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": X})
    assert len(outputs) == 1 and np.array_equal(outputs[0], plain[0])
    assert set(run.names()) == {"x", "w", "b", "xw", "h", "y"}
    for name in run.names():
        np.testing.assert_allclose(run[name], judge[name], rtol=1e-6)
    events = {event.name: event for event in run if event.kind == "value"}
    assert [event.name for event in run if event.kind == "value"] == ["w", "b", "x", "xw", "h", "y"]
    assert [events[name].io for name in ("w", "x", "xw", "y")] == ["param", "input", "", "output"]
    assert events["xw"].meta == {"op": "MatMul", "node": "/net/layers.0/MatMul", "inputs": ["x", "w"]}
    assert [events[name].scope for name in ("xw", "w", "y")] == ["net.layers.0", "net.layers.0", "net"]


def test_only_what_is_included(tmp_path):
    _, run = recorded(tmp_path, perceptron(), {"x": X}, include=["net.layers.0", "y"], exclude="w")
    assert set(run.names()) == {"xw", "h", "b", "y"}
    _, run = recorded(tmp_path, perceptron(), {"x": X}, "few", include="y", params=False, values="stats")
    (event,) = [event for event in run if event.kind == "value"]
    assert event.name == "y" and event.stats.count == 8 and not event.stored
    with pytest.warns(tenscope.RecordingWarning, match=r"'layer.1' matched nothing.*'net.layers"):
        recorded(tmp_path, perceptron(), {"x": X}, "none", include="layer.1")


def test_calls_are_steps_and_parameters_are_recorded_once(tmp_path):
    model = perceptron()
    with tenscope.Run(tmp_path, name="run"):
        session = tenscope.onnx.Session(model)
        for i in range(3):
            session.run(["y"], {"x": X * i})
        tenscope.onnx.record(model, {"x": X * 3})
    run = tenscope.open(tmp_path / "run")
    assert run.steps("y") == [0, 1, 2, 3] and run.steps("w") == [0]
    assert all(np.array_equal(run["x", i], X * i) for i in range(4))


def test_a_program_s_own_steps_are_kept(tmp_path):
    session = tenscope.onnx.Session(perceptron())
    with tenscope.Run(tmp_path, name="run") as run:
        for number in (5, 7):
            run.step(number)
            session.run(None, {"x": X})
    assert tenscope.open(tmp_path / "run").steps("y") == [5, 7]


def test_in_parts_the_same_is_recorded(tmp_path):
    outputs, whole = recorded(tmp_path, perceptron(), {"x": X}, "whole")
    same, parts = recorded(tmp_path, perceptron(), {"x": X}, "parts", chunk=2)
    assert np.array_equal(outputs[0], same[0])
    assert [e.name for e in whole if e.kind == "value"] == [e.name for e in parts if e.kind == "value"]
    tenscope.testing.assert_same_run(tmp_path / "parts", tmp_path / "whole", bitwise=True, strict=True)


def test_parts_of_a_random_graph_are_said_not_to_belong_together(tmp_path, monkeypatch):
    nodes = [
        helper.make_node("RandomNormalLike", ["x"], ["noise"]),
        helper.make_node("Add", ["x", "noise"], ["y"]),
    ]
    make, seeds = tenscope.onnx.Session._session, iter(range(1, 9))

    def with_another_seed(self, part):
        onnxruntime.set_seed(next(seeds))
        return make(self, part)

    monkeypatch.setattr(tenscope.onnx.Session, "_session", with_another_seed)
    with pytest.warns(tenscope.RecordingWarning, match="gave different outputs"):
        _, run = recorded(tmp_path, make_model(nodes), {"x": X}, chunk=1)
    assert [event.name for event in run if event.name == "determinism"]


def test_external_data_stays_where_it_is(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    model = perceptron()
    options = {"save_as_external_data": True, "location": "weights.bin", "size_threshold": 0}
    onnx.save(onnx.load_model_from_string(model.SerializeToString()), folder / "m.onnx", **options)
    outputs, run = recorded(tmp_path, folder / "m.onnx", {"x": X}, chunk=1)
    assert sorted(path.name for path in folder.iterdir()) == ["m.onnx", "weights.bin"]
    np.testing.assert_allclose(outputs[0], ReferenceEvaluator(model).run(None, {"x": X})[0], rtol=1e-6)
    assert np.array_equal(run["w"], numpy_helper.to_array(model.graph.initializer[0]))
    alone = onnx.load(folder / "m.onnx", load_external_data=False)
    with pytest.raises(tenscope.UsageError, match="weights in other files: give its path"):
        tenscope.onnx.record(alone, {"x": X})


def test_a_model_beyond_the_limit_of_a_message(tmp_path, monkeypatch):
    monkeypatch.setattr("tenscope.onnx.model.MOST_INLINE_BYTES", 8)
    model = perceptron()
    before = model.SerializeToString()
    outputs, run = recorded(tmp_path, model, {"x": X})
    assert model.SerializeToString() == before
    np.testing.assert_allclose(outputs[0], ReferenceEvaluator(model).run(None, {"x": X})[0], rtol=1e-6)
    assert np.array_equal(run["w"], numpy_helper.to_array(model.graph.initializer[0]))


def test_an_optimised_graph_has_the_nodes_that_runtime_has(tmp_path):
    nodes = [
        helper.make_node("Identity", ["x"], ["same"]),
        helper.make_node("MatMul", ["same", "w"], ["xw"]),
        helper.make_node("Add", ["xw", "b"], ["y"]),
    ]
    model = make_model(nodes, {"w": np.eye(3, dtype=np.float32), "b": np.ones(3, np.float32)})
    plain, run = recorded(tmp_path, model, {"x": X}, "plain")
    assert {"same", "xw", "y"} <= set(run.names())
    outputs, run = recorded(tmp_path, model, {"x": X}, "optimised", optimised=True)
    assert "same" not in run.names() and "y" in run.names()
    assert np.array_equal(outputs[0], plain[0])


NANS = np.array([[np.nan, 1, -1]], np.float32)


@pytest.mark.parametrize(
    "x", [np.zeros((0, 3), np.float32), NANS, np.ones((5, 3), np.float32)], ids=["empty", "nan", "dynamic"]
)
def test_odd_values(tmp_path, x):
    nodes = [helper.make_node("Log", ["x"], ["y"])]
    outputs, run = recorded(tmp_path, make_model(nodes), {"x": x})
    np.testing.assert_array_equal(run["y"], outputs[0])
    assert run["y"].shape == x.shape


@pytest.mark.parametrize(
    ("dtype", "kept"),
    [
        ("BFLOAT16", "bfloat16"),
        ("FLOAT16", "float16"),
        ("FLOAT8E4M3FN", "float8_e4m3fn"),
        ("FLOAT8E5M2", "float8_e5m2"),
        ("INT4", "int8"),
        ("UINT4", "uint8"),
        ("BOOL", "bool"),
    ],
)
def test_types_that_numpy_lacks(tmp_path, dtype, kept):
    element = getattr(TensorProto, dtype)
    nodes = [
        helper.make_node("Cast", ["x"], ["small"], to=element),
        helper.make_node("Cast", ["small"], ["y"], to=FLOAT),
    ]
    x = np.array([[1, 2, 3], [0, 1, 0.4]], np.float32)
    outputs, run = recorded(tmp_path, make_model(nodes), {"x": x})
    assert run["small"].tensor_dtype == kept
    np.testing.assert_array_equal(np.asarray(run["small"], np.float32), outputs[0])
    (event,) = run.find("small")
    assert event.meta.get("dtype", "") == (dtype.lower() if dtype.endswith("INT4") else "")


def test_an_input_of_bfloat16(tmp_path):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    nodes = [helper.make_node("Cast", ["x"], ["y"], to=FLOAT)]
    model = make_model(nodes, inputs=[("x", TensorProto.BFLOAT16, [2, 3])])
    (y,), run = recorded(tmp_path, model, {"x": X.astype(ml_dtypes.bfloat16)})
    assert run["x"].tensor_dtype == "bfloat16"
    np.testing.assert_array_equal(y, X.astype(ml_dtypes.bfloat16).astype(np.float32))


def test_what_is_no_tensor_is_said(tmp_path):
    nodes = [
        helper.make_node("SequenceConstruct", ["x", "x"], ["pair"]),
        helper.make_node("Cast", ["x"], ["texts"], to=TensorProto.STRING),
        helper.make_node("SequenceAt", ["pair", "first"], ["y"]),
    ]
    model = make_model(nodes, {"first": np.array(0)}, outputs=["y", "pair", "texts"])
    (y, pair, texts), run = recorded(tmp_path, model, {"x": X})
    assert np.array_equal(y, X) and np.array_equal(pair[1], X) and texts.shape == X.shape
    assert set(run.names()) == {"x", "first", "y"}
    (note,) = notes(run)
    assert note["names"] == ["pair (seq(tensor(float)))", "texts (tensor(string))"]


def test_texts_go_in(tmp_path):
    model = make_model(
        [helper.make_node("StringConcat", ["x", "x"], ["twice"]), helper.make_node("Shape", ["twice"], ["y"])],
        inputs=[("x", TensorProto.STRING, [2])],
    )
    (y,), run = recorded(tmp_path, model, {"x": ["a", "b"]})
    assert y == [2] and set(run.names()) == {"y"}


def test_graphs_inside_nodes_are_said_to_be_closed(tmp_path):
    def branch(op):
        inside = [helper.make_node(op, ["x"], ["inside"])]
        return helper.make_graph(inside, "branch", [], [helper.make_tensor_value_info("inside", FLOAT, None)])

    nodes = [
        helper.make_node("ReduceSum", ["x"], ["sum"], keepdims=0),
        helper.make_node("Greater", ["sum", "zero"], ["is_positive"]),
        helper.make_node(
            "If", ["is_positive"], ["y"], then_branch=branch("Exp"), else_branch=branch("Neg"), name="choice"
        ),
    ]
    (y,), run = recorded(tmp_path, make_model(nodes, {"zero": np.float32(0)}), {"x": np.abs(X)})
    np.testing.assert_allclose(y, np.exp(np.abs(X)), rtol=1e-6)
    assert set(run.names()) == {"x", "zero", "sum", "is_positive", "y"}
    assert notes(run)[0]["names"] == ["choice (If)"]


def test_functions_are_opened(tmp_path):
    body = [helper.make_node("Mul", ["a", "a"], ["square"]), helper.make_node("Add", ["square", "a"], ["b"])]
    opset = [helper.make_opsetid("", 21)]
    function = helper.make_function("own", "SquarePlus", ["a"], ["b"], body, opset)
    nodes = [helper.make_node("SquarePlus", ["x"], ["y"], domain="own")]
    model = make_model(nodes, functions=[function], opsets=[helper.make_opsetid("own", 1)])
    (y,), run = recorded(tmp_path, model, {"x": X})
    np.testing.assert_allclose(y, X * X + X, rtol=1e-6)
    assert any(np.array_equal(run[name], X * X) for name in run.names())


def test_nodes_without_names(tmp_path):
    nodes = [helper.make_node("Neg", ["x"], ["a"]), helper.make_node("Neg", ["a"], ["y"])]
    _, run = recorded(tmp_path, make_model(nodes), {"x": X})
    assert [(e.name, e.meta["node"]) for e in run if e.meta.get("op")] == [("a", ""), ("y", "")]


def test_what_runtime_refuses_it_says_itself(tmp_path):
    nodes = [helper.make_node("Neg", ["x"], ["a"], "same"), helper.make_node("Neg", ["a"], ["y"], "same")]
    with pytest.raises(Exception, match="two nodes with same node name"):
        recorded(tmp_path, make_model(nodes), {"x": X})


@pytest.mark.parametrize(
    ("feeds", "message"),
    [
        ({}, r"'x' is not among the feeds.*\n  x  float32  \[batch, 3\]"),
        ({"X": X}, r"no input 'X'; the nearest is 'x'"),
        ({"x": X.astype(np.float64)}, r"'x' must be of float32, not float64"),
        ({"x": X[0]}, r"'x' must have the shape \[batch, 3\], not \[3\]"),
        ({"x": X[:, :2]}, r"'x' must have the shape \[batch, 3\], not \[2, 2\]"),
        ([X], r"feeds are a dict"),
    ],
)
def test_wrong_feeds(tmp_path, feeds, message):
    with tenscope.Run(tmp_path, name="run"), pytest.raises(tenscope.UsageError, match=message):
        tenscope.onnx.record(perceptron(), feeds)


def test_lists_and_torch_tensors_are_taken(tmp_path):
    outputs, _ = recorded(tmp_path, perceptron(), {"x": X.tolist()})
    torch = pytest.importorskip("torch")
    same, _ = recorded(tmp_path, perceptron(), {"x": torch.from_numpy(X).requires_grad_()}, "torch")
    assert outputs[0].shape == same[0].shape == (2, 4)


def test_what_is_no_model(tmp_path):
    (tmp_path / "no.onnx").write_bytes(b"\x00 no model")
    with pytest.raises(tenscope.CorruptError, match=r"not an ONNX model"):
        tenscope.onnx.record(tmp_path / "no.onnx", {})
    with pytest.raises(tenscope.NotFoundError, match=r"no such file"):
        tenscope.onnx.record(tmp_path / "none.onnx", {})
    with pytest.raises(tenscope.UsageError, match=r"a model is a path, .* not int"):
        tenscope.onnx.record(3, {})


def run_tenscope(folder, *words):
    return subprocess.run([TENSCOPE, *map(str, words)], cwd=folder, capture_output=True, text=True)


def test_the_command_line(tmp_path):
    model = perceptron()
    onnx.save(model, tmp_path / "model.onnx")
    np.savez(tmp_path / "x.npz", x=X)
    np.save(tmp_path / "x.npy", X)
    tenscope.save(tmp_path / "x.safetensors", {"x": X})
    want = ReferenceEvaluator(model).run(None, {"x": X})[0]
    for i, word in enumerate(("x.npz", "x.npy", "x.safetensors", "x=x.npy")):
        done = run_tenscope(tmp_path, "run", "--onnx", "model.onnx", "--inputs", word, "--name", f"run{i}")
        assert done.returncode == 0, done.stderr
        np.testing.assert_allclose(tenscope.open(tmp_path / "runs" / f"run{i}")["y"], want, rtol=1e-6)
    done = run_tenscope(
        tmp_path, "run", "--onnx=model.onnx", "--inputs=x.npz", "--include=h", "--name", "few", "--stats"
    )
    assert done.returncode == 0 and tenscope.open(tmp_path / "runs" / "few").names() == ["h"]
    runs = sorted(path.name for path in (tmp_path / "runs").iterdir())
    for words, message in [
        (["--onnx", "model.onnx"], "--inputs is missing"),
        (["--onnx", "model.onnx"], "x  float32  [batch, 3]"),
        (["--onnx", "model.onnx", "--inputs", "z=x.npy"], "no input 'z'"),
        (["--onnx", "model.onnx", "--inputs", "none.npz"], "no such file: none.npz"),
        (["--onnx", "none.onnx", "--inputs", "x.npz"], "no such file: none.onnx"),
        (["--onnx", "model.onnx", "--inputs", "x.npz", "train.py"], "instead of a script"),
        (["--inputs", "x.npz", "train.py"], "go with --onnx"),
    ]:
        done = run_tenscope(tmp_path, "run", *words)
        assert done.returncode == 2 and message in done.stderr and "Traceback" not in done.stderr
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == runs


def test_importing_tenscope_imports_no_engine():
    code = "import sys, tenscope; print([name for name in ('onnx', 'onnxruntime', 'jax') if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"


def test_a_missing_package_is_one_sentence():
    code = "import sys; sys.modules['onnxruntime'] = None\nimport importlib.util as u; f = u.find_spec\n"
    code += "u.find_spec = lambda n, *a: None if n == 'onnxruntime' else f(n, *a)\nimport tenscope; tenscope.onnx"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stderr
    assert told.splitlines()[-1] == "ImportError: tenscope.onnx needs onnxruntime: pip install onnxruntime"


# One model in torch and in ONNX Runtime.

MISTAKES = {"epsilon": "layers.1.norm1", "transposed": "layers.2.attention.o"}


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    torch = pytest.importorskip("torch")
    pytest.importorskip("onnxscript")
    from test_engines import IDS, decoder, record_torch

    folder = tmp_path_factory.mktemp("exported")
    ids, names = torch.from_numpy(IDS)[None], {"input_names": ["ids"], "output_names": ["logits"]}
    torch.onnx.export(decoder(), (ids,), folder / "scripted.onnx", dynamo=False, **names)
    torch.onnx.export(decoder(), (ids,), dynamo=True, verbose=False, **names).save(folder / "dynamo.onnx")
    record_torch(folder)
    return folder


def with_mistake(model, mistake):
    """A mistake as a conversion would make it, found by value."""
    from test_engines import decoder

    if mistake == "transposed":
        weight = decoder().layers[2].attention.o.weight.detach().numpy()
        for tensor in model.graph.initializer:
            value = numpy_helper.to_array(tensor)
            if value.shape == weight.shape and (np.array_equal(value, weight) or np.array_equal(value, weight.T)):
                tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(value.T), tensor.name))
                return model
    made = {name: node for node in model.graph.node for name in node.output}
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    found = []
    for node in model.graph.node:
        if node.op_type == "Add":
            for i, name in enumerate(node.input):
                source = made.get(name)
                value = constants.get(name)
                if source is not None and source.op_type == "Constant":
                    value = numpy_helper.to_array(source.attribute[0].t)
                if value is not None and value.size == 1 and abs(float(value.reshape(-1)[0]) - 1e-6) < 1e-9:
                    found.append((node, i, value))
    node, i, value = found[2]  # the first normalisation of the second layer
    wrong = numpy_helper.from_array(np.full_like(value, 3e-4), "wrong")
    model.graph.initializer.append(wrong)
    node.input[i] = "wrong"
    return model


@pytest.mark.parametrize("exporter", ["scripted", "dynamo"])
@pytest.mark.parametrize("swapped", [False, True])
def test_an_export_is_silent(exported, tmp_path, exporter, swapped):
    from test_engines import IDS

    recorded(tmp_path, exported / f"{exporter}.onnx", {"ids": IDS[None]})
    runs = [exported / "torch", tmp_path / "run"]
    diff = tenscope.diff(*(reversed(runs) if swapped else runs))
    assert not diff, str(diff)
    pairs = {(p["b"], p["a"]) if swapped else (p["a"], p["b"]) for p in diff.json["content_pairs"]}
    assert "head.output" in {a for a, _ in pairs} and len(pairs) > 80


@pytest.mark.parametrize("exporter", ["scripted", "dynamo"])
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_wrong_export_is_named_at_its_place(exported, tmp_path, exporter, mistake):
    from test_engines import IDS

    model = with_mistake(onnx.load(exported / f"{exporter}.onnx"), mistake)
    recorded(tmp_path, model, {"ids": IDS[None]})
    diff = tenscope.diff(exported / "torch", tmp_path / "run")
    assert diff.first_divergence is not None and diff.first_divergence.module == MISTAKES[mistake], str(diff)
    swapped = tenscope.diff(tmp_path / "run", exported / "torch")
    assert swapped.first_divergence is not None, str(swapped)
    (event,) = tenscope.open(tmp_path / "run").find(swapped.first_divergence.name)
    assert event.scope == MISTAKES[mistake], f"{event.scope}\n{swapped}"


def test_modules_and_lines_that_the_exporter_knows(exported, tmp_path):
    from test_engines import IDS

    for exporter in ("scripted", "dynamo"):
        _, run = recorded(tmp_path, exported / f"{exporter}.onnx", {"ids": IDS[None]}, exporter)
        scopes = {event.scope for event in run if event.meta.get("op") == "MatMul"}
        assert {"layers.1.attention.q", "layers.2.down", "head"} <= scopes
    events = [event for event in run if event.scope == "layers.0.norm1" and event.meta.get("op")]
    assert {event.cls for event in events} == {"Norm"}
    assert all(Path(event.site.rpartition(":")[0]).name == "test_engines.py" for event in events), json.dumps(
        [event.site for event in events]
    )


@pytest.mark.parametrize(
    ("words", "verdict"), [([], "equal within tolerance"), (["--bug"], "first divergence: parameter 3.weight")]
)
def test_the_example(words, verdict):
    pytest.importorskip("onnxscript")
    example = Path(__file__).parent.parent / "examples" / "onnx_model.py"
    done = subprocess.run([sys.executable, example, *words], capture_output=True, text=True)
    assert done.stdout.startswith(verdict), done.stdout + done.stderr
