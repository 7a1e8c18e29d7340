"""Is what `tenscope diff` says of two runs true? Judged by a slow oracle that knows only the journal and numpy."""

from __future__ import annotations

import base64
import json
import math
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import tenscope
from hand_written_run import strip_sketches
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tenscope import testing

TENSCOPE = Path(sys.executable).parent / "tenscope"
EXIT_CODES = {"equal": 0, "noise": 0, "differs": 1, "unknown": 1, "nothing": 2}

DTYPES = ["float64", "float32", "float16", "int64", "uint64", "int32", "uint8", "bool", "complex64"]


def journal(run: Path) -> list[dict]:
    """The values of a run, in its order, as the journal has them; tensors with their elements where they were kept."""
    values = []
    segments: dict[Path, bytes] = {}
    events = [json.loads(line) for line in (run / "rank-0" / "journal.jsonl").read_text().splitlines()]
    for event in events:
        if event["kind"] != "value":
            continue
        value = {"key": (event["name"], event["step"], event["call"])}
        if "tensor" in event:
            tensor = event["tensor"]
            value |= {"dtype": tensor["dtype"], "shape": tensor["shape"], "fp": tensor["fp"], "array": None}
            value["stats"] = tensor["stats"]
            if math.prod(tensor["shape"]) > 1 and "nan" not in tensor["stats"]:  # then the sketch has the elements
                value["array"] = elements_of_sketch(tensor, events)
            if "at" in tensor:
                number, offset, size = tensor["at"]
                path = run / "rank-0" / f"{number:06}.safetensors"
                segment = segments.setdefault(path, path.read_bytes())
                array = np.frombuffer(segment[offset : offset + size], tensor["dtype"])
                value["array"] = array.reshape(tensor["shape"])
        else:
            number = event["value"]
            value["number"] = float(number["float"]) if isinstance(number, dict) else number
        values.append(value)
    return values


