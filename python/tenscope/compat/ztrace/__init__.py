"""ztrace's names: `@ztrace(["loss", "arr[1]"])` records each value of the named variables into one JSON file per run.

Over ztrace: `hook=` gets every change as it happens, `details=True` adds line numbers and times to the records.
"""

from __future__ import annotations

from tenscope.compat.ztrace.tracer import Tracer, ztrace

__all__ = ["Tracer", "ztrace"]
