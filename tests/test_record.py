"""What is recorded is what NumPy and torch say, whatever the object."""

import collections
import dataclasses
import enum
import pathlib
import sys

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
import tenscope
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch") if sys.version_info[:2] == (3, 11) else None
needs_torch = pytest.mark.skipif(torch is None, reason="torch is installed for CPython 3.11 only")


@pytest.fixture
def run(tmp_path):
    with tenscope.Run(tmp_path) as run:
        yield run


def reread(run):
    run.close()
    return tenscope.open(run.path)


def bits(array):
    return np.ascontiguousarray(array).tobytes()


# Numbers, text, nothing.


@pytest.mark.parametrize(
    "value",
    [0, -1, 2**63 - 1, -(2**63), 2**63, 2**70, -(2**70), 10**300, True, False, None, "", "text", "zwölf\n\0\"\\", 0.1,
     -0.0, 1e308, 5e-324, float("inf"), float("-inf")],
)  # fmt: skip
def test_a_plain_value_reads_back_equal_and_of_its_type(run, value):
    tenscope.record("x", value)
    back = reread(run)["x"]
    assert back == value and type(back) is type(value)


def test_a_run_of_statistics_keeps_no_bytes(tmp_path):
    with tenscope.Run(tmp_path, values="stats") as run:
        run.record("x", np.arange(1000.0), values="full")
        run.record("loss", 0.5)
    again = reread(run)
    assert not list(run.path.rglob("*.safetensors*")) and again["loss", 0] == 0.5
    assert again.event("x", 0).stats.mean == 499.5 and not again.event("x", 0).stored and not again.losses
    with pytest.raises(ValueError, match='values must be "full" or "stats", not some'):
        tenscope.Run(tmp_path, values="some")


def test_nan_reads_back(run):
    tenscope.record("x", float("nan"))
    assert np.isnan(reread(run)["x"])


@pytest.mark.parametrize(
    "scalar", [np.float64(0.1), np.float32(0.1), np.float16(0.1), np.int8(-3), np.uint64(2**64 - 1), np.bool_(True)]
)
def test_a_numpy_scalar_is_a_number(run, scalar):
    tenscope.record("x", scalar)
    back = reread(run)["x"]
    assert back == scalar.item() and type(back) is type(scalar.item())


@pytest.mark.parametrize("value", [1 + 2j, np.complex64(3 - 4j)])
def test_a_complex_number_is_a_0d_tensor(run, value):
    tenscope.record("x", value)
    back = reread(run)["x"]
    assert back.shape == () and back == value


def test_text_that_is_not_unicode_is_kept_escaped(run):
    tenscope.record("x", "a\ud800b")
    tenscope.record("n\ud800", 1)
    back = reread(run)
    assert back["x"] == "a\\ud800b" and back["n\\ud800"] == 1


def test_values_known_by_their_text(run):
    class Color(enum.Enum):
        RED = 1

    tenscope.record("x", {"path": pathlib.Path("a/b"), "color": Color.RED, "dtype": np.dtype("f4")})
    assert reread(run)["x"] == {"path": "a/b", "color": "Color.RED", "dtype": "float32"}


# Arrays.

NUMPY_DTYPES = [
    f"{order}{code}" for order in "<>" for code in ("f2", "f4", "f8", "i2", "i4", "i8", "u2", "u4", "u8", "c8", "c16")
]
NUMPY_DTYPES += ["i1", "u1", "?"]


@st.composite
def strided_arrays(draw):
    """Any dtype, byte order, shape and strides: slices with negative steps, transposes, broadcasts, fields."""
    dtype = np.dtype(draw(st.sampled_from(NUMPY_DTYPES)))
    shape = draw(hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5))
    array = draw(hnp.arrays(dtype, shape, elements=hnp.from_dtype(dtype), fill=st.nothing()))
    if draw(st.booleans()):
        packed = np.zeros(shape, [("pad", "u1"), ("x", dtype)])
        packed["x"] = array
        array = packed["x"]
    array = array[
        tuple(draw(st.sampled_from([slice(None), slice(None, None, -1), slice(None, None, 2)])) for _ in shape)
    ]
    array = np.asarray(array).transpose(draw(st.permutations(range(array.ndim))))
    if draw(st.booleans()):
        array = np.broadcast_to(array, (draw(st.integers(0, 3)), *array.shape))
    return array