def elements_of_sketch(tensor: dict, events: list[dict]) -> np.ndarray:
    text, dtype = tensor["sketch"], np.dtype(tensor["dtype"])
    if isinstance(text, int):
        text = next(event for event in events if event["seq"] == text)["tensor"]["sketch"]
    width = {8: 8, 4: 5}.get(dtype.itemsize // (2 if dtype.kind == "c" else 1), 4)
    raw = np.frombuffer(base64.b64decode(text), np.uint8).reshape(-1, width)
    sums = np.zeros((math.prod(tensor["shape"]) * (2 if dtype.kind == "c" else 1), 8), np.uint8)
    sums[: len(raw), 8 - width :] = raw
    numbers = sums.view("<f8").reshape(-1)
    return (numbers.view(np.complex128) if dtype.kind == "c" else numbers).astype(dtype).reshape(tensor["shape"])


def exact(x) -> object:
    """A number that compares exactly with every other; NaN as a word."""
    if isinstance(x, complex | np.complexfloating):
        return (exact(x.real), exact(x.imag))
    if isinstance(x, float | np.floating) and not np.isfinite(x):
        return str(float(x))
    return Fraction(x.item() if isinstance(x, np.generic) else x)


def same_elements(a: np.ndarray, b: np.ndarray) -> bool:
    return a.shape == b.shape and all(exact(x) == exact(y) for x, y in zip(a.flat, b.flat, strict=True))


def judge(a: dict, b: dict) -> str:
    """What is true of one pair: equal, same (values), differs, unknown, or close (for the noise judge to say)."""
    if "number" in a or "number" in b:
        x, y = a.get("number"), b.get("number")
        if "number" not in a or "number" not in b:
            number, tensor = (x, b) if "number" in a else (y, a)
            if math.prod(tensor["shape"]) != 1 or np.dtype(tensor["dtype"]).kind == "c" or isinstance(number, str):
                return "differs"
            if tensor["array"] is None:
                return "anything but equal"
            element = tensor["array"].reshape(-1)[0]
            if exact(number) == exact(element):
                return "same"
            return "close" if abs(float(element) - float(number)) <= 1e-6 * abs(float(number)) else "differs"
        if type(x) is type(y) and (x == y) and str(x) == str(y):
            return "equal"
        if isinstance(x, str) or isinstance(y, str):
            return "differs"
        return "same" if exact(x) == exact(y) else "differs"
    if (a["dtype"], a["shape"], a["fp"]) == (b["dtype"], b["shape"], b["fp"]):
        return "equal"
    if a["shape"] != b["shape"]:
        return "differs"
    if a["array"] is None or b["array"] is None:
        if a["dtype"] == b["dtype"] and np.dtype(a["dtype"]).kind in "iub":
            return "differs"
        return "anything but equal"
    if same_elements(a["array"], b["array"]):
        return "same"
    x, y = a["array"], b["array"]
    if x.dtype.kind in "iub" and y.dtype.kind in "iub":
        return "differs"
    wide = np.complex256 if "c" in (x.dtype.kind, y.dtype.kind) else np.longdouble
    with np.errstate(all="ignore"):
        largest, apart = np.abs(x.astype(wide)).max(), np.abs(y.astype(wide) - x.astype(wide))
        return "close" if np.isfinite(apart).all() and apart.max() <= 1e-6 * largest else "differs"


@st.composite
def tensors(draw):
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    shape = draw(st.sampled_from([(), (1,), (5,), (2, 3), (0,), (3, 0)]))
    seed = draw(st.integers(0, 3))
    random = np.random.default_rng(seed)
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        array = random.integers(info.min, info.max, size=shape, dtype=dtype, endpoint=True)
    elif dtype.kind == "b":
        array = random.integers(0, 2, size=shape).astype(bool)
    else:
        array = random.normal(size=shape).astype(dtype)
    return np.asarray(array)


numbers = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.sampled_from([2**60, 2**60 + 1, 2**53, 2**53 + 1, 0, 1]),
    st.booleans(),
    st.sampled_from([0.0, -0.0, 1.0, 0.5, 2.0**60, float("inf")]),
)


@st.composite
def changed(draw, value):
    """The same value, or what may become of it."""
    how = draw(st.sampled_from(["same"] * 4 + ["element", "dtype", "zero sign", "payload", "flip", "other", "noise"]))
    if not isinstance(value, np.ndarray):
        return draw(numbers) if how != "same" else value
    array = value.copy()
    if how == "element" and array.size:
        change = {"b": np.logical_not, "i": lambda x: x ^ 1, "u": lambda x: x ^ 1}.get(array.dtype.kind)
        array.reshape(-1)[:1] = (change or (lambda x: x * 3 + 1))(array.reshape(-1)[:1])
    elif how == "dtype" and array.dtype.kind in "bf":
        wider = {"bool": "int64", "float32": "float64", "float16": "float32"}
        array = array.astype(wider.get(array.dtype.name, array.dtype))
    elif how == "zero sign" and array.size and array.dtype.kind == "f":
        array.reshape(-1)[0] = -0.0
        value.reshape(-1)[0] = 0.0
    elif how == "payload" and array.size and array.dtype == np.float32:
        value.reshape(-1).view(np.uint32)[0] = 0x7FC00000
        array.reshape(-1).view(np.uint32)[0] = 0x7FC00001
    elif how == "flip" and array.ndim:
        array = array[::-1].copy()
    elif how == "other":
        array = draw(tensors())
    elif how == "noise" and array.dtype == np.float32 and array.size:
        array = np.nextafter(array, np.float32(2), dtype=np.float32)
    return array


