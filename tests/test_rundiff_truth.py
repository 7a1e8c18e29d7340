"""Is what `tenscope diff` says of two runs true? Judged by a slow oracle that knows only the journal and numpy."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import tenscope
from hand_written_run import strip_sketches
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tenscope import testing

TENSCOPE = Path(sys.executable).parent / "tenscope"
EXIT_CODES = {"equal": 0, "noise": 0, "differs": 1, "unknown": 1, "nothing": 2}

DTYPES = ["float64", "float32", "float16", "bfloat16", "int64", "uint64", "int32", "int8", "uint8", "bool", "complex64"]
DTYPES += ["complex128"]
# What docs/diff.md allows as rounding, as a part of the largest value; by the coarser of two dtypes.
TOLERANCE = {"float64": 5.6e-14, "float32": 3e-5, "float16": 1.5e-3, "bfloat16": 1.2e-2}
TOLERANCE |= {"complex64": TOLERANCE["float32"], "complex128": TOLERANCE["float64"]}


def journal(run: Path, rank: int, program: list) -> list[dict]:
    """The values of one rank, in its order, as the journal has them; with their elements as the program had them."""
    folder = run / f"rank-{rank}"
    values = []
    events = [json.loads(line) for line in (folder / "journal.jsonl").read_text().splitlines()]
    events = [event for event in events if event["kind"] == "value"]
    for event, (name, step, array, _) in zip(events, program, strict=True):
        assert (event["name"], event["step"]) == (name, step)
        value = {"key": (rank, name, step, event["call"])}
        if "tensor" in event:
            tensor = event["tensor"]
            value |= {"dtype": tensor["dtype"], "shape": tensor["shape"], "fp": tensor["fp"], "array": array}
            assert (tensor["dtype"], tuple(tensor["shape"])) == (array.dtype.name, array.shape)
            path = folder / f"{tensor['at'][0]:06}.safetensors" if "at" in tensor else None
            value["has_bytes"] = path is not None and path.exists()
            if value["has_bytes"]:
                _, offset, size = tensor["at"]
                assert path.read_bytes()[offset : offset + size] == array.tobytes()
        else:
            number = event["value"]
            if isinstance(number, dict):
                number = int(number["int"]) if "int" in number else float(number["float"])
            value["number"] = number
        values.append(value)
    return values


def exact(x) -> object:
    """A number that compares exactly with every other; NaN as a word."""
    if isinstance(x, complex | np.complexfloating):
        return (exact(x.real), exact(x.imag))
    if isinstance(x, np.generic):
        x = int(x) if x.dtype.kind in "iu" else bool(x) if x.dtype.kind == "b" else float(x)
    return str(x) if isinstance(x, float) and not math.isfinite(x) else Fraction(x)


def same_elements(a: np.ndarray, b: np.ndarray) -> bool:
    return a.shape == b.shape and all(exact(x) == exact(y) for x, y in zip(a.flat, b.flat, strict=True))


def judge_numbers(x, y) -> str:
    if isinstance(x, str | None) or isinstance(y, str | None):
        return "equal" if type(x) is type(y) and x == y else "differs"
    if type(x) is type(y) and str(x) == str(y):
        return "equal"
    if exact(x) == exact(y):
        return "same"
    if not (isinstance(x, float) and isinstance(y, float) and math.isfinite(x) and math.isfinite(y)):
        return "differs"
    return by_size(abs(Fraction(x) - Fraction(y)), abs(Fraction(x)), "float32")


def by_size(apart, largest, dtype: str) -> str:
    """Rounding noise is what is far below the tolerance; what is a little below may be a systematic difference."""
    if apart > 1.01 * TOLERANCE[dtype] * largest:
        return "differs"
    return "close" if apart <= TOLERANCE[dtype] / 100 * largest else "close or differs"


def judge(a: dict, b: dict) -> str:
    """What is true of a pair: equal, same (values), close (rounding), differs, or one of two."""
    if "number" in a and "number" in b:
        return judge_numbers(a["number"], b["number"])
    if "number" in a or "number" in b:
        number, tensor = (a["number"], b) if "number" in a else (b["number"], a)
        is_alone = math.prod(tensor["shape"]) == 1 and not tensor["dtype"].startswith("complex")
        if not is_alone or isinstance(number, str | None):
            return "differs"
        element = tensor["array"].reshape(-1)[0]
        element = int(element) if element.dtype.kind in "iub" else float(element)
        verdict = judge_numbers(number, element)
        return "same" if verdict == "equal" else verdict
    if (a["dtype"], a["shape"], a["fp"]) == (b["dtype"], b["shape"], b["fp"]):
        assert a["array"].tobytes() == b["array"].tobytes()
        return "equal"
    x, y = a["array"], b["array"]
    if a["shape"] != b["shape"]:
        return "differs"
    if same_elements(x, y):
        return "same"
    if not {x.dtype.name, y.dtype.name} <= set(TOLERANCE):
        return "differs"
    x, y = x.reshape(-1), y.reshape(-1)
    finite = np.array([np.isfinite(u) and np.isfinite(v) for u, v in zip(x, y, strict=True)])
    if not same_elements(x[~finite], y[~finite]):
        return "differs"
    coarser = max(x.dtype.name, y.dtype.name, key=TOLERANCE.get)
    wide = np.clongdouble if "complex" in (x.dtype.name + y.dtype.name) else np.longdouble
    x, y = (
        values[finite].astype(np.complex128 if wide is np.clongdouble else np.float64).astype(wide) for values in (x, y)
    )
    return by_size(np.abs(y - x).max(), np.abs(x).max(), coarser)


@st.composite
def tensors(draw):
    dtype = as_dtype(draw(st.sampled_from(DTYPES)))
    shape = draw(st.sampled_from([(), (1,), (5,), (2, 3), (0,), (3, 0), (1, 4), (9, 30)]))
    random = np.random.default_rng(draw(st.integers(0, 3)))
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        array = random.integers(info.min, info.max, size=shape, dtype=dtype, endpoint=True)
    elif dtype.kind == "b":
        array = random.integers(0, 2, size=shape).astype(bool)
    else:
        array = random.normal(size=shape).astype(dtype)
        if dtype.kind == "c":
            array = (array + 1j * random.normal(size=shape)).astype(dtype)
        for index in draw(st.lists(st.integers(0, 4), max_size=2)):
            if index < array.size:
                array.reshape(-1)[index] = draw(st.sampled_from([math.nan, math.inf, -math.inf, 0.0, -0.0, 1e-7]))
    return np.asarray(array)


def as_dtype(name: str) -> np.dtype:
    return np.dtype(getattr(ml_dtypes, name, name))


numbers = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.sampled_from([2**60, 2**60 + 1, 2**53, 2**53 + 1, 0, 1, 2**64 - 1, 2**70, 2**70 + 1, -(2**70)]),
    st.booleans(),
    st.sampled_from([0.0, -0.0, 1.0, 0.5, 2.0**60, 2.0**70, float("inf"), -float("inf"), float("nan"), 1e-300]),
    st.sampled_from(["", "1", None]),
)


def wider(array: np.ndarray, to: str) -> np.ndarray:
    with np.errstate(all="ignore"):
        return array.astype(as_dtype(to))


@st.composite
def changed(draw, value):
    """The same value, or what may become of it; and what it was."""
    how = draw(st.sampled_from(["same"] * 6 + ["element", "dtype", "zero sign", "payload", "flip", "other", "noise"]))
    if not isinstance(value, np.ndarray):
        if how == "same":
            return value, value
        if how == "dtype" and not isinstance(value, str | None):
            as_array = np.array(value)
            return value, as_array if as_array.dtype.kind in "iufb" else float(value)
        return value, draw(numbers)
    value, array = value.copy(), value.copy()
    kind = "f" if value.dtype.name == "bfloat16" else value.dtype.kind
    if how == "element" and array.size:
        index = draw(st.integers(0, array.size - 1))
        change = {"b": np.logical_not, "i": lambda x: x ^ 1, "u": lambda x: x ^ 1}.get(kind, lambda x: x * 3 + 1)
        with np.errstate(all="ignore"):
            array.reshape(-1)[index] = change(array.reshape(-1)[index])
    elif how == "dtype" and kind != "c":
        array = wider(array, draw(st.sampled_from([name for name in DTYPES if not name.startswith("complex")])))
    elif how == "zero sign" and array.size and kind == "f":
        array.reshape(-1)[0], value.reshape(-1)[0] = -0.0, 0.0
    elif how == "payload" and array.size and array.dtype == np.float32:
        value.reshape(-1).view(np.uint32)[0] = 0x7FC00000
        array.reshape(-1).view(np.uint32)[0] = 0x7FC00001
    elif how == "flip" and array.ndim:
        array = array[::-1].copy()
    elif how == "other":
        array = draw(tensors())
    elif how == "noise" and array.dtype == np.float32 and array.size:
        array = np.nextafter(array, np.float32(2), dtype=np.float32)
    return value, array


@st.composite
def programs(draw):
    """Of each rank two lists of (name, step, value, only statistics); and whether b's segments are lost."""
    ranks = []
    for _ in range(draw(st.sampled_from([1, 1, 1, 2]))):
        a, b = [], []
        for step in range(draw(st.integers(0, 2))):
            for name in draw(st.permutations(["u", "v", "w"]))[: draw(st.integers(1, 3))]:
                value, other = draw(changed(draw(st.one_of(tensors(), numbers))))
                where = draw(st.sampled_from(["both"] * 8 + ["a", "b"]))
                stats = draw(st.sampled_from([(False, False)] * 3 + [(True, True), (False, True), (True, False)]))
                if where != "b":
                    a.append((name, step, value, stats[0]))
                if where != "a":
                    b.append((name, step, other, stats[1]))
        ranks.append((a, b))
    return ranks, draw(st.sampled_from([False] * 5 + [True]))


