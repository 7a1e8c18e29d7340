"""A run compared with a finished recording while it is made. docs/against.md.

Overview. The core looks at each value as it is recorded: what is equal bit for bit to its partner in the reference is
kept without its bytes, what is not is kept in full and raises a suspicion. At the next moment between calls
(recording/moments.py), or at once for what the program records by itself, the comparison of runs is asked with what
there is so far, as `tenscope diff --prefix` would be: only that says that the runs part. Suspicions that prove wrong
are excused, and the time that is spent on them is bounded; what was put off is looked at later, at the end at the
latest.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tenscope import _core, remote
from tenscope.comparing.runs import Diff, diff
from tenscope.errors import Divergence, Error, UsageError
from tenscope.recording import moments
from tenscope.recording.run import Run, current, set_current, unwatch_runs, watch_runs
from tenscope.recording.say import say, shown_path

# How much time may be spent on comparing before the end: seconds, and a part of the time since the beginning.
_FOR_DIFFERENCES = (2.0, 0.5)
_FOR_BITS = (0.5, 0.2)
# Other data, or a call that the reference did not make (to warm up, to evaluate)? The next calls tell: one in a program
# that trains, else so many.
_CALLS_TO_TELL = 3
_LISTED = 3  # of what the reference has and the run does not, yet


def resolve(reference: str | os.PathLike[str]) -> Path:
    """The folder of the run that is compared with."""
    if remote.is_url(reference):
        raise UsageError(f"a program cannot be compared with a run at a URL while it runs: copy it here: {reference}")
    folder, ranks = _core.run_ranks(os.fspath(getattr(reference, "path", reference)))
    if not ranks:
        raise UsageError(f"cannot compare with a run in which nothing was recorded: {folder}")
    return Path(folder).absolute()


class Comparison:
    """One process' run against a reference. `on_divergence` is called with itself and the Diff when they part; then
    nothing is looked at any more, and the rest is recorded as before."""

    def __init__(
        self,
        run: Run,
        reference: Path,
        on_divergence: Callable[[Comparison, Diff], None],
        tolerance: float | None = None,
    ) -> None:
        if run.path.absolute() == reference:
            raise UsageError(f"cannot compare a run with itself: {reference}")
        self.run = run
        self.reference = reference
        self.tolerance = tolerance
        self.divergence: Diff | None = None
        self._on_divergence = on_divergence
        self._core = _core.Against(reference, run.rank, tolerance)
        self._is_looking = threading.Lock()
        self._began = time.monotonic()
        self._spent = 0.0
        self._is_over = False
        self._doubted_at: tuple[int, int] | None = None  # calls and moments of training when other data was seen
        if not self._core.has_rank:
            self._is_over = True
            say(f"rank {run.rank} is not in the reference: it is not compared while it runs: {shown_path(reference)}")
        run.record("against", str(reference), kind="note", site="", meta={"kept": "statistics of what is equal"})
        run.set_against(self._core)

    @property
    def counts(self) -> dict[str, int]:
        """What was seen value by value: equal, noise, differs, unknown, not_in_reference."""
        return self._core.counts

    def detach(self) -> None:
        self._is_over = True
        self.run.set_against(None)

    def look(self) -> None:
        """Asks whether the runs part, if something is suspected and there is time for it."""
        suspicion = self._core.suspicion if self._doubted_at is None else "differs"
        if not suspicion or self._is_over or self._is_in_doubt() or not self._is_looking.acquire(blocking=False):
            return
        found = None
        try:
            began = time.monotonic()
            seconds, share = _FOR_DIFFERENCES if suspicion == "differs" else _FOR_BITS
            if self._spent > seconds + share * (began - self._began):
                return
            self._core.take()
            try:
                found = self.compare(prefix=True)
            except Error as error:
                self._is_over = True
                say(f"the run is not compared while it is made, only at its end: {error}")
                return
            self._spent += time.monotonic() - began
            if found.verdict != "differs":
                self._doubted_at = None
                self._core.excuse()
                return
            if found.first_divergence.cause == "model_input" and self._doubted_at is None:
                self._doubted_at = moments.calls, moments.trainings
                return
            self._is_over = True
            self.divergence = found
        finally:
            self._is_looking.release()
        self._on_divergence(self, found)

    def _is_in_doubt(self) -> bool:
        if self._doubted_at is None:
            return False
        calls, trainings = self._doubted_at
        return moments.calls < calls + (_CALLS_TO_TELL if moments.trainings == trainings else 1)

    def compare(self, *, prefix: bool) -> Diff:
        """As `tenscope diff` does; of several ranks only this one."""
        ranks = None if self.run.world_size == 1 else [self.run.rank]
        runs = shown_path(self.reference), shown_path(self.run.path)
        return diff(*runs, prefix=prefix, tolerance=self.tolerance, ranks=ranks, top=_LISTED if prefix else 10)


class against:
    """Compares what is recorded inside with a recording, value by value. Raises tenscope.Divergence where they part.

    reference   a run's folder, or a folder of runs: then its newest
    stop        False: goes on, and says at the end what differs, in `diff`
    prefix      a run that ends earlier than the reference is no difference
    tolerance   as of tenscope.diff

    What is equal is recorded without its bytes. The run is the one that is open, else the first that is opened inside,
    which is closed at the end. Afterwards `diff` is the whole comparison, and `counts` says how many values were equal,
    noise, differs, unknown, not_in_reference as they came.
    """

    def __init__(
        self,
        reference: str | os.PathLike[str],
        *,
        stop: bool = True,
        prefix: bool = False,
        tolerance: float | None = None,
    ) -> None:
        self.reference = resolve(reference)
        self.diff: Diff | None = None
        self._stop = stop
        self._prefix = prefix
        self._tolerance = tolerance
        self._comparison: Comparison | None = None
        self._is_own = False  # the run was opened inside

    @property
    def counts(self) -> dict[str, int]:
        return {} if self._comparison is None else self._comparison.counts

    def __enter__(self) -> against:
        if self._comparison is not None:
            raise UsageError("tenscope.against can be entered once: make another")
        run = current()
        if run is not None:
            self._attach(run)
        else:
            watch_runs(self._opened)
        return self

    def __exit__(self, error_type: type | None, error: BaseException | None, _: Any) -> None:
        unwatch_runs(self._opened)
        comparison = self._comparison
        if comparison is None:
            if error_type is None:
                raise UsageError("nothing was compared: no run is open, and none was opened inside tenscope.against")
            return
        moments.unwatch(comparison.look)
        _core.set_suspicion_handler(None)
        comparison.detach()
        if self._is_own:
            comparison.run.close()
            if current() is comparison.run:
                set_current(None)
        if isinstance(error, Divergence):
            self.diff = error.diff
            return
        try:
            self.diff = comparison.compare(prefix=self._prefix or error_type is not None)
        except Error:
            if error_type is None:
                raise
            return
        if self.diff and self._stop and error_type is None:
            raise Divergence(self.diff)

    def _opened(self, run: Run) -> None:
        if self._comparison is None:
            self._is_own = True
            self._attach(run)

    def _attach(self, run: Run) -> None:
        self._comparison = Comparison(run, self.reference, self._diverged, self._tolerance)
        moments.watch(self._comparison.look)
        _core.set_suspicion_handler(self._look_at_record)

    def _look_at_record(self) -> None:
        """The program recorded something by itself that differs. Inside a call it is looked at when that is over."""
        if not moments.is_inside():
            self._comparison.look()

    def _diverged(self, _: Comparison, found: Diff) -> None:
        self.diff = found
        if self._stop:
            raise Divergence(found)