@st.composite
def programs(draw):
    """Two lists of (name, step, value, only statistics)."""
    a, b = [], []
    for step in range(draw(st.integers(0, 2))):
        for name in draw(st.permutations(["u", "v", "w"]))[: draw(st.integers(1, 3))]:
            value = draw(st.one_of(tensors(), numbers))
            other = draw(changed(value))
            where = draw(st.sampled_from(["both"] * 8 + ["a", "b"]))
            stats = draw(st.sampled_from([(False, False)] * 3 + [(True, True), (False, True)]))
            if where != "b":
                a.append((name, step, value, stats[0]))
            if where != "a":
                b.append((name, step, other, stats[1]))
    return a, b


def record(folder: Path, program: list) -> Path:
    with tenscope.Run(folder.parent, name=folder.name, strict=True) as run:
        for name, step, value, is_stats in program:
            more = {"values": "stats"} if is_stats and isinstance(value, np.ndarray) else {}
            run.record(name, value, step=step, **more)
    return folder


def truth(a: list[dict], b: list[dict]) -> dict:
    """What must be said of two runs: the verdict, the number of equal pairs, the first difference."""
    in_b = {value["key"]: i for i, value in enumerate(b)}
    pairs = [(i, in_b[value["key"]]) for i, value in enumerate(a) if value["key"] in in_b]
    judged = [(judge(a[i], b[j]), a[i]["key"]) for i, j in pairs]
    first = next((key for verdict, key in judged if verdict == "differs"), None)
    paired = {key[0] for _, key in judged}
    more_a = any(value["key"][0] in paired for value in a[max((i for i, _ in pairs), default=-1) + 1 :])
    more_b = any(value["key"][0] in paired for value in b[max((j for _, j in pairs), default=-1) + 1 :])
    return {
        "pairs": len(pairs),
        "equal": sum(verdict == "equal" for verdict, _ in judged),
        "first": first,
        "may_be_earlier": {key for verdict, key in judged if verdict in ("anything but equal", "close")},
        "is_cut": more_a != more_b,
        "verdicts": {verdict for verdict, _ in judged},
        "one_sided": len(a) != len(pairs) or len(b) != len(pairs),
    }


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(programs())
def test_what_is_said_of_two_runs_is_true(tmp_path_factory, programs):
    folder = tmp_path_factory.mktemp("pair")
    a, b = (record(folder / name, program) for name, program in zip("ab", programs, strict=True))
    true = truth(journal(a), journal(b))
    done = subprocess.run([TENSCOPE, "diff", "--json", a, b], capture_output=True, text=True)
    said = json.loads(done.stdout)
    assert done.returncode == EXIT_CODES[said["verdict"]], done.stderr
    # Names that are left over on both sides may be paired by their contents: only more pairs, never fewer.
    extra = said["counts"]["compared"] - true["pairs"]
    assert extra >= 0
    if extra or said["renamed"]:
        return
    assert said["counts"]["bit_equal"] == true["equal"]
    if true["pairs"] == 0:
        assert said["verdict"] == "nothing"
        return
    if true["first"] is not None or true["is_cut"]:
        assert said["verdict"] == "differs"
    else:
        sure = true["verdicts"] <= {"equal", "same", "close"}
        assert not sure or said["verdict"] in ("equal", "noise")
        if "anything but equal" in true["verdicts"]:
            assert said["verdict"] != "equal"
    if true["first"] is not None:
        found = said["first_divergence"]
        named = (found["name"], found["step"], found["call"])
        assert named == true["first"] or named in true["may_be_earlier"]
    is_equal = true["verdicts"] == {"equal"} and not true["one_sided"]
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


def test_a_nan_on_one_side_says_nothing_of_zeros(tmp_path):
    values = np.random.default_rng(0).normal(size=(8, 16)).astype(np.float32)
    other = values.copy()
    other[2, 3] = np.nan
    for name, tensor in (("a", values), ("b", other)):
        with tenscope.Run(tmp_path, name=name, metadata=False) as run:
            run.record("x", tensor, values="stats")
    said = str(tenscope.diff(tmp_path / "a", tmp_path / "b"))
    assert "0 NaN in the first, 1 in the second" in said and "all zero" not in said, said
