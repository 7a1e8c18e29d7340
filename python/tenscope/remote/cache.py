"""The local cache of what was fetched: one folder per URL, bounded, and shared by processes.

Overview. A slot is a folder of the cache: `lock`, `versions.json` (which version of each file it mirrors), `files/`
(the mirror: files of the right size, filled by ranges) and `fetched/` (for each file, the ranges that it has: lines
that are appended after the bytes are written). Who uses a slot holds a shared flock on `lock`; who brings it up to
date, or removes files to keep within the limit, holds it alone. So a file never changes under a reader: where what is
in use is out of date, the next slot of the URL is taken. Ranges that two processes fetch at the same time are written
twice, with equal bytes.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from tenscope.errors import Error, IoError, UsageError

_DEFAULT_LIMIT = 10_000_000_000
_MOST_SLOTS = 1000


def cache_folder() -> Path:
    """TENSCOPE_CACHE, else tenscope/ in the user's cache folder."""
    chosen = os.environ.get("TENSCOPE_CACHE")
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(os.path.realpath(chosen or os.path.join(base, "tenscope")))


def cache_limit() -> int:
    text = os.environ.get("TENSCOPE_CACHE_BYTES") or str(_DEFAULT_LIMIT)
    try:
        return int(float(text))
    except ValueError:
        raise UsageError(f"TENSCOPE_CACHE_BYTES is a number of bytes, not {text!r}") from None


class Slot:
    """A folder of the cache that this process holds; see take()."""

    def __init__(self, folder: Path, fd: int) -> None:
        self.folder = folder
        self.fd = fd

    @property
    def versions(self) -> dict[str, list]:
        try:
            return json.loads((self.folder / "versions.json").read_text())
        except (OSError, ValueError):
            return {}

    @versions.setter
    def versions(self, versions: dict[str, list]) -> None:
        new = self.folder / "versions.json.new"
        new.write_text(json.dumps(versions))
        new.replace(self.folder / "versions.json")

    def file(self, name: str) -> Path:
        return self.folder / "files" / name

    def log(self, name: str) -> Path:
        return self.folder / "fetched" / name

    def has(self, name: str, size: int) -> bool:
        try:
            return self.file(name).stat().st_size == size
        except OSError:
            return False

    def remove(self, name: str) -> None:
        for path in (self.log(name), self.file(name)):
            path.unlink(missing_ok=True)

    def remove_empty_folders(self) -> None:
        """A writer's folder without files would be a rank that has lost its journal."""
        for folder, _, _ in os.walk(self.folder, topdown=False):
            if folder != str(self.folder) and not os.listdir(folder):
                os.rmdir(folder)

    def make(self, name: str, size: int) -> None:
        """The file anew: of that size, with nothing in it."""
        self.remove(name)
        for path in (self.log(name), self.file(name)):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        os.truncate(self.file(name), size)

    def is_current(self, versions: dict[str, list]) -> bool:
        return self.versions == versions and all(self.has(name, of[0]) for name, of in versions.items())

    def share(self) -> None:
        fcntl.flock(self.fd, fcntl.LOCK_SH)

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def take(url: str, versions: dict[str, list], update) -> Slot:
    """A slot of `url` that mirrors `versions`, shared; update(slot) brings one up to date that nobody else uses."""
    key = hashlib.sha256(url.encode()).hexdigest()[:16]
    root = cache_folder()
    try:
        root.mkdir(parents=True, exist_ok=True, mode=0o700)
        for number in range(_MOST_SLOTS):
            slot = _take(root / f"{key}.{number}", versions, update)
            if slot is not None:
                os.utime(slot.folder / "lock")
                return slot
    except Error:
        raise  # of the store
    except OSError as error:
        raise IoError(f"cannot use the cache: {error.strerror or error}: {root}") from error
    raise IoError(f"cannot use the cache: {_MOST_SLOTS} folders of one run are in use: {root}")


def _take(folder: Path, versions: dict[str, list], update) -> Slot | None:
    for _ in range(100):
        slot = _locked(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if slot is not None:
            try:
                if not slot.is_current(versions):
                    update(slot)
                slot.share()
            except BaseException:
                slot.close()
                raise
        else:
            slot = _locked(folder, fcntl.LOCK_SH)
        if slot is not None and slot.is_current(versions):
            return slot
        if slot is None:
            continue  # removed while we waited
        slot.close()
        return None
    return None


def _locked(folder: Path, how: int) -> Slot | None:
    """The slot under that lock; None where it cannot be had, or where the slot was removed meanwhile."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        fd = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(fd, how)
        if os.fstat(fd).st_ino == (folder / "lock").stat().st_ino:
            return Slot(folder, os.dup(fd))
    except (BlockingIOError, FileNotFoundError):
        pass
    finally:
        os.close(fd)
    return None


def trim() -> None:
    """Removes what was used least recently, as far as nobody uses it, until the cache is within its limit."""
    with contextlib.suppress(OSError):  # others remove files at the same time
        _trim(cache_folder(), cache_limit())


def _trim(root: Path, limit: int) -> None:
    folders = [folder for folder in root.iterdir() if (folder / "lock").exists()] if root.is_dir() else []
    sizes = {folder: sum(size for _, size, _ in _files(folder)) for folder in folders}
    excess = sum(sizes.values()) - limit
    for folder in sorted(folders, key=lambda folder: (folder / "lock").stat().st_mtime_ns):
        if excess <= 0:
            return
        slot = _locked(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if slot is None:
            continue
        left = sizes[folder]
        for name, size, _ in sorted(_files(folder), key=lambda file: file[2]):
            if excess > 0 and size > 0:
                slot.remove(name)
                excess -= size
                left -= size
        if left <= 0:
            shutil.rmtree(folder, ignore_errors=True)
        slot.close()


def _files(folder: Path) -> Iterator[tuple[str, int, int]]:
    """The mirrored files of a slot: name, bytes on the disk, when it was last used."""
    for path in (folder / "files").rglob("*"):
        if path.is_file():
            name = str(path.relative_to(folder / "files"))
            log = folder / "fetched" / name
            used = log.stat().st_mtime_ns if log.exists() else 0
            yield name, path.stat().st_blocks * 512, used