@given(strided_arrays())
@settings(max_examples=300, deadline=None)
def test_any_array_reads_back_bit_for_bit_with_numpys_statistics(tmp_path_factory, array):
    with tenscope.Run(tmp_path_factory.getbasetemp() / "arrays") as run:
        tenscope.record("x", array)
    event = tenscope.open(run.path).event("x")
    native = array.astype(array.dtype.newbyteorder("="))
    assert event.shape == array.shape and event.dtype == native.dtype.name
    assert event.value.dtype == native.dtype and bits(event.value) == bits(native)
    assert_stats(event.stats, native)


def assert_stats(stats, array):
    parts = array.reshape(-1)
    if array.dtype.kind == "c":
        parts = np.concatenate([parts.real, parts.imag])
    finite = parts[np.isfinite(parts)] if array.dtype.kind in "fc" else parts
    assert stats.count == array.size or stats.count == parts.size
    assert stats.nan == np.isnan(parts).sum() and stats.zero == (parts == 0).sum()
    assert (
        stats.pos_inf == np.isposinf(parts.astype("f8")).sum()
        and stats.neg_inf == np.isneginf(parts.astype("f8")).sum()
    )
    if not finite.size:
        return
    assert stats.min == finite.min() and stats.max == finite.max()
    wide = finite.astype(np.longdouble)
    mean = float(wide.mean())
    scale = float(np.abs(wide).max()) or 1.0
    assert stats.mean == pytest.approx(mean, rel=1e-9, abs=1e-12 * scale)
    assert stats.abs_max == pytest.approx(scale if np.any(wide) else 0.0)
    if scale < 1e150:
        assert stats.std == pytest.approx(float(wide.std()), rel=1e-6, abs=1e-7 * scale)
        assert stats.l2 == pytest.approx(float(np.sqrt((wide**2).sum())), rel=1e-9, abs=1e-160)


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"])
def test_ml_dtypes_arrays(run, name):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    array = np.linspace(-3, 3, 12).astype(getattr(ml_dtypes, name)).reshape(3, 4).T
    tenscope.record("x", array)
    event = reread(run).event("x")
    assert event.dtype == name and bits(event.value) == bits(array)
    assert event.stats.mean == pytest.approx(float(array.astype("f8").mean()))


def test_buffers_are_arrays(run):
    import array

    tenscope.record(
        "x",
        {
            "bytes": b"abc",
            "mutable": bytearray(b"de"),
            "view": memoryview(b"abcd")[::2],
            "array": array.array("d", [1.5]),
        },
    )
    back = reread(run)
    assert bits(back["x.bytes"]) == b"abc" and bits(back["x.mutable"]) == b"de" and bits(back["x.view"]) == b"ac"
    assert back["x.array"].tolist() == [1.5]


@pytest.mark.parametrize(
    "array", [np.array(["a"]), np.array([None]), np.array(["2026-01-01"], "M8[s]"), np.ones(2, np.longdouble)]
)
def test_an_array_that_cannot_be_recorded_is_said_by_name(run, array):
    tenscope.record("x", array)
    event = reread(run).event("x")
    assert str(array.dtype) in event.value or array.dtype.name in event.value
    assert "dtype" in event.meta["unsupported"]


def test_a_structured_array_is_recorded_by_its_fields(run):
    array = np.array([(1, 2.5), (3, 4.5)], [("a", "i1"), ("b", "f8")])
    tenscope.record("x", array)
    back = reread(run)
    assert back["x.a"].tolist() == [1, 3] and back["x.b"].tolist() == [2.5, 4.5]
    assert [e.meta["name"] for e in back.find("by_parts")] == ["x"]


