"""`tenscope run --against`: the run is compared while it is made, and the program ends, or a debugger begins, where it
parts from the reference. docs/against.md."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tenscope import _core
from tenscope.comparing.against import Comparison
from tenscope.comparing.runs import Diff, diff
from tenscope.errors import Error
from tenscope.launch.options import Options
from tenscope.reading.recording import open as open_recording
from tenscope.recording import moments
from tenscope.recording.run import Run, close_all
from tenscope.recording.say import say, shown_path

_comparison: Comparison | None = None


def attach(run: Run, options: Options) -> None:
    """Compares this process' part of the run; that of a rank it had before no longer."""
    global _comparison
    if _comparison is not None:
        moments.unwatch(_comparison.look)
        _comparison.detach()
    does = {"stop": _stop, "pdb": _debug, "keep": _go_on}[options.on_divergence]
    _comparison = Comparison(run, Path(options.against), does, options.tolerance)
    moments.watch(_comparison.look, inside=options.on_divergence == "pdb")
    _core.set_suspicion_handler(_look_at_record)


def _look_at_record() -> None:
    """The program has recorded something by itself that differs. Inside a call it is looked at when that is over."""
    if _comparison is not None and not moments.is_inside():
        _comparison.look()


def _stop(comparison: Comparison, found: Diff) -> None:
    """Ends the program. Neither its `finally` nor its atexit functions run: nothing is made of wrong numbers."""
    run = comparison.run
    comparison.detach()
    _core.set_suspicion_handler(None)
    meta = {"reason": "differs from the reference", "reference": str(comparison.reference)}
    run.record("stopped", found.first_divergence.reason, kind="note", site="", meta=meta)
    run.held = False
    close_all()
    try:
        found = comparison.compare(prefix=True)  # of the run as it is now: `tenscope diff` says the same
    except Error as error:
        say(str(error))
    _show(found, run)
    runs = f"{shown_path(comparison.reference)} {shown_path(run.path)}"
    say(f"stopped at step {run.current_step}; the same again: tenscope diff --prefix {runs}")
    say(f"to the line: tenscope zoom {runs}")
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    os._exit(1)


def _go_on(comparison: Comparison, found: Diff) -> None:
    where = found.first_divergence
    rank = f"rank {comparison.run.rank}: " if comparison.run.world_size > 1 else ""
    say(f"{rank}the run parts from the reference at step {where.step}, {where.phase}, {where.name}; it goes on")


def _debug(comparison: Comparison, found: Diff) -> None:
    from tenscope.launch.debugger import debug

    _show(found, comparison.run)
    rank = comparison.run.rank
    origin = found.first_divergence
    pair = (
        _tensor(comparison.reference, rank, origin.event_a),
        _tensor(comparison.run.path, rank, origin.event_b),
    )
    debug(*pair, lambda: _stop(comparison, found))


def _tensor(run: Path, rank: int, event) -> object:
    """A torch tensor of the run, a number, or None where it has none or did not keep it."""
    if event is None:
        return None
    try:
        found = open_recording(run).rank(rank).event(event.name, event.step, event.call)
        return found.value if found.dtype is None else found.torch()
    except Error:
        return None


def _show(found: Diff, run: Run) -> None:
    if sys.stdout is not None:
        sys.stdout.flush()
    if run.world_size > 1:
        say(f"rank {run.rank} parts from the reference:")
    sys.stderr.write(str(found).rstrip("\n") + "\n")


def _coverage(found: Diff) -> str:
    """What an agreement rests on, beginning with what of the reference was compared."""
    counts = found.counts
    words = [f"{counts.compared} of {counts.first_run} tensors and values of the reference compared"]
    if counts.noise:
        words.append(f"{counts.bit_equal} equal in bits, {counts.noise} within rounding noise")
    if counts.unknown:
        words.append(f"{counts.unknown} unknown")
    if counts.second_run > counts.compared:
        words.append(f"{counts.second_run - counts.compared} recorded here are not in it")
    return ", ".join(words)


def finish(folder: Path, options: Options, rank: int, world_size: int) -> int:
    """Says how the whole run compares, once it is closed. Returns the exit code that this asks for, as `diff` does."""
    try:
        if open_recording(folder).find("stopped", kind="note"):
            return 1  # by a process of the program, which has said it
        found = diff(
            shown_path(options.against),
            shown_path(folder),
            prefix=options.prefix,
            tolerance=options.tolerance,
            ranks=None if world_size == 1 else [rank],
        )
    except Error as error:
        say(f"the run cannot be compared with the reference: {error}")
        return 2
    if found:
        sys.stderr.write(str(found).rstrip("\n") + "\n")
    else:
        say(f"{str(found).splitlines()[0]}; {_coverage(found)}: {shown_path(options.against)}")
    return 0 if not found else 2 if found.verdict == "nothing" else 1
