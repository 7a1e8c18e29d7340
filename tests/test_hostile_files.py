"""Files made to hurt whoever opens them: each is refused, runs nothing, and takes no memory to speak of."""

import io
import json
import pickle
import struct
import subprocess
import sys
import zipfile
import zlib

import numpy as np
import pytest

LOAD_ALL = """
import json, sys, time
import tenscope

def peak_mb():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1024

for path in json.loads(sys.argv[1]):
    start = time.process_time()
    try:
        tenscope.load(path)
        result = "loaded"
    except tenscope.Error as error:
        result = f"{type(error).__name__}: {error}"
    print(json.dumps([path, result, time.process_time() - start, peak_mb()]))
"""


def npy(shape, descr="<f4", data=b""):
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + data


def archive(entries, kind=zipfile.ZIP_STORED):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", kind) as file:
        for name, data in entries.items():
            file.writestr(name, data)
    return out.getvalue()


def safetensors(header, data=b""):
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def bomb(size):
    """A deflated .npz entry of zeros."""
    deflater = zlib.compressobj(9, zlib.DEFLATED, -15)
    chunk = bytes(1 << 20)
    packed = bytearray(deflater.compress(npy((size,), "|u1")))
    crc = zlib.crc32(npy((size,), "|u1"))
    for _ in range(size >> 20):
        packed += deflater.compress(chunk)
        crc = zlib.crc32(chunk, crc)
    packed += deflater.flush()
    return bytes(packed), crc, size + len(npy((size,), "|u1"))


def raw_zip(packed, crc, size, claimed=None):
    claimed = size if claimed is None else claimed
    common = struct.pack("<HHHHHIIIHH", 20, 0, 8, 0, 33, crc, len(packed), claimed, 5, 0)
    local = b"PK\3\4" + common + b"a.npy" + packed
    central = b"PK\1\2" + struct.pack("<H", 20) + common + struct.pack("<HHHII", 0, 0, 0, 0, 0) + b"a.npy"
    end = b"PK\5\6" + struct.pack("<HHHHIIH", 0, 0, 1, 1, len(central), len(local), 0)
    return local + central + end


def overlapping_zip():
    """Two entries over the same bytes, as the non-recursive zip bombs have them."""
    base = bytearray(archive({"a.npy": npy((3,), "|u1", b"abc"), "b.npy": npy((3,), "|u1", b"abc")}))
    directory = base.index(b"PK\1\2")
    second = base.index(b"PK\1\2", directory + 1)
    base[second + 42 : second + 46] = struct.pack("<I", 0)
    return bytes(base)


class Evil:
    def __init__(self, command):
        self.command = command

    def __reduce__(self):
        import os

        return os.system, (self.command,)


def laughs(depth=60):
    """Each list refers to the one before ten times."""
    out = b"\x80\x02(]q\x00"
    for i in range(1, depth):
        out += b"](" + bytes([ord("h"), i - 1]) * 10 + b"eq" + bytes([i])
    return out + b"t."


def dict_laughs(depth=60):
    out = b"\x80\x02(}q\x00"
    for i in range(1, depth):
        out += b"}(" + b"".join(bytes([ord("K"), k, ord("h"), i - 1]) for k in range(10)) + b"uq" + bytes([i])
    return out + b"t."


def encoded_bomb():
    """One text of a megabyte, turned into bytes ten thousand times."""
    text = b"a" * (1 << 20)
    out = b"\x80\x02(c_codecs\nencode\nq\x00X" + struct.pack("<I", len(text)) + text
    out += b"X\x06\x00\x00\x00latin1\x86q\x01"
    return out + b"h\x00h\x01R" * 100_000 + b"t."


def torch_zip(pkl, data=b"\0" * 64):
    return archive({"archive/data.pkl": pkl, "archive/byteorder": b"little", "archive/data/0": data})


def tensor_opcodes(numel, size, stride, offset=0):
    def integer(value):
        return b"\x8a\x09" + value.to_bytes(9, "little", signed=True)

    def text(value):
        return b"X" + struct.pack("<I", len(value)) + value

    storage = b"(" + text(b"storage") + b"ctorch\nFloatStorage\n" + text(b"0") + text(b"cpu") + integer(numel) + b"tQ"
    sizes = b"(" + b"".join(map(integer, size)) + b"t(" + b"".join(map(integer, stride)) + b"t"
    rebuild = b"ctorch._utils\n_rebuild_tensor_v2\n("
    return b"\x80\x02" + rebuild + storage + integer(offset) + sizes + b"\x89ccollections\nOrderedDict\n)RtR."


HUGE = bomb(128 << 20)


