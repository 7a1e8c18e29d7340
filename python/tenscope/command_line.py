"""What the verbs that are written in Python share with the others: how help looks, and how trouble is told."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import textwrap
from collections.abc import Callable, Sequence
from typing import NoReturn

from tenscope import _core
from tenscope.errors import UsageError, code_of

_BOLD, _CYAN = "\033[1m", "\033[36m"


def run(main: Callable[[list[str]], int]) -> int:
    """The exit code of a verb; where nobody reads its pipe any more it ends without a word."""
    try:
        try:
            return main(sys.argv[1:])
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        os._exit(128 + signal.SIGPIPE)


def place_of(path: str) -> str:
    """The folder below runs/ where it is a run's name there, else itself."""
    below = os.path.join("runs", path)
    return below if not os.path.exists(path) and os.path.isdir(below) else path


def trouble(error: BaseException | str, is_json: bool) -> int:
    """Tells of it, as JSON on stdout where that was asked for; returns the exit code."""
    if is_json:
        print(json.dumps({"error": {"code": code_of(error), "message": str(error)}}), flush=True)
    print(f"tenscope: {error}", file=sys.stderr, flush=True)
    return 2


class Parser(argparse.ArgumentParser):
    """Help with examples first, and errors of one sentence."""

    def __init__(self, verb: str, summary: str, *, examples: Sequence[str], usage: Sequence[str]) -> None:
        super().__init__(prog=f"tenscope {verb}", description=summary, allow_abbrev=False, add_help=False)
        self._verb, self._examples, self._usage = verb, examples, usage
        self._optionals.title = "Options"
        self.add_argument("-h", "--help", action="help", help="Print this help message and exit")

    def parse_args(self, words: Sequence[str] | None = None, namespace=None):  # type: ignore[override]
        options, unknown = self.parse_known_args(words, namespace)
        if unknown:
            near = _core.nearest(unknown[0], list(self._option_string_actions))
            self.error(f"there is no option '{unknown[0]}'" + (f"; did you mean '{near[0]}'?" if near else ""))
        return options

    def error(self, message: str) -> NoReturn:
        _, colon, reason = message.partition(": ")
        if message.startswith("argument ") and colon and reason.startswith("--"):
            message = reason  # which names the option itself
        text = f"{self._verb}: {message.removeprefix('argument ')} (tenscope {self._verb} --help tells more)"
        sys.exit(trouble(UsageError(text), "--json" in self._option_string_actions and "--json" in sys.argv))

    def format_help(self) -> str:
        width = shutil.get_terminal_size().columns
        has_color = sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"

        def toned(text: str, tone: str) -> str:
            return f"{tone}{text}\033[0m" if has_color else text

        lines = [*textwrap.wrap(self.description or "", width), ""]
        lines += [toned("Examples:", _BOLD), *(f"  {line}" for line in self._examples), ""]
        lines += [toned("Usage:", _BOLD), *(f"  {line}" for line in self._usage)]
        for group in self._action_groups:
            rows = [
                (", ".join(option.option_strings) + (f" {option.metavar}" if option.metavar else ""), option.help or "")
                for option in group._group_actions
            ]
            if not rows:
                continue
            lines += ["", toned(f"{group.title}:", _BOLD)]
            begin = 4 + max(len(name) for name, _ in rows)
            for name, text in rows:
                first, *rest = textwrap.wrap(text, max(width - begin, 20), break_long_words=False)
                lines.append("  " + toned(name, _CYAN) + " " * (begin - 2 - len(name)) + first)
                lines += [" " * begin + line for line in rest]
        return "\n".join(lines) + "\n"
