"""The engine of `tenscope run`: decides where to record, waits for torch, reaches child processes.

Overview. The first process names the run's folder and puts it, with the options, into the environment. Nothing is
opened before a module is called, so that each process opens its own part when its rank is known. Processes started
later (spawn, subprocess, torchrun) find us through PYTHONPATH and site/sitecustomize.py; forked ones have us already
and begin anew. torch is never imported by us: the program may want to set its environment first.
"""

from __future__ import annotations

import atexit
import dataclasses
import json
import os
import subprocess
import sys
import time
from pathlib import Path

from tenscope.errors import UsageError
from tenscope.launch import session
from tenscope.launch.options import Options
from tenscope.launch.when_imported import WhenImported
from tenscope.metadata.runtime import note_program
from tenscope.recording import announce, ranks
from tenscope.recording.callers import OWN_FOLDER
from tenscope.recording.endings import exit_code
from tenscope.recording.replace import check_name, remove_run
from tenscope.recording.run import close_all, set_opener
from tenscope.recording.say import say, shown_path

_SITE = str(Path(__file__).parent / "site")
_ended_by: BaseException | None = None
_said_where = False


def choose_folder(out: str, name: str | None, replace: bool = False) -> Path:
    """The run's folder. Inside a recorded program it is that program's, and the ranks of a launcher agree on one."""
    global _said_where
    if not name and os.environ.get("TENSCOPE_RUN"):
        return Path(os.environ["TENSCOPE_RUN"]).absolute()
    check_name(name or "")
    base = Path(out).absolute()
    rank, world_size = ranks.here()
    if world_size > 1 and replace:
        raise UsageError("--replace is not for one of several ranks: start the launcher by tenscope run")
    if world_size > 1:
        chosen = ranks.name_of_launch(base, name) if name else ranks.job_name(os.environ, world_size)
    else:
        if name and replace:
            remove_run(base / name)
        chosen = ranks.free_name(base, name) if name else ""
    if name and chosen != name and rank == 0:
        say(f"recording into {shown_path(base / chosen)}: {shown_path(base / name)} exists")
        _said_where = True
    return base / (chosen or ranks.free_name(base, time.strftime("%Y%m%d_%H%M%S")))


def arm(folder: Path, options: Options, noise: int = 0) -> None:
    """Records this process and those it starts, from the moment torch is imported. `noise`: how many times it is run
    again to measure that."""
    os.environ["TENSCOPE_RUN"] = str(folder)
    note_program()
    os.environ["TENSCOPE_RUN_OPTIONS"] = json.dumps(dataclasses.asdict(options))
    inherited = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = f"{_SITE}{os.pathsep}{inherited}" if inherited else _SITE
    # Before what ends first: where torch is there already, that is now.
    atexit.register(_end, folder, os.getpid(), noise)
    _arm()
    if ranks.here()[0] == 0 and not _said_where:
        announce.begin(folder)


def disarm() -> None:
    """The program cannot be started: there is nothing to tell of it."""
    atexit.unregister(_end)


def arm_child() -> None:
    """The same in a process that a recorded program started."""
    _arm()


def _arm() -> None:
    def torch_is_there() -> None:
        from tenscope.launch import program_watch

        program_watch.start()

    WhenImported("torch", torch_is_there).install()
    set_opener(session.open_for_program)


def ended(error: BaseException) -> None:
    """The program ended so: kept until the run is closed."""
    global _ended_by
    _ended_by = error


def _end(folder: Path, pid: int, noise: int) -> None:
    """Says what was recorded, and in the run that nothing was seen, where that is so."""
    if os.getpid() != pid:
        return
    if not folder.exists():
        session.open_run().record("not_seen", kind="note", site="", meta={"reason": "no torch module was called"})
    spent_ns, dropped = session.finish(_ended_by)
    if ranks.here()[0] == 0:
        announce.end(folder, spent_ns, dropped)
    if session.options().against:
        _end_compared(folder)
    if noise:
        _end_measured(folder, noise)


def _end_compared(folder: Path) -> None:
    """Says how the run compares with its reference; where it differs and all else went well, that is the exit code."""
    from tenscope.launch import against

    code = against.finish(folder, session.options(), *ranks.here())
    if code and not _has_failed():
        _exit(code)


def _end_measured(folder: Path, noise: int) -> None:
    """Measures the noise of the program that has just ended, by processes of its own."""
    if _has_failed():
        say("the noise of a program that has failed is not measured")
        return
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    words = [sys.executable, "-m", "tenscope.launch.noise", str(folder), "--runs", str(noise)]
    from tenscope.launch.again import without_recording

    code = subprocess.run(words, check=False, env=without_recording(os.environ)).returncode
    if code:
        _exit(code)


def _has_failed() -> bool:
    return _ended_by is not None and not (isinstance(_ended_by, SystemExit) and exit_code(_ended_by) == 0)


def _exit(code: int) -> None:
    close_all()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    os._exit(code)


def strip_own_frames(error: BaseException) -> None:
    """Takes our frames, and those of runpy before the program's first, out of an exception's traceback."""
    own = OWN_FOLDER + "launch" + os.sep
    seen = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        entries = []
        entry = error.__traceback__
        while entry is not None:
            filename = entry.tb_frame.f_code.co_filename
            is_before = not entries and ("runpy" in filename or filename == OWN_FOLDER + "run.py")
            if not is_before and not filename.startswith(own):
                entries.append(entry)
            entry = entry.tb_next
        for above, below in zip(entries, [*entries[1:], None]):  # noqa: B905
            above.tb_next = below
        error.__traceback__ = entries[0] if entries else None
        error = error.__cause__ or error.__context__


def quiet_exit_of(error: BaseException) -> None:
    """Shows the exception as the program's own, then lets Python end as it would, without showing it again."""
    strip_own_frames(error)
    sys.excepthook(type(error), error, error.__traceback__)
    sys.excepthook = lambda *_: None
