"""What `tenscope view` finds and measures in tensors: numpy is the judge of every number."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest
from viewed_tensors import FLOATS, FULL, TENSORS, kinds, look, moving, numbers, random, seeing
from viewer_client import viewing


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    with seeing(tmp_path_factory.mktemp("runs")) as now:
        yield now


# Finding.


def wanted_places(what: str, a, b, of="a", rtol=1e-5, atol=1e-8) -> np.ndarray:
    """Where it is, as places in C order."""
    values = look(of, a, b).reshape(-1)
    difference = look("diff", a, b).reshape(-1)
    if what == "mismatch":
        with np.errstate(all="ignore"):
            size, reference = np.abs(difference), np.abs(numbers(a)).reshape(-1)
            close = (size <= atol + rtol * reference) & np.isfinite(reference) & np.isfinite(size)
            found = (difference != 0) & ~close
    elif what in ("largest", "worst"):
        values = np.abs(difference if what == "worst" else values)
        finite = values[np.isfinite(values)]
        found = values == finite.max() if finite.size else np.zeros(values.shape, bool)
        if what == "worst" and not (finite > 0).any():
            found = difference != 0
    else:
        tests = {"nan": np.isnan, "inf": np.isinf, "bad": lambda x: ~np.isfinite(x)}
        found = difference != 0 if what == "differs" else tests[what](values)
    return np.flatnonzero(found)


def next_place(places: np.ndarray, start: int | None, back: bool, size: int) -> int | None:
    """Round the end once, and the start itself last."""
    if not places.size:
        return None
    if start is None:
        return int(places[-1] if back else places[0])
    away = (start - places) % size if back else (places - start) % size
    return int(places[np.argmin(np.where(away == 0, size, away))])


@pytest.mark.parametrize("name", [*FULL])
@pytest.mark.parametrize("what", ["worst", "largest", "nan", "inf", "bad", "differs", "mismatch"])
def test_the_next_one_is_found(seen, name, what):
    a, b = TENSORS[name]
    rng = random(len(name))
    for of in ("a", "b") if what in ("largest", "nan", "inf", "bad") else ("a",):
        places = wanted_places(what, a, b, of, rtol=1e-2, atol=1e-3)
        starts = [None, 0, a.size - 1, *rng.integers(0, a.size, 2).tolist(), *places[:1].tolist()]
        for start in starts:
            for back in (False, True):
                more = {"from": ",".join(map(str, np.unravel_index(start, a.shape)))} if start is not None else {}
                if back:
                    more["back"] = 1
                if what == "mismatch":
                    more |= {"rtol": 1e-2, "atol": 1e-3}
                said = seen.viewer.json("find", event=seen.events[name], what=what, of=of, **more)
                expected = next_place(places, start, back, a.size)
                assert said["count"] == len(places), (of, start, back)
                if expected is None:
                    assert said["index"] is None
                else:
                    assert said["index"] == [int(i) for i in np.unravel_index(expected, a.shape)], (of, start, back)
        quick = seen.viewer.json("find", event=seen.events[name], what=what, of=of, count=0, rtol=1e-2, atol=1e-3)
        assert quick["count"] is None
        assert (quick["index"] is None) is (len(places) == 0)


@pytest.mark.parametrize("rtol, atol", [(1e-5, 1e-8), (0, 0), (1e-2, 0), (0, 0.5), (1e-3, 1e-3), (10, 1)])
@pytest.mark.parametrize("name", FULL)
def test_the_tolerance_is_that_of_isclose(seen, name, rtol, atol):
    a, b = TENSORS[name]
    said = seen.viewer.json("tolerance", event=seen.events[name], rtol=rtol, atol=atol)
    assert said["count"] == a.size
    assert said["mismatches"] == len(wanted_places("mismatch", a, b, rtol=rtol, atol=atol))
    found = seen.viewer.json("find", event=seen.events[name], what="mismatch", rtol=rtol, atol=atol)
    assert found["count"] == said["mismatches"]
    if a.dtype.kind in "f" and "huge" not in name:  # numpy's own infinities overflow
        with np.errstate(all="ignore"):
            close = np.isclose(b.astype("f8"), a.astype("f8"), rtol=rtol, atol=atol, equal_nan=True)
        assert said["mismatches"] == (~close).sum()
    if (rtol, atol) == (1e-5, 1e-8):
        assert seen.viewer.json("tolerance", event=seen.events[name]) == said


@pytest.mark.parametrize("name", ["positive", "negative", "few", "skewed"])
def test_the_measures_of_a_pair(seen, name):
    a, b = (np.where(np.isfinite(x), x, 0) if x.dtype.kind == "f" else x for x in TENSORS[name])
    with_nan = TENSORS[name]
    finite = np.isfinite(numbers(with_nan[0])) & np.isfinite(numbers(with_nan[1]))
    x, y = numbers(a)[finite], numbers(b)[finite]
    said = seen.viewer.json("tolerance", event=seen.events[name])
    assert said["max_abs"] == pytest.approx(np.abs(y - x).max())
    assert said["mean_abs"] == pytest.approx(np.abs(y - x).mean())
    if name in FLOATS:
        steps = look("ulp", *with_nan)
        assert said["max_ulps"] == steps[np.isfinite(steps)].max()
    else:
        assert said["max_ulps"] is None
    if finite.all():
        assert said["relative_l2"] == pytest.approx(np.linalg.norm(y - x) / np.linalg.norm(x))
        assert said["cosine"] == pytest.approx(x @ y / np.linalg.norm(x) / np.linalg.norm(y))


# Along an axis.


@pytest.mark.parametrize("name", [name for name in FULL if TENSORS[name][0].ndim])
def test_a_profile_is_over_all_other_axes(seen, name):
    for of in kinds(name):
        values = look(of, *TENSORS[name])
        for axis in range(values.ndim):
            said = seen.viewer.json("profile", event=seen.events[name], of=of, axis=axis)
            rows = np.moveaxis(values, axis, 0).reshape(values.shape[axis], -1)
            assert said["size"] == len(rows)
            assert said["bin"] == math.ceil(len(rows) / 4096)
            groups = [rows[i : i + said["bin"]] for i in range(0, len(rows), said["bin"])]
            assert {len(said[key]) for key in ("min", "max", "mean", "l2", "bad")} == {len(groups)}
            finite = [group[np.isfinite(group)] for group in groups]
            assert said["bad"] == [int(group.size - x.size) for group, x in zip(groups, finite, strict=True)]
            check_column(said["min"], [x.min() if x.size else np.nan for x in finite], 0)
            check_column(said["max"], [x.max() if x.size else np.nan for x in finite], 0)
            wide = [x.astype(np.longdouble) for x in finite]
            scale = max((float(np.abs(x).max()) for x in wide if x.size), default=0)
            check_column(said["mean"], [float(x.mean()) if x.size else np.nan for x in wide], 1e-12 * scale)
            with np.errstate(over="ignore"):
                norms = [float(np.sqrt((x**2).sum())) if x.size else np.nan for x in wide]
            if scale < 1e150:
                check_column(said["l2"], norms, 1e-160)
            if of in ("a", "b"):
                assert said["differing"] is None
            else:
                assert said["differing"] == [int((group != 0).sum()) for group in groups]


def check_column(said, expected, atol) -> None:
    np.testing.assert_allclose(np.array(said, np.float64), np.array(expected, np.float64), rtol=1e-9, atol=atol)


# Histograms.


def is_linear(values: np.ndarray, is_whole: bool) -> bool:
    if not values.size:
        return False
    if is_whole and values.max() - values.min() < 100:
        return True
    sizes = np.abs(values)
    return ((values > 0).all() or (values < 0).all()) and sizes.max() <= 100 * sizes.min()


def check_bins(edges, counts, values: np.ndarray, linear: bool) -> None:
    """Counts against numpy's of the same edges; `values` are finite and not zero."""
    edges = np.array(edges)
    if not values.size:
        assert not any(counts)
        return
    assert len(counts) == len(edges) - 1 <= 128 and (np.diff(edges) > 0).all()
    if linear:
        expected = np.histogram(values, edges)[0]
    else:  # an element on an edge belongs to the bin farther from zero
        expected = np.histogram(values[values > 0], edges)[0]
        expected = expected + np.histogram(-values[values < 0], -edges[::-1])[0][::-1]
    assert counts == expected.tolist()


