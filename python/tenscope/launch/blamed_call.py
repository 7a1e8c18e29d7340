"""The module call in which two runs part: making it once more in a wider type, and looking at it alone."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from pathlib import Path

from tenscope import _core

# Places of a divergence inside a module's call.
IN_MODULE = {"output", "submodule_input", "changed_input", "buffer", "extra_input"}


@dataclass(frozen=True)
class BlamedCall:
    """A call as one of the runs has it: of the module `path` (empty: the outermost one), the `number`-th of the run."""

    folder: Path
    path: str
    number: int
    rank: int | None
    has_values: bool  # its output was kept, not statistics alone

    @property
    def oracle_words(self) -> list[str]:
        """The words of `tenscope run` that make it once more in a wider type."""
        return ["--oracle", self.path or ".", "--oracle-call", str(self.number)]

    @property
    def command(self) -> str:
        """What shows it alone."""
        words = ["tenscope", "repro", str(self.folder), "--call", self.path or ".", "--call-index", str(self.number)]
        return shlex.join([*words, *([] if self.rank is None else ["--rank", str(self.rank)]), "-o", "case"])


def blamed_call(folder: Path, path: str, origin: dict, side: str) -> BlamedCall | None:
    """The call of the module in which the tensor of the divergence was seen; None where it is not inside of one."""
    seen = origin[f"event_{side}"]
    if origin["phase"] != "forward" or origin["cause"] not in IN_MODULE or seen is None:
        return None
    reader = _core.Reader(folder)
    ranks = reader.writers
    rank = seen.get("rank", origin["rank"] if origin["rank"] >= 0 else None)
    found = [
        id
        for id in reader.find(seen["name"], seen["step"], seen["call"], rank)
        if reader.name(id) == seen["name"] and reader.kind(id) in ("value", "change")
    ]
    if not found:
        return None
    root = reader.event(found[0]).root
    has_values = not reader.is_tensor(found[0]) or reader.event(found[0]).tensor.has_bytes
    for id in range(found[0], -1, -1):
        if reader.writer(id) != reader.writer(found[0]):
            break
        if reader.kind(id) == "enter" and reader.name(id) == path and reader.event(id).root == root:
            return BlamedCall(folder, path, reader.call(id), rank if len(ranks) > 1 else None, has_values)
    return None


def judge(again: list[Path], calls: list[BlamedCall | None], origin: dict, color: bool = False) -> tuple[str, dict]:
    """Text and document: which of the two runs is near to its call in a wider type?"""
    if None in calls:
        reason = "the difference does not begin in a module's own forward"
        text = f"who is right is not known: {reason}\n"
        return text, {"verdict": "unknown", "module": origin["module"], "reason": reason}
    rank = origin["rank"] if origin["rank"] >= 0 else None
    text, document = _core.judge_by_oracle(str(again[0]), str(again[1]), rank, color)
    return text, json.loads(document)


def offer(calls: list[BlamedCall | None]) -> tuple[str, list[str]]:
    """How to look at the call alone: the second run's in the text, both in the document."""
    commands = [call.command for call in calls if call is not None and call.has_values]
    return (f"to look at this call alone:\n  {commands[-1]}\n" if commands else ""), commands
