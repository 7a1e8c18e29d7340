"""JAX functions, Flax modules and values inside jit. Judge: JAX itself, called without a recorder."""

from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import tenscope

jax = pytest.importorskip("jax")
nn = pytest.importorskip("flax.linen")

import jax.numpy as jnp  # noqa: E402
import tenscope.jax  # noqa: E402
from flax import nnx  # noqa: E402

X = jnp.arange(6, dtype=np.float32).reshape(2, 3) / 6


def recorded(folder, function, *args, name="run", **options):
    with tenscope.Run(folder, name=name):
        result = tenscope.jax.trace(function, **options)(*args)
    return result, tenscope.open(folder / name)


def values(run):
    return [event for event in run if event.kind == "value"]


def names(run):
    return [event.name for event in values(run)]


def mlp(params, x):
    with jax.named_scope("layer"):
        x = x @ params["w"] + params["b"]
    return jax.nn.silu(x)


PARAMS = {"w": np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4), "b": np.ones(4, np.float32)}


def test_every_equation_is_recorded(tmp_path):
    result, run = recorded(tmp_path, mlp, PARAMS, X)
    assert isinstance(result, jax.Array) and np.array_equal(result, mlp(PARAMS, X))
    assert names(run) == [
        "b",
        "w",
        "x",
        "layer.dot_general.0",
        "layer.broadcast_in_dim.0",
        "layer.add.0",
        "silu.0",
        "result",
    ]
    np.testing.assert_array_equal(run["layer.dot_general.0"], jnp.dot(X, PARAMS["w"]))
    np.testing.assert_array_equal(run["layer.add.0"], jnp.dot(X, PARAMS["w"]) + PARAMS["b"])
    events = {event.name: event for event in values(run)}
    assert [events[name].io for name in ("w", "x", "silu.0", "result")] == ["param", "input", "", "output"]
    add = events["layer.add.0"]
    assert add.meta["inputs"] == ["layer.dot_general.0", "layer.broadcast_in_dim.0"] and add.scope == "layer"
    assert add.meta["primitive"] == "add" and add.meta["function"] == "mlp" and add.phase == "forward"
    file, _, line = add.site.rpartition(":")
    assert Path(file).name == "test_jax.py" and "x @ params" in Path(__file__).read_text().splitlines()[int(line) - 1]


def test_a_jitted_function_is_opened_also_where_it_was_compiled_before(tmp_path):
    jitted = jax.jit(mlp)
    jitted(PARAMS, X)
    result, run = recorded(tmp_path, jitted, PARAMS, X)
    np.testing.assert_allclose(result, jitted(PARAMS, X), rtol=1e-6)
    assert "layer.dot_general.0" in names(run) and "silu.0" in names(run)
    closed, run = recorded(tmp_path, jitted, PARAMS, X, name="closed", open=())
    assert np.array_equal(closed, jitted(PARAMS, X)) and names(run) == ["b", "w", "x", "mlp.0", "result"]
    _, run = recorded(tmp_path, jitted, PARAMS, X, name="all", open=True)
    assert "silu.0" not in names(run) and "logistic.0" in names(run)
    with pytest.raises(tenscope.UsageError, match="open='loops' is none of cond, custom_jvp"):
        tenscope.jax.trace(mlp, open="loops")


def test_what_is_left_out_and_included(tmp_path):
    _, run = recorded(tmp_path, mlp, PARAMS, X, include="layer*", exclude="*.broadcast_in_dim.*")
    assert names(run) == ["layer.dot_general.0", "layer.add.0"]
    with pytest.warns(tenscope.RecordingWarning, match=r"'layr' matched nothing; the nearest that exists is 'layer'"):
        recorded(tmp_path, mlp, PARAMS, X, name="none", include="layr")
    _, run = recorded(tmp_path, mlp, PARAMS, X, name="stats", values="stats", include="layer.add.0")
    (event,) = values(run)
    assert not event.stored and event.stats.count == 8


