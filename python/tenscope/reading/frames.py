"""Events as a pandas DataFrame, without pyarrow; the core makes the same columns for Arrow (docs/frames.md)."""

from __future__ import annotations

import json
from itertools import chain
from typing import Any

import numpy as np

_COLUMNS = ("rank", "writer", "seq", "time", "step", "call", "kind", "name", "value", "dtype", "shape")
_STATISTICS = ("min", "max", "mean", "std", "l2", "abs_max", "nan", "pos_inf", "neg_inf", "zero", "subnormal")
_REST = ("fingerprint", "io", "scope", "phase", "root", "cls", "site", "thread", "task")
_WORDS = ("io", "scope", "phase", "root", "cls", "site", "task")  # "" where there is none


def frame(batches: list[dict[str, Any]]) -> Any:
    import pandas

    def column(name: str) -> Any:
        parts = [batch[name] for batch in batches]
        if any(isinstance(part, np.ndarray) for part in parts):
            return np.concatenate(parts)
        return list(chain.from_iterable(parts))

    def wanted(name: str) -> Any:
        if name == "value":
            return list(chain.from_iterable(_values(batch) for batch in batches))
        found = column(name)
        return [word or "" for word in found] if name in _WORDS else found

    table = pandas.DataFrame({name: wanted(name) for name in (*_COLUMNS, *_STATISTICS, *_REST)})
    table["rank"] = table["rank"].astype("int64")
    table["time"] = pandas.to_datetime(table["time"], unit="ns", utc=True)
    return table


def _values(batch: dict[str, Any]) -> list[Any]:
    numbers = batch["value"].tolist()
    columns = (batch[name] for name in ("text", "dtype", "shape", "meta"))
    return [_value(*row) for row in zip(batch["type"], numbers, *columns, strict=True)]


def _value(kind: str | None, number: float, text: str | None, dtype: str, shape: Any, meta: str | None) -> Any:
    """What was recorded: a number, text or None. Of a tensor without axes its number, of another one None."""
    if kind is None:  # an event without a value, or an empty nest
        empty = json.loads(meta).get("empty", "") if meta and '"empty"' in meta else ""
        return {"dict": {}, "list": [], "tuple": ()}.get(empty)
    if kind == "none" or (kind == "tensor" and (shape != () or dtype.startswith("complex"))):
        return None
    if kind == "text":
        return text
    if "bool" in (kind, dtype):
        return bool(number)
    if kind == "int" or (kind == "tensor" and "int" in dtype):
        return int(text if text is not None else number)  # a double holds no more than 53 bits of it
    return number
