"""tenscope.compare and tenscope.diff: are these two the same, and if not, how and where do they differ?

Overview. Two objects are compared here, walking both; each pair of tensors is handed to the core. As soon as a file is
involved, both sides become trees of values in the core (Side), which compares trees.
"""

from __future__ import annotations

import cmath
import copyreg
import dataclasses
import json
import os
from pathlib import Path
from typing import Any

from tenscope import _core, remote
from tenscope.comparing import checkpoints, runs
from tenscope.comparing.checkpoints import CheckpointDiff
from tenscope.comparing.runs import Diff
from tenscope.errors import NotFoundError, UsageError
from tenscope.notebook import markup
from tenscope.reading.recording import Recording
from tenscope.recording.registry import entry_of, plain
from tenscope.recording.run import Run

__all__ = ["ValueDiff", "compare", "diff"]

_NUMBERS = (bool, int, float, complex)
_MAX_DEPTH = 200


def compare(a: Any, b: Any, atol: float = 1e-8, rtol: float = 1e-5, equal_nan: bool = False) -> bool:
    """Whether two objects agree. A str or Path is a file (.npy .npz .pt .pth .safetensors .gguf .pkl), or the folder of
    a checkpoint. Two checkpoints of a model agree whatever their names and order, and up to the coarser type's rounding
    (docs/checkpoints.md).

    Numbers agree where |a - b| <= atol + rtol * |b|, as for NumPy's ``allclose(a, b)``, whose reference is ``b``
    (``diff`` takes the first for the reference). In a type that holds both: dtypes may differ, integers are exact.
    Shapes must be the same. Dicts, lists, tuples and dataclasses by structure, everything else by ``==``.
    """
    _check_tolerances(atol, rtol)
    if not _is_path(a) and not _is_path(b):
        return _same(a, b, float(atol), float(rtol), bool(equal_nan), 0)
    if _are_checkpoints(a, b):
        return checkpoints.diff(os.fspath(a), os.fspath(b)).equal
    return _core.sides_close(_side(a), _side(b), float(atol), float(rtol), bool(equal_nan))


def diff(
    a: Any,
    b: Any,
    atol: float | None = None,
    rtol: float | None = None,
    *,
    ulp: int | None = None,
    equal_nan: bool = False,
    **run_options: Any,
) -> ValueDiff | Diff | CheckpointDiff:
    """How ``b`` differs from the reference ``a``: tensors, nests of them, files, folders of files, or two runs.

    The result prints as a report and is falsy where the two agree. Which one it is depends on what is compared:

    ValueDiff       of tensors, nests and files. Numbers agree where |b - a| <= atol + rtol * |a|, and relative errors
                    are parts of ``a``; without tolerances the dtypes' defaults hold (docs/compare.md)
    Diff            of two runs, their folders or what ``tenscope.open`` gives (docs/diff.md)
    CheckpointDiff  of two checkpoints whose names do not pair their tensors, where no tolerance is given: they are
                    paired by content (docs/checkpoints.md). Takes ``map`` and ``top``

    Options for runs are:

    map        modules or tensors with other names, where they are not found: ["blocks.*=layers.*"]
    tolerance  largest harmless difference, as a part of a tensor's largest value
    noise      a profile of measured noise, or False for none (docs/noise.md)
    strict     renamed modules, and what is on one side only, are differences too
    prefix     a run that ends earlier than the other is no difference
    rows       pair rows (tokens) by these recorded integers: "request,position" (docs/engines.md)
    top        how many differences the report shows
    ranks      only these ranks
    budget     what each module adds to the error (docs/budget.md)
    executor   compare ranks on a cluster (docs/parallel.md)
    progress   called with the part that is done, 0 to 1
    """
    has_tolerance = (atol, rtol, ulp, equal_nan) != (None, None, None, False)
    is_mapped = bool(run_options.get("map")) and not (_is_run(a) and _is_run(b))
    if _is_path(a) and _is_path(b) and not has_tolerance and (is_mapped or _are_checkpoints(a, b)):
        return checkpoints.diff(os.fspath(a), os.fspath(b), **run_options)
    if _is_run(a) or _is_run(b):
        for run, other in ((a, b), (b, a)):
            if _is_run(run) and not _is_run(other) and (not _is_path(other) or os.path.isfile(other)):
                raise UsageError(f"a run is compared with a run: {_shown(run)} is one, {_shown(other)} is not")
        if has_tolerance:
            raise UsageError("two runs are compared by tolerance=, not by atol, rtol, ulp or equal_nan")
        return runs.diff(a, b, **run_options)
    if run_options:
        raise TypeError(f"diff() got options that only two runs take: {', '.join(sorted(run_options))}")
    _check_tolerances(atol or 0.0, rtol or 0.0)
    tolerances = (atol, rtol, ulp, bool(equal_nan))
    if _is_path(a) and _is_path(b):
        return ValueDiff(_core.diff_paths(os.fspath(a), os.fspath(b), *tolerances))
    return ValueDiff(_core.diff_sides(_side(a), _side(b), *tolerances))