def hostile_files(touched):
    yield "huge.npy", npy((2**33,))
    yield "overflow.npy", npy((2**62, 2**62, 4))
    yield "overflow_with_zero.npy", npy((2**62, 2**62, 0))
    yield "negative.npy", npy((-1,))
    yield "long_header.npy", b"\x93NUMPY\x02\x00" + struct.pack("<I", 2**31) + b"{"
    yield "endless_shape.npy", npy("(" * 30_000)
    yield "rank.npy", npy((1,) * 100, data=b"1234")
    yield "object.npy", npy((1,), "|O", pickle.dumps([Evil(f"touch {touched}")]))
    yield "bomb.npz", raw_zip(*HUGE)
    yield "lying_bomb.npz", raw_zip(*HUGE, claimed=1000)
    yield "huge_claim.npz", raw_zip(HUGE[0][:1000], 0, 0xFFFFFFF0)
    yield "overlap.npz", overlapping_zip()
    yield "huge.npz", archive({"a.npy": npy((2**33,))})
    yield "entries.npz", b"PK\5\6" + struct.pack("<HHHHIIH", 0, 0, 65535, 65535, 0, 0, 0)
    yield "huge.safetensors", safetensors({"a": {"dtype": "F32", "shape": [2**33], "data_offsets": [0, 2**35]}})
    yield "wrap.safetensors", safetensors({"a": {"dtype": "F32", "shape": [2**31, 2**31, 4], "data_offsets": [0, 0]}})
    yield "header.safetensors", struct.pack("<Q", 2**62) + b"{}"
    yield "deep.safetensors", safetensors({}).replace(b"{}", b"[[") + b"[" * 100_000
    yield "evil.pkl", pickle.dumps(Evil(f"touch {touched}"))
    yield "evil_0.pkl", pickle.dumps(Evil(f"touch {touched}"), 0)
    yield "evil_4.pkl", pickle.dumps(Evil(f"touch {touched}"), 4)
    yield "evil_inst.pkl", f"(S'touch {touched}'\nios\nsystem\n.".encode()
    yield "evil_obj.pkl", f"(cos\nsystem\nS'touch {touched}'\no.".encode()
    yield "evil_eval.pkl", b"cbuiltins\neval\n(S'1'\ntR."
    yield "evil_getattr.pkl", b"\x80\x04cbuiltins\ngetattr\n(cos\nsystem\nX\x01\x00\x00\x00atR."
    yield "evil_dotted.pkl", b"\x80\x04\x8c\x05numpy\x8c\x0bdtype.eval_\x93."
    yield "huge_bytes.pkl", b"\x80\x04\x8e" + struct.pack("<Q", 2**35) + b"."
    yield "huge_text.pkl", b"\x80\x04X" + struct.pack("<I", 2**32 - 1) + b"."
    yield "huge_frame.pkl", b"\x80\x04\x95" + struct.pack("<Q", 2**40) + b"N."
    yield "huge_memo.pkl", b"\x80\x02Nr\xff\xff\xff\xff."
    yield "huge_integer.pkl", b"\x80\x02\x8b" + struct.pack("<i", 100_000) + b"\x7f" * 100_000 + b"."
    yield "recursive.pkl", b"\x80\x02]q\x00h\x00a."
    yield "recursive_tuple.pkl", b"\x80\x02]q\x00h\x00\x85a."
    yield "recursive_ordered.pkl", b"\x80\x02ccollections\nOrderedDict\n)Rq\x00}K\x01h\x00sb."
    yield "deep.pkl", b"\x80\x02" + b"]" * 1_000_000 + b"a" * 999_999 + b"."
    yield "deep_marks.pkl", b"\x80\x02" + b"(" * 1_000_000 + b"t" * 1_000_000 + b"."
    yield "laughs.pkl", laughs()
    yield "dict_laughs.pkl", dict_laughs()
    yield "encoded.pkl", encoded_bomb()
    yield "evil.pt", torch_zip(pickle.dumps(Evil(f"touch {touched}"), 2))
    yield "huge_storage.pt", torch_zip(tensor_opcodes(2**33, (4,), (1,)))
    yield "past_storage.pt", torch_zip(tensor_opcodes(16, (2**33,), (1,)))
    yield "stride_overflow.pt", torch_zip(tensor_opcodes(16, (2**40, 2), (2**40, 1)))
    yield "negative_offset.pt", torch_zip(tensor_opcodes(16, (4,), (1,), -1))
    yield "negative_stride.pt", torch_zip(tensor_opcodes(16, (4,), (-1,)))
    yield "missing_storage.pt", archive({"archive/data.pkl": tensor_opcodes(16, (4,), (1,))})
    magic = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.\x80\x02}."
    yield "legacy.pt", magic + tensor_opcodes(2**33, (4,), (1,))


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hostile")
    touched = folder / "touched"
    paths = {}
    for name, data in hostile_files(touched):
        paths[name] = folder / name
        paths[name].write_bytes(data)
    names = json.dumps([str(path) for path in paths.values()])
    done = subprocess.run([sys.executable, "-c", LOAD_ALL, names], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(lines) == len(paths)
    return {name: (*line, touched) for name, line in zip(paths, lines, strict=True)}


@pytest.mark.parametrize("name", [name for name, _ in hostile_files("x")])
def test_hostile_file_is_refused(results, name):
    path, result, seconds, peak_mb, touched = results[name]
    assert result.startswith(("CorruptError", "UnsupportedError", "VersionError")), result
    assert path in result
    assert not touched.exists(), "the file ran a command"
    assert peak_mb < 100
    assert seconds < 1


def test_what_is_large_but_honest_is_read(tmp_path):
    import tenscope

    np.savez_compressed(tmp_path / "zeros.npz", a=np.zeros(4 << 20, "u1"))
    assert tenscope.load(tmp_path / "zeros.npz")["a"].sum() == 0
    packed, crc, size = HUGE
    (tmp_path / "bomb.npz").write_bytes(raw_zip(packed, crc, size))
    assert tenscope.load(tmp_path / "bomb.npz", max_inflated_bytes=1 << 30)["a"].size == 128 << 20
