"""A file of the cache of which some ranges have been fetched."""

from __future__ import annotations

import bisect
import os
import threading
from pathlib import Path


class Ranges:
    """Disjoint ranges of numbers, in order."""

    def __init__(self) -> None:
        self._bounds: list[int] = []  # start, end, start, end, ...

    def add(self, start: int, end: int) -> None:
        first = bisect.bisect_left(self._bounds, start)
        last = bisect.bisect_right(self._bounds, end)
        inner = ([] if first % 2 else [start]) + ([] if last % 2 else [end])
        self._bounds[first:last] = inner

    def gaps(self, start: int, end: int) -> list[tuple[int, int]]:
        """What of a range is not in here."""
        found = []
        i = bisect.bisect_right(self._bounds, start)
        at = self._bounds[i] if i % 2 else start
        i += i % 2
        while at < end:
            stop = min(self._bounds[i], end) if i < len(self._bounds) else end
            if stop > at:
                found.append((at, stop))
            if i >= len(self._bounds):
                break
            at = self._bounds[i + 1]
            i += 2
        return found


class FetchedFile:
    """A file of `size` bytes, and the log of what of it is there; other processes may add to both."""

    def __init__(self, path: Path, log: Path, size: int) -> None:
        self.lock = threading.Lock()  # held by who fetches
        self._path = path
        self._log = log
        self._size = size
        self._ranges_lock = threading.Lock()
        self._ranges = Ranges()
        self._read_of_log = 0
        self._last_end = -1  # where the last range ended that was asked for
        self._window = 0
        if log.exists():
            os.utime(log)

    def gaps(self, start: int, end: int) -> list[tuple[int, int]]:
        with self._ranges_lock:
            missing = self._ranges.gaps(start, end)
            if missing and self._read_log():
                missing = self._ranges.gaps(start, end)
            return missing

    def ahead(self, start: int, end: int, block: int, most: int) -> tuple[int, int]:
        """The range to fetch for this one: whole blocks, and more and more ahead while the file is read in order."""
        is_in_order = self._last_end >= 0 and abs(start - self._last_end) <= block
        self._window = min(max(self._window, block) * 2, most) if is_in_order else block
        self._last_end = end
        stop = max(end, start + self._window)
        return start // block * block, min(-(-stop // block) * block, self._size)

    def write(self, start: int, data: bytes) -> None:
        """The log says that bytes are there only when they are on the disk: a power cut must not make it lie."""
        fd = os.open(self._path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            view = memoryview(data)
            at = start
            while view:
                written = os.pwrite(fd, view, at)
                view, at = view[written:], at + written
            os.fdatasync(fd)
        finally:
            os.close(fd)
        end = start + len(data)
        fd = os.open(self._log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.write(fd, b"%d %d\n" % (start, end))
        finally:
            os.close(fd)
        with self._ranges_lock:
            self._ranges.add(start, end)

    def _read_log(self) -> bool:
        try:
            with open(self._log, "rb") as log:
                log.seek(self._read_of_log)
                text = log.read()
        except FileNotFoundError:
            return False
        whole = text[: text.rfind(b"\n") + 1]
        self._read_of_log += len(whole)
        for line in whole.splitlines():
            start, end = map(int, line.split())
            self._ranges.add(start, end)
        return bool(whole)
