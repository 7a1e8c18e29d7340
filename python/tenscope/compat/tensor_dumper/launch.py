"""How the ranks of one launch agree on one folder when no process group is there to ask.

The first rank that comes makes the folder and notes it in a file of this host, under the name of the launch (the
launcher's process and its start); the others take it from there. A rank that finds itself noted already opens the next
folder, and the note goes when all ranks of the host have come. So nobody waits for anybody, and nothing is left behind.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TextIO

from tenscope.recording.ranks import launch_on_this_host

_LATEST_S = 600.0  # a rank that comes later belongs to another launch, by the same shell say


def shared_folder(base: Path, rank: int, world_size: int, make: Callable[[Path], Path]) -> Path:
    launch = f"{os.getuid()} {launch_on_this_host()} {world_size} {base.resolve()}"
    note = Path(tempfile.gettempdir(), f"tensor_dumper-{hashlib.sha256(launch.encode()).hexdigest()[:24]}")
    ranks_here = int(os.environ.get("LOCAL_WORLD_SIZE", world_size))
    with _locked(note) as file:
        folders = json.loads(file.read() or "[]")
        folders = [e for e in folders if os.path.isdir(e["folder"]) and time.time() - e["made"] < _LATEST_S]
        entry = next((e for e in folders if rank not in e["ranks"]), None)
        if entry is None:
            entry = {"folder": str(make(base)), "made": time.time(), "ranks": []}
            folders.append(entry)
        entry["ranks"].append(rank)
        folders = [e for e in folders if len(e["ranks"]) < ranks_here]
        if folders:
            file.seek(0)
            file.truncate()
            file.write(json.dumps(folders))
        else:
            note.unlink()
    return Path(entry["folder"])


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[TextIO]:
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "r+", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            try:
                is_current = os.path.samestat(os.fstat(file.fileno()), os.stat(path))
            except FileNotFoundError:
                is_current = False  # another rank was the last of its folder, and took the note away
            if is_current:
                yield file
                return