def test_calls_are_steps_and_parameters_are_recorded_when_they_change(tmp_path):
    traced = tenscope.jax.trace(mlp)
    with tenscope.Run(tmp_path, name="run"):
        for i in range(3):
            traced({**PARAMS, "b": PARAMS["b"] * (i == 2)}, X)
    run = tenscope.open(tmp_path / "run")
    assert run.steps("layer.add.0") == [0, 1, 2] and run.steps("w") == [0] and run.steps("b") == [0, 2]


def test_which_argument_holds_parameters(tmp_path):
    def apply(weights, state, x):
        return x @ weights["w"] + state["params"]["b"]

    _, run = recorded(tmp_path, apply, {"w": PARAMS["w"]}, {"params": {"b": PARAMS["b"]}}, X)
    assert {e.name: e.io for e in values(run) if e.io in ("param", "input")} == {
        "weights.w": "input",
        "b": "param",
        "x": "input",
    }
    _, run = recorded(tmp_path, apply, {"w": PARAMS["w"]}, {"params": {"b": PARAMS["b"]}}, X, name="b", params=0)
    assert {e.name for e in values(run) if e.io == "param"} == {"w"}
    with pytest.raises(tenscope.UsageError, match="params='wieghts' is no argument; there are weights, state, x"):
        recorded(tmp_path, apply, {}, {}, X, name="c", params="wieghts")


def test_gradients_are_told_from_the_forward(tmp_path):
    loss = lambda params, x: mlp(params, x).sum()  # noqa: E731
    gradients, run = recorded(tmp_path, jax.grad(loss), PARAMS, X)
    want = jax.grad(loss)(PARAMS, X)
    assert all(np.array_equal(gradients[name], want[name]) for name in want)
    phases = {event.name: event.phase for event in values(run) if event.scope == "layer"}
    assert phases["layer.dot_general.0"] == "forward" and phases["layer.dot_general.1"] == "backward"
    np.testing.assert_array_equal(run["result.w"], want["w"])


@pytest.mark.parametrize("reverse", [False, True])
def test_a_scan_is_one_equation_or_its_turns(tmp_path, reverse):
    def total(xs):
        def body(carry, x):
            with jax.named_scope("body"):
                carry = carry * 0.5 + x
            return carry, carry * 2

        return jax.lax.scan(body, jnp.float32(0), xs, reverse=reverse)

    xs = np.arange(100, dtype=np.float32)
    want = total(xs)
    result, run = recorded(tmp_path, total, xs)
    assert all(np.array_equal(a, b) for a, b in zip(result, want, strict=True))
    assert names(run) == ["xs", "scan.0.0", "scan.0.1", "result.0", "result.1"]
    result, run = recorded(tmp_path, total, xs, name="open", open="scan")
    assert all(np.allclose(a, b) for a, b in zip(result, want, strict=True))
    turns = [event for event in values(run) if event.name == "body.add.0"]
    assert [event.call for event in turns] == list(range(100))
    order = want[1][::-1] if reverse else want[1]
    np.testing.assert_allclose([float(event.value) * 2 for event in turns], order, rtol=1e-6)
    empty, _ = recorded(tmp_path, total, xs[:0], name="empty", open="scan")
    assert empty[1].shape == (0,)


def test_loops_and_branches_are_opened_on_request(tmp_path):
    def function(x):
        x = jax.lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] * 2), (0, x))[1]
        return jax.lax.cond(x.sum() > 0, jnp.sin, jnp.cos, x)

    result, run = recorded(tmp_path, function, X)
    assert np.array_equal(result, function(X)) and {"while.0.1", "cond.0"} <= set(names(run))
    result, run = recorded(tmp_path, function, X, name="open", open=("while", "cond"))
    assert np.array_equal(result, function(X)) and "cos.0" not in names(run)
    assert [e.call for e in values(run) if e.name == "mul.0"] == [0, 1, 2]
    np.testing.assert_array_equal(run["sin.0"], np.asarray(result))