def record(folder: Path, ranks: list) -> Path:
    for rank, program in enumerate(ranks):
        more = {"rank": rank, "world_size": len(ranks)} if len(ranks) > 1 else {}
        with tenscope.Run(folder.parent, name=folder.name, strict=True, metadata=False, **more) as run:
            for name, step, value, is_stats in program:
                more = {"values": "stats"} if is_stats and isinstance(value, np.ndarray) else {}
                run.record(name, value, step=step, **more)
    return folder


def truth(a: list[dict], b: list[dict]) -> dict:
    """What is true of one rank of two runs: the pairs, the number of equal ones, where the first difference is."""
    in_b = {value["key"]: i for i, value in enumerate(b)}
    pairs = [(i, in_b[value["key"]]) for i, value in enumerate(a) if value["key"] in in_b]
    judged = [(judge(a[i], b[j]), a[i]["key"]) for i, j in pairs]
    seen = [all(value.get("has_bytes", True) for value in (a[i], b[j])) for i, j in pairs]
    surely = [key for (verdict, key), is_seen in zip(judged, seen, strict=True) if verdict == "differs" and is_seen]
    first = surely[0] if surely else None
    paired = {key[1] for _, key in judged}
    more_a = any(value["key"][1] in paired for value in a[max((i for i, _ in pairs), default=-1) + 1 :])
    more_b = any(value["key"][1] in paired for value in b[max((j for _, j in pairs), default=-1) + 1 :])
    return {
        "pairs": len(pairs),
        "equal": sum(verdict == "equal" for verdict, _ in judged),
        "first": first,
        "may_be_first": {key for verdict, key in judged if "differs" in verdict},
        "is_cut": more_a != more_b,
        "verdicts": {verdict for verdict, _ in judged},
        "unseen": {verdict for (verdict, _), is_seen in zip(judged, seen, strict=True) if not is_seen},
        "one_sided": len(a) != len(pairs) or len(b) != len(pairs),
    }


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(programs())
def test_what_is_said_of_two_runs_is_true(tmp_path_factory, programs):
    folder = tmp_path_factory.mktemp("pair")
    ranks, are_segments_lost = programs
    a, b = (
        record(folder / name, list(programs)) for name, programs in zip("ab", zip(*ranks, strict=True), strict=True)
    )
    if are_segments_lost:
        for segment in b.glob("rank-*/*.safetensors"):
            segment.unlink()
    true = [truth(journal(a, rank, x), journal(b, rank, y)) for rank, (x, y) in enumerate(ranks)]
    done = subprocess.run([TENSCOPE, "diff", "--json", a, b], capture_output=True, text=True)
    said = json.loads(done.stdout)
    assert done.returncode == EXIT_CODES[said["verdict"]], done.stderr
    # Names that are left over on both sides may be paired by their contents: only more pairs, never fewer.
    pairs = sum(rank["pairs"] for rank in true)
    extra = said["counts"]["compared"] - pairs
    assert extra >= 0
    if extra or said["renamed"]:
        return
    assert said["counts"]["bit_equal"] == sum(rank["equal"] for rank in true)
    if pairs == 0:
        assert said["verdict"] == "nothing"
        return
    verdicts, unseen = (set().union(*(rank[key] for rank in true)) for key in ("verdicts", "unseen"))
    is_cut = any(rank["is_cut"] for rank in true)
    if is_cut or any(rank["first"] for rank in true):
        assert said["verdict"] == "differs"
    elif not any("differs" in verdict for verdict in verdicts):
        assert said["verdict"] != "differs"
        is_rank_missing = any(bool(x) != bool(y) for x, y in ranks)
        assert unseen or is_rank_missing or said["verdict"] != "unknown"
    elif "differs" in verdicts:  # only statistics are there, which may tell it
        assert said["verdict"] in ("differs", "unknown")
    places = [origin for origin in said["origins"] if origin["cause"] != "end"]
    for place in places:
        key = (place["rank"], place["name"], place["step"], place["call"])
        assert key in true[key[0]]["may_be_first"]
    for number, rank in enumerate(true):
        if rank["first"] is not None:
            earlier = [place for place in places if place["rank"] == number]
            assert earlier, "a difference on this rank is not told"
    is_equal = verdicts == {"equal"} and not any(rank["one_sided"] for rank in true)
    assert (said["verdict"] == "equal") == is_equal


