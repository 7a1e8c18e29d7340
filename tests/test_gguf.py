"""GGUF files, with the gguf package as judge: what it writes is read, and its own dequantisation has the same bits."""

import struct
from pathlib import Path

import numpy as np
import pytest
import tenscope

gguf = pytest.importorskip("gguf")

Type = gguf.GGMLQuantizationType
PLAIN = {
    "F32": "f4", "F16": "f2", "F64": "f8", "I8": "i1", "I16": "i2", "I32": "i4", "I64": "i8",
}  # fmt: skip
BLOCKS = [
    *("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"),
    *("IQ4_NL", "IQ4_XS", "TQ1_0", "TQ2_0", "MXFP4"),
]
UNREAD = ["IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S"]


def write(path, tensors, metadata=lambda writer: None, **options):
    """Tensors: name to array, or to (bytes of each row, type)."""
    writer = gguf.GGUFWriter(path, "llama", **options)
    metadata(writer)
    for name, tensor in tensors.items():
        array, kind = tensor if isinstance(tensor, tuple) else (tensor, None)
        writer.add_tensor(name, array, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def random_blocks(kind, rows, blocks):
    """Any bytes at all are blocks."""
    _, size = gguf.GGML_QUANT_SIZES[Type[kind]]
    return np.random.default_rng(7).integers(0, 256, (rows, blocks * size), dtype=np.uint8)


def test_plain_types_and_shapes(tmp_path):
    random = np.random.default_rng(0)
    tensors = {name: (random.standard_normal((2, 3, 5)) * 50).astype(dtype) for name, dtype in PLAIN.items()}
    tensors |= {"one": np.float32([7]), "large": random.standard_normal((300, 300)).astype("f4")}
    path = write(tmp_path / "plain.gguf", tensors)
    loaded = tenscope.load(path)
    assert list(loaded) == list(tensors)
    for name, array in tensors.items():
        assert loaded[name].dtype == array.dtype
        np.testing.assert_array_equal(loaded[name], array)
    for stored in gguf.GGUFReader(path).tensors:
        np.testing.assert_array_equal(loaded[stored.name], stored.data)


def test_bfloat16(tmp_path):
    torch = pytest.importorskip("torch")
    values = torch.randn(4, 32, dtype=torch.float32).bfloat16()
    raw = values.view(torch.uint8).numpy()
    loaded = tenscope.load(write(tmp_path / "b.gguf", {"x": (raw, Type.BF16)}))["x"]
    assert loaded.dtype == torch.bfloat16
    assert torch.equal(loaded, values)


@pytest.mark.parametrize("kind", BLOCKS)
def test_blocks_are_dequantised_to_the_same_bits(tmp_path, kind):
    raw = random_blocks(kind, 6, 5)
    path = write(tmp_path / "q.gguf", {"x": (raw, Type[kind])})
    with np.errstate(all="ignore"):
        expected = gguf.quants.dequantize(gguf.GGUFReader(path).tensors[0].data, Type[kind])
    loaded = tenscope.load(path)["x"]
    assert loaded.dtype == np.float32
    assert loaded.shape == expected.shape
    numbers = ~np.isnan(expected)
    assert np.array_equal(numbers, ~np.isnan(loaded))
    assert np.array_equal(loaded.view(np.uint32)[numbers], expected.view(np.uint32)[numbers])
    assert numbers.mean() > 0.8


@pytest.mark.parametrize("kind", UNREAD)
def test_types_that_are_not_read_are_given_as_bytes(tmp_path, kind):
    raw = random_blocks(kind, 3, 2)
    loaded = tenscope.load(write(tmp_path / "q.gguf", {"x": (raw, Type[kind]), "y": np.float32([1, 2])}))
    np.testing.assert_array_equal(loaded["x"], raw)
    np.testing.assert_array_equal(loaded["y"], [1, 2])


def test_metadata(tmp_path):
    values = {
        "u8": (200, "UINT8"), "i8": (-100, "INT8"), "u16": (60000, "UINT16"), "i16": (-30000, "INT16"),
        "u32": (2**32 - 1, "UINT32"), "i32": (-(2**31), "INT32"), "u64": (2**64 - 1, "UINT64"),
        "i64": (-(2**63), "INT64"), "f32": (0.5, "FLOAT32"), "f64": (0.1, "FLOAT64"), "yes": (True, "BOOL"),
        "text": ("äöü", "STRING"),
    }  # fmt: skip
    tokens = [f"token {i}" for i in range(40_000)]

    def add(writer):
        for key, (value, kind) in values.items():
            writer.add_key_value(key, value, gguf.GGUFValueType[kind])
        writer.add_array("tokens", tokens)
        writer.add_array("scores", [float(i) for i in range(1000)])
        writer.add_array("types", list(range(-5, 5)))
        writer.add_array("flags", [True, False, True])

    path = write(tmp_path / "meta.gguf", {"x": np.float32([1])}, add)
    metadata = tenscope.load(path).metadata
    for key, (value, _) in values.items():
        assert metadata[key] == value
        assert type(metadata[key]) is type(value)
    assert metadata["tokens"] == tokens
    np.testing.assert_array_equal(metadata["scores"], np.arange(1000.0))
    np.testing.assert_array_equal(metadata["types"], np.arange(-5, 5))
    np.testing.assert_array_equal(metadata["flags"], [True, False, True])
    fields = gguf.GGUFReader(path).fields
    assert {key for key in fields if not key.startswith("GGUF.")} == set(metadata)


def test_text_that_is_no_utf8_is_bytes(tmp_path):
    path = write(tmp_path / "m.gguf", {"x": np.float32([1])}, lambda writer: writer.add_string("token", "ABCDE"))
    path.write_bytes(path.read_bytes().replace(b"ABCDE", b"\xff\xfe\x00\x80A"))
    assert tenscope.load(path).metadata["token"] == b"\xff\xfe\x00\x80A"


def test_another_alignment(tmp_path):
    tensors = {f"t{i}": np.arange(i + 1, dtype="f4") for i in range(5)}
    path = tmp_path / "aligned.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_custom_alignment(128)
    for name, array in tensors.items():
        writer.add_tensor(name, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    for name, array in tenscope.load(path).items():
        np.testing.assert_array_equal(array, tensors[name])


def test_big_endian_and_other_versions_are_refused(tmp_path):
    big = write(tmp_path / "big.gguf", {"x": np.float32([1])}, endianess=gguf.GGUFEndian.BIG)
    with pytest.raises(tenscope.UnsupportedError, match="it is big-endian; only little-endian is read"):
        tenscope.load(big)
    little = write(tmp_path / "little.gguf", {"x": np.float32([1])}).read_bytes()
    assert little[4:8] == struct.pack("<I", 3)
    path = tmp_path / "other.gguf"
    path.write_bytes(little[:4] + struct.pack("<I", 2) + little[8:])
    np.testing.assert_array_equal(tenscope.load(path)["x"], [1])
    for version in (0, 1, 4):
        path.write_bytes(little[:4] + struct.pack("<I", version) + little[8:])
        with pytest.raises(tenscope.VersionError, match=f"version {version}, where 2 and 3 are known"):
            tenscope.load(path)


def tensor_info(name, shape, kind, place):
    text = name.encode()
    sizes = b"".join(struct.pack("<q", size) for size in shape)
    return struct.pack("<Q", len(text)) + text + struct.pack("<I", len(shape)) + sizes + struct.pack("<IQ", kind, place)


def by_hand(infos=(), metadata=(), data=bytes(256), tensors=None, entries=None):
    counts = (len(infos) if tensors is None else tensors, len(metadata) if entries is None else entries)
    head = b"GGUF" + struct.pack("<IQQ", 3, *counts) + b"".join(metadata) + b"".join(infos)
    return head + bytes(-len(head) % 32) + data


def entry(key, kind, value):
    return struct.pack("<Q", len(key)) + key.encode() + struct.pack("<I", kind) + value


BAD = {
    "magic": (b"GGML" + by_hand()[4:], "does not begin with 'GGUF'"),
    "cut": (by_hand()[:10], "number of tensors"),
    "many tensors": (by_hand(tensors=2**40), "no room"),
    "many entries": (by_hand(entries=2**60), "no room"),
    "name twice": (by_hand([tensor_info("x", [4], 0, 0), tensor_info("x", [4], 0, 32)]), "tensor 'x' twice"),
    "key twice": (by_hand(metadata=[entry("k", 0, b"1")] * 2), "key 'k' twice"),
    "overlap": (by_hand([tensor_info("x", [16], 0, 0), tensor_info("y", [4], 0, 32)]), "'y' lies over 'x'"),
    "outside": (by_hand([tensor_info("x", [4096], 0, 0)]), "'x' of 16384 bytes"),
    "far outside": (by_hand([tensor_info("x", [4], 0, 2**63)]), "'x' lies outside"),
    "place": (by_hand([tensor_info("x", [4], 0, 8)]), "no multiple of the alignment 32"),
    "negative": (by_hand([tensor_info("x", [-4], 0, 0)]), "negative size"),
    "overflow": (by_hand([tensor_info("x", [2**40, 2**40], 0, 0)]), "overflows"),
    "axes": (by_hand([tensor_info("x", [1] * 9, 0, 0)]), "9 axes"),
    "row": (by_hand([tensor_info("x", [33], 8, 0)]), "rows of 33 elements; q8_0 needs a multiple of 32"),
    "alignment": (by_hand(metadata=[entry("general.alignment", 4, struct.pack("<I", 24))]), "no power of two"),
    "value type": (by_hand(metadata=[entry("k", 13, b"")]), "unknown type 13"),
    "long array": (by_hand(metadata=[entry("k", 9, struct.pack("<IQ", 8, 2**50))]), "no room"),
    "long text": (by_hand(metadata=[entry("k", 8, struct.pack("<Q", 2**50))]), "text of"),
    "nested": (by_hand(metadata=[entry("k", 9, struct.pack("<IQ", 9, 1) * 2000)]), "nested"),
    "type": (by_hand([tensor_info("x", [4], 4, 0)]), "'x' is of ggml's type 4, which is not known"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_files_are_refused(tmp_path, case):
    content, reason = BAD[case]
    path = tmp_path / "bad.gguf"
    path.write_bytes(content)
    with pytest.raises(tenscope.Error, match=reason) as raised:
        tenscope.load(path)
    assert str(raised.value).startswith("cannot read .gguf: ")
    assert str(raised.value).endswith(str(path))


def test_every_cut_and_flip_is_read_or_refused(tmp_path):
    path = write(tmp_path / "x.gguf", {"x": np.arange(64, dtype="f4"), "q": (random_blocks("Q4_K", 1, 1), Type.Q4_K)})
    content = path.read_bytes()
    padding = 160 - 144
    for end in range(0, len(content) - padding, 7):
        path.write_bytes(content[:end])
        with pytest.raises(tenscope.Error):
            tenscope.load(path)
    for place in range(0, 300):
        path.write_bytes(content[:place] + bytes([content[place] ^ 0x81]) + content[place + 1 :])
        try:
            tenscope.load(path)
        except tenscope.Error as error:
            assert str(path) in str(error)


def test_it_is_only_read(tmp_path):
    with pytest.raises(tenscope.UnsupportedError, match="only read"):
        tenscope.save(tmp_path / "x.gguf", {"x": np.float32([1])})
    assert not list(Path(tmp_path).iterdir())
