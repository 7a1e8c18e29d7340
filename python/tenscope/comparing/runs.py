"""Two recordings against each other: where did the numbers first go wrong?"""

from __future__ import annotations

import json
import numbers
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tenscope import _core, remote
from tenscope.comparing import parts, table
from tenscope.errors import UsageError
from tenscope.notebook import markup
from tenscope.reading import page


class Diff:
    """The difference of two runs, of which the first is the reference. Prints as a report; true where they differ, or
    where not enough was compared to say that they agree.

    verdict            "equal", "noise", "differs", "unknown" (what was kept does not suffice), "nothing" (to compare)
    equal              every tensor of the modules that both have is on both sides and equal bit for bit
    within_tolerance   all that was compared agrees but for rounding noise, and enough was compared to say so
    first_divergence   None, or where: .module .name .io .step .call .rank .phase .confidence .metrics ...
    rounding           None, or, where the runs part by a coarser .dtype: the first place .beyond its rounding, or None
    show               commands that show the tensor of the first divergence, one for each run
    budget             None, or what each of .modules adds to the error: .module .arriving .leaving .adds .share ...
    noise_profiles     files with the measured noise of places, by which values were judged (docs/noise.md)
    origins            all places that start a difference; unmatched, renamed, settings, notes, counts
    json               the whole as plain data, as `tenscope diff --json` gives it (docs/diff.md)
    """

    def __init__(
        self,
        text: str,
        document: str,
        html: str,
        strict: bool,
        make_page: Callable[[int], str],
        make_frame: Callable[[], Any],
    ) -> None:
        self._text = text
        self._html = html
        self._make_page = make_page
        self._make_frame = make_frame
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
        self.budget = readable.budget
        self.noise_profiles: list[str] = readable.noise_profiles
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

    def frame(self) -> Any:
        """Every value of both runs with its partner, verdict and error, as a pandas DataFrame, a row each
        (docs/frames.md). Compares the runs once more."""
        return self._make_frame()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The same for pyarrow, Polars and DuckDB; by pandas, which needs pyarrow for it."""
        return self.frame().__arrow_c_stream__(requested_schema)

    def save_html(self, path: str | os.PathLike[str]) -> None:
        """Writes what `tenscope view` shows of both runs as one page that needs nothing else."""
        Path(path).write_text(self._make_page(page.IN_A_FILE), encoding="utf-8")

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        def make() -> str:
            return self._make_page(page.IN_A_NOTEBOOK)

        is_short = self.counts.compared <= page.LONGEST_RUN
        viewer = page.folded(make) if is_short else ""
        return {"text/plain": self._text, "text/html": markup.styled(self._html) + viewer}


def diff(
    a: Any,
    b: Any,
    *,
    map: str | Iterable[str] = (),
    tolerance: float | None = None,
    noise: str | os.PathLike[str] | bool = True,
    strict: bool = False,
    prefix: bool = False,
    rows: str | Iterable[str] = (),
    top: int = 10,
    ranks: Iterable[int] | None = None,
    budget: bool = False,
    executor: Any = None,
    progress: Callable[[float], object] | None = None,
) -> Diff:
    """Compares two runs (folders, or what `tenscope.open` gives) and names the first place where they part.

    `a` is the reference, `b` what became of it.

    map        "blocks.*=layers.*": modules of `a` that have other names in `b`; overrules what is inferred
    tolerance  largest harmless difference as a part of a tensor's largest value; by default that of its dtype
    noise      how far each place was measured to move by rounding (docs/noise.md): a profile, or a run that has one;
               by default the profiles that `tenscope noise` has written beside the runs; False: none
    strict     renamed modules, and what is on one side only, are differences too
    prefix     a run that ends earlier than the other is no difference
    rows       "request,position": integers that both recorded, by which rows (tokens) belong together
    ranks      only what these ranks recorded; by default all
    budget     what each module adds to the error, as `.budget` and in the report (docs/budget.md)
    executor   compares ranks by tasks of this executor, one of concurrent.futures or like them (docs/parallel.md)
    progress   is called with how much is done, from 0 to 1
    """
    if tolerance is not None and not isinstance(tolerance, numbers.Real):
        raise TypeError(f"a tolerance is a number, not {tolerance!r}")
    if not isinstance(map, Iterable):
        raise TypeError(f"a map is a text like 'blocks.*=layers.*', or several, not {map!r}")
    rules = [map] if isinstance(map, str) else list(map)
    keys = rows.split(",") if isinstance(rows, str) else list(rows)
    chosen = None if ranks is None else sorted(set(ranks))
    if chosen == []:
        raise UsageError("diff needs at least one rank; without ranks= it compares all")
    if keys and (executor is not None or chosen is not None):
        raise UsageError("rows= compares all ranks in one process: it goes with neither ranks= nor executor=")
    if budget and executor is not None:
        raise UsageError("budget= compares all ranks in one process: it does not go with executor=")
    profile = None if noise is False else "" if noise is True else os.fspath(noise)
    places = _place(a), _place(b)
    with remote.reading(*places, all_ranks=executor is None and chosen is None):
        folders = [place.path for place in places]
        # Whole tensors are made of the parts of all ranks: in one process.
        if executor is None or (chosen is None and not _core.are_laid_out_alike(*folders)):
            found = _core.diff_runs(
                *folders, rules, tolerance, top, strict, prefix, keys, chosen or [], progress, budget, profile
            )
        else:
            partial = parts.compare(
                executor, *places, ranks=chosen, map=rules, tolerance=tolerance, noise=profile, prefix=prefix,
                progress=progress,
            )  # fmt: skip
            if chosen is None:
                found = partial.settled_report(*folders, rules, tolerance, prefix, top, strict, profile)
            else:
                found = partial.report(top, strict)

    def make_page(most_bytes: int) -> str:
        with remote.reading(*places, all_ranks=True):
            return page.of_runs(
                *places, most_bytes, map=rules, tolerance=tolerance, noise=profile, prefix=prefix, rows=keys,
                ranks=chosen or [],
            )  # fmt: skip

    def make_frame() -> Any:
        with remote.reading(*places, all_ranks=chosen is None):
            found = ([], [], [])
            if not keys:
                folders = [place.path for place in places]
                found = _core.diff_pairs(*folders, rules, tolerance, prefix, chosen or [], profile)
            return table.frame(*found)

    return Diff(*_shown(found, places), strict, make_page, make_frame)


def _place(run: Any) -> remote.Place:
    place = getattr(run, "_place", None)
    if place is not None and place.mirror is not None:
        return remote.Place(run.path, place.mirror)
    return remote.place_of(os.fspath(getattr(run, "path", run)))


def _shown(found: tuple[str, str, str], places: Iterable[remote.Place]) -> tuple[str, str, str]:
    """The report, the JSON document and the report as HTML, with URLs in the place of mirrors."""
    text, document, html = found
    for place in places:
        if place.mirror is not None:
            text = text.replace(place.path, place.name)
            document = document.replace(place.path, json.dumps(place.name, ensure_ascii=False)[1:-1])
            html = html.replace(markup.text(place.path), markup.text(place.name))
    return text, document, html