def two_runs(folder: Path, x, y, **more) -> tuple[Path, Path]:
    for name, value in (("a", x), ("b", y)):
        with tenscope.Run(folder, name=name, strict=True) as run:
            run.record("x", value, **more)
    return folder / "a", folder / "b"


def test_statistics_alone_never_say_equal(tmp_path):
    x = np.random.default_rng(0).normal(size=100).astype(np.float32)
    a, b = two_runs(tmp_path, x, x[::-1].copy(), values="stats")
    strip_sketches(a)
    found = tenscope.diff(a, b)
    assert found and found.verdict == "unknown" and found.counts.unknown == 1
    assert "unknown" in str(found).splitlines()[0] and "equal" not in str(found).splitlines()[0]
    done = subprocess.run([TENSCOPE, "diff", tmp_path / "a", tmp_path / "b"], capture_output=True, text=True)
    assert done.returncode == 1


@pytest.mark.parametrize(("x", "y", "verdict"), [(2**60, 2**60 + 1, "differs"), (True, 1.0, "noise"), (1, 1, "equal")])
def test_numbers_are_compared_exactly(tmp_path, x, y, verdict):
    found = tenscope.diff(*two_runs(tmp_path, x, y))
    assert found.verdict == verdict
    assert ("bit for bit" in str(found)) == (verdict == "equal")


