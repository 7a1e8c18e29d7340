"""HTML for the output of a notebook's cell: the look, and its parts. No scripts, nothing that is fetched.

Text and background are the page's own. The colours were chosen to be read on white and on black alike, so that no theme
has to be known. The class stands twice in each rule so that it counts for more than a page's own rules for tables.
Where a page takes the style sheet away (an untrusted notebook, GitHub) plain tables are left.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

from tenscope import _core

_STYLE = """<style>
.tenscope { line-height: 1.45; overflow-wrap: anywhere; }
.tenscope.tenscope p { margin: .1em 0; }
.tenscope.tenscope .tenscope-headline { font-weight: 600; margin-bottom: .3em; }
.tenscope.tenscope .tenscope-heading { font-weight: 600; margin-top: .8em; }
.tenscope.tenscope .tenscope-below { margin-left: 1.2em; }
.tenscope.tenscope table { border: none; border-collapse: collapse; color: inherit; font-size: inherit; margin: .2em 0;
  table-layout: auto; }
.tenscope.tenscope caption { caption-side: top; opacity: .7; text-align: left; padding: 0; color: inherit; }
.tenscope.tenscope tr, .tenscope.tenscope td, .tenscope.tenscope th { background: none !important; border: none; }
.tenscope.tenscope td, .tenscope.tenscope th { max-width: none; padding: .1em 1em .1em 0; text-align: left;
  vertical-align: top; white-space: normal; }
.tenscope.tenscope th { font-weight: normal; opacity: .7; }
.tenscope.tenscope .tenscope-fields th { white-space: nowrap; }
.tenscope.tenscope .tenscope-wide { overflow-x: auto; }
.tenscope.tenscope .tenscope-table th { border-bottom: 1px solid #8888; white-space: nowrap; }
.tenscope.tenscope .tenscope-table td { font-variant-numeric: tabular-nums; overflow-wrap: normal;
  white-space: nowrap; }
.tenscope.tenscope .tenscope-table td:first-child { min-width: 9em; overflow-wrap: anywhere; white-space: normal; }
.tenscope.tenscope .tenscope-right { text-align: right; }
.tenscope.tenscope .tenscope-bars { max-width: 36em; width: 95%; }
.tenscope.tenscope .tenscope-bars th, .tenscope.tenscope .tenscope-bars td { text-align: right; white-space: nowrap; }
.tenscope.tenscope .tenscope-bars td:last-child { width: 100%; }
.tenscope.tenscope .tenscope-bars div { background: currentColor; height: .8em; margin-top: .3em; min-width: 1px;
  opacity: .4; }
.tenscope.tenscope code { background: none; color: inherit; display: block; padding: 0; white-space: pre-wrap;
  font-family: var(--jp-code-font-family, ui-monospace, "DejaVu Sans Mono", monospace); font-size: .95em; }
.tenscope.tenscope .tenscope-live { max-height: 36em; overflow-y: auto; }
.tenscope.tenscope summary { cursor: pointer; opacity: .7; }
.tenscope.tenscope details { margin-top: .6em; }
.tenscope-head { font-weight: 600; }
.tenscope-dim { opacity: .65; }
.tenscope-name { color: #0b85a0; }
.tenscope-good { color: #2b8a3e; }
.tenscope-note { color: #a87000; }
.tenscope-bad { color: #d9453d; }
</style>"""


def styled(content: str) -> str:
    """What the C++ reports give, with the style sheet."""
    return _STYLE + content


def page(content: str) -> str:
    return styled(f'<div class="tenscope">{content}</div>')


def text(shown: object) -> str:
    """Any text: neither a tag nor a control character gets through."""
    return html.escape(_core.printable(str(shown)))


def toned(tone: str, shown: object) -> str:
    """`tone` is head, dim, name, good, note or bad."""
    return f'<span class="tenscope-{tone}">{text(shown)}</span>'


def headline(shown: object, tone: str = "") -> str:
    return f'<p class="tenscope-headline">{toned(tone, shown) if tone else text(shown)}</p>'


def below(shown: object) -> str:
    return f'<p class="tenscope-below">{text(shown)}</p>'


def fields(rows: Iterable[tuple[str, str]]) -> str:
    """Names, and HTML behind them."""
    inside = "".join(f"<tr><th>{text(name)}</th><td>{content}</td></tr>" for name, content in rows)
    return f'<table class="tenscope-fields">{inside}</table>'


def table(head: Sequence[str], rows: Iterable[Sequence[str]], right: Iterable[int] = ()) -> str:
    """Rows of HTML below a head of text; the columns in `right` hold numbers."""
    sides = dict.fromkeys(right, ' class="tenscope-right"')

    def row(cells: Iterable[str], element: str) -> str:
        inside = "".join(f"<{element}{sides.get(i, '')}>{cell}</{element}>" for i, cell in enumerate(cells))
        return f"<tr>{inside}</tr>"

    body = "".join(row(cells, "td") for cells in rows)
    return (
        f'<div class="tenscope-wide"><table class="tenscope-table"><thead>{row(map(text, head), "th")}</thead>'
        f"<tbody>{body}</tbody></table></div>"
    )
