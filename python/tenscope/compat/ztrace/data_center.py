"""The records of this run, by function, in the order in which the calls ended."""

from __future__ import annotations

import time

from tenscope import _core
from tenscope.compat.ztrace.utils import plain


class DataCenter:
    def __init__(self) -> None:
        self.records: dict[str, list[dict]] = {}

    def add(self, key: str, names: list[str], details: bool, changes: _core.Changes) -> None:
        values: dict[str, list] = {name: [] for name in names}
        lines: dict[str, list] = {name: [] for name in names}
        times: dict[str, list] = {name: [] for name in names}
        for change in changes:
            values[change.name].append(plain(change.new))
            lines[change.name].append(change.line)
            times[change.name].append(change.time_ns / 1e9)
        record = {
            "data": {name: kept[0] if len(kept) == 1 else kept for name, kept in values.items()},
            "time": time.strftime("%Y%m%d%H%M%S"),
        }
        if details:
            record.update(lines=lines, times=times)
        self.records.setdefault(key, []).append(record)
