"""What was asked for and matched nothing: one line for the user, and a note `matched_nothing` in the run.

A glob over module paths, a path of local variables, a watched expression that is spelt wrong would otherwise look like
a program in which nothing happened.
"""

from __future__ import annotations

import contextlib
import difflib
import re
import sys
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from tenscope import _core
from tenscope.errors import RecordingWarning
from tenscope.recording.callers import OWN_FOLDER

AROUND = (":data", ":loss", ":optimizer", ":all")  # selects operations in the code around modules
_MOST_CANDIDATES = 20_000  # among which the nearest is looked for


@dataclass
class Unmatched:
    """A selector, whose it was, and what there is that it could have meant."""

    selector: str
    where: str
    candidates: Iterable[str] = ()
    why: str = "matched nothing"
    nearest: str = field(init=False, default="")

    def __post_init__(self) -> None:
        self.nearest = nearest(self.selector, self.candidates)

    def __str__(self) -> str:
        near = f"; the nearest that exists is {self.nearest!r}" if self.nearest else ""
        return f"{self.where}: {self.selector!r} {self.why}{near}"


def nearest(selector: str, candidates: Iterable[str]) -> str:
    """The most likely meant; for a pattern also one with its numbers left open: `blok.*.q` is near `blocks.*.q`."""
    known: dict[str, None] = {}
    for candidate, _ in zip(candidates, range(_MOST_CANDIDATES)):  # noqa: B905
        if candidate and "*" in selector and (pattern := re.sub(r"(?<![^.])\d+(?![^.])", "*", candidate)).strip("*."):
            known[pattern] = None
        if candidate:
            known[candidate] = None
    words = list(known)
    found = _core.nearest(selector, words, 1) or _core.nearest(selector.strip("*."), words, 1)
    return (found or difflib.get_close_matches(selector, words[:1000], 1, cutoff=0) or [""])[0]


def _warn(text: str) -> None:
    """At the line of the program, which may have left several context managers at once."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_code.co_filename.startswith((OWN_FOLDER, contextlib.__file__)):
        frame, level = frame.f_back, level + 1
    warnings.warn(text, RecordingWarning, stacklevel=level)


def tell(found: Iterable[Unmatched], record: Callable | None, warn: Callable[[str], object] = _warn) -> None:
    """Says each in one line, and notes it through `record`, which is Run.record or has its signature."""
    for entry in found:
        note(entry, record)
        warn(str(entry))


def note(entry: Unmatched, record: Callable | None) -> None:
    if record is not None:
        meta = {"selector": entry.selector, "where": entry.where, "nearest": entry.nearest}
        record("matched_nothing", str(entry), kind="note", site="", meta=meta)


def globs(patterns: str | Iterable[str] | None) -> tuple[str, ...]:
    if patterns is None:
        return ()
    if isinstance(patterns, str):
        return (patterns,)
    several = tuple(patterns) if isinstance(patterns, Iterable) else (patterns,)
    if not all(isinstance(pattern, str) for pattern in several):
        raise TypeError(f"a pattern of paths is text, or a list of texts, not {patterns!r}")
    return several


def _is_any_like(names: Iterable[str], patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, glob) for name in names for glob in patterns)


class NameFilter:
    """Which names are wanted, by globs. Remembers what it was asked for, to tell what matched nothing."""

    def __init__(self, include=None, exclude=None):
        self._included, self._excluded = globs(include), globs(exclude)
        self._names: dict[str, None] = {}

    def wants(self, *names: str) -> bool:
        """Of a thing that has one or more names."""
        if not self._included and not self._excluded:
            return True
        self._names.update(dict.fromkeys(names))
        if self._included and not _is_any_like(names, self._included):
            return False
        return not _is_any_like(names, self._excluded)

    def unmatched(self, where: str) -> list[Unmatched]:
        """`where` has a {} for the option's name."""
        return [
            Unmatched(glob, where.format(option), self._names)
            for option, patterns in (("include", self._included), ("exclude", self._excluded))
            for glob in patterns
            if self._names and not any(fnmatchcase(name, glob) for name in self._names)
        ]
