"""One line to the person at the terminal, on stderr, where Python has one; or below the cell of a notebook."""

from __future__ import annotations

import contextlib
import os
import sys

from tenscope.notebook import kernel


def say(text: str) -> None:
    if sys.stderr is not None and not kernel.say(f"tenscope: {text}"):
        with contextlib.suppress(OSError, ValueError):
            print(f"tenscope: {text}", file=sys.stderr, flush=True)


def shown_path(path: str | os.PathLike[str]) -> str:
    """From the working folder where it lies below it, else in full."""
    path = os.path.abspath(path)
    with contextlib.suppress(OSError, ValueError):
        short = os.path.relpath(path)
        return path if short.startswith("..") else short
    return path
