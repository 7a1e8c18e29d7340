"""tenscope.load and tenscope.save, with numpy, torch and safetensors as judges."""

import argparse
import collections
import datetime
import decimal
import io
import os
import pathlib
import pickle
import zipfile

import numpy as np
import pytest
import tenscope
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

torch = pytest.importorskip("torch")
safetensors_torch = pytest.importorskip("safetensors.torch")
safetensors_numpy = pytest.importorskip("safetensors.numpy")

QUICK = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

NUMPY_DTYPES = ["f8", "f4", "f2", "i8", "i4", "i2", "i1", "u8", "u4", "u2", "u1", "?", "c8", "c16"]
TORCH_DTYPES = [
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16),
    *(torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz),
    *(torch.int64, torch.int32, torch.int16, torch.int8),
    *(torch.uint64, torch.uint32, torch.uint16, torch.uint8),
    *(torch.bool, torch.complex64, torch.complex128),
]


def random_tensor(dtype, shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    count = int(np.prod(shape, dtype=int)) * dtype.itemsize
    bits = torch.randint(0, 2 if dtype == torch.bool else 256, (count,), dtype=torch.uint8, generator=generator)
    return bits.view(dtype).reshape(shape) if count else torch.empty(shape, dtype=dtype)


def same_bits(a, b):
    assert type(a) is type(b)
    assert a.dtype == b.dtype
    assert tuple(a.shape) == tuple(b.shape)
    if isinstance(a, torch.Tensor):
        a, b = (t.detach().contiguous().flatten().view(torch.uint8).numpy() for t in (a, b))
    return np.ascontiguousarray(a).tobytes() == np.ascontiguousarray(b).tobytes()


def same(a, b):
    """Equal in structure, types and bits."""
    if type(a) is not type(b):
        return False
    if isinstance(a, (torch.Tensor, np.ndarray, np.generic)):
        return same_bits(a, b)
    if isinstance(a, dict):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a.items(), b.items(), strict=True))
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return a == b or (a != a and b != b)


# .npy and .npz


@st.composite
def arrays(draw):
    dtype = np.dtype(draw(st.sampled_from(NUMPY_DTYPES))).newbyteorder(draw(st.sampled_from("<>")))
    shape = draw(hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5))
    size = max(int(np.prod(shape)), 1) * dtype.itemsize
    data = np.random.default_rng(draw(st.integers(0, 99))).integers(0, 256, size)
    data = data.astype("u1") & (1 if dtype.kind == "b" else 255)
    array = np.frombuffer(data.tobytes(), dtype, count=int(np.prod(shape))).reshape(shape)
    how = draw(st.sampled_from(["C", "F", "T", "step", "reversed"]))
    if how == "F":
        return np.asfortranarray(array)
    if how == "T":
        return array.T
    if array.ndim and how == "step":
        return array[::2]
    return array[::-1] if array.ndim and how == "reversed" else array


@QUICK
@given(array=arrays(), version=st.sampled_from([(1, 0), (2, 0), (3, 0)]))
def test_npy_as_numpy_has_it(tmp_path, array, version):
    with open(tmp_path / "a.npy", "wb") as file:
        np.lib.format.write_array(file, array, version=version)
    loaded = tenscope.load(tmp_path / "a.npy")
    assert same_bits(loaded, np.load(tmp_path / "a.npy").astype(array.dtype.newbyteorder("=")))
    assert loaded.flags.writeable

    tenscope.save(tmp_path / "b.npy", array)
    assert same_bits(np.load(tmp_path / "b.npy"), array.astype(array.dtype.newbyteorder("=")))


@QUICK
@given(array=arrays(), compress=st.booleans())
def test_npz_as_numpy_has_it(tmp_path, array, compress):
    (np.savez_compressed if compress else np.savez)(tmp_path / "a.npz", array, **{"x/y": array[..., None]})
    native = array.astype(array.dtype.newbyteorder("="))
    loaded = tenscope.load(tmp_path / "a.npz", verify=True)
    assert sorted(loaded) == ["arr_0", "x/y"]
    assert same_bits(loaded["arr_0"], native)

    tenscope.save(tmp_path / "b.npz", {"a": array, "b ä": 1.5}, compress=compress)
    with np.load(tmp_path / "b.npz") as judge:
        assert same_bits(judge["a"], native)
        assert judge["b ä"] == 1.5


