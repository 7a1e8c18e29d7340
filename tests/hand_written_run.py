"""Run folders written by hand, as docs/format.md says and without any of tenscope's own code: an independent judge."""

from __future__ import annotations

import ctypes
import ctypes.util
import json
import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np

HEADER = 4096
SAFETENSORS = {
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "int64": "I64",
    "int32": "I32",
    "int16": "I16",
    "int8": "I8",
    "uint64": "U64",
    "uint32": "U32",
    "uint16": "U16",
    "uint8": "U8",
    "bool": "BOOL",
    "complex64": "C64",
}

_xxhash = ctypes.CDLL(ctypes.util.find_library("xxhash") or "libxxhash.so.0")


class _Hash128(ctypes.Structure):
    _fields_ = [("low", ctypes.c_uint64), ("high", ctypes.c_uint64)]


_xxhash.XXH3_64bits.restype = ctypes.c_uint64
_xxhash.XXH3_64bits.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
_xxhash.XXH3_128bits.restype = _Hash128
_xxhash.XXH3_128bits.argtypes = [ctypes.c_char_p, ctypes.c_size_t]


def sealed(text: str) -> bytes:
    """A JSON object's text with the checksum as its last member."""
    start = text[:-1].encode()
    return start + b',"sum":"%016x"}\n' % _xxhash.XXH3_64bits(start, len(start))


def strip_sketches(run: Path) -> None:
    """Makes the recording one of a version that had no sketches."""
    journal = run / "rank-0" / "journal.jsonl"
    text = b""
    for line in journal.read_text().splitlines():
        event = json.loads(line)
        del event["sum"]
        event.get("tensor", {}).pop("sketch", None)
        text += sealed(dump(event))
    journal.write_bytes(text)


def fingerprint(data: bytes) -> str:
    found = _xxhash.XXH3_128bits(data, len(data))
    return f"{found.high:016x}{found.low:016x}"


def dump(value) -> str:
    return json.dumps(value, separators=(",", ":"))


def statistics(array: np.ndarray) -> dict:
    flat = array.ravel()
    if np.iscomplexobj(flat):
        flat = flat.view(flat.real.dtype)
    if flat.dtype == bool:
        flat = flat.astype(np.uint8)
    finite = flat[np.isfinite(flat)]
    wide = finite.astype(np.float64)
    stats: dict = dict.fromkeys(("min", "max", "mean", "std", "l2", "absmax"))
    if finite.size:
        stats = {
            "min": finite.min().item(),
            "max": finite.max().item(),
            "mean": float(wide.mean()),
            "std": float(wide.std()),
            "l2": float(np.sqrt((wide**2).sum())),
            "absmax": float(np.abs(wide).max()),
        }
    counts = {
        "nan": int(np.isnan(flat).sum()),
        "posinf": int(np.isposinf(flat).sum()),
        "neginf": int(np.isneginf(flat).sum()),
        "zero": int((flat == 0).sum()),
    }
    return stats | {key: count for key, count in counts.items() if count}


class HandWrittenRun:
    def __init__(self, path: Path, **run_json):
        self.path = path
        self.folder = path / "rank-0"
        self.folder.mkdir(parents=True)
        about = {
            "tenscope_format": 1,
            "started_ns": 1_700_000_000_000_000_000,
            "host": "h",
            "pid": 1,
            "command": ["x.py"],
        }
        (path / "run.json").write_bytes(sealed(dump(about | run_json)))
        self.lines: list[bytes] = []
        self.data = b""
        self.entries: dict[str, dict] = {}

    def add(self, kind: str, **members) -> None:
        head = {"seq": len(self.lines), "t": 1_700_000_000_000_000_000 + len(self.lines) * 1000, "th": 1, "kind": kind}
        self.lines.append(sealed(dump(head | members)))

    def tensor(self, name: str, array: np.ndarray, step: int = 0, call: int = 0, keep: bool = True) -> None:
        array = np.asarray(array, order="C")
        tensor = {
            "dtype": str(array.dtype),
            "shape": list(array.shape),
            "fp": fingerprint(array.tobytes()),
            "stats": statistics(array),
        }
        if keep:
            pad = -(HEADER + len(self.data)) % max(array.itemsize, 1)
            if pad:
                self._entry(f"__pad__{len(self.entries)}", "U8", [pad], b"\0" * pad)
            tensor["at"] = [0, HEADER + len(self.data), array.nbytes]
            if array.dtype == np.complex128:
                self._entry(f"{name}@{step}#{call}", "F64", [*array.shape, 2], array.tobytes())
            else:
                self._entry(f"{name}@{step}#{call}", SAFETENSORS[str(array.dtype)], list(array.shape), array.tobytes())
        self.add("value", name=name, step=step, call=call, tensor=tensor)

    def _entry(self, key: str, dtype: str, shape: list, data: bytes) -> None:
        offsets = [len(self.data), len(self.data) + len(data)]
        self.entries[key] = {"dtype": dtype, "shape": shape, "data_offsets": offsets}
        self.data += data

    def close(self) -> Path:
        """As a program that ends in order leaves it."""
        self.add("note", name="closed", step=0)
        (self.folder / "journal.jsonl").write_bytes(b"".join(self.lines))
        if self.entries:
            header = dump(self.entries).encode().ljust(HEADER - 8)
            assert len(header) == HEADER - 8
            (self.folder / "000000.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + self.data)
        return self.path

    def crash(self, torn: bytes = b"", zeros: int = 8192) -> Path:
        """As SIGKILL leaves it."""
        (self.folder / "journal.jsonl").write_bytes(b"".join(self.lines) + torn + b"\0" * zeros)
        if self.entries:
            start = struct.pack("<Q", HEADER - 8).ljust(HEADER, b"\0")
            (self.folder / "000000.safetensors.open").write_bytes(start + self.data + b"\0" * zeros)
        return self.path


def tenscope_program() -> str:
    beside = Path(sys.executable).with_name("tenscope")
    found = os.environ.get("TENSCOPE_CLI") or (str(beside) if beside.exists() else shutil.which("tenscope"))
    assert found, "the command line program is not installed"
    return found


def tenscope(*arguments, check: int | None = 0, **environment) -> subprocess.CompletedProcess:
    """Runs the command line program and checks its exit code."""
    result = subprocess.run(
        [tenscope_program(), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=180,
        env=os.environ | environment,
        check=False,
    )
    assert check is None or result.returncode == check, (result.returncode, result.stdout, result.stderr)
    return result


def tenscope_json(*arguments, check: int | None = 0):
    return json.loads(tenscope(*arguments, "--json", check=check).stdout)