def test_remat_and_custom_rules_of_the_program_are_opened(tmp_path):
    @jax.custom_vjp
    def double(x):
        return x * 2

    double.defvjp(lambda x: (double(x), None), lambda _, g: (g * 3,))
    function = jax.checkpoint(lambda x: double(jnp.tanh(x)).sum())
    result, run = recorded(tmp_path, function, X)
    assert np.array_equal(result, function(X)) and {"tanh.0", "mul.0", "reduce_sum.0"} <= set(names(run))
    gradient, _ = recorded(tmp_path, jax.grad(function), X, name="grad")
    assert np.array_equal(gradient, jax.grad(function)(X))


@pytest.mark.parametrize(
    ("function", "args"),
    [
        (lambda i, x: x[i], (jnp.int32(1), X)),
        (lambda n, x: x * n if n > 1 else x, (3, X)),
        (lambda key: jax.random.normal(key, (3,)), (jax.random.key(0),)),
        (lambda key: jax.random.split(key), (jax.random.key(0),)),
        (lambda x: jax.vmap(lambda row: jnp.sort(row)[::-1])(x), (X,)),
        (lambda x: {"a": [x, None], "b": "text", "c": 3}, (X,)),
        (lambda x: x.astype(jnp.bfloat16) * 2, (X,)),
        (lambda x: x.astype(jnp.float8_e4m3fn), (X,)),
        (lambda x: x.astype(jnp.int4), (X,)),
        (lambda x: x[:0], (X,)),
        (lambda x: jnp.log(x - 1), (X,)),
        (lambda x, *, flip=False: x[::-1] if flip else x, (X,)),
        (lambda: jnp.arange(3), ()),
        (lambda x: x + np.arange(3) + jnp.asarray(PARAMS["w"][0, :3]), (X,)),
        (lambda x: jnp.fft.fft(x), (X,)),
        (jnp.tanh, (np.ones((2, 3)),)),
    ],
    ids=[
        *("integer", "static", "key", "keys", "vmap", "nest", "bfloat16", "float8", "int4", "empty", "nan"),
        *("keyword", "none", "closed-over", "complex", "float64"),
    ],
)
def test_the_result_is_what_the_function_returns(tmp_path, function, args):
    result, run = recorded(tmp_path, function, *args)
    want = function(*args)
    assert jax.tree.structure(result) == jax.tree.structure(want)
    for a, b in zip(jax.tree.leaves(result), jax.tree.leaves(want), strict=True):
        if not isinstance(b, jax.Array):
            assert a == b
        elif jax.dtypes.issubdtype(b.dtype, jax.dtypes.prng_key):
            assert a.dtype == b.dtype and np.array_equal(jax.random.key_data(a), jax.random.key_data(b))
        else:
            assert a.dtype == b.dtype and a.weak_type == b.weak_type
            assert np.asarray(a).tobytes() == np.asarray(b).tobytes()
    assert not run.losses and not [event for event in values(run) if "unsupported" in event.meta]


def test_what_a_function_closes_over_is_recorded(tmp_path):
    weights = jnp.asarray(PARAMS["w"])
    _, run = recorded(tmp_path, lambda x: x @ weights, X)
    (event,) = run.find("closed_over.0")
    assert event.io == "param" and np.array_equal(run["closed_over.0"], PARAMS["w"])
    (product,) = run.find("dot_general.0")
    assert product.meta["inputs"] == ["x", "closed_over.0"]


