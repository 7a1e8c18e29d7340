"""What is recorded is what NumPy and torch say, whatever the object."""

import collections
import dataclasses
import enum
import json
import os
import pathlib
import subprocess
import sys
import threading
import warnings

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
    assert all(back.event(name).meta["unsupported"] for name in ("fake", "batched", "functional"))


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


# The event's fields.


def test_fields_of_an_event(run):
    tenscope.record("x", 1, kind="change", step=7, call=3, site="f.py:1", scope="s", io="local", phase="forward",
                    root="R#0", cls="C",
                    task="T", meta={"k": [1]})  # fmt: skip
    tenscope.record("enter", kind="enter", scope="s")
    back = reread(run)
    event = back.event("x", 7, 3)
    told = [
        getattr(event, f)
        for f in ("kind", "step", "call", "site", "scope", "io", "phase", "root", "cls", "task", "meta")
    ]
    assert told == ["change", 7, 3, "f.py:1", "s", "local", "forward", "R#0", "C", "T", {"k": [1]}]
    assert [e.scope for e in back.find(kind="enter")] == ["s"]


def test_the_site_is_the_line_that_calls(run):
    tenscope.record("x", 1)
    line = sys._getframe().f_lineno - 1
    assert reread(run).event("x").site.endswith(f"test_record.py:{line}")


def test_steps_and_calls_are_counted(run):
    tenscope.record("x", "a")
    tenscope.record("x", "b")
    assert tenscope.step() == 1
    tenscope.record("x", "c")
    assert tenscope.step(9) == 9 and run.current_step == 9
    tenscope.record("x", "d")
    back = reread(run)
    assert [(e.step, e.call, e.value) for e in back.find("x")] == [(0, 0, "a"), (0, 1, "b"), (1, 0, "c"), (9, 0, "d")]


def test_statistics_only(run):
    tenscope.record("x", np.ones(3), values="stats")
    back = reread(run)
    assert back.event("x").stats.mean == 1 and not back.event("x").stored
    with pytest.raises(tenscope.NotFoundError):
        back["x"]


@pytest.mark.parametrize("wrong", [{"kind": "no"}, {"values": "no"}, {"no": 1}, {"scope": 3}])
def test_a_wrong_call_raises(run, wrong):
    with pytest.raises((TypeError, ValueError)):
        tenscope.record("x", 1, **wrong)
    with pytest.raises(TypeError):
        tenscope.record("x")


# On and off.


def test_nothing_is_recorded_before_init_or_while_disabled(tmp_path):
    assert tenscope.current() is None
    tenscope.record("x", 1)
    run = tenscope.init(tmp_path)
    assert tenscope.current() is run
    tenscope.disable()
    tenscope.record("x", 2)
    tenscope.enable()
    tenscope.record("x", 3)
    tenscope.close()
    tenscope.record("x", 4)
    assert tenscope.current() is None and [e.value for e in tenscope.open(tmp_path).find("x")] == [3]


def test_run_as_a_context_is_current_inside_and_notes_an_exception(tmp_path):
    with pytest.raises(ZeroDivisionError), tenscope.Run(tmp_path / "a") as outer:
        with tenscope.Run(tmp_path / "b") as inner:
            tenscope.record("x", "inner")
        tenscope.record("x", "outer")
        _ = 1 / 0
    assert tenscope.open(inner.path)["x"] == "inner"
    back = tenscope.open(outer.path)
    assert back["x"] == "outer" and back.closed
    assert back.find("exception")[0].value == "ZeroDivisionError: division by zero"


# Trouble.


class Hostile(dict):
    class Key:
        def __str__(self):
            raise ValueError("no name")

    def __init__(self):
        super().__init__({self.Key(): 1})


def test_an_error_inside_the_recorder_stays_there(run):
    with pytest.warns(tenscope.RecordingWarning, match="no name"):
        tenscope.record("x", Hostile())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tenscope.record("x", Hostile())
    tenscope.record("y", 1)
    assert run.dropped == 2 and reread(run)["y"] == 1