# Torch.

TORCH_DTYPES = [
    "float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2",
    "float8_e4m3fnuz", "float8_e5m2fnuz", "int64", "int32", "int16", "int8",
    "uint64", "uint32", "uint16", "uint8", "bool", "complex64",
    "complex128",
]  # fmt: skip


@needs_torch
@pytest.mark.parametrize("name", TORCH_DTYPES)
def test_every_torch_dtype(run, name):
    raw = torch.arange(96, dtype=torch.uint8)
    tensor = (raw.reshape(2, 48) % 2 if name == "bool" else raw.reshape(2, 48)).view(getattr(torch, name)).T
    tenscope.record("x", tensor)
    event = reread(run).event("x")
    back = event.torch()
    assert event.dtype == name and back.dtype == tensor.dtype and back.shape == tensor.shape
    assert torch.equal(back.contiguous().view(torch.uint8), tensor.contiguous().view(torch.uint8))


@needs_torch
def test_torch_views_and_kinds(run):
    base = torch.arange(24.0).reshape(4, 6)
    complex_one = torch.complex(base, base + 1)
    tensors = {
        "slice": base[1:, ::2], "expanded": base[:1].expand(5, 6), "scalar": base[2, 3], "empty": base[:0],
        "grad": base.clone().requires_grad_(), "parameter": torch.nn.Parameter(base), "conj": complex_one.conj(),
        "neg": complex_one.conj().imag, "inference": None,
    }  # fmt: skip
    with torch.inference_mode():
        tensors["inference"] = base * 2
    tenscope.record("t", tensors)
    back = reread(run)
    for name, tensor in tensors.items():
        assert torch.equal(back[f"t.{name}"].torch(), tensor.detach().resolve_conj().resolve_neg()), name


@needs_torch
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_tensors_without_plain_bytes_are_recorded_by_parts_or_said(run):
    dense = torch.eye(3)
    quantised = torch.quantize_per_tensor(torch.ones(2), 0.1, 3, torch.qint8)
    freed = torch.ones(4)
    freed.untyped_storage().resize_(0)
    tenscope.record("coo", dense.to_sparse())
    tenscope.record("csr", dense.to_sparse_csr())
    tenscope.record("q", quantised)
    tenscope.record("nested", torch.nested.nested_tensor([torch.ones(2), torch.zeros(3)]))
    tenscope.record("meta", torch.ones(2, device="meta"))
    tenscope.record("freed", freed)
    back = reread(run)
    coo = torch.sparse_coo_tensor(back["coo.indices"].torch(), back["coo.values"].torch(), tuple(back["coo.shape"]))
    assert torch.equal(coo.to_dense(), dense)
    assert back["csr.crow_indices"].tolist() == [0, 1, 2, 3]
    assert torch.equal(
        (back["q.int_repr"].torch().float() - back["q.zero_point"]) * back["q.scale"], quantised.dequantize()
    )
    assert back["nested.1"].tolist() == [0, 0, 0]
    assert "meta" in back.event("meta").meta["unsupported"] and back["meta"] == "<Tensor float32 [2] on meta>"
    assert "storage" in back.event("freed").meta["unsupported"]


@needs_torch
def test_fake_functional_and_batched_tensors_are_said(run):
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        tenscope.record("fake", torch.ones(2))
    torch.vmap(lambda x: (tenscope.record("batched", x), x)[1])(torch.ones(2, 3))
    torch.func.functionalize(lambda x: (tenscope.record("functional", x), x)[1])(torch.ones(2))
    back = reread(run)
    assert all(back.event(name).meta["unsupported"] for name in ("fake", "functional"))
    assert back["batched.batched"].shape == (2, 3) and back["batched.axis"] == 0, "the whole batch behind vmap's tensor"


