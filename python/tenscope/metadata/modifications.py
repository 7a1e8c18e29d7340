"""Modifications at run time, looked for again only in modules that hold other code than before.

Of the project's own modules the file counts too. An installed package whose files are written over is seen when its
version changes; until then only what its modules hold is looked at.
"""

from __future__ import annotations

import os
import sys
import types
from collections.abc import Iterable

from tenscope import _core

from .patches import Place, Scanner, by_package


class Modifications:
    def __init__(self, packages: Iterable[str], project_root: str | os.PathLike | None):
        self.found: dict[str, dict] = {}
        self.project_root = project_root
        self._scanner = Scanner(packages, project_root)
        self._loaded: list[int] = []
        self._modules: list[types.ModuleType] = []
        self._places: list[Place] = []
        self._held: list[int] = []
        self._written: list[int] = []
        self._by_module: dict[str, tuple[tuple, list[dict]]] = {}

    def look(self) -> bool:
        """Whether something else was found than before, or looked for the first time."""
        first = not self._loaded
        loaded = list(map(id, sys.modules.copy().values()))
        if loaded != self._loaded:
            self._loaded = loaded
            wanted = list(self._scanner.modules())
            self._places, self._modules = [place for place, _ in wanted], [module for _, module in wanted]
        held = _core.held_code(self._modules)
        written = [_written_ns(place.path) if place.in_project else 0 for place in self._places]
        if held == self._held and written == self._written and not first:
            return False
        self._held, self._written = held, written
        before, self._by_module = self._by_module, {}
        for place, module, *state in zip(self._places, self._modules, held, written, strict=True):
            state = (id(module), *state)
            known = before.get(place.module)
            if known is None or known[0] != state:
                known = state, self._scanner.scan_module(place, module)
            self._by_module[place.module] = known
        found = by_package(entry for _, entries in self._by_module.values() for entry in entries)
        found, self.found = self.found, found
        return first or found != self.found


def _written_ns(path: str | None) -> int:
    try:
        return os.stat(path).st_mtime_ns if path else 0
    except OSError:
        return 0
