"""Two checkpoints of one model: which weight is which, and do they agree?"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

from tenscope import _core
from tenscope.notebook import markup


class CheckpointDiff:
    """The difference of two checkpoints, of which the first is the reference. Prints as a report; true where they
    differ, or where nothing could be compared.

    verdict         "equal", "noise" (rounding of the coarser type), "differs", "nothing" (to compare)
    equal           every tensor has a partner, and they agree but for their order and rounding
    pairs           .a and .b (.name .type .shape), .how, .layout, .error, .rounding, .changed, .finding
    rules           names that follow from each other: .a, .b, .tensors, .layout, .error
    only_a, only_b  tensors without a partner
    joined          sentences: a tensor of one side is made of several of the other, and how
    contradictions  sentences: a tensor lies where another should
    json            the whole as plain data, as `tenscope diff --json` gives it (docs/checkpoints.md)
    """

    def __init__(self, text: str, document: str, html: str) -> None:
        self._text = text
        self._html = html
        self.json: dict[str, Any] = json.loads(document)
        readable = json.loads(document, object_hook=lambda members: SimpleNamespace(**members))
        self.verdict: str = readable.verdict
        self.equal: bool = readable.equal
        self.pairs = readable.pairs
        self.rules = readable.rules
        self.only_a = readable.only_a
        self.only_b = readable.only_b
        self.joined: list[str] = readable.joined
        self.contradictions: list[str] = readable.contradictions
        self.notes: list[str] = readable.notes

    def __bool__(self) -> bool:
        return not self.equal

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"<tenscope.CheckpointDiff {self._text.splitlines()[0]}>"

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        return {"text/plain": self._text, "text/html": markup.styled(self._html)}


def diff(a: str, b: str, *, map: str | Iterable[str] = (), top: int = 10) -> CheckpointDiff:
    rules = [map] if isinstance(map, str) else list(map)
    return CheckpointDiff(*_core.diff_checkpoints(a, b, rules, top, shutil.get_terminal_size().columns))
