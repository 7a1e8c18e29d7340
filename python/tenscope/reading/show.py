"""How recordings look: one line of an event, the table of a run, its HTML and its DataFrame."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tenscope import _core
from tenscope.notebook import markup

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


def brief_name(name: str, most: int = 160) -> str:
    """The middle of a long name goes, as on a terminal."""
    return name if len(name) <= most else f"{name[: most // 2]}…{name[-most // 2 :]}"


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
    return f"{run.url or run.path}: {len(run):,} events, {names} names, steps {ranges(steps) or 'none'}{ranks}, {state}"


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
    rows = _rows(run)
    shown = []
    for name, *cells, marked in rows[:_ROWS]:
        cells = [markup.text(cell) for cell in cells]
        shown.append([markup.toned("name", brief_name(name)), *cells, markup.toned("bad", marked) if marked else ""])
    more = max(len(run.names()) - _ROWS, 0)
    return markup.page(
        markup.headline(_head(run))
        + (markup.table(_COLUMNS, shown, right=range(4, 8)) if shown else "")
        + (markup.below(f"… and {more} more names") if more else "")
        + "".join(f"<p>{markup.toned('note', line)}</p>" for line in _troubles(run))
    )


def event_html(event: Event) -> str:
    """What it is, then what it was and where it came from."""
    rows = [("moment", markup.text(_moment(event)))]
    if event.is_tensor:
        stats = event.stats
        kept = "" if event.stored else ", no bytes kept"
        rows.append(("tensor", markup.text(f"{event.dtype} {list(event.shape)} on {event.device}{kept}")))
        names = ("mean", "std", "min", "max", "l2")
        rows.append(("statistics", markup.text(", ".join(f"{n} {number(getattr(stats, n)) or '-'}" for n in names))))
        if marks(stats):
            rows.append(("not finite", markup.toned("bad", marks(stats))))
    elif event.value is not None:
        rows.append(("value", f"<code>{markup.text(brief(event.value, 400))}</code>"))
    for what in ("scope", "io", "phase", "cls", "site"):
        if getattr(event, what):
            rows.append((what, markup.text(brief_name(getattr(event, what)))))
    if event.meta:
        rows.append(("meta", f"<code>{markup.text(brief(event.meta, 400))}</code>"))
    head = f"{event.kind} {brief_name(event.name)}".strip()
    return markup.page(markup.headline(head) + markup.fields(rows))


def _moment(event: Event) -> str:
    where = f"step {event.step}" + (f", call {event.call}" if event.call > 0 else "")
    return where + (f", rank {event.rank}" if event.rank else "") + event.time.strftime(", %Y-%m-%d %H:%M:%S UTC")