class ValueDiff:
    """How two things differ. Falsy where they agree; prints as a report; of two tensors, measures are attributes."""

    def __init__(self, native: _core.ValueDiff):
        self._native = native
        self._dict: dict[str, Any] | None = None

    def __bool__(self) -> bool:
        return self._native.is_different

    @property
    def equal(self) -> bool:
        return not self._native.is_different

    def report(self, top: int = 10) -> str:
        """The report with the ``top`` worst differences; 0 for all."""
        return self._native.text(top)

    def to_json(self) -> str:
        """One JSON document, described in docs/compare.md."""
        return self._native.json()

    def to_dict(self) -> dict[str, Any]:
        if self._dict is None:
            self._dict = json.loads(self._native.json(), object_hook=_revive_float)
        return self._dict

    @property
    def entries(self) -> list[dict[str, Any]]:
        return self.to_dict()["entries"]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        data = self.to_dict()
        if self._native.is_single_tensor:
            tensor = data["entries"][0]["tensor"]
            if name in tensor and name not in ("a", "b"):
                return tensor[name]
        if name in data:
            return data[name]
        raise AttributeError(f"this comparison has no measure {name!r}")

    def __dir__(self) -> list[str]:
        measures = self.entries[0]["tensor"] if self._native.is_single_tensor else self.to_dict()
        return sorted({*super().__dir__(), *measures})

    def __str__(self) -> str:
        return self.report().rstrip("\n")

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return markup.styled(self._native.html(10))


def _revive_float(pairs: dict[str, Any]) -> Any:
    if len(pairs) == 1 and isinstance(pairs.get("float"), str):
        return float(pairs["float"])
    return pairs


def _check_tolerances(atol: float, rtol: float) -> None:
    for tolerance in (atol, rtol):
        if isinstance(tolerance, str) or not hasattr(tolerance, "__float__"):
            raise TypeError(f"a tolerance is a number, not {tolerance!r}")
    if not atol >= 0 or not rtol >= 0:
        raise UsageError(f"a tolerance must not be negative: atol {atol}, rtol {rtol}")


def _is_path(x: Any) -> bool:
    return isinstance(x, (str, os.PathLike))


def _are_checkpoints(a: Any, b: Any) -> bool:
    return _is_path(a) and _is_path(b) and _core.are_checkpoints(os.fspath(a), os.fspath(b))


def _is_run(x: Any) -> bool:
    if not _is_path(x):
        return isinstance(x, (Recording, Run))
    if remote.is_url(x):
        return True
    folder = Path(x)
    return folder.is_dir() and ((folder / "run.json").exists() or any(folder.glob("*/run.json")))


def _shown(x: Any) -> str:
    if _is_path(x):
        return os.fspath(x) + (", a file," if os.path.isfile(x) else "")
    return str(x.path) if _is_run(x) else f"the {type(x).__name__}"


def _side(x: Any) -> _core.Side:
    if not _is_path(x):
        return _core.side_from_object(plain(x), _reduce)
    path = os.fspath(x)
    if not os.path.exists(path):
        raise NotFoundError(f"cannot compare: no such file: {path}")
    return _core.side_from_file(path)


def _qualified_name(x: Any) -> str:
    module = getattr(x, "__module__", None) or "builtins"
    return f"{module}.{getattr(x, '__qualname__', type(x).__qualname__)}"


def _reduce(x: Any) -> tuple[str, Any, Any]:
    """An object as (type, arguments, state), the way pickle takes it apart."""
    if dataclasses.is_dataclass(x) and not isinstance(x, type):
        return _qualified_name(type(x)), None, _fields(x)
    if isinstance(x, type) or callable(x):
        return _qualified_name(x), None, None
    reducer = copyreg.dispatch_table.get(type(x))
    try:
        parts = reducer(x) if reducer else x.__reduce_ex__(2)
    except Exception:
        return _qualified_name(type(x)), None, {"repr": repr(x)}
    if isinstance(parts, str):
        return f"{type(x).__module__}.{parts}", None, None
    function, args, *rest = parts
    state = rest[0] if rest else None
    if getattr(function, "__name__", "") == "__newobj__":
        return _qualified_name(args[0]), tuple(args[1:]), state
    return _qualified_name(function), tuple(args), state


