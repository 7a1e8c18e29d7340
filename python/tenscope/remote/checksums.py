"""Whether a file at a store is one that lies here: by the checksum that the store keeps, else by reading it back."""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path
from typing import Any

from tenscope.remote.store import Item, Store

_CHUNK = 8 << 20
_MEBIBYTE = 1 << 20
_ETAG = re.compile(r'"?([0-9a-f]{32})(?:-(\d+))?"?')
_PART_SIZES = (50, 5, 8, 10, 16, 25, 32, 64, 100, 128)  # in MiB, that programs upload by; the first is s3fs'


def agreement(store: Store, name: str, item: Item, path: Path, *, read_back: bool) -> str | None:
    """ "checksum" or "read back", by which the object `name` is known to be the file; None where it is another."""
    size = path.stat().st_size
    if item.size != size:
        return None
    if not read_back and _has_checksum_of(item.info, path, size):
        return "checksum"
    return "read back" if _is_same(store, name, path, size) else None


def _has_checksum_of(info: dict[str, Any], path: Path, size: int) -> bool:
    etag = _ETAG.fullmatch(str(info.get("ETag") or info.get("etag") or ""))
    if etag is not None and etag[2] is None:
        return _md5(path) == etag[1]
    if etag is not None:
        count = int(etag[2])
        sizes = [part * _MEBIBYTE for part in _PART_SIZES if -(-size // (part * _MEBIBYTE)) == count]
        return any(_md5_of_parts(path, part) == etag[1] for part in sizes)
    kept = info.get("md5Hash") or info.get("content_md5")  # base64, as bytes in some
    if kept is None:
        return False
    digest = bytes.fromhex(_md5(path))
    return kept in (digest, bytearray(digest)) or kept == base64.b64encode(digest).decode()


def _md5(path: Path) -> str:
    total = hashlib.md5(usedforsecurity=False)
    with path.open("rb") as file:
        while data := file.read(_CHUNK):
            total.update(data)
    return total.hexdigest()


def _md5_of_parts(path: Path, part_size: int) -> str:
    """The ETag that S3 gives to an object that was uploaded in parts: a digest of their digests."""
    total = hashlib.md5(usedforsecurity=False)
    with path.open("rb") as file:
        while data := file.read(part_size):
            total.update(hashlib.md5(data, usedforsecurity=False).digest())
    return total.hexdigest()


def _is_same(store: Store, name: str, path: Path, size: int) -> bool:
    with path.open("rb") as file:
        for start in range(0, size, _CHUNK):
            if store.read(name, start, min(start + _CHUNK, size)) != file.read(_CHUNK):
                return False
    return True
