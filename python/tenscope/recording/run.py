"""Recording: a Run, the process-wide one that `init` opens, and its end."""

from __future__ import annotations

import atexit
import contextlib
import os
import warnings
import weakref
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from tenscope import _core
from tenscope.errors import Error, RecordingWarning
from tenscope.metadata.store import MetadataStore
from tenscope.recording import ranks

_open_runs: weakref.WeakSet[Run] = weakref.WeakSet()
_current: Run | None = None
_opened = 0


class Run(_core.Run):
    """A recording into `base/<timestamp>/` (or `base/<name>/`). As a context manager it is the current run inside.

    name           the folder below `base`; ranks that give the same name record into one run
    durability     "process": what was recorded survives the death of the process; "disk": a power cut too
    max_bytes      a budget for this process' files; 0 for none
    keep           past the budget: "first" keeps no bytes of a tensor that does not fit, "last" drops the oldest segments
    segment_bytes  size of one file of tensors; 0 for the default
    strict         raise what goes wrong while recording, instead of one warning and a count (also TENSCOPE_STRICT=1)
    metadata       rank 0 writes how the run was made (command, packages, git); also off by TENSCOPE_METADATA=0
    packages       whose changes at run time are looked for, beside torch's, numpy's and the project's own
    rank, world_size   found by themselves unless given
    join           with a name and a rank: record into that folder although it is there already
    """

    def __init__(
        self,
        base: str | os.PathLike[str] = "runs",
        *,
        name: str = "",
        durability: str = "process",
        max_bytes: int = 0,
        keep: str = "first",
        segment_bytes: int = 0,
        strict: bool = False,
        metadata: bool = True,
        packages: Iterable[str] = (),
        rank: int | None = None,
        world_size: int | None = None,
        join: bool = False,
    ) -> None:
        global _opened
        if name and rank is not None:  # nothing to agree on
            place = ranks.Place(Path(base), name, rank, world_size or 1, join)
        else:
            place = ranks.place(base, name, _opened)
        self.rank = place.rank if rank is None else rank
        self.world_size = place.world_size if world_size is None else world_size
        self._closed = False
        self._previous: list[Run | None] = []
        self._metadata: MetadataStore | None = None
        super().__init__(
            place.base,
            name=place.name,
            rank=self.rank,
            world_size=max(self.world_size, self.rank + 1),
            durability=durability,
            max_bytes=max_bytes,
            keep=keep,
            segment_bytes=segment_bytes,
            strict=strict,
            join=place.join,
        )
        _opened += 1
        _open_runs.add(self)
        _close_in_workers()
        _core.close_runs_on_sigterm()
        if metadata and self.rank == 0 and os.environ.get("TENSCOPE_METADATA") != "0" and os.path.isdir(self.path):
            try:
                self._metadata = MetadataStore(self.path, packages_asked=packages)
                self._metadata.start()
            except OSError as error:
                if self.strict:
                    raise
                warnings.warn(f"{type(error).__name__}: {error}", RecordingWarning, stacklevel=2)

    def close(self) -> None:
        """Seals the files. May be called again; what is recorded afterwards is ignored."""
        super().close()
        if self._metadata is not None and self._metadata.owner == os.getpid():
            self._metadata.wait()
        self._closed = True
        _open_runs.discard(self)

    def update_metadata(self) -> None:
        """Looks again at packages, git and modifications at run time; writes what has changed."""
        if self._metadata is not None:
            self._metadata.wait()
            self._metadata.update()

    @property
    def closed(self) -> bool:
        return self._closed

    def __enter__(self) -> Run:
        self._previous.append(current())
        _set_current(self)
        return self

    def __exit__(self, exc_type: Any, exc: BaseException | None, traceback: Any) -> None:
        if exc is not None:
            self.record("exception", f"{type(exc).__name__}: {exc}", kind="note")
        self.close()
        _set_current(self._previous.pop())

    def __repr__(self) -> str:
        state = "closed" if self._closed else "recording" if self.enabled else "disabled"
        lost = f", {self.dropped} dropped" if self.dropped else ""
        return (
            f"<tenscope.Run {self.path} rank {self.rank} of {self.world_size}, step {self.current_step}, {state}{lost}>"
        )


def init(base: str | os.PathLike[str] = "runs", **options: Any) -> Run:
    """Opens the process-wide run: from now on `record` and all probes write to it. Options as of Run.

    A run that was current is closed. A folder that cannot be written is warned of, and nothing is recorded.
    """
    close()
    run = Run(base, **options)
    _set_current(run)
    return run


def current() -> Run | None:
    """The process-wide run, or None."""
    return _current


def close() -> None:
    """Closes the current run, if there is one."""
    run = current()
    if run is not None:
        _set_current(None)
        run.close()


def _set_current(run: Run | None) -> None:
    global _current
    _current = None if run is None or run.closed else run
    _core.set_current(_current)


# The end of the process. What was recorded is safe whatever happens; closing in order only makes the folder tidy.


def _close_all() -> None:
    _set_current(None)
    for run in list(_open_runs):
        with contextlib.suppress(Error):
            run.close()


atexit.register(_close_all)


@cache
def _close_in_workers() -> None:
    """A process of multiprocessing ends without atexit; its own finalizers do run."""
    from multiprocessing.util import Finalize, register_after_fork

    register_after_fork(_open_runs, lambda _: Finalize(None, _close_all, exitpriority=0))
