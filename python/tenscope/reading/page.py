"""The page that `tenscope view` serves, as one text: in a file, or in a notebook."""

from __future__ import annotations

import html
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tenscope import _core
from tenscope.notebook import markup
from tenscope.recording.say import say

if TYPE_CHECKING:
    from tenscope.remote import Place

# Bytes of a page's answers, compressed.
IN_A_FILE = 3 << 20
IN_A_NOTEBOOK = 700_000

LARGEST_TENSOR = 64 << 20  # bytes of a tensor that is shown in a notebook
LONGEST_RUN = 200_000  # events of a run that is shown in a notebook: more take too long to look over


def of_runs(a: Place, b: Place | None, most_bytes: int, **options: Any) -> str:
    """The page of one run or two."""
    asked = {"map": [], "tolerance": None, "noise": "", "prefix": False, "rows": [], "ranks": []} | options
    return _core.export_page(
        a.path,
        b.path if b is not None else "",
        **asked,
        shown_a=a.name if a.mirror is not None else "",
        shown_b=b.name if b is not None and b.mirror is not None else "",
        most_bytes=most_bytes,
    )


def of_array(array: np.ndarray, name: str = "tensor") -> str:
    """The page of one tensor."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{name}.npy"
        np.save(path, array)
        return _core.export_page(
            str(path), "", [], None, False, [], [], shown_a=path.name, shown_b="", most_bytes=IN_A_NOTEBOOK
        )


def bundle(text: str, make: Callable[[], str], height: int = 640) -> dict[str, str]:
    """What a notebook shows: the page in a frame of its own, and the text where there is none to be had."""
    shown = _frame(make, height)
    return {"text/plain": text, "text/html": shown} if shown else {"text/plain": text}


def folded(make: Callable[[], str], height: int = 640) -> str:
    """The page below a report: it opens by a click."""
    frame = _frame(make, height)
    return markup.page(f"<details><summary>In the viewer</summary>{frame}</details>") if frame else ""


def _frame(make: Callable[[], str], height: int) -> str:
    try:
        page = make()
    except Exception as error:  # a notebook that shows nothing is worse than one that shows less
        say(f"cannot show the page: {error}")
        return ""
    return (
        f'<iframe srcdoc="{html.escape(page)}" sandbox="allow-scripts" loading="lazy" '
        f'style="width:100%;height:{height}px;border:1px solid #8884;border-radius:6px"></iframe>'
    )
