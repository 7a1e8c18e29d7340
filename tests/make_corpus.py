"""Makes the fuzzers' first inputs with the real libraries: python tests/make_corpus.py FOLDER."""

import collections
import io
import pickle
import sys
import tempfile
import zipfile
from pathlib import Path

import gguf
import numpy as np
import safetensors.numpy
import torch
from hand_written_run import HandWrittenRun

NESTED = {
    "none": None,
    "numbers": [0, -1, 255, 65536, 2**40, 2**100, 1.5, float("nan"), 1 + 2j, True],
    "text": ("", "x", "äöü🙂", "a\\u00e4\n"),
    "bytes": [b"", b"\x00\xff", bytearray(b"abc")],
    ("a", 1): {1, 2},
    "frozen": frozenset({3}),
    "ordered": collections.OrderedDict([("k", [(), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)])]),
    "default": collections.defaultdict(list, a=[1]),
    "slice": slice(1, 2),
    "range": range(3),
}
ARRAYS = [
    np.arange(6, dtype="<f4").reshape(2, 3),
    np.arange(6, dtype=">i2").reshape(3, 2),
    np.asfortranarray(np.arange(4.0).reshape(2, 2)),
    np.zeros((0, 3), "c8"),
    np.array(True),
    np.array([1, 2], "u8"),
]


def npy():
    for array in ARRAYS:
        for version in ((1, 0), (2, 0), (3, 0)):
            out = io.BytesIO()
            np.lib.format.write_array(out, array, version=version)
            yield out.getvalue()


def npz():
    for save in (np.savez, np.savez_compressed):
        out = io.BytesIO()
        save(out, *ARRAYS, named=ARRAYS[0])
        yield out.getvalue()


def zips():
    yield from npz()
    yield next(iter(pt()))
    for kind in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w", kind) as archive:
            archive.writestr("a", b"x" * 300)
            archive.writestr("folder/b", b"")
            archive.comment = b"comment"
            with archive.open("big", "w", force_zip64=True) as entry:
                entry.write(b"y" * 10)
        yield out.getvalue()


def tensors():
    base = torch.arange(12, dtype=torch.float32).reshape(3, 4)
    model = torch.nn.Linear(2, 3)
    return {
        "views": [base, base[1], base.t(), base[:, ::2]],
        "expanded": torch.ones(1).expand(4, 3),
        "kinds": [torch.zeros(2, dtype=d) for d in (torch.bfloat16, torch.bool, torch.complex64, torch.int8)],
        "conj": torch.ones(2, dtype=torch.complex64).conj(),
        "parameter": torch.nn.Parameter(torch.ones(2)),
        "state": model.state_dict(),
        "size": torch.Size([1, 2]),
        "dtype": torch.float16,
        "device": torch.device("cpu"),
        "plain": NESTED,
    }


def pt():
    values = tensors()
    values["more"] = [torch.zeros(2, dtype=d) for d in (torch.float8_e4m3fn, torch.float8_e5m2, torch.uint16)]
    for value in (values, torch.ones(3), values["views"]):
        out = io.BytesIO()
        torch.save(value, out)
        yield out.getvalue()
    for value in (tensors(), torch.ones(3)):
        out = io.BytesIO()
        torch.save(value, out, _use_new_zipfile_serialization=False)
        yield out.getvalue()


def pickles():
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        for value in (NESTED, ARRAYS, [np.float32(1.5), np.dtype("f4")], tensors(), *NESTED.values()):
            yield pickle.dumps(value, protocol)


def safetensors_files():
    yield safetensors.numpy.save({"a": ARRAYS[0], "b": np.zeros((0,), "i8")}, {"key": "value"})
    yield safetensors.numpy.save({})


def gguf_files():
    """A tensor of each type, and metadata of each kind; then a file with nothing in it."""
    with tempfile.TemporaryDirectory() as name:
        for kinds in (list(gguf.GGML_QUANT_SIZES.items()), []):
            writer = gguf.GGUFWriter(Path(name) / "x.gguf", "llama")
            for kind in gguf.GGUFValueType:
                if kind not in (gguf.GGUFValueType.ARRAY, gguf.GGUFValueType.STRING):
                    writer.add_key_value(f"value.{kind.name}", 1, kind)
            writer.add_array("texts", ["a", "bc"])
            writer.add_array("numbers", [1, 2, 3])
            for kind, (_, size) in kinds:
                writer.add_tensor(kind.name, np.arange(2 * size, dtype=np.uint8).reshape(2, size), raw_dtype=kind)
            writer.write_header_to_file()
            writer.write_kv_data_to_file()
            writer.write_tensors_to_file()
            writer.close()
            yield (Path(name) / "x.gguf").read_bytes()


def journals():
    """Journals and segments of runs written by hand: whole, and as a crash leaves them."""
    for ended in ("close", "crash"):
        with tempfile.TemporaryDirectory() as name:
            run = HandWrittenRun(Path(name) / "run")
            run.add("step", step=1)
            run.add("enter", name="blocks.0", step=1, call=0, scope="GPT", phase="forward", root="GPT#0")
            run.tensor("q", ARRAYS[0], step=1)
            run.tensor("empty", np.zeros((0, 3), "f4"), step=1, keep=False)
            run.tensor("nan", np.array([np.nan, np.inf, -np.inf, 0]), step=1)
            for sketch in ("AAAA8D8AAAAAwA==", "", 2):  # two sums, zeros, that of another event
                told = {"dtype": "float32", "shape": [2], "fp": "0" * 32, "stats": {}, "sketch": sketch}
                run.add("value", name="sketched", step=1, call=0, tensor=told)
            for value in (None, True, -1, 1.5, "text", {"float": "nan"}, {"int": str(2**70)}):
                run.add("value", name="plain", step=1, call=0, value=value, meta={"key": [1, "x"]}, site="a.py:3")
            run.add("change", name="x", step=1, call=0, value=2, io="local", task="Task-1", **{"class": "C"})
            run.add("dropped", name="a reason", step=1, value=3)
            getattr(run, ended)()
            for path in sorted(run.folder.iterdir()):
                yield path.read_bytes()


MAKERS = {
    "npy": npy,
    "npz": npz,
    "zip": zips,
    "pt": pt,
    "pickle": pickles,
    "safetensors": safetensors_files,
    "gguf": gguf_files,
    "journal": journals,
}


def main(folder: Path) -> None:
    for name, make in MAKERS.items():
        target = folder / name
        target.mkdir(parents=True, exist_ok=True)
        for number, data in enumerate(make()):
            (target / f"{number:03}").write_bytes(data)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