def _fields(x: Any) -> dict[str, Any]:
    return {field.name: getattr(x, field.name, None) for field in dataclasses.fields(x)}


def _same(a: Any, b: Any, atol: float, rtol: float, equal_nan: bool, depth: int) -> bool:
    if depth > _MAX_DEPTH:
        raise UsageError(f"value refused: nested more than {_MAX_DEPTH} deep, or in itself")
    known, other = entry_of(a), entry_of(b)
    if known or other:
        if known is other and known.compare is not None:
            return bool(known.compare(a, b, atol=atol, rtol=rtol, equal_nan=equal_nan))
        a, b = (known.to_value(a) if known else a), (other.to_value(b) if other else b)
        return _same(a, b, atol, rtol, equal_nan, depth + 1)
    a_is_tensor, b_is_tensor = _core.is_tensor_like(a), _core.is_tensor_like(b)
    if a_is_tensor or b_is_tensor:
        return _same_tensors(a, b, a_is_tensor, b_is_tensor, atol, rtol, equal_nan, depth)
    if isinstance(a, _NUMBERS) and isinstance(b, _NUMBERS):
        return _same_numbers(a, b, atol, rtol, equal_nan)

    def same(x: Any, y: Any) -> bool:
        return _same(x, y, atol, rtol, equal_nan, depth + 1)

    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(value, b[key]) for key, value in a.items())
    for kind in (list, tuple):
        if isinstance(a, kind) and isinstance(b, kind):
            return len(a) == len(b) and all(map(same, a, b))
    if dataclasses.is_dataclass(a) and not isinstance(a, type) and type(a) is type(b):
        return same(_fields(a), _fields(b))
    try:
        return a is b or bool(a == b)
    except Exception:
        return False


def _same_tensors(a, b, a_is_tensor, b_is_tensor, atol, rtol, equal_nan, depth) -> bool:
    for x, y, is_tensor in ((a, b, b_is_tensor), (b, a, a_is_tensor)):
        kind = getattr(getattr(x, "dtype", None), "kind", "")
        if isinstance(kind, str) and kind and kind in "OSUMmVT":
            return is_tensor and _same_plain_arrays(x, y, atol, rtol, equal_nan, depth)
    if a_is_tensor and b_is_tensor:
        return _core.tensors_close(a, b, atol, rtol, equal_nan)
    if isinstance(b if a_is_tensor else a, _NUMBERS):
        return _core.sides_close(_side_of_object(a), _side_of_object(b), atol, rtol, equal_nan)
    return False


def _side_of_object(x: Any) -> _core.Side:
    return _core.side_from_object(x, _reduce)


def _same_plain_arrays(a, b, atol, rtol, equal_nan, depth) -> bool:
    """NumPy arrays of objects, text or dates: element by element, as Python compares them."""
    import numpy

    if tuple(a.shape) != tuple(b.shape):
        return False
    a, b = numpy.asarray(a), numpy.asarray(b)
    if a.dtype.kind != "O" and b.dtype.kind != "O":
        return bool(numpy.all(a == b))
    return all(_same(x, y, atol, rtol, equal_nan, depth + 1) for x, y in zip(a.flat, b.flat, strict=True))


def _same_numbers(a: complex, b: complex, atol: float, rtol: float, equal_nan: bool) -> bool:
    if a == b:
        return True
    if isinstance(a, int) and isinstance(b, int):
        return False
    try:
        x, y = complex(a), complex(b)
    except OverflowError:
        return False
    if cmath.isnan(x) or cmath.isnan(y):
        return equal_nan and cmath.isnan(x) and cmath.isnan(y)
    if not cmath.isfinite(y):
        return False
    if isinstance(a, complex) or isinstance(b, complex):
        return abs(x - y) <= atol + rtol * abs(y)
    difference = abs(a - b) if isinstance(a, float) and isinstance(b, float) else _exact_difference(a, b)
    return difference <= atol + rtol * abs(float(b))


def _exact_difference(a: float, b: float) -> float:
    from fractions import Fraction

    return float("inf") if not cmath.isfinite(a) else float(abs(Fraction(a) - Fraction(b)))
