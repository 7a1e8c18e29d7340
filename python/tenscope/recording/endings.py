"""How a program ended: the exception or exit code that a run keeps as a note.

Overview. A `with Run` block and `tenscope run` see the exception that leaves them. For a run opened by `init` the
interpreter is asked when it exits: `sys.last_value` is what nobody caught. Test runners and shells set it too, for
what they did catch; there the traceback does not begin at the bottom of the stack. An exception that ends a thread
comes through `threading.excepthook`, one that ends a process of multiprocessing is under way while it finishes.
"""

from __future__ import annotations

import os
import sys
import sysconfig
import threading
import traceback
from collections.abc import Callable, Iterable
from functools import cache

from tenscope.recording.callers import OWN_FOLDER


def note_ending(run, error: BaseException | None, **more: object) -> None:
    """Notes in the run what ended the program: `exception`, or `exit` for a code other than 0. Once for each error."""
    if error is None or isinstance(error, GeneratorExit) or run.ended_by == (id(error), _summary(error)):
        return
    run.ended_by = (id(error), _summary(error))  # not the error itself: it would keep what its frames hold
    if not isinstance(error, SystemExit):
        meta = {"class": type(error).__name__, "message": _message(error), "site": site_of(error), **more}
        run.record("exception", _summary(error), kind="note", site="", meta=meta)
        return
    code = exit_code(error)
    if code:
        meta: dict[str, object] = {"exit_code": code, "site": site_of(error), **more}
        if isinstance(error.code, str):
            meta["message"] = error.code
        if error.__context__ is not None:  # `except Exception: ...; sys.exit(1)`
            meta["after"] = _summary(error.__context__)
        run.record("exit", code, kind="note", site="", meta=meta)


def uncaught() -> BaseException | None:
    """What ends the interpreter, asked while it exits."""
    error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    entry = getattr(error, "__traceback__", None)
    return error if entry is not None and entry.tb_frame.f_back is None else None


@cache
def watch_threads(open_runs: Callable[[], Iterable]) -> None:
    """From now on an exception that ends a thread is noted in all open runs; what is shown of it stays the same."""
    shown_by = threading.excepthook

    def hook(args) -> None:
        try:
            if args.exc_value is not None and args.exc_type is not SystemExit:
                for run in open_runs():
                    note_ending(run, args.exc_value, thread=getattr(args.thread, "name", ""))
        except Exception as error:
            print(f"tenscope: a thread's exception was not noted: {error}", file=sys.stderr)
        shown_by(args)

    threading.excepthook = hook


def exit_code(error: SystemExit) -> int:
    """As Python ends with it: nothing is 0, text is printed and is 1."""
    return error.code if isinstance(error.code, int) else int(error.code is not None)


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as trouble:  # the exception's own __str__
        return f"<its message could not be made: {type(trouble).__name__}>"


def _summary(error: BaseException) -> str:
    message = _message(error)
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def site_of(error: BaseException) -> str:
    """The innermost line of the user's own code, file:line; empty where there is none."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{_short(error.filename)}:{error.lineno or 0}"
    places = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    places = [place for place in places if not place[0].startswith(OWN_FOLDER)]
    own = [place for place in places if not place[0].startswith(_libraries())]
    file, line = (own or places or [("", 0)])[-1]
    return f"{_short(file)}:{line}" if file else ""


@cache
def _libraries() -> tuple[str, ...]:
    paths = {sysconfig.get_path(kind) for kind in ("stdlib", "platstdlib", "purelib", "platlib")}
    return (*(path + os.sep for path in paths if path), "<frozen ")


def _short(file: str) -> str:
    """Below the working folder the path from there, else the file's name: as the core writes a site."""
    try:
        folder = os.getcwd() + os.sep
    except OSError:  # it is gone
        folder = os.sep
    return file.removeprefix(folder) if file.startswith(folder) and folder != os.sep else os.path.basename(file)