def smallest_normal(array: np.ndarray) -> float:
    dtype = np.dtype({"complex64": "f4", "complex128": "f8"}.get(array.dtype.name, array.dtype))
    is_float = dtype.kind == "f" or "float" in dtype.name
    return float(ml_dtypes.finfo(dtype).smallest_normal) if is_float else 0.0


def check_census(said, values: np.ndarray, subnormal_below: float) -> np.ndarray:
    assert (said["nan"], said["zero"]) == (np.isnan(values).sum(), (values == 0).sum())
    assert (said["pos_inf"], said["neg_inf"]) == (np.isposinf(values).sum(), np.isneginf(values).sum())
    assert said["subnormal"] == ((values != 0) & (np.abs(values) < subnormal_below)).sum()
    assert sum(said["counts"]) + sum(said[key] for key in ("nan", "pos_inf", "neg_inf", "zero")) == values.size
    return values[np.isfinite(values) & (values != 0)]


@pytest.mark.parametrize("name", FULL)
def test_a_histogram_has_every_element_in_its_bin(seen, name):
    for of in kinds(name):
        a, b = TENSORS[name]
        values = look(of, a, b)
        said = seen.viewer.json("histogram", event=seen.events[name], of=of)
        finite = check_census(said, values, smallest_normal(a) if of in ("a", "b") else 0)
        is_whole = of == "ulp" or (of != "rel" and a.dtype.kind in "iub")
        every = finite  # the two of a pair share their bins
        if of in ("a", "b"):
            every = np.concatenate([look(side, a, b).ravel() for side in ("a", "b")])
            every = every[np.isfinite(every) & (every != 0)]
        check_bins(said["edges"], said["counts"], finite, is_linear(every, is_whole))


