"""tenscope push: copies a run to a store, so that a valid run is there at any time.

Overview. A push is a snapshot (snapshot.py) whose files are sent in an order: run.json and the like, an empty journal
where there is none yet, sealed segments, what the journals refer to of open ones, then the journals, so that a journal
never refers to bytes that are not there. push.json says which writers live, or are still being pushed; readers call
them running. What is there with the right size and checksum is left alone, so that a push that was cut off goes on
where it was; what was sent is checked.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tenscope import command_line
from tenscope.errors import Error, IoError, UsageError
from tenscope.reading.show import size as size_text
from tenscope.remote import checksums, is_url
from tenscope.remote import snapshot as snapshots
from tenscope.remote.snapshot import Piece, Snapshot
from tenscope.remote.store import Item, Store

_AT_ONCE = 4  # files that are sent side by side
_TRIES = 10  # looks at a running run that may fail one after the other
_LONGEST_WAIT = 300  # seconds
_STATE = "push.json"
_ATOMIC = {"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "oss"}  # an object appears when it is whole
_DROPPED = re.compile(r"(journal-\d+\.jsonl|\d+\.safetensors(\.open)?)$")


@dataclass
class Pushed:
    """What a push did."""

    run: str
    url: str
    sent: int = 0
    sent_bytes: int = 0
    left: int = 0  # files that were there already
    running: list[str] = field(default_factory=list)  # writers that lived at the end
    checked: dict[str, int] = field(default_factory=lambda: {"checksum": 0, "read back": 0})

    def __str__(self) -> str:
        words = {"checksum": "by the store's", "read back": "read back"}
        ways = [f"{count} {words[how]}" for how, count in self.checked.items() if count]
        files = "1 file was" if self.sent == 1 else f"{self.sent} files were"
        text = f"{self.run} is at {self.url}: {files} sent ({size_text(self.sent_bytes)}), {self.left} left alone"
        if ways:
            text += f"; every checksum is right ({', '.join(ways)})"
        if self.running:
            text += f"\nit is still being written by {', '.join(self.running)}: push again, or with --follow"
        return text


def push(
    run: str | os.PathLike[str],
    url: str,
    *,
    follow: bool = False,
    interval: float = 10,
    verify: bool = False,
    storage_options: dict[str, Any] | None = None,
    progress: Callable[[int, int], object] | None = None,
    warn: Callable[[str], object] | None = None,
) -> Pushed:
    """Copies a run to `url` (below it, where it ends in a slash), as far as it is not there yet.

    follow    goes on until the run has ended, with `interval` seconds between two looks
    verify    reads everything back, also where the store's own checksum is right
    progress  is called with bytes sent and bytes to send
    """
    folder = Path(run)
    if not (folder / "run.json").exists():
        raise UsageError(f"cannot push: there is no run.json, so this is no run: {folder}")
    url = url if is_url(url) else f"file://{os.path.abspath(url)}{'/' if url.endswith('/') else ''}"
    if url.endswith("/"):
        url += folder.resolve().name
    pusher = _Pusher(folder, Store(url, storage_options), verify, progress)
    failed = 0
    while True:
        try:
            pusher.push()
            failed = 0
        except IoError as error:
            failed += 1
            if not follow or failed == _TRIES:
                raise
            if warn is not None:
                warn(f"{error}; trying again")
        if not follow or (failed == 0 and not pusher.result.running):
            return pusher.result
        time.sleep(min(interval * 2**failed, max(interval, _LONGEST_WAIT)))


class _Pusher:
    def __init__(self, run: Path, store: Store, verify: bool, progress: Callable[[int, int], object] | None) -> None:
        self.run = run
        self.store = store
        self.result = Pushed(str(run), store.url)
        self._verify = verify
        self._progress = progress
        self._is_ring = json.loads((run / "run.json").read_text()).get("keep") == "last"
        self._known: dict[str, tuple] = {}  # what is there: stamp of ours, size and version of theirs
        self._state: bytes | None = None  # the push.json that is there, where it is known
        protocol = store.fs.protocol
        self._is_atomic = not _ATOMIC.isdisjoint({protocol} if isinstance(protocol, str) else protocol)

    def push(self) -> None:
        with tempfile.TemporaryDirectory(prefix="tenscope-push-") as scratch:
            there = self.store.list()
            self._refuse_another_run(there)
            shot = snapshots.take(self.run, Path(scratch))
            groups = [self._missing(group, there) for group in (shot.files, shot.sealed, shot.open, shot.journals)]
            self.result.left = len(shot.names) - sum(map(len, groups))
            if any(groups):
                self._send_all(shot, groups, there, Path(scratch))
            self._remove(self._left_over(shot, there))
            self._tell_state(shot.running, there, Path(scratch))
            self.result.running = shot.running

    def _send_all(self, shot: Snapshot, groups: list[list[Piece]], there: dict[str, Item], scratch: Path) -> None:
        total = sum(piece.path.stat().st_size for group in groups for piece in group if piece.path.exists())
        start = self.result.sent_bytes
        files, *bytes_and_journals = groups
        empty = scratch / "empty"
        empty.touch()
        journals = [Piece(f"{writer}/{snapshots.JOURNAL}", empty, ()) for writer in shot.writers]
        self._tell_state(shot.writers, there, scratch)
        for group in (files, [piece for piece in journals if piece.name not in there], *bytes_and_journals):
            with ThreadPoolExecutor(_AT_ONCE) as pool:
                for piece, size in zip(group, pool.map(self._send_counted, group), strict=True):
                    self.result.sent += bool(piece.stamp)
                    self.result.sent_bytes += size
                    if self._progress is not None:
                        self._progress(self.result.sent_bytes - start, total)

    def _refuse_another_run(self, there: dict[str, Item]) -> None:
        if "run.json" not in there:
            return
        theirs = self.store.read("run.json", 0, there["run.json"].size)
        if theirs != (self.run / "run.json").read_bytes():
            raise UsageError(f"cannot push: another run is there already: {self.store.url}")

    def _missing(self, pieces: Iterable[Piece], there: dict[str, Item]) -> list[Piece]:
        def is_there(piece: Piece) -> bool:
            item = there.get(piece.name)
            if item is None:
                return False
            if self._known.get(piece.name) == (piece.stamp, item.size, item.version) or self._is_dropped(piece):
                return True
            how = checksums.agreement(self.store, piece.name, item, piece.path, read_back=self._verify)
            if how is not None:
                self._note(piece, item, how)
            return how is not None

        pieces = list(pieces)
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return [piece for piece, known in zip(pieces, pool.map(is_there, pieces), strict=True) if not known]

    def _note(self, piece: Piece, item: Item, how: str) -> None:
        self._known[piece.name] = (piece.stamp, item.size, item.version)
        self.result.checked[how] += 1

    def _is_dropped(self, piece: Piece) -> bool:
        """By a ring, since the snapshot."""
        return self._is_ring and not piece.path.exists()

    def _send_counted(self, piece: Piece) -> int:
        try:
            size = piece.path.stat().st_size
            sent = self._send(piece)
            if piece.stamp:
                self._note(piece, *sent)
            return size
        except FileNotFoundError:
            if self._is_dropped(piece):
                return 0
            raise

    def _send(self, piece: Piece) -> tuple[Item, str]:
        with self.store.trouble("cannot push a file", piece.name):
            target = self.store.path(piece.name)
            if self._is_atomic:
                self.store.fs.put_file(str(piece.path), target)
            else:
                self.store.fs.makedirs(target.rpartition("/")[0], exist_ok=True)
                self.store.fs.put_file(str(piece.path), f"{target}.part")
                self.store.fs.mv(f"{target}.part", target)
            item = self.store.item(piece.name)
            how = checksums.agreement(self.store, piece.name, item, piece.path, read_back=self._verify)
        if how is None:
            raise IoError(f"cannot push a file: what arrived is not what was sent: {self.store.url}/{piece.name}")
        return item, how

    def _left_over(self, shot: Snapshot, there: dict[str, Item]) -> list[str]:
        """What was open and is sealed now, what a ring has dropped, and what a push left that was cut off."""
        sealed = {piece.name for piece in shot.sealed}
        is_ring = self._is_ring
        return [
            name
            for name in there
            if name.removesuffix(".open") in sealed - {name}
            or name.endswith(".part")
            or (is_ring and name not in shot.names and name.partition("/")[0] in shot.writers and _DROPPED.search(name))
        ]

    def _remove(self, names: Iterable[str]) -> None:
        for name in names:
            with self.store.trouble("cannot remove an object", name):
                self.store.fs.rm_file(self.store.path(name))

    def _tell_state(self, running: list[str], there: dict[str, Item], scratch: Path) -> None:
        text = json.dumps({"running": running}).encode() + b"\n"
        if self._state is None and _STATE in there:
            self._state = self.store.read(_STATE, 0, there[_STATE].size)
        if self._state != text:
            path = scratch / _STATE
            path.write_bytes(text)
            self._send(Piece(_STATE, path, ()))
            self._state = text


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tenscope push", description=__doc__)
    parser.add_argument("run")
    parser.add_argument("url")
    parser.add_argument("--follow", action="store_true")
    parser.add_argument("--interval", type=float, default=10)
    parser.add_argument("--verify", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--progress", action="store_true")
    options = parser.parse_args(argv)
    try:
        done = push(
            options.run,
            options.url,
            follow=options.follow,
            interval=options.interval,
            verify=options.verify,
            progress=_show if options.progress else None,
            warn=_tell,
        )
    except KeyboardInterrupt:
        _tell("interrupted; what was sent is kept, and another push goes on from there")
        return 2
    except (Error, OSError) as error:
        return command_line.trouble(error, options.json)
    if options.progress:
        print("\r\033[K", end="", file=sys.stderr, flush=True)
    print(json.dumps(vars(done)) if options.json else done)
    return 0


def _tell(message: str) -> None:
    print(f"tenscope: {message}", file=sys.stderr, flush=True)


def _show(done: int, total: int) -> None:
    share = done / total if total else 1
    bar = f"[{'=' * int(30 * share):<30}] {size_text(done)} of {size_text(total)}"
    print(f"\r{bar}\033[K", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(command_line.run(main))
