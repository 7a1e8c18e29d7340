"""Two recordings against each other: where did the numbers first go wrong?"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tenscope import _core


class Diff:
    """The difference of two runs, of which the first is the reference. Prints as a report; true where they differ, or
    where not enough was compared to say that they agree.

    verdict            "equal", "noise", "differs", "unknown" (what was kept does not suffice), "nothing" (to compare)
    equal              every tensor of the modules that both have is on both sides and equal bit for bit
    within_tolerance   all that was compared agrees but for rounding noise, and enough was compared to say so
    first_divergence   None, or where: .module .name .io .step .call .rank .phase .confidence .metrics ...
    rounding           None, or, where the runs part by a coarser .dtype: the first place .beyond its rounding, or None
    show               commands that show the tensor of the first divergence, one for each run
    origins            all places that start a difference; unmatched, renamed, settings, notes, counts
    json               the whole as plain data, as `tenscope diff --json` gives it (docs/diff.md)
    """

    def __init__(self, text: str, document: str, page: str, strict: bool) -> None:
        self._text = text
        self._page = page
        self.json: dict[str, Any] = json.loads(document)
        readable = json.loads(document, object_hook=lambda members: SimpleNamespace(**members))
        self.verdict: str = readable.verdict
        self.equal: bool = readable.equal
        self.within_tolerance: bool = readable.within_tolerance
        self.first_divergence = readable.first_divergence
        self.first_bit_difference = readable.first_bit_difference
        self.rounding = readable.rounding
        self.show: list[str] = readable.show
        self.origins = readable.origins
        self.unmatched = readable.unmatched
        self.renamed: dict[str, str] = self.json["renamed"]
        self.settings = readable.settings
        self.notes = readable.notes
        self.counts = readable.counts
        is_other = bool(self.renamed or self.unmatched)
        self._is_different = not self.within_tolerance or (strict and is_other)

    def __bool__(self) -> bool:
        return self._is_different

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"<tenscope.Diff {self._text.splitlines()[0]}>"

    def save_html(self, path: str | os.PathLike[str]) -> None:
        """Writes the report as one page."""
        Path(path).write_text(self._page, encoding="utf-8")


def diff(
    a: Any,
    b: Any,
    *,
    map: str | Iterable[str] = (),
    tolerance: float | None = None,
    strict: bool = False,
    prefix: bool = False,
    rows: str | Iterable[str] = (),
    top: int = 10,
) -> Diff:
    """Compares two runs (folders, or what `tenscope.open` gives) and names the first place where they part.

    `a` is the reference, `b` what became of it.

    map        "blocks.*=layers.*": modules of `a` that have other names in `b`; overrules what is inferred
    tolerance  largest harmless difference as a part of a tensor's largest value; by default that of its dtype
    strict     renamed modules, and what is on one side only, are differences too
    prefix     a run that ends earlier than the other is no difference
    rows       "request,position": integers that both recorded, by which rows (tokens) belong together
    """
    rules = [map] if isinstance(map, str) else list(map)
    keys = [key for key in rows.split(",") if key] if isinstance(rows, str) else list(rows)
    return Diff(*_core.diff_runs(_folder(a), _folder(b), rules, tolerance, top, strict, prefix, keys), strict)


def _folder(run: Any) -> str:
    return os.fspath(getattr(run, "path", run))
