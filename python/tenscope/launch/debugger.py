"""The debugger of `tenscope run --against REF --pdb`: pdb in the program's frame, with both tensors as `a` and `b`.

Overview. `a` and `b` are names of this debugger, not of the program: expressions are evaluated with them in front of
the frame's own variables, which are left alone. pdb has commands of these names (args, break): `a` and `b` by
themselves, and followed by an operator, are expressions here; `b 12` is still a breakpoint, `args` is still args.
"""

from __future__ import annotations

import code as _code
import os
import pdb
import sys
import types
from collections.abc import Callable, Iterator, MutableMapping

from tenscope.recording.callers import OWN_FOLDER
from tenscope.recording.say import say

_OPERATORS = tuple("-+*/.[=@<>!%&|^,")


class _Names(MutableMapping):
    """The variables of a frame, behind `a` and `b`."""

    def __init__(self, frame: types.FrameType, own: dict) -> None:
        self._frame = frame.f_locals
        self._own = own

    def __getitem__(self, name: str) -> object:
        return self._own[name] if name in self._own else self._frame[name]

    def __setitem__(self, name: str, value: object) -> None:
        (self._own if name in self._own else self._frame)[name] = value

    def __delitem__(self, name: str) -> None:
        del self._frame[name]

    def __iter__(self) -> Iterator[str]:
        return iter({**self._own, **self._frame})

    def __len__(self) -> int:
        return len({**self._own, **self._frame})


class Debugger(pdb.Pdb):
    """`end` ends the program."""

    def __init__(self, a: object, b: object, end: Callable[[], None]) -> None:
        super().__init__(nosigint=True)
        self.prompt = "(tenscope) "
        self.tensors = {"a": a, "b": b}
        self.goes_on = False
        self._end = end

    def do_a(self, arg: str) -> None:
        """a: the tensor of the reference."""
        self.default(f"a {arg}" if arg else "a")

    def do_b(self, arg: str) -> bool | None:
        """b: the tensor of this run. b 12, b file.py:12, b function: a breakpoint, as break."""
        if arg and not arg.startswith(_OPERATORS):
            return self.do_break(arg)
        return self.default(f"b{arg}" if arg.startswith((".", "[")) else f"b {arg}".strip())

    def set_quit(self) -> None:
        """q, exit, or the end of the input."""
        self._end()

    def set_continue(self) -> None:
        self.goes_on = True
        super().set_continue()

    def _evaluate(self, source: str, frame: types.FrameType | None = None) -> object:
        frame = frame or self.curframe
        return eval(source, frame.f_globals, _Names(frame, self.tensors))

    # What pdb evaluates: a line that is no command, and the arguments of p, pp and the like.

    def default(self, line: str) -> None:
        line = line[1:].strip() if line[:1] == "!" else line
        frame = self.curframe
        try:
            compiled = _code.compile_command(line + "\n", "<stdin>", "single")
            if compiled is None:
                self.error("a statement on one line only")
                return
            shown_by, sys.displayhook = sys.displayhook, self.displayhook
            try:
                exec(compiled, frame.f_globals, _Names(frame, self.tensors))
            finally:
                sys.displayhook = shown_by
        except BaseException as error:
            self.error(f"{type(error).__name__}: {error}")

    def _getval(self, arg: str) -> object:
        try:
            return self._evaluate(arg)
        except BaseException as error:
            self.error(f"{type(error).__name__}: {error}")
            raise

    def _getval_except(self, arg: str, frame: types.FrameType | None = None) -> object:
        try:
            return self._evaluate(arg, frame)
        except BaseException as error:
            return f"** raised {type(error).__name__}: {error} **"


def debug(a: object, b: object, end: Callable[[], None]) -> None:
    """Stops in the innermost frame of the program, until the user goes on, or ends it by `end`."""
    frame = _user_frame()
    if frame is None:
        say("no frame of the program is on this thread's stack: there is nothing to debug")
        end()
        return
    debugger = Debugger(a, b, end)
    say(f"a is the reference's tensor ({_shown(a)}), b this run's ({_shown(b)}); c goes on, q ends the program")
    own = [name for name in ("a", "b") if name in frame.f_locals]
    if own:
        debugger.tensors["frame"] = frame
        say(f"the program's own {' and '.join(own)}: {', '.join(f'frame.f_locals[{name!r}]' for name in own)}")
    debugger.reset()
    for above in _stack(frame):
        above.f_trace = debugger.trace_dispatch
        debugger.botframe = above
    debugger.interaction(frame, None)
    if debugger.goes_on and not debugger.breaks:
        for above in _stack(frame):
            above.f_trace = None
    else:
        sys.settrace(debugger.trace_dispatch)


def _stack(frame: types.FrameType) -> Iterator[types.FrameType]:
    above: types.FrameType | None = frame
    while above is not None:
        yield above
        above = above.f_back


def _shown(value: object) -> str:
    if value is None:
        return "not kept"
    shape = getattr(value, "shape", None)
    return type(value).__name__ if shape is None else f"{getattr(value, 'dtype', '')} {list(shape)}".strip()


def _user_frame() -> types.FrameType | None:
    """The innermost frame that is neither torch's nor ours."""
    torch = sys.modules.get("torch")
    folders = (OWN_FOLDER, "<frozen ")
    if torch is not None and torch.__file__:
        folders += (os.path.dirname(os.path.abspath(torch.__file__)) + os.sep,)
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(folders):
        frame = frame.f_back
    return frame