@needs_torch
def test_the_recorder_is_unseen_by_torch_function_and_dispatch(run):
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode

    seen = []

    class Subclass(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            seen.append(func)
            return super().__torch_function__(func, types, args, kwargs or {})

    class FunctionMode(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            seen.append(func)
            return func(*args, **(kwargs or {}))

    class DispatchMode(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(func)
            return func(*args, **(kwargs or {}))

    values = [torch.ones(2), torch.ones(2).as_subclass(Subclass), torch.ones(2, dtype=torch.complex64).conj()]
    seen.clear()
    with FunctionMode(), DispatchMode():
        for value in values:
            tenscope.record("x", value)
    assert not seen
    assert len(reread(run).find("x")) == 3


# Nests.

Point = collections.namedtuple("Point", "x y")


@dataclasses.dataclass
class Pair:
    left: object
    right: object


leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5)
keys = st.text(st.characters(blacklist_characters=".", blacklist_categories=["Cs"]), min_size=1, max_size=5).filter(
    lambda k: not k.isdigit()
)
nests = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=20,
)


@given(nests)
@settings(max_examples=200, deadline=None)
def test_any_nest_reads_back_equal(tmp_path_factory, nest):
    with tenscope.Run(tmp_path_factory.getbasetemp() / "nests") as run:
        tenscope.record("x", nest)
    assert tenscope.open(run.path)["x"] == nest


def test_names_in_nests_are_joined_with_dots(run):
    tenscope.record("out", {"logits": 1, "cache": [(2, 3)], 7: Point(4, Pair(5, None)), "empty": ()})
    back = reread(run)
    assert back.names() == [
        "out.logits",
        "out.cache.0.0",
        "out.cache.0.1",
        "out.7.x",
        "out.7.y.left",
        "out.7.y.right",
        "out.empty",
    ]
    assert back["out.7"] == {"x": 4, "y": {"left": 5, "right": None}} and back["out.empty"] == ()


@needs_torch
def test_transformers_outputs_are_dicts(run):
    outputs = pytest.importorskip("transformers.modeling_outputs")
    tenscope.record("out", outputs.CausalLMOutput(logits=torch.ones(1, 2)))
    assert reread(run).names() == ["out.logits"]


def test_cycles_end_and_are_said(run):
    loop = {"a": 1}
    loop["self"] = [loop]
    tenscope.record("x", loop)
    back = reread(run)
    assert back["x.a"] == 1
    (note,) = back.find("not_seen", kind="note")
    assert note.meta["name"] == "x.self.0" and "cycle" in note.meta["reason"]


def test_deep_and_huge_nests_are_bounded_and_said(run):
    deep = 1
    for _ in range(10_000):
        deep = [deep]
    tenscope.record("deep", deep)
    tenscope.record("huge", list(range(70_000)))
    back = reread(run)
    reasons = [note.meta["reason"] for note in back.find("not_seen")]
    assert len(reasons) == 2 and "deeper" in reasons[0] and "65536" in reasons[1]
    assert len(back.names("huge.*")) == 65536


def test_an_unknown_object_is_named(run):
    tenscope.record("x", [object(), len, Pair])
    back = reread(run)
    assert back["x"] == ["<object>", "<builtin_function_or_method>", "<type>"]
    assert all(e.meta["unsupported"] for e in back.find("x.*"))


def test_what_a_value_was_made_of(tmp_path):
    with tenscope.Run(tmp_path, name="r") as run:
        run.record("product", np.ones(2), inputs=["x", "w"], meta={"op": "matmul"})
        run.record("sum", np.ones(2), meta='{"op": "add"}', inputs=("product", "b"))
        run.record("alone", 1, inputs=[])
        for wrong in ("x", [1], 3):
            with pytest.raises(TypeError, match="inputs is a list of the names"):
                run.record("y", 1, inputs=wrong)
    events = {event.name: event.meta for event in tenscope.open(tmp_path / "r") if event.kind == "value"}
    assert events["product"] == {"op": "matmul", "inputs": ["x", "w"]}
    assert events["sum"] == {"op": "add", "inputs": ["product", "b"]}
    assert events["alone"] == {"inputs": []} and "y" not in events
