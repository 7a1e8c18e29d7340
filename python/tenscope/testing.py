"""For tests: assertions whose failure message is the report of the comparison.

What is tested comes first and its reference second, as in other libraries for tests; the report says how the reference
became what was tested.
"""

from __future__ import annotations

from typing import Any

from tenscope.comparing import values
from tenscope.comparing.runs import Diff, diff


def assert_same_run(run: Any, reference: Any, *, strict: bool = False, bitwise: bool = False, **options: Any) -> Diff:
    """Fails where `run` departs from `reference` beyond rounding noise, and says where it first does.

    strict   renamed modules, and what is on one side only, fail too
    bitwise  nothing but equality bit for bit passes
    Other options as of `tenscope.diff`.
    """
    __tracebackhide__ = True
    found = diff(reference, run, strict=strict, **options)
    if found or (bitwise and found.counts.compared != found.counts.bit_equal):
        raise AssertionError(f"the run departs from its reference\n{found}")
    return found


def assert_close(
    actual: Any, expected: Any, atol: float | None = None, rtol: float | None = None, *, equal_nan: bool = False
) -> None:
    """Fails where tensors, nests of them or files differ from `expected`, the reference, and says how and where.

    Options as of `tenscope.diff`.
    """
    __tracebackhide__ = True
    found = values.diff(expected, actual, atol, rtol, equal_nan=equal_nan)
    if found:
        raise AssertionError(f"the values differ\n{found}")
