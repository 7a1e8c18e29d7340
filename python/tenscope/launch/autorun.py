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
import sys
import time
from pathlib import Path

from tenscope.launch.when_imported import WhenImported
from tenscope.recording import ranks
from tenscope.recording.callers import OWN_FOLDER

_SITE = str(Path(__file__).parent / "site")


@dataclasses.dataclass
class Options:
    stats: bool = False
    include: list[str] = dataclasses.field(default_factory=list)
    exclude: list[str] = dataclasses.field(default_factory=list)
    every: int = 1
    first_step: int = 0
    end_step: int | None = None
    max_bytes: int = 0

    def wants_step(self, step: int) -> bool:
        return self.first_step <= step and (self.end_step is None or step < self.end_step) and step % self.every == 0


def choose_folder(out: str, name: str | None) -> Path:
    """The run's folder. Inside a recorded program it is that program's, and the ranks of a launcher agree on one."""
    if not name and os.environ.get("TENSCOPE_RUN"):
        return Path(os.environ["TENSCOPE_RUN"]).absolute()
    base = Path(out).absolute()
    if name:
        return base / name
    world_size = int(os.environ.get("WORLD_SIZE", "1"))
    if world_size > 1:
        agreed = ranks.job_name(os.environ, world_size)
        if agreed:
            return base / agreed
    stamp = time.strftime("%Y%m%d_%H%M%S")
    name, number = stamp, 1
    while (base / name).exists():
        number += 1
        name = f"{stamp}-{number}"
    return base / name


def arm(folder: Path, options: Options) -> None:
    """Records this process and those it starts, from the moment torch is imported."""
    os.environ["TENSCOPE_RUN"] = str(folder)
    os.environ["TENSCOPE_RUN_OPTIONS"] = json.dumps(dataclasses.asdict(options))
    inherited = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = f"{_SITE}{os.pathsep}{inherited}" if inherited else _SITE
    _arm(folder, options)
    atexit.register(_end, folder, os.getpid())


def arm_child() -> None:
    """The same in a process that a recorded program started."""
    _arm(Path(os.environ["TENSCOPE_RUN"]), Options(**json.loads(os.environ["TENSCOPE_RUN_OPTIONS"])))


def _arm(folder: Path, options: Options) -> None:
    def torch_is_there() -> None:
        from tenscope.launch import autoprobe

        autoprobe.start(folder, options)

    WhenImported("torch", torch_is_there).install()


def _end(folder: Path, pid: int) -> None:
    """Says where the recording is, on a terminal, and in the run that nothing was seen, where that is so."""
    if os.getpid() != pid:
        return
    if not folder.exists():
        from tenscope.recording.run import Run

        with Run(folder.parent, name=folder.name, rank=0, world_size=1) as run:
            run.record("not_seen", kind="note", meta={"reason": "no torch module was called"})
    if sys.stderr is not None and sys.stderr.isatty():
        print(f"tenscope: recorded into {os.path.relpath(folder)}", file=sys.stderr)


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