def test_an_int64_tensor_counts_its_elements(tmp_path):
    a, b = two_runs(tmp_path, np.array([2**60, 5]), np.array([2**60 + 1, 5]))
    found = tenscope.diff(a, b).first_divergence
    assert found.metrics.differing == 1
    assert (found.metrics.worst_a, found.metrics.worst_b) == (2**60, 2**60 + 1)
    assert "1 of 2 elements" in str(tenscope.diff(a, b))


def test_nothing_compared_is_not_the_same(tmp_path):
    for name in ("empty", "other"):
        tenscope.Run(tmp_path, name=name).close()
    with tenscope.Run(tmp_path, name="full") as run:
        run.record("x", np.arange(3.0))
    for a, b in (("empty", "other"), ("empty", "full"), ("full", "empty")):
        done = subprocess.run([TENSCOPE, "diff", tmp_path / a, tmp_path / b], capture_output=True, text=True)
        assert done.returncode == 2 and "nothing to compare" in done.stdout
        with pytest.raises(AssertionError, match="nothing to compare"):
            testing.assert_same_run(tmp_path / a, tmp_path / b)


def test_a_run_that_ends_earlier_is_a_difference(tmp_path):
    for name, steps in (("long", 3), ("short", 1)):
        with tenscope.Run(tmp_path, name=name) as run:
            for step in range(steps):
                run.record("loss", np.float32(step), step=step)
    long, short = tmp_path / "long", tmp_path / "short"
    for a, b, word in ((long, short, "second"), (short, long, "first")):
        found = tenscope.diff(a, b)
        assert found.first_divergence.cause == "end"
        assert str(found).startswith(f"first divergence: the {word} run ends")
        assert not tenscope.diff(a, b, prefix=True)
        with pytest.raises(AssertionError):
            testing.assert_same_run(b, a)
        testing.assert_same_run(b, a, prefix=True)


def test_an_end_is_told_as_one_also_where_it_is_not_the_first(tmp_path):
    for name, steps, factor in (("long", 3, 1), ("short", 1, 2)):
        with tenscope.Run(tmp_path, name=name) as run:
            for step in range(steps):
                run.record("x", np.arange(4.0) * factor, step=step)
    text = str(tenscope.diff(tmp_path / "long", tmp_path / "short"))
    (line,) = [line for line in text.splitlines() if line.startswith("  the model  x ")]
    assert line.endswith("the second run ends"), text


def test_a_nan_on_one_side_says_nothing_of_zeros(tmp_path):
    values = np.random.default_rng(0).normal(size=(8, 16)).astype(np.float32)
    other = values.copy()
    other[2, 3] = np.nan
    for name, tensor in (("a", values), ("b", other)):
        with tenscope.Run(tmp_path, name=name, metadata=False) as run:
            run.record("x", tensor, values="stats")
    said = str(tenscope.diff(tmp_path / "a", tmp_path / "b"))
    assert "0 NaN in the first, 1 in the second" in said and "all zero" not in said, said
