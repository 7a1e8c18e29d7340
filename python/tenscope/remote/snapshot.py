"""What of a run's folder can be copied now: files as they are, and of those that are being written a part that is sure.

Overview. A journal's line follows its tensor's bytes, so journals are looked at first: all that they refer to is then
in the segments. Of a journal that is being written, whole lines are taken; of a segment that is not sealed, as much as
the journal refers to.
"""

from __future__ import annotations

import fcntl
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

JOURNAL = "journal.jsonl"
_WRITER = re.compile(r"rank-\d+(\.pid-\d+(\.\d+)?)?")
_AT = re.compile(rb'(?<!\\)"at":\[(\d+),(\d+),(\d+)\]')
_CHUNK = 1 << 20


@dataclass(frozen=True)
class Piece:
    """A file to be copied; `path` holds just what is to be there. `stamp` is another when the file is."""

    name: str
    path: Path
    stamp: tuple


@dataclass
class Snapshot:
    """In the order in which they are to be copied."""

    files: list[Piece] = field(default_factory=list)  # run.json first
    sealed: list[Piece] = field(default_factory=list)
    open: list[Piece] = field(default_factory=list)
    journals: list[Piece] = field(default_factory=list)
    writers: list[str] = field(default_factory=list)
    running: list[str] = field(default_factory=list)

    @property
    def names(self) -> set[str]:
        return {piece.name for piece in (*self.files, *self.sealed, *self.open, *self.journals)}


def take(run: Path, scratch: Path) -> Snapshot:
    """Parts of files are copied to the folder `scratch`."""
    snapshot = Snapshot()
    for folder in sorted(path for path in run.iterdir() if path.is_dir() and _WRITER.fullmatch(path.name)):
        snapshot.writers.append(folder.name)
        is_running = is_being_written(folder)
        if is_running:
            snapshot.running.append(folder.name)
        journals = _journals(folder, is_running, scratch / folder.name)
        snapshot.journals += journals
        _add_segments(snapshot, folder, journals, scratch / folder.name)
    for path in sorted(run.rglob("*"), key=lambda path: (path.name != "run.json", path)):
        name = path.relative_to(run).as_posix()
        is_ours = _WRITER.fullmatch(name.partition("/")[0]) is not None or path.name == "push.json"
        is_unfinished = path.name.startswith(".")  # files get their names when they are whole
        if path.is_file() and not path.is_symlink() and not is_ours and not is_unfinished:
            snapshot.files += _whole(name, path)
    return snapshot


def is_being_written(folder: Path) -> bool:
    """Its writer holds a lock on its journal while it lives."""
    try:
        with open(folder / JOURNAL, "rb") as journal:
            fcntl.flock(journal, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _whole(name: str, path: Path) -> list[Piece]:
    try:
        status = path.stat()
    except FileNotFoundError:  # a ring has dropped it
        return []
    return [Piece(name, path, (status.st_ino, status.st_size, status.st_mtime_ns))]


def _part(name: str, source: Path, size: int, scratch: Path) -> list[Piece]:
    scratch.mkdir(parents=True, exist_ok=True)
    copy = scratch / source.name
    try:
        with source.open("rb") as old, copy.open("wb") as new:
            left = size
            while left > 0 and (data := old.read(min(left, _CHUNK))):
                new.write(data)
                left -= len(data)
            inode = os.fstat(old.fileno()).st_ino
    except FileNotFoundError:  # sealed, or dropped by a ring
        return []
    return [Piece(name, copy, (inode, size))]


def _journals(folder: Path, is_running: bool, scratch: Path) -> list[Piece]:
    """A ring's writer may go on to a new file meanwhile: then all is looked at again."""
    for _ in range(10):
        before = _listed(folder)
        pieces = []
        for path in before:
            name = f"{folder.name}/{path.name}"
            size = _sure_size(path, is_running and path.name == JOURNAL)
            is_whole = size is not None and path.exists() and size == path.stat().st_size
            if is_whole and not (is_running and path.name == JOURNAL):
                pieces += _whole(name, path)
            elif size is not None:
                pieces += _part(name, path, size, scratch)
        if _listed(folder) == before:
            break
    return pieces


def _listed(folder: Path) -> list[Path]:
    return sorted(folder.glob("journal-*.jsonl")) + [path for path in (folder / JOURNAL,) if path.exists()]


def _sure_size(path: Path, is_running: bool) -> int | None:
    """How much of a journal there is: all but the zeros at its end; while it is written, up to its last whole line."""
    try:
        with path.open("rb") as file:
            return _size_of_lines(file) if is_running else _size_without_zeros(file)
    except FileNotFoundError:
        return None


def _size_of_lines(file: BinaryIO) -> int:
    size = at = 0
    while block := file.read(_CHUNK):
        text, zero, _ = block.partition(b"\0")
        if b"\n" in text:
            size = at + text.rindex(b"\n") + 1
        if zero:
            break
        at += len(block)
    return size


def _size_without_zeros(file: BinaryIO) -> int:
    size = file.seek(0, os.SEEK_END)
    while size > 0:
        start = max(size - _CHUNK, 0)
        file.seek(start)
        rest = file.read(size - start).rstrip(b"\0")
        if rest:
            return start + len(rest)
        size = start
    return 0


def _add_segments(snapshot: Snapshot, folder: Path, journals: list[Piece], scratch: Path) -> None:
    opened = sorted(folder.glob("[0-9]*.safetensors.open"))
    ends = _ends(journals) if opened else {}
    for path in opened:
        end = ends.get(int(path.name.partition(".")[0]), 0)
        if end > 0:
            snapshot.open += _part(f"{folder.name}/{path.name}", path, end, scratch)
    # Listed last, so that one that was sealed meanwhile is among them.
    for path in sorted(folder.glob("[0-9]*.safetensors")):
        snapshot.sealed += _whole(f"{folder.name}/{path.name}", path)
    sealed = {piece.name for piece in snapshot.sealed}
    snapshot.open = [piece for piece in snapshot.open if piece.name.removesuffix(".open") not in sealed]


def _ends(journals: list[Piece]) -> dict[int, int]:
    """Where the last tensor ends that the journals know of, by segment."""
    ends: dict[int, int] = {}
    for piece in journals:
        with piece.path.open("rb") as file:
            for line in file:
                for found in _AT.finditer(line):
                    segment, offset, size = map(int, found.groups())
                    ends[segment] = max(ends.get(segment, 0), offset + size)
    return ends
