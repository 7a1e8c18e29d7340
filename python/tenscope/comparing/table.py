"""The pairs of two runs as a pandas DataFrame: what was said of each value and its partner (docs/frames.md)."""

from __future__ import annotations

from itertools import chain
from typing import Any

import numpy as np

from tenscope.errors import UnsupportedError

_VERDICTS = ("equal", "same values", "noise", "unknown", "follows", "starts", "not seen")  # PairVerdict
_NUMBERS = ("rank", "step", "call")
_SHARED = (*_NUMBERS, "name", "io", "scope", "phase", "cls")
_STATISTICS = ("min", "max", "mean", "std", "l2", "abs_max", "nan", "pos_inf", "neg_inf")
_OF_EACH = ("name", "dtype", "shape", "value", *_STATISTICS, "fingerprint", "site", "seq")


def frame(pairs: list[tuple[bool, bool, int, float]], *batches: list[dict[str, Any]]) -> Any:
    import pandas

    if not pairs:
        raise UnsupportedError(
            "there is no table of these runs: it has a row for each pair of values, and rows or whole tensors were "
            "compared, which several of them make up; .json tells of them"
        )
    is_there = [np.array([pair[side] for pair in pairs]) for side in (0, 1)]
    sides = [_spread(one, there) for one, there in zip(batches, is_there, strict=True)]
    table = {
        "verdict": [_VERDICTS[verdict] for _, _, verdict, _ in pairs],
        "error": np.array([error for *_, error in pairs]),
    }
    for name in _SHARED:
        a, b = sides[0][name], sides[1][name]
        found = np.where(is_there[0], a, b)
        table[name] = found.astype(int) if name in _NUMBERS else [word or "" for word in found]
    for suffix, side in zip("ab", sides, strict=True):
        table |= {f"{name}_{suffix}": side[name] for name in _OF_EACH}
    order = np.lexsort([np.where(is_there[0], sides[0]["seq"], sides[1]["seq"]), table["step"], table["rank"]])
    return pandas.DataFrame(table).iloc[order].reset_index(drop=True)


def _spread(batches: list[dict[str, Any]], is_there: np.ndarray) -> dict[str, Any]:
    """A run's columns, with nothing in the rows of pairs that it has no part in."""
    columns: dict[str, Any] = {}
    for name in {*_SHARED, *_OF_EACH}:
        parts = [batch[name] for batch in batches]
        if all(isinstance(part, np.ndarray) for part in parts):
            column = np.full(len(is_there), np.nan)
            column[is_there] = np.concatenate([np.empty(0), *parts])
        else:
            column = np.full(len(is_there), None, object)
            column[is_there] = np.fromiter(chain.from_iterable(parts), object)
        columns[name] = column
    return columns
