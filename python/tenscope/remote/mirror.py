"""A run at a URL, mirrored in the cache: its files are there at once, their bytes when they are asked for."""

from __future__ import annotations

import fcntl
import json
import os
import re
import threading
import weakref
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tenscope import _core
from tenscope.errors import IoError, NotFoundError
from tenscope.remote import cache
from tenscope.remote.ranges import FetchedFile
from tenscope.remote.store import Item, Store

_BLOCK = 1 << 20  # the least that is fetched at a time
_LARGEST_WINDOW = 16 << 20  # that is fetched ahead where reading goes on from where it stopped
_PART = 8 << 20  # of a large range; parts are fetched side by side
_THREADS = 8
_SMALL = 1 << 20
_OVERLAP = 4096
_TRIM_EVERY = 64 << 20

_JOURNAL = re.compile(r"(^|/)rank-[^/]+/journal[^/]*\.jsonl$")
_OF_A_RUN = re.compile(r"(^|/)(run\.json|rank-[^/]+/(journal[^/]*\.jsonl|\d+\.safetensors(\.open)?))$")
_LAZY = re.compile(r"\.(jsonl|safetensors|open|npy|npz|pt|pth|pkl|h5)$|(^|/)sources/[0-9a-f]{32}\.py$")


class Mirror:
    """`folder` is where the core finds what lies at `url`. Thread-safe; gives the cache's slot back when it dies."""

    def __init__(self, url: str, storage_options: dict[str, Any] | None = None) -> None:
        self.store = Store(url, storage_options)
        self.url = self.store.url
        self.items = {name: item for name, item in self.store.list().items() if not name.endswith(".part")}
        if not any(_OF_A_RUN.search(name) for name in self.items):
            raise NotFoundError(f"cannot open a run: there is none in it: {self.url}")
        self._name = self.store.root.rpartition("/")[2] or "run"
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="tenscope-fetch")
        cache.trim()
        versions = {self._local(name): [item.size, item.version] for name, item in self.items.items()}
        try:
            self._slot = cache.take(self.store.fs.unstrip_protocol(self.store.root), versions, self._update)
        except BaseException:
            self._pool.shutdown(wait=False)
            raise
        self.folder = str(self._slot.file(self._name))
        self._files: dict[str, FetchedFile] = {}
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._since_trim = 0
        held = [fd for name in self.items if name.rpartition("/")[2] == "push.json" for fd in self._locks(name)]
        weakref.finalize(self, _give_back, self._slot, self._pool, held)

    def fetching(self) -> _core.Fetching:
        """While entered, the core reads the mirror's runs through fetch()."""
        return _core.Fetching(self.folder, self.fetch)

    def fetch(self, file: str, offset: int, size: int) -> None:
        """Makes sure that the bytes of a file of the mirror are there."""
        name = os.path.relpath(file, self.folder)
        item = self.items.get(name)
        if item is None:
            return
        if os.getpid() != self._pid:
            raise IoError(f"cannot read an object: the run was opened before a fork; open it again: {self.url}/{name}")
        known = self._file(name)
        end = min(offset + size, item.size)
        with known.lock:
            wanted = known.ahead(offset, end, _BLOCK, _LARGEST_WINDOW)
            if known.gaps(offset, end):
                self._bring(name, known, known.gaps(*wanted))

    def fetch_journals(self) -> None:
        """All journals of the run, side by side: what opening it reads. None where the URL is a folder of runs."""
        if "run.json" not in self.items:
            return
        names = [name for name in self.items if _JOURNAL.search(name)]
        self._each(lambda name: self._bring_small(self._slot, name), names)

    def _local(self, name: str) -> str:
        return f"{self._name}/{name}"

    def _file(self, name: str) -> FetchedFile:
        with self._lock:
            if name not in self._files:
                local = self._local(name)
                self._files[name] = FetchedFile(self._slot.file(local), self._slot.log(local), self.items[name].size)
            return self._files[name]

    def _bring(self, name: str, file: FetchedFile, gaps: list[tuple[int, int]]) -> None:
        parts = [(at, min(at + _PART, end)) for start, end in gaps for at in range(start, end, _PART)]

        def bring(part: tuple[int, int]) -> None:
            file.write(part[0], self.store.read(name, *part))

        self._each(bring, parts)
        self._since_trim += sum(end - start for start, end in parts)
        if self._since_trim > _TRIM_EVERY:
            self._since_trim = 0
            cache.trim()

    def _bring_small(self, slot: cache.Slot, name: str) -> None:
        """A whole file, in this thread."""
        size = self.items[name].size
        file = FetchedFile(slot.file(self._local(name)), slot.log(self._local(name)), size)
        for start, end in file.gaps(0, size):
            for at in range(start, end, _PART):
                file.write(at, self.store.read(name, at, min(at + _PART, end)))

    def _each(self, action: Any, items: Iterable[Any]) -> None:
        items = list(items)
        try:
            if len(items) < 2:
                for item in items:
                    action(item)
            else:
                list(self._pool.map(action, items))
        except OSError as error:
            if isinstance(error, (IoError, NotFoundError)):
                raise
            raise IoError(f"cannot use the cache: {error.strerror or error}: {self._slot.folder}") from error

    def _update(self, slot: cache.Slot) -> None:
        """Makes the slot's files those that the store lists now; nobody else uses it. A journal that grew is kept."""
        old = slot.versions
        slot.versions = {}  # until all is done
        versions = {self._local(name): [item.size, item.version] for name, item in self.items.items()}
        for name in old.keys() - versions.keys():
            slot.remove(name)
        slot.remove_empty_folders()
        changed = [
            name
            for name, item in self.items.items()
            if old.get(self._local(name)) != versions[self._local(name)] or not slot.has(self._local(name), item.size)
        ]
        self._each(lambda name: self._renew(slot, name, self.items[name], old), changed)
        slot.versions = versions

    def _renew(self, slot: cache.Slot, name: str, item: Item, old: dict[str, list]) -> None:
        local = self._local(name)
        before = old.get(local, [0])[0]
        if not (_JOURNAL.search(name) and before < item.size and self._lengthen(slot, name, item, before)):
            slot.make(local, item.size)
        is_small_file = "run.json" in self.items and not _LAZY.search(name) and item.size <= _SMALL
        if is_small_file or name.rpartition("/")[2] in ("run.json", "push.json"):
            self._bring_small(slot, name)

    def _lengthen(self, slot: cache.Slot, name: str, item: Item, before: int) -> bool:
        """Fetches what was added to a journal; False where it is not the one that is known, or is not known whole."""
        local = self._local(name)
        file = FetchedFile(slot.file(local), slot.log(local), item.size)
        if before == 0 or not slot.has(local, before) or file.gaps(0, before):
            return False
        start = max(before - _OVERLAP, 0)
        tail = self.store.read(name, start, item.size)
        with open(slot.file(local), "rb") as known:
            known.seek(start)
            if known.read() != tail[: before - start]:
                return False
        os.truncate(slot.file(local), item.size)
        file.write(start, tail)
        return True

    def _locks(self, name: str) -> list[int]:
        """Locks the journals of writers that were alive when the run was pushed, so that readers call them running."""
        fds = []
        folder = os.path.dirname(os.path.join(self.folder, name))
        try:
            with open(os.path.join(folder, "push.json"), "rb") as file:
                running = json.load(file).get("running", [])
        except (OSError, ValueError, AttributeError):
            return fds
        for writer in running if isinstance(running, list) else []:
            journal = os.path.join(folder, str(writer), "journal.jsonl")
            if os.path.relpath(journal, self.folder) not in self.items:
                continue
            fd = os.open(journal, os.O_RDONLY | os.O_CLOEXEC)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                fds.append(fd)
            except OSError:
                os.close(fd)  # another process of ours has it
        return fds


def _give_back(slot: cache.Slot, pool: ThreadPoolExecutor, fds: list[int]) -> None:
    pool.shutdown(wait=False)
    for fd in fds:
        os.close(fd)
    slot.close()
    cache.trim()
