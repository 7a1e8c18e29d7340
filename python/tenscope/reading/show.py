"""How recordings look: one line of an event, the table of a run, its HTML and its DataFrame."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tenscope import _core

if TYPE_CHECKING:
    from tenscope.reading.recording import Event, Recording

_COLUMNS = ("name", "dtype", "shape", "steps", "mean", "std", "min", "max", "")
_ROWS = 40


def number(value: float) -> str:
    if isinstance(value, int):
        return str(value)
    return "" if math.isnan(value) else f"{value:.4g}"


def size(count: float) -> str:
    for unit in ("B", "KB", "MB", "GB"):
        if count < 1000 or unit == "GB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return ""


def ranges(steps: Sequence[int]) -> str:
    """0-4, 7, 9-12"""
    runs: list[list[int]] = []
    for step in steps:
        if runs and step == runs[-1][1] + 1:
            runs[-1][1] = step
        else:
            runs.append([step, step])
    shown = [str(a) if a == b else f"{a}-{b}" for a, b in runs]
    return ", ".join(shown if len(shown) <= 6 else [*shown[:5], "…", shown[-1]])


def brief(value: Any, width: int = 40) -> str:
    text = repr(value)
    return text if len(text) <= width else text[: width - 1] + "…"


def marks(stats: Any) -> str:
    found = [(stats.nan, "NaN"), (stats.pos_inf, "+Inf"), (stats.neg_inf, "-Inf")]
    return " ".join(f"{count} {what}" for count, what in found if count)


def event_line(event: Event) -> str:
    where = f"{event.kind} {_core.printable(event.name)}".strip() + f" step {event.step}"
    if event.call > 0:
        where += f" call {event.call}"
    if event.rank:
        where += f" rank {event.rank}"
    if not event.is_tensor:
        return where + (f": {brief(event.value)}" if event.kind in ("value", "change", "note") else "")
    stats = event.stats
    told = f"mean {number(stats.mean)} std {number(stats.std)} {marks(stats)}".rstrip()
    return f"{where}: {event.dtype} {list(event.shape)} {told}"


def _rows(run: Recording) -> list[tuple[str, ...]]:
    rows = []
    for name in run.names()[: _ROWS + 1]:
        event = run.event(name)
        steps = ranges(run.steps(name))
        if event.is_tensor:
            stats = event.stats
            told = (stats.mean, stats.std, stats.min, stats.max)
            rows.append(
                (_core.printable(name), event.dtype, str(list(event.shape)), steps, *map(number, told), marks(stats))
            )
        else:
            rows.append(
                (_core.printable(name), type(event.value).__name__, "", steps, brief(event.value, 24), "", "", "", "")
            )
    return rows


def _head(run: Recording) -> str:
    names = len(run.names())
    state = run.state
    ranks = f", ranks {ranges(run.ranks)}" if len(run.ranks) > 1 else ""
    steps = run.steps()
    return f"{run.url or run.path}: {len(run)} events, {names} names, steps {ranges(steps) or 'none'}{ranks}, {state}"


def _troubles(run: Recording) -> list[str]:
    """What keeps the run from being whole, a line each; the first five of damage and of limits, the others counted."""
    problems = [f"problem: {problem.reason}: {run.shown(str(problem.file))}" for problem in run.problems]
    limits = [f"limit: {loss}" for loss in run.losses if loss.is_limit]
    lines = []
    for group, what in ((problems, "problems"), (limits, "limits")):
        lines += group[:5] + ([f"… and {len(group) - 5} more {what}"] if len(group) > 5 else [])
    return lines


def recording_text(run: Recording) -> str:
    rows = [_COLUMNS, *_rows(run)[:_ROWS]]
    widths = [max(len(row[i]) for row in rows) for i in range(len(_COLUMNS))]
    left = {0, 1, 2, 3, len(_COLUMNS) - 1}
    lines = [_head(run)]
    for row in rows if len(rows) > 1 else ():
        cells = [c.ljust(w) if i in left else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))]
        lines.append("  " + "  ".join(cells).rstrip())
    more = len(run.names()) - _ROWS
    if more > 0:
        lines.append(f"  … and {more} more names")
    lines += [f"  {line}" for line in _troubles(run)]
    return "\n".join(lines)


def recording_html(run: Recording) -> str:
    def cells(row: Sequence[str], tag: str) -> str:
        return "".join(
            f'<{tag} style="text-align:{"left" if i < 4 else "right"}">{html.escape(c)}</{tag}>'
            for i, c in enumerate(row)
        )

    rows = _rows(run)
    more = max(len(run.names()) - _ROWS, 0)
    body = "".join(f"<tr{' style=color:#b00020' if row[-1] else ''}>{cells(row, 'td')}</tr>" for row in rows[:_ROWS])
    tail = f"<p>… and {more} more names</p>" if more else ""
    problems = "".join(f"<li>{html.escape(line)}</li>" for line in _troubles(run))
    return (
        f"<div><p><b>{html.escape(_head(run))}</b></p><table><thead><tr>{cells(_COLUMNS, 'th')}</tr></thead>"
        f"<tbody>{body}</tbody></table>{tail}{f'<ul>{problems}</ul>' if problems else ''}</div>"
    )