@pytest.mark.parametrize("value", [np.array(["text"]), np.zeros(2, "f4,i4"), np.zeros(2, "M8[s]"), np.array([None])])
def test_npy_of_other_dtypes_is_refused_by_name(tmp_path, value):
    np.save(tmp_path / "a.npy", value)
    with pytest.raises(tenscope.UnsupportedError, match="dtype"):
        tenscope.load(tmp_path / "a.npy")


# .safetensors


@pytest.mark.parametrize("dtype", TORCH_DTYPES, ids=str)
def test_safetensors_both_ways(tmp_path, dtype):
    tensors = {"a": random_tensor(dtype, (3, 5)), "b.c": torch.arange(3), "empty": random_tensor(dtype, (0, 2))}
    if dtype == torch.complex128:
        with pytest.raises(tenscope.UnsupportedError, match="complex128"):
            tenscope.save(tmp_path / "a.safetensors", tensors)
        return
    safetensors_torch.save_file(tensors, tmp_path / "a.safetensors", {"made": "here"})
    loaded = tenscope.load(tmp_path / "a.safetensors")
    is_torch = dtype == torch.bfloat16 or "float8" in str(dtype)
    assert same_bits(loaded["a"], tensors["a"] if is_torch else tensors["a"].numpy())

    tenscope.save(tmp_path / "b.safetensors", tensors, metadata={"key": "välue"})
    judge = safetensors_torch.load_file(tmp_path / "b.safetensors")
    assert same(dict(sorted(judge.items())), dict(sorted(tensors.items())))
    with pytest.importorskip("safetensors").safe_open(tmp_path / "b.safetensors", "pt") as file:
        assert file.metadata() == {"key": "välue"}
    assert list(tenscope.load(tmp_path / "b.safetensors")) == list(tensors)


# .pt


@pytest.mark.parametrize("dtype", TORCH_DTYPES, ids=str)
@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])
def test_pt_of_every_dtype(tmp_path, dtype, zipped):
    value = {name: random_tensor(dtype, shape) for name, shape in (("a", (3, 4)), ("scalar", ()), ("empty", (0, 3)))}
    value["t"] = value["a"].t()
    torch.save(value, tmp_path / "a.pt", _use_new_zipfile_serialization=zipped)
    loaded = tenscope.load(tmp_path / "a.pt", verify=True)
    assert same(loaded, value)
    assert loaded["t"].stride() == value["t"].stride()
    assert loaded["t"].data_ptr() == loaded["a"].data_ptr()

    tenscope.save(tmp_path / "b.pt", value)
    judge = torch.load(tmp_path / "b.pt", weights_only=True)
    assert same(judge, value)
    assert judge["t"].data_ptr() == judge["a"].data_ptr()
    assert same(torch.load(tmp_path / "b.pt", weights_only=True, mmap=True), value)


def test_pt_of_a_model_and_its_optimizer(tmp_path):
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3))
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    value = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 1}
    torch.save(value, tmp_path / "a.pt")
    loaded = tenscope.load(tmp_path / "a.pt")
    assert same(loaded, torch.load(tmp_path / "a.pt"))
    assert loaded["model"]._metadata == value["model"]._metadata
    model.load_state_dict(loaded["model"])
    optimizer.load_state_dict(loaded["optimizer"])

    tenscope.save(tmp_path / "b.pth", value)
    judge = torch.load(tmp_path / "b.pth", weights_only=True)
    assert same(judge, value)
    assert judge["model"]._metadata == value["model"]._metadata


def test_pt_keeps_parameters_gradients_flags_and_torch_objects(tmp_path):
    value = [
        torch.nn.Parameter(torch.ones(2)),
        torch.nn.Parameter(torch.arange(2), requires_grad=False),
        torch.ones(2, requires_grad=True),
        torch.Size([1, 2]),
        torch.bfloat16,
        torch.device("cuda", 1),
    ]
    torch.save(value, tmp_path / "a.pt")
    tenscope.save(tmp_path / "b.pt", value)
    for loaded in (tenscope.load(tmp_path / "a.pt"), torch.load(tmp_path / "b.pt", weights_only=True)):
        assert same(loaded, value)
        assert [t.requires_grad for t in loaded[:3]] == [True, False, True]


def test_pt_of_conjugate_and_negative_views(tmp_path):
    z = torch.tensor([1 + 2j, 3 - 4j])
    value = [z.conj(), z, z.clone().conj().imag]
    torch.save(value, tmp_path / "a.pt")
    tenscope.save(tmp_path / "b.pt", value)
    want = [t.resolve_conj().resolve_neg() for t in value]
    assert same(tenscope.load(tmp_path / "a.pt"), want)
    assert same([t.resolve_conj().resolve_neg() for t in torch.load(tmp_path / "b.pt")], want)


