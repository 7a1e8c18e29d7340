"""Calls of a model that an adapter records: which step each belongs to, and which parameters the run has already."""

from __future__ import annotations

import weakref
from collections.abc import Hashable
from typing import Any

from tenscope import _core
from tenscope.recording.run import Run

_calls: weakref.WeakKeyDictionary[Run, Calls] = weakref.WeakKeyDictionary()


class Calls:
    def __init__(self) -> None:
        self._steps: dict[Hashable, int] = {}
        self._known: dict[tuple[Hashable, str], Any] = {}

    def begin(self, run: Run, model: Hashable) -> None:
        """A second call of the same model is a new step, unless the program has begun one."""
        if self._steps.get(model) == run.current_step:
            run.step()
        self._steps[model] = run.current_step

    def is_new(self, model: Hashable, name: str, parameter: Any) -> bool:
        """Whether a parameter is another than that which the run has."""
        fingerprint = _core.fingerprint(parameter)
        is_known = self._known.get((model, name)) == fingerprint
        self._known[model, name] = fingerprint
        return not is_known


def calls_of(run: Run) -> Calls:
    return _calls.setdefault(run, Calls())