def test_equal_widths_where_all_are_of_one_size(tmp_path):
    np.savez(tmp_path / "alone.npz", **{name: TENSORS[name][0] for name in ("positive", "negative", "few")})
    with viewing(tmp_path / "alone.npz") as viewer:
        for name in ("positive", "negative"):
            values = TENSORS[name][0]
            said = viewer.json("histogram", event=viewer.event(name))
            assert len(said["counts"]) == 100
            np.testing.assert_allclose(said["edges"], np.linspace(float(values.min()), float(values.max()), 101))
        few = viewer.json("histogram", event=viewer.event("few"))
    whole = TENSORS["few"][0]
    assert len(few["counts"]) == whole.max() - whole.min() + 1
    places = np.array(few["edges"])[:-1] + 0.5
    assert few["counts"] == [int((whole == n).sum()) if n else 0 for n in places]


@pytest.mark.parametrize("name", ["few", "positive"])
def test_the_two_of_a_pair_share_their_bins(seen, name):
    a, b = (seen.viewer.json("histogram", event=seen.events[name], of=of) for of in "ab")
    assert a["edges"] == b["edges"] and a["counts"] != b["counts"]


def test_histograms_over_steps_share_their_edges(seen):
    said = seen.viewer.json("histograms", event=seen.events["moving"])
    assert [step["step"] for step in said["steps"]] == list(range(5)) and said["left_out"] == 0
    every = np.concatenate([moving(step, side) for step in range(5) for side in (0, 1)]).astype(np.float64)
    linear = is_linear(every[np.isfinite(every) & (every != 0)], False)
    for entry in said["steps"]:
        for side, one in ((0, entry), (1, entry["b"])):
            values = moving(entry["step"], side).astype(np.float64)
            check_bins(said["edges"], one["counts"], check_census(one, values, 2.0**-126), linear)
        event = seen.viewer.json("event", event=entry["event"])
        assert (event["name"], event["step"]) == ("moving", entry["step"])
    few = seen.viewer.json("histograms", event=seen.events["moving"], steps=2)
    assert len(few["steps"]) == 2 and few["left_out"] == 3