def test_pt_without_checksums_is_read(tmp_path):
    torch.serialization.set_crc32_options(False)
    try:
        torch.save({"a": torch.ones(3)}, tmp_path / "a.pt")
    finally:
        torch.serialization.set_crc32_options(True)
    assert same(tenscope.load(tmp_path / "a.pt", verify=True), {"a": torch.ones(3)})


def test_pt_of_the_other_byte_order_deflated_and_unaligned(tmp_path):
    value = {"f": torch.arange(5.0), "u": torch.arange(5).to(torch.uint16), "c": torch.tensor([1 + 2j])}
    torch.save(value, tmp_path / "a.pt")
    with zipfile.ZipFile(tmp_path / "a.pt") as source, zipfile.ZipFile(tmp_path / "b.pt", "w") as target:
        for entry in source.infolist():
            data = source.read(entry)
            if entry.filename.endswith("byteorder"):
                data = b"big"
            for number, dtype in enumerate(("f4", "u2", "f4")):
                if entry.filename.endswith(f"data/{number}"):
                    data = np.frombuffer(data, dtype).byteswap().tobytes()
            target.writestr(entry.filename, data, zipfile.ZIP_DEFLATED if "data/0" in entry.filename else None)
    assert same(tenscope.load(tmp_path / "b.pt"), value)


def test_a_view_is_written_without_the_rest_of_its_storage(tmp_path):
    whole = torch.zeros(1 << 20)
    tenscope.save(tmp_path / "a.pt", whole[:10])
    assert os.path.getsize(tmp_path / "a.pt") < 10_000
    assert same_bits(torch.load(tmp_path / "a.pt"), whole[:10])


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (torch.eye(3).to_sparse(), "sparse"),
        (torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8), "quant|QInt8"),
        (torch.empty(2, device="meta"), "meta"),
    ],
)
def test_pt_of_other_tensors_is_refused_by_name(tmp_path, value, name):
    torch.save(value, tmp_path / "a.pt")
    with pytest.raises(tenscope.UnsupportedError, match=name):
        tenscope.load(tmp_path / "a.pt")


# .pkl

plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**80), 2**80)
    | st.floats()
    | st.complex_numbers(allow_nan=False)
    | st.text(max_size=10)
    | st.binary(max_size=10)
    | st.binary(max_size=5).map(bytearray)
    | st.sampled_from([np.float32(1.5), np.int8(-3), np.bool_(True), np.arange(6, dtype="<i2").reshape(2, 3).T]),
    lambda part: (
        st.lists(part, max_size=4)
        | st.lists(part, max_size=4).map(tuple)
        | st.dictionaries(st.text(max_size=3) | st.integers() | st.tuples(st.integers()), part, max_size=4)
        | st.dictionaries(st.text(max_size=3), part, max_size=4).map(collections.OrderedDict)
        | st.frozensets(st.integers(), max_size=3)
        | st.sets(st.text(max_size=3), max_size=3)
    ),
    max_leaves=12,
)


@settings(QUICK, max_examples=150)
@given(value=plain, protocol=st.integers(0, pickle.HIGHEST_PROTOCOL))
def test_pkl_of_plain_values_both_ways(tmp_path, value, protocol):
    (tmp_path / "a.pkl").write_bytes(pickle.dumps(value, protocol))
    assert same(tenscope.load(tmp_path / "a.pkl"), value)
    tenscope.save(tmp_path / "b.pkl", value)
    assert same(pickle.loads((tmp_path / "b.pkl").read_bytes()), value)


@QUICK
@given(array=arrays(), protocol=st.integers(0, pickle.HIGHEST_PROTOCOL))
def test_pkl_of_arrays_both_ways(tmp_path, array, protocol):
    (tmp_path / "a.pkl").write_bytes(pickle.dumps([array, array], protocol))
    first, second = tenscope.load(tmp_path / "a.pkl")
    assert first is second
    native = array.astype(array.dtype.newbyteorder("="))
    assert same_bits(first, native)
    tenscope.save(tmp_path / "b.pkl", array)
    assert same_bits(pickle.loads((tmp_path / "b.pkl").read_bytes()), native)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pkl_of_torch_tensors_both_ways(tmp_path, protocol):
    base = torch.arange(12.0).reshape(3, 4)
    value = {"base": base, "row": base[1], "bf16": base.bfloat16(), "parameter": torch.nn.Parameter(base[:2])}
    (tmp_path / "a.pkl").write_bytes(pickle.dumps(value, protocol))
    assert same(tenscope.load(tmp_path / "a.pkl"), value)
    tenscope.save(tmp_path / "b.pkl", value | {"f8": base.to(torch.float8_e5m2)})
    judge = pickle.loads((tmp_path / "b.pkl").read_bytes())
    assert same_bits(judge.pop("f8"), base.to(torch.float8_e5m2))
    assert same(judge, value)
    assert judge["row"].data_ptr() == judge["base"].data_ptr() + 16