def test_what_an_exception_leaves(tmp_path):
    def bad(_):
        raise ValueError("no such thing")

    def function(x):
        y = jnp.sin(x)
        jax.debug.callback(lambda _: None, y)
        return jax.pure_callback(bad, jax.ShapeDtypeStruct(x.shape, x.dtype), y)

    with pytest.raises(Exception, match="no such thing"):
        recorded(tmp_path, function, X)
    np.testing.assert_array_equal(tenscope.open(tmp_path / "run")["sin.0"], jnp.sin(X))
    with pytest.raises(ZeroDivisionError):
        recorded(tmp_path, lambda x: x * (1 // 0), X, name="early")


def test_effects_happen_once(tmp_path):
    seen = []

    def function(x):
        jax.debug.callback(seen.append, x.sum())
        return x

    recorded(tmp_path, function, X)
    jax.effects_barrier()
    assert len(seen) == 1


# Values inside a jitted function.


def test_record_inside_jit_scan_vmap_and_grad(tmp_path):
    @jax.jit
    def function(x):
        tenscope.jax.record("x", {"twice": x * 2, "label": "a"}, scope="here")

        def body(carry, row):
            tenscope.jax.record("row", row, ordered=True)
            return carry + row.sum(), None

        total, _ = jax.lax.scan(body, 0.0, x)
        jax.vmap(lambda row: tenscope.jax.record("member", row))(x)
        jax.grad(lambda y: (tenscope.jax.record("inner", y), (y * y).sum())[1])(x)
        tenscope.jax.record("key", jax.random.key(1))
        return total

    with tenscope.Run(tmp_path, name="run") as run:
        total = function(X)
        run.step()
        function(X * 3)
    function(X)  # no run: nothing
    assert float(total) == pytest.approx(float(X.sum()))
    run = tenscope.open(tmp_path / "run")
    np.testing.assert_array_equal(run["x.twice", 0], X * 2)
    np.testing.assert_array_equal(run["inner", 1], X * 3)
    assert [np.asarray(e.value).tolist() for e in run.find("row", step=0)] == X.tolist()
    assert sorted(np.asarray(e.value).tolist() for e in run.find("member", step=0)) == X.tolist()
    assert run["key", 0].tolist() == jax.random.key_data(jax.random.key(1)).tolist()
    (event,) = run.find("x.label", step=0)
    assert event.value == "a" and event.scope == "here" and Path(event.site.rpartition(":")[0]).name == "test_jax.py"


def test_record_outside_of_jit_is_a_plain_record(tmp_path):
    with tenscope.Run(tmp_path, name="run"):
        tenscope.jax.record("x", jnp.asarray(X))
        tenscope.record("array", jnp.asarray(X, jnp.bfloat16))
    run = tenscope.open(tmp_path / "run")
    np.testing.assert_array_equal(run["x"], X)
    assert run["array"].tensor_dtype == "bfloat16"


def test_a_plain_record_inside_jit_says_what_to_do(tmp_path):
    @jax.jit
    def function(x):
        tenscope.record("nest", {"x": x, "n": 3})
        return x

    with warnings.catch_warnings(record=True) as told, tenscope.Run(tmp_path, name="run") as run:
        warnings.simplefilter("always")
        function(X)
        function(X[:1])
        assert run.dropped == 2
    told = [str(one.message) for one in told if issubclass(one.category, tenscope.RecordingWarning)]
    assert len(told) == 1 and "nest.x has no numbers while JAX traces the function: call tenscope.jax.record" in told[0]
    assert tenscope.open(tmp_path / "run").names() == ["nest.n"]
    with (
        tenscope.Run(tmp_path, name="strict", strict=True),
        pytest.raises(RuntimeError, match=r"tenscope\.jax\.record"),
    ):
        jax.jit(lambda x: tenscope.record("x", x))(X)


# Flax.


class Net(nn.Module):
    @nn.compact
    def __call__(self, x, scale=1.0):
        for i in range(2):
            x = nn.relu(nn.Dense(3, name=f"layers_{i}")(x))
        return nn.LayerNorm()(x) * scale


class NnxBlock(nnx.Module):
    def __init__(self, rngs):
        self.fc = nnx.Linear(3, 3, rngs=rngs)
        self.bn = nnx.BatchNorm(3, rngs=rngs)
        self.drop = nnx.Dropout(0.5, rngs=rngs)

    def __call__(self, x):
        return self.drop(self.bn(self.fc(x)))


class NnxNet(nnx.Module):
    def __init__(self, rngs):
        self.blocks = nnx.List([NnxBlock(rngs) for _ in range(2)])

    def __call__(self, x):
        for block in self.blocks:
            x = block(x)
        return x


@pytest.mark.parametrize("jit", [False, True])
def test_linen_modules_are_recorded_by_their_paths(tmp_path, jit):
    net = Net()
    variables = net.init(jax.random.key(0), X)
    apply = jax.jit(net.apply)
    apply(variables, X)  # cached
    traced = tenscope.jax.trace(apply, jit=jit)
    with tenscope.Run(tmp_path, name="run"):
        for _ in range(2):
            result = traced(variables, X)
    np.testing.assert_allclose(result, apply(variables, X), rtol=1e-6)
    run = tenscope.open(tmp_path / "run")
    _, state = net.apply(variables, X, capture_intermediates=True)
    inner = state["intermediates"]
    for name in ("layers_0", "layers_1", "LayerNorm_0"):
        np.testing.assert_allclose(run[f"{name}.output", 1], inner[name]["__call__"][0], rtol=1e-6)
    np.testing.assert_allclose(run["output", 1], result, rtol=1e-6)
    np.testing.assert_array_equal(run["layers_0.input.0", 0], X)
    (kernel,) = run.find("layers_0.kernel")
    assert (kernel.io, kernel.phase, kernel.scope, kernel.cls) == ("param", "init", "layers_0", "Dense")
    calls = [(e.kind, e.name) for e in run if e.kind in ("enter", "exit") and e.step == 0]
    want = [(kind, name) for name in ("layers_0", "layers_1", "LayerNorm_0") for kind in ("enter", "exit")]
    assert calls == [("enter", ""), *want, ("exit", "")]
    equations = {event.scope for event in values(run) if event.meta.get("primitive") == "dot_general"}
    assert equations == (set() if jit else {"layers_0", "layers_1"})


def test_linen_modules_under_grad(tmp_path):
    net = Net()
    variables = net.init(jax.random.key(0), X)
    loss = jax.jit(lambda variables: net.apply(variables, X).sum())
    gradient, run = recorded(tmp_path, jax.value_and_grad(loss), variables)
    want = jax.value_and_grad(loss)(variables)
    for a, b in zip(jax.tree.leaves(gradient), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    assert [e.name for e in values(run) if e.io == "output" and e.name.endswith(".output")] == [
        "layers_0.output",
        "layers_1.output",
        "LayerNorm_0.output",
    ]
    assert {e.phase for e in values(run) if e.scope == "layers_0" and "primitive" in e.meta} == {"forward", "backward"}


@pytest.mark.parametrize("jit", [False, True])
def test_nnx_modules_and_their_state(tmp_path, jit):
    net, same = NnxNet(nnx.Rngs(0)), NnxNet(nnx.Rngs(0))
    traced = tenscope.jax.trace(net, jit=jit)
    with tenscope.Run(tmp_path, name="run"):
        for _ in range(2):
            result, want = traced(X), same(X)
            np.testing.assert_allclose(result, want, rtol=1e-4, atol=1e-5)
    for a, b in zip(jax.tree.leaves(nnx.state(net)), jax.tree.leaves(nnx.state(same)), strict=True):
        assert jax.numpy.issubdtype(a.dtype, jax.dtypes.prng_key) or np.allclose(a, b, rtol=1e-4)
    assert type(net).__call__.__name__ == "__call__"  # as it was
    run = tenscope.open(tmp_path / "run")
    (kernel,) = run.find("blocks.0.fc.kernel")
    assert (kernel.io, kernel.scope, kernel.cls) == ("param", "blocks.0.fc", "Linear")
    assert run.steps("blocks.1.bn.mean") == [0, 1] and run.find("blocks.1.bn.mean")[0].io == "buffer"
    np.testing.assert_array_equal(run["blocks.0.fc.input.0", 0], X)
    np.testing.assert_array_equal(run["blocks.0.fc.output", 0], run["blocks.0.bn.input.0", 0])
    np.testing.assert_array_equal(run["output", 1], result)


def test_nnx_modules_inside_nnx_jit(tmp_path):
    net, same = NnxNet(nnx.Rngs(0)), NnxNet(nnx.Rngs(0))
    step = nnx.jit(lambda net, x: net(x).sum())
    result, run = recorded(tmp_path, step, net, X)
    assert float(result) == pytest.approx(float(step(same, X)), rel=1e-5)
    assert {"blocks.1.fc.output", "blocks.0.drop.input.0", "output"} <= set(names(run))
    mean = lambda net: np.asarray(net.blocks[0].bn.mean[...])  # noqa: E731
    np.testing.assert_allclose(mean(net), mean(same), rtol=1e-6)
    assert not np.array_equal(mean(net), np.zeros(3))


def test_two_models_in_one_function_are_told_apart(tmp_path):
    first, second = nn.Dense(3), Net()
    a, b = first.init(jax.random.key(0), X), second.init(jax.random.key(1), X)
    _, run = recorded(tmp_path, lambda a, b, x: second.apply(b, first.apply(a, x)), a, b, X)
    assert {"Dense.output", "Net.output", "Net.layers_0.output"} <= set(names(run))


# One model in torch and in Flax.


@pytest.fixture(scope="module")
def torch_run(tmp_path_factory):
    pytest.importorskip("torch")
    from test_engines import record_torch

    return record_torch(tmp_path_factory.mktemp("torch"))


def flax_run(folder, mistake="", **options):
    from flax_decoder import FlaxDecoder, flax_params
    from test_engines import IDS

    recorded(folder, FlaxDecoder(mistake).apply, flax_params(mistake), jnp.asarray(IDS)[None], **options)
    return folder / "run"


@pytest.mark.parametrize("options", [{}, {"equations": False}, {"jit": True}], ids=["equations", "modules", "jit"])
@pytest.mark.parametrize("swapped", [False, True])
def test_a_port_is_silent(torch_run, tmp_path, options, swapped):
    runs = [torch_run, flax_run(tmp_path, **options)]
    diff = tenscope.diff(*(reversed(runs) if swapped else runs))
    assert not diff, str(diff)
    pairs = {(p["b"], p["a"]) if swapped else (p["a"], p["b"]) for p in diff.json["content_pairs"]}
    assert ("layers.1.attention.q.weight", "h_1.attn.query.kernel") in pairs and len(pairs) > 85


@pytest.mark.parametrize(
    ("mistake", "module", "name"),
    [
        ("epsilon", "layers.1.norm1", "h_1.ln_1.output"),
        ("scale", "layers.1.attention", "h_1.attn.out.input.0"),
        ("transposed", "layers.2.attention.o", "h_2.attn.out.output"),
    ],
)
def test_a_mistake_of_a_port_is_named(torch_run, tmp_path, mistake, module, name):
    diff = tenscope.diff(torch_run, flax_run(tmp_path / "equations", mistake))
    assert diff.first_divergence is not None and diff.first_divergence.module == module, str(diff)
    swapped = tenscope.diff(flax_run(tmp_path / "modules", mistake, equations=False), torch_run)
    assert swapped.first_divergence is not None and swapped.first_divergence.name == name, str(swapped)


def test_a_missing_package_is_one_sentence():
    code = "import importlib.util as u; f = u.find_spec\n"
    code += "u.find_spec = lambda n, *a: None if n == 'jax' else f(n, *a)\nimport tenscope; tenscope.jax"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stderr
    assert told.splitlines()[-1] == "ImportError: tenscope.jax needs jax: pip install jax"


@pytest.mark.parametrize(
    ("words", "verdict"), [([], "equal within tolerance"), (["--bug"], "first divergence: norm.output in norm")]
)
def test_the_example(words, verdict):
    pytest.importorskip("torch")
    example = Path(__file__).parent.parent / "examples" / "jax_model.py"
    done = subprocess.run([sys.executable, example, *words], capture_output=True, text=True)
    assert done.stdout.startswith(verdict), done.stdout + done.stderr
