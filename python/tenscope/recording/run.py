"""Recording: a Run, the process-wide one that `init` opens, and its end."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import warnings
import weakref
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

from tenscope import _core
from tenscope.errors import Error, RecordingWarning, UsageError
from tenscope.metadata.store import MetadataStore
from tenscope.recording import announce, ranks
from tenscope.recording.endings import note_ending, uncaught, watch_threads
from tenscope.recording.replace import check_name, remove_run
from tenscope.recording.say import say, shown_path
from tenscope.recording.sizes import bytes_of
from tenscope.recording.sources import KeptSources

_open_runs: weakref.WeakSet[Run] = weakref.WeakSet()
_current: Run | None = None
_opener: Callable[[bool], None] | None = None
_opened = 0
_last_words: list[Callable[[Callable], None]] = []
_watchers: list[Callable[[Run], None]] = []


def before_close(last_word: Callable[[Callable], None]) -> None:
    """Has it called with Run.record of each run that is about to be closed."""
    _last_words.append(last_word)


def watch_runs(opened: Callable[[Run], None]) -> None:
    """Has it called with each Run that is opened from now on."""
    _watchers.append(opened)


def unwatch_runs(opened: Callable[[Run], None]) -> None:
    if opened in _watchers:
        _watchers.remove(opened)


class Run(_core.Run):
    """A recording into `base/<timestamp>/` (or `base/<name>/`). As a context manager it is the current run inside.

    name           the folder below `base`; ranks that give the same name record into one run
    replace        an earlier run of that name is removed first; else the new one becomes `name_2`, and a line says so
    durability     "process": what was recorded survives the death of the process; "disk": a power cut too
    max_bytes      a budget for this process' files, a number or "1 GB"; 0 for none
    keep           past the budget: "first" keeps no bytes of what does not fit, "last" drops the oldest segments
    values         "stats": of no tensor are the bytes kept, only statistics, fingerprint and sketch
    segment_bytes  size of one file of tensors; 0 for the default
    strict         raise what goes wrong while recording, instead of one warning and a count (also TENSCOPE_STRICT=1)
    metadata       rank 0 writes how the run was made (command, packages, git); also off by TENSCOPE_METADATA=0
    sources        the text of the code that is recorded is kept in the run's folder; also off by TENSCOPE_SOURCES=0
    packages       whose changes at run time are looked for, beside torch's, numpy's and the project's own
    rank, world_size   found by themselves unless given
    join           with a name and a rank: record into that folder although it is there already

    In a program that `tenscope run` records, a Run of no other name is the one being recorded: docs/python.md.
    """

    def __new__(cls, base: str | os.PathLike[str] = "runs", **options: Any) -> Run:
        held = None
        if cls is Run and "TENSCOPE_RUN_OPTIONS" in os.environ:
            from tenscope.launch import session

            held = session.joined(base, options)
        return super().__new__(cls) if held is None else held

    def __init__(
        self,
        base: str | os.PathLike[str] = "runs",
        *,
        name: str = "",
        replace: bool = False,
        durability: str = "process",
        max_bytes: int | str = 0,
        keep: str = "first",
        values: str = "full",
        segment_bytes: int | str = 0,
        strict: bool = False,
        metadata: bool = True,
        sources: bool = True,
        packages: Iterable[str] = (),
        rank: int | None = None,
        world_size: int | None = None,
        join: bool = False,
    ) -> None:
        global _opened
        if hasattr(self, "held"):
            return  # joined: it records already
        check_name(name)
        if rank is not None and not (isinstance(rank, int) and rank >= 0):
            raise UsageError(f"a rank is a number, 0 or more, not {rank!r}")
        if not isinstance(base, (str, os.PathLike)):
            raise TypeError(f"the first argument is the folder for runs, not {base!r}")
        if replace and not name:
            raise UsageError("replace=True needs the name of the run that is to be replaced")
        if name and rank is not None:  # nothing to agree on
            if replace:
                remove_run(Path(base) / name)
            place = ranks.Place(Path(base), name, rank, world_size or 1, join)
        else:
            place = ranks.place(base, name, _opened, replace=replace)
        self.held = False  # by `tenscope run`: it goes on until the program ends, whoever closes it
        self.ended_by: tuple[int, str] | None = None
        self.rank = place.rank if rank is None else rank
        self.world_size = place.world_size if world_size is None else world_size
        self._closed = False
        self._announced_by: int | None = None  # the process that says what was recorded, when it is closed
        self._previous: list[Run | None] = []
        self._metadata: MetadataStore | None = None
        self.kept_sources: KeptSources | None = None
        super().__init__(
            place.base,
            name=place.name,
            rank=self.rank,
            world_size=max(self.world_size, self.rank + 1),
            durability=durability,
            max_bytes=bytes_of(max_bytes, "max_bytes"),
            keep=keep,
            values=values,
            segment_bytes=bytes_of(segment_bytes, "segment_bytes"),
            strict=strict,
            join=place.join,
        )
        self._said_where = bool(name) and self.path.name != name and self.rank == 0 and os.path.isdir(self.path)
        if self._said_where:
            say(f"recording into {shown_path(self.path)}: {shown_path(Path(base) / name)} exists")
        _opened += 1
        _open_runs.add(self)
        _close_in_workers()
        _core.close_runs_on_sigterm()
        watch_threads(_open_ones)
        if sources and os.environ.get("TENSCOPE_SOURCES") != "0" and os.path.isdir(self.path):
            self.kept_sources = KeptSources(self)
            self.on_code(self.kept_sources.keep_recording_code)
        if metadata and self.rank == 0 and os.environ.get("TENSCOPE_METADATA") != "0" and os.path.isdir(self.path):
            try:
                self._metadata = MetadataStore(self.path, packages_asked=packages)
                self._metadata.start()
            except OSError as error:
                if self.strict:
                    raise
                warnings.warn(f"{type(error).__name__}: {error}", RecordingWarning, stacklevel=2)
        for opened in tuple(_watchers):
            opened(self)

    def close(self) -> None:
        """Seals the files. May be called again; what is recorded afterwards is ignored."""
        if self.held:
            self.flush()
            return
        try:
            for last_word in () if self._closed else _last_words:
                last_word(self.record)
        finally:  # a warning may be an error here
            super().close()
            if self._metadata is not None and self._metadata.owner == os.getpid():
                self._metadata.wait()
            is_first = not self._closed
            self._closed = True
            _open_runs.discard(self)
            if is_first and self._announced_by == os.getpid():
                announce.end(self.path, self.spent_ns, self.dropped)

    def update_metadata(self) -> None:
        """Looks again at packages, git and modifications at run time; writes what has changed."""
        if self._metadata is not None:
            self._metadata.wait()
            self._metadata.update()

    def announce(self) -> None:
        """Says on stderr where it records and, when it is closed, how much; nothing in a process that another started,
        on other ranks than 0, and of the run of `tenscope run`, which says so itself."""
        if self.held or self.rank != 0 or self._announced_by is not None or not os.path.isdir(self.path):
            return
        if sys.modules.get("multiprocessing.process") and _is_child():
            return
        self._announced_by = os.getpid()
        if not self._said_where:
            announce.begin(self.path)

    @property
    def closed(self) -> bool:
        return self._closed

    def __enter__(self) -> Run:
        self._previous.append(current())
        set_current(self)
        return self

    def __exit__(self, exc_type: Any, exc: BaseException | None, traceback: Any) -> None:
        note_ending(self, exc)
        self.close()
        set_current(self._previous.pop())

    def __repr__(self) -> str:
        state = "closed" if self._closed else "recording" if self.enabled else "disabled"
        state = state if self.path.is_dir() else "off, there is no folder"
        lost = f", {self.dropped} dropped" if self.dropped else ""
        return (
            f"<tenscope.Run {self.path} rank {self.rank} of {self.world_size}, step {self.current_step}, {state}{lost}>"
        )


def init(base: str | os.PathLike[str] = "runs", **options: Any) -> Run:
    """Opens the process-wide run: from now on `record` and all probes write to it. Options as of Run.

    A run that was current is closed. A folder that cannot be written is warned of, and nothing is recorded. Under
    `tenscope run` it gives the run that is being recorded, unless it names another.
    """
    close()
    run = Run(base, **options)
    set_current(run)
    run.announce()
    return run


def _is_child() -> bool:
    from multiprocessing.process import parent_process

    return parent_process() is not None


def current() -> Run | None:
    """The process-wide run, or None."""
    return _current


def current_or_opened() -> Run | None:
    """The run to record into: the current one, or under `tenscope run` the recorded one, which this may open."""
    if _current is None and _opener is not None:
        _opener(False)
    return _current


def set_opener(opener: Callable[[bool], None] | None) -> None:
    """Called with False where the program wants to record and no run is current, with True where it steps."""
    global _opener
    _opener = opener
    _core.set_run_opener(opener)


def close() -> None:
    """Closes the current run, if there is one."""
    run = current()
    if run is not None:
        set_current(None)
        run.close()


def set_current(run: Run | None) -> None:
    global _current
    _current = None if run is None or run.closed else run
    _core.set_current(_current)


# The end of the process. What was recorded is safe whatever happens; closing in order only makes the folder tidy.


def _open_ones() -> list[Run]:
    return list(_open_runs)


def close_all(error: BaseException | None = None) -> None:
    """Notes in every open run what ended the program, if something did, and closes them."""
    runs = _open_ones()  # first: the current one may be held by nobody else
    set_current(None)
    for run in runs:
        with contextlib.suppress(Error):
            note_ending(run, error)
            run.held = False
            run.close()


atexit.register(lambda: close_all(uncaught()))


@cache
def _close_in_workers() -> None:
    """A process of multiprocessing ends by its own finalizers. Before Python 3.13 they run while what ended it is under
    way; since then it is handled before them, and only a forked process can be watched, from its beginning."""
    from multiprocessing.process import current_process, parent_process
    from multiprocessing.util import Finalize, register_after_fork

    def at_end(_: object = None) -> None:
        Finalize(None, lambda: close_all(sys.exc_info()[1]), exitpriority=0)

    def after_fork(_: object) -> None:
        at_end()
        if sys.version_info < (3, 13):
            return
        process = current_process()
        work = process.run

        def run() -> None:
            try:
                work()
            except BaseException as error:
                close_all(error)
                raise

        process.run = run

    register_after_fork(_open_runs, after_fork)
    if parent_process() is not None:
        at_end()