HARMLESS = [
    datetime.datetime(2026, 1, 2, 3, 4, 5, 6),
    datetime.timedelta(1, 2),
    decimal.Decimal("1.50"),
    pathlib.PurePosixPath("a/b"),
    slice(1, None, 2),
    range(1, 9, 2),
    argparse.Namespace(lr=0.1, name="x"),
    np.dtype("float32"),
]


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pkl_of_harmless_classes(tmp_path, protocol):
    (tmp_path / "a.pkl").write_bytes(pickle.dumps(HARMLESS, protocol))
    assert tenscope.load(tmp_path / "a.pkl") == HARMLESS
    tenscope.save(tmp_path / "b.pkl", HARMLESS)
    assert pickle.loads((tmp_path / "b.pkl").read_bytes()) == HARMLESS


def test_torch_save_under_the_name_pkl(tmp_path):
    for zipped in (True, False):
        torch.save([torch.ones(2)], tmp_path / "a.pkl", _use_new_zipfile_serialization=zipped)
        assert same(tenscope.load(tmp_path / "a.pkl"), [torch.ones(2)])


class Custom:
    def __init__(self):
        self.x = 1


def test_other_classes_only_with_trust(tmp_path):
    tenscope.save(tmp_path / "a.pkl", {"custom": Custom()})
    with pytest.raises(tenscope.UnsupportedError, match=r"Custom.*trust=True"):
        tenscope.load(tmp_path / "a.pkl")
    assert tenscope.load(tmp_path / "a.pkl", trust=True)["custom"].x == 1
    with pytest.raises(tenscope.UnsupportedError, match=r"\['custom'\].*Custom"):
        tenscope.save(tmp_path / "a.pt", {"custom": Custom()})
    torch.save(Custom(), tmp_path / "b.pt")
    with pytest.raises(tenscope.UnsupportedError, match=r"Custom.*trust=True"):
        tenscope.load(tmp_path / "b.pt")
    assert tenscope.load(tmp_path / "b.pt", trust=True).x == 1


# All


def test_saving_into_itself_and_errors(tmp_path):
    array = np.arange(1 << 18, dtype="f4")
    path = tmp_path / "a.npy"
    tenscope.save(path, array)
    mapped = tenscope.load(str(path))
    tenscope.save(path, mapped * 2)
    assert same_bits(mapped, array)
    assert same_bits(tenscope.load(path, mmap=False), array * 2)
    mapped[0] = 7  # private
    assert tenscope.load(path)[0] == 0

    with pytest.raises(FileNotFoundError, match=r"missing\.npy"):
        tenscope.load(tmp_path / "missing.npy")
    with pytest.raises(tenscope.UsageError, match=r"\.txt"):
        tenscope.load(tmp_path / "a.txt")
    with pytest.raises(tenscope.UsageError, match="dict"):
        tenscope.save(tmp_path / "a.npz", [1])
    with pytest.raises(tenscope.IoError):
        tenscope.save(tmp_path / "no" / "a.npy", array)
    recursive = []
    recursive.append(recursive)
    with pytest.raises(tenscope.UnsupportedError, match="contains itself"):
        tenscope.save(tmp_path / "a.pt", recursive)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.npy"]


@settings(QUICK, max_examples=200)
@given(data=st.data(), name=st.sampled_from(["npy", "npz", "pt", "safetensors", "pkl"]))
def test_a_damaged_file_gives_a_value_or_an_error(tmp_path, data, name):
    value = {"a": np.arange(6.0).reshape(2, 3), "b": np.zeros(2, "u1")}
    path = tmp_path / f"a.{name}"
    tenscope.save(path, value["a"] if name == "npy" else value)
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content[: data.draw(st.integers(0, len(content)) | st.just(len(content)))])
    try:
        tenscope.load(path)
    except tenscope.Error as error:
        assert str(path) in str(error)


def test_bytes_io_of_torch_equals_file(tmp_path):
    out = io.BytesIO()
    torch.save(torch.arange(3), out)
    (tmp_path / "a.bin").write_bytes(out.getvalue())
    assert same_bits(tenscope.load(tmp_path / "a.bin"), torch.arange(3))
