"""The run that `tenscope run` records, in this process: opened once, by whoever comes first, and shared.

The module probe opens it at the first module call; `tenscope.init` and `tenscope.Run` in the program itself join it.
It is held: closing it is `tenscope run`'s, when the program ends. docs/python.md says what of the program's own words
then counts.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Mapping
from pathlib import Path

from tenscope.errors import Error
from tenscope.launch.options import Options
from tenscope.recording import ranks
from tenscope.recording.run import Run, current, set_current, set_opener
from tenscope.recording.say import say, shown_path

_lock = threading.RLock()
_run: Run | None = None
_is_joined = False
_is_opening = False
_said: set[str] = set()


def folder() -> Path:
    return Path(os.environ["TENSCOPE_RUN"])


def options() -> Options:
    return Options(**json.loads(os.environ["TENSCOPE_RUN_OPTIONS"]))


def is_joined() -> bool:
    """The program has called init or Run by itself: then its steps are its own."""
    return _is_joined


def opened() -> Run | None:
    return _run


def open_run() -> Run:
    """This process' part of the run; another one where torch.distributed has given it another rank since."""
    global _run, _is_opening
    rank, world_size = ranks.here()
    with _lock:
        before = _run
        if before is not None and before.rank == rank:
            return before
        where = folder()
        _is_opening = True
        try:
            _run = Run(
                where.parent,
                name=where.name,
                rank=rank,
                world_size=max(world_size, rank + 1),
                max_bytes=options().max_bytes,
                sources=options().sources,
                metadata=not (where / "runtime_info.json").exists(),
                join=True,
            )
        finally:
            _is_opening = False
        _run.held = True
        if options().against:
            _compare(_run)
        if before is not None:
            if before.current_step:
                _run.step(before.current_step)
            if not _is_joined:  # else the program has it in its hands
                before.held = False
                before.close()
        if current() is None or current().held or current().closed:
            set_current(_run)
        return _run


def _compare(run: Run) -> None:
    from tenscope.launch import against

    try:
        against.attach(run, options())
    except Error as error:
        say(f"the run is not compared while it is made, only at its end: {error}")


def joined(base: str | os.PathLike[str], given: Mapping[str, object]) -> Run | None:
    """The run being recorded, for a program that opens one of the same name or of none; None: it is one of its own."""
    global _is_joined
    if _is_opening or given.get("join"):
        return None
    where, name = folder(), given.get("name")
    if name and name != where.name:
        _say_once(f"recording into {shown_path(Path(base) / str(name))} too, as the program says; "
                  f"its modules are recorded into {shown_path(where)}")  # fmt: skip
        return None
    ignored = [word for word in given if word != "name"]
    if os.fspath(base) != "runs" and Path(base).absolute() != where.parent:
        ignored.insert(0, f"the folder {os.fspath(base)}")
    if ignored:
        _say_once(f"the program's run is the one being recorded, {shown_path(where)}; ignored: {', '.join(ignored)}")
    run = open_run()
    _is_joined = True
    return run


def open_for_program(steps: bool) -> None:
    """The program records by itself, or steps, perhaps before any module is called."""
    global _is_joined
    with _lock:  # another thread may be opening it
        if _is_opening:
            return
        if steps and not _is_joined and _run is not None and _run.current_step > 0:
            _run.step(_run.current_step - 1)  # the optimizer's step was counted, and this is the same one
        _is_joined |= steps
        if _run is not None:
            return
        try:
            open_run()
        except Error as error:
            set_opener(None)
            say(f"nothing is recorded: {error}")


def finish(error: BaseException | None) -> tuple[int, int]:
    """The program ended: notes what ended it, and closes. How many ns recording took here, and how many events were
    lost."""
    global _run
    set_opener(None)
    with _lock:
        run, _run = _run, None
    if run is not None:
        from tenscope.recording.endings import note_ending

        note_ending(run, error)
        if current() is run:
            set_current(None)
        run.held = False
        run.close()
    return (run.spent_ns, run.dropped) if run is not None else (0, 0)


def _say_once(text: str) -> None:
    if text not in _said:
        _said.add(text)
        say(text)


def _forked() -> None:
    """The child's part of the run is another, and opened anew."""
    global _run, _is_joined
    _run, _is_joined = None, False


os.register_at_fork(after_in_child=_forked)
