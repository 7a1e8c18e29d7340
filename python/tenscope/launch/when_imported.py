"""Calls a function once a module has been imported. Needs nothing but the standard library."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable


class WhenImported:
    """A finder that finds nothing itself: it lets the others find the module, and calls back after it was executed."""

    def __init__(self, name: str, callback: Callable[[], None]):
        self._name = name
        self._callback = callback

    def install(self) -> None:
        if self._name in sys.modules:
            self._callback()
        else:
            sys.meta_path.insert(0, self)

    def find_spec(self, name, path=None, target=None):
        if name != self._name or self not in sys.meta_path:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            self._callback()

        spec.loader.exec_module = exec_module
        return spec