def test_a_warning_made_an_error_stays_there_too(run, capsys):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tenscope.record("x", Hostile())
    assert "no name" in capsys.readouterr().err


def test_strict_raises(tmp_path):
    with tenscope.Run(tmp_path, strict=True), pytest.raises(ValueError, match="no name"):
        tenscope.record("x", Hostile())


def test_the_recorder_does_not_record_itself(run):
    class Key:
        def __str__(self):
            tenscope.record("inner", 1)
            return "key"

    tenscope.record("outer", {Key(): 2})
    assert reread(run).names() == ["outer.key"]


def test_a_folder_that_cannot_be_made_is_warned_of(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.warns(tenscope.RecordingWarning, match="recording is off"):
        tenscope.init(tmp_path / "file" / "runs")
    tenscope.record("x", 1)
    tenscope.close()


def test_nothing_of_the_users_is_kept(run):
    array = np.ones(300_000)
    before = sys.getrefcount(array)
    for _ in range(3):
        tenscope.record("x", {"a": array})
    assert sys.getrefcount(array) == before


def test_threads(run):
    arrays = [np.full(200_000, i, "f8") for i in range(4)]  # large enough to be read without the GIL

    def work(i):
        for n in range(20):
            tenscope.record(f"t{i}", arrays[i])
            tenscope.record(f"n{i}", n)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    back = reread(run)
    assert len(back.find("t?")) == 80 and [e.value for e in back.find("n2")] == list(range(20))
    assert all(back[f"t{i}"][0] == i for i in range(4))
    assert len({e.thread for e in back.find("n?")}) == 4


# Processes.


def python(code, *args, **env):
    environ = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE")} | env
    return subprocess.run([sys.executable, "-c", code, *map(str, args)], env=environ, capture_output=True, text=True)


@pytest.mark.parametrize(
    ("end", "code"),
    [
        ("pass", 0),
        ("raise KeyError(3)", 1),
        ("sys.exit(3)", 3),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", -15),
    ],
)
def test_runs_are_closed_at_the_end_of_the_process(tmp_path, end, code):
    done = python(f"import sys, tenscope\ntenscope.init(sys.argv[1])\ntenscope.record('x', 1)\n{end}", tmp_path)
    assert done.returncode == code
    back = tenscope.open(tmp_path)
    assert back["x"] == 1 and back.closed


def test_what_was_recorded_survives_sigkill(tmp_path):
    code = """
import os, sys, tenscope, numpy
tenscope.init(sys.argv[1])
tenscope.record('x', numpy.arange(5))
os.kill(os.getpid(), 9)
"""
    assert python(code, tmp_path).returncode == -9
    back = tenscope.open(tmp_path)
    assert back["x"].tolist() == [0, 1, 2, 3, 4] and not back.closed


def test_torch_is_not_needed_and_not_imported(tmp_path):
    code = """
import sys
sys.modules["torch"] = None
import numpy, tenscope
tenscope.init(sys.argv[1])
tenscope.record("x", {"a": numpy.ones(3), "b": 2})
tenscope.close()
run = tenscope.open(sys.argv[1])
assert run["x.a"].tolist() == [1, 1, 1] and run["x"]["b"] == 2
try:
    run["x.a"].torch()
except ImportError:
    print("fine")
"""
    done = python(code, tmp_path)
    assert done.stdout == "fine\n", done.stderr
    assert "torch" not in python("import sys, tenscope; print(*sys.modules)").stdout.split()


def test_forked_children_record_into_folders_of_their_own(tmp_path):
    code = """
import multiprocessing, sys, tenscope
tenscope.init(sys.argv[1])
tenscope.record("x", "parent")
def work(i):
    tenscope.record("x", f"child {i}")
context = multiprocessing.get_context("fork")
children = [context.Process(target=work, args=(i,)) for i in range(2)]
[c.start() for c in children]
[c.join() for c in children]
tenscope.record("y", "parent")
"""
    done = python(code, tmp_path)
    assert done.returncode == 0, done.stderr
    back = tenscope.open(tmp_path)
    assert len(back.writers) == 3 and back.closed and not back.problems
    assert sorted(e.value for e in back.find("x")) == ["child 0", "child 1", "parent"]
    assert back["x"] == back["y"] == "parent"


@needs_torch
def test_dataloader_workers_record(tmp_path):
    code = """
import sys, tenscope, torch
class Data(torch.utils.data.Dataset):
    def __len__(self): return 8
    def __getitem__(self, i):
        tenscope.record("sample", i)
        return i
tenscope.init(sys.argv[1])
for batch in torch.utils.data.DataLoader(Data(), batch_size=2, num_workers=2):
    tenscope.record("batch", batch)
"""
    done = python(code, tmp_path)
    assert done.returncode == 0, done.stderr
    back = tenscope.open(tmp_path)
    assert sorted(e.value for e in back.find("sample")) == list(range(8)) and len(back.find("batch")) == 4
    assert len({e.writer for e in back.find("sample")}) == 2


# Ranks.


def test_ranks_of_a_launcher_share_a_run(tmp_path):
    code = "import sys, tenscope\ntenscope.init(sys.argv[1])\ntenscope.record('rank', tenscope.current().rank)"
    for rank in range(2):
        done = python(code, tmp_path, RANK=str(rank), WORLD_SIZE="2", LOCAL_WORLD_SIZE="2")
        assert done.returncode == 0, done.stderr
    back = tenscope.open(tmp_path)
    assert back.ranks == [0, 1] and [back.rank(r)["rank"] for r in range(2)] == [0, 1]
    assert back.stack("rank").tolist() == [[0], [1]]
    assert json.loads((back.path / "run.json").read_text())["world_size"] == 2


def test_tenscope_run_names_the_folder(tmp_path):
    code = "import tenscope\ntenscope.init('elsewhere')\ntenscope.record('x', 1)"
    assert python(code, TENSCOPE_RUN=str(tmp_path / "mine"), SLURM_PROCID="3", SLURM_NTASKS="4").returncode == 0
    assert tenscope.open(tmp_path / "mine").ranks == [3]


@pytest.mark.parametrize(
    ("environ", "name"),
    [
        ({"SLURM_PROCID": "1", "SLURM_JOB_ID": "77", "SLURM_STEP_ID": "2"}, "slurm-77.2"),
        ({"SLURM_PROCID": "1", "SLURM_JOB_ID": "77", "SLURM_RESTART_COUNT": "1"}, "slurm-77.0_restart-1"),
        ({"LOCAL_WORLD_SIZE": "1", "TORCHELASTIC_RUN_ID": "my/job"}, "my-job"),
        ({"LOCAL_WORLD_SIZE": "1", "MASTER_ADDR": "node0", "MASTER_PORT": "29500"}, "node0_29500"),
    ],
)
def test_a_jobs_name_comes_from_its_launcher(environ, name):
    from tenscope import _ranks

    assert _ranks.job_name(environ, 2) == name


@needs_torch
def test_ranks_agree_by_torch_distributed(tmp_path):
    code = """
import os, sys, tenscope, torch, torch.distributed as dist
import torch.multiprocessing as mp
def main(rank, folder, port):
    dist.init_process_group("gloo", init_method=f"file://{port}", rank=rank, world_size=2)
    tenscope.init(folder)
    tenscope.record("x", torch.full((2,), float(rank)))
    tenscope.close()
    dist.destroy_process_group()
if __name__ == "__main__":
    context = mp.get_context("fork")
    children = [context.Process(target=main, args=(r, *sys.argv[1:])) for r in range(2)]
    [c.start() for c in children]
    [c.join() for c in children]
    sys.exit(max(c.exitcode for c in children))
"""
    done = python(code, tmp_path / "runs", tmp_path / "store")
    assert done.returncode == 0, done.stderr
    assert len(list((tmp_path / "runs").iterdir())) == 1
    assert tenscope.open(tmp_path / "runs").stack("x").tolist() == [[[0, 0]], [[1, 1]]]
