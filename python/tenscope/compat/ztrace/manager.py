"""The run's one file: ./ztrace_logs/<date>/<time>.json, rewritten after every traced call."""

from __future__ import annotations

import os
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path

from tenscope import _core
from tenscope.compat.ztrace.data_center import DataCenter
from tenscope.compat.ztrace.utils import to_json


class Manager:
    def __init__(self) -> None:
        self.path: Path | None = None
        self.data_center = DataCenter()
        self._owners: dict[str, tuple[str, str]] = {}
        self._lock = threading.Lock()
        self._warned = False

    def start(self) -> None:
        """Names the file by the time and working folder of the first ztrace(...) of the program."""
        if self.path is None:
            now = time.localtime()
            folder = Path.cwd() / "ztrace_logs" / time.strftime("%Y%m%d", now)
            self.path = folder / f"{time.strftime('%H%M%S', now)}.json"

    def key_of(self, function: Callable) -> str:
        """`name()`; where another function has that already, with its class, then with its module in front."""
        owner = function.__module__, function.__qualname__
        inside = function.__qualname__.rpartition("<locals>.")[2]
        with self._lock:
            for name in (function.__name__, inside, f"{function.__module__}.{inside}"):
                if self._owners.setdefault(f"{name}()", owner) == owner:
                    return f"{name}()"
        return f"{function.__module__}.{function.__qualname__}()"

    def add(self, key: str, names: list[str], details: bool, changes: _core.Changes) -> None:
        with self._lock:
            self.data_center.add(key, names, details, changes)
            try:
                self._save()
            except OSError as error:
                if not self._warned:
                    self._warned = True
                    warnings.warn(f"ztrace: records are kept but cannot be written: {error}", stacklevel=2)

    def _save(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        unfinished.write_text(to_json(self.data_center.records), encoding="utf-8")
        unfinished.replace(self.path)


manager = Manager()
