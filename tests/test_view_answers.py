"""What `tenscope view` says of tensors: numpy is the judge of every number."""

from __future__ import annotations

import numpy as np
import pytest
import tenscope
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from viewed_tensors import (
    FLOATS,
    FULL,
    NAMES,
    TENSORS,
    check_planes,
    check_scale,
    kinds,
    look,
    matrix_of,
    ordered,
    random,
    seeing,
)
from viewer_client import viewing


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    with seeing(tmp_path_factory.mktemp("runs")) as now:
        yield now


# Tiles.


@pytest.mark.parametrize("name", FULL)
def test_an_exact_tile_is_every_element(seen, name):
    for of in kinds(name):
        matrix = matrix_of(look(of, *TENSORS[name]))
        tile = seen.viewer.tile(event=seen.events[name], of=of, h=4096, w=4096, cols="0:4000", rows="0:4000")
        check_planes(tile, matrix[:4000, :4000], of)
        assert tile.header["shape"] == list(TENSORS[name][0].shape)
        assert tile.header["dtype"] == TENSORS[name][0].dtype.name
        assert (tile.of_rows, tile.of_cols) == matrix.shape
        check_scale(tile.scale, matrix)


@pytest.mark.parametrize("size", [(1, 1), (2, 3), (5, 4), (7, 1)])
@pytest.mark.parametrize("name", FULL)
def test_a_reduced_tile_is_of_all_elements_of_each_cell(seen, name, size):
    for of in kinds(name):
        matrix = matrix_of(look(of, *TENSORS[name]))
        tile = seen.viewer.tile(event=seen.events[name], of=of, h=size[0], w=size[1], scale=0)
        assert (tile.height, tile.width) == (min(size[0], matrix.shape[0]), min(size[1], matrix.shape[1]))
        assert "scale" not in tile.header
        check_planes(tile, matrix, of)


@pytest.mark.parametrize("of", NAMES)
def test_a_large_tile(seen, of):
    matrix = look(of, *TENSORS["large"])
    check_planes(seen.viewer.tile(event=seen.events["large"], of=of, h=64, w=100), matrix, of)
    check_planes(seen.viewer.tile(event=seen.events["large"], of=of, t=1, h=64, w=100), matrix.T, of)
    part = seen.viewer.tile(event=seen.events["large"], of=of, rows="37:299", cols="13:650", h=50, w=60)
    check_planes(part, matrix[37:299, 13:650], of)
    assert (part.rows, part.cols) == ([37, 299], [13, 650])
    check_scale(part.scale, matrix)


@pytest.mark.parametrize("name", [name for name in TENSORS if name not in FULL])
def test_a_tensor_without_elements(seen, name):
    array = TENSORS[name][0]
    for more in ({}, {"t": 1}, {"fold": 1}, {"of": "diff"}, {"of": "rel", "scale": 0}):
        tile = seen.viewer.tile(event=seen.events[name], **more)
        assert 0 in (tile.height, tile.width) and tile.shape == list(array.shape)
        assert all(plane.size == 0 for plane in tile.planes.values())
    if array.ndim <= 2:
        rows, cols = matrix_of(array).shape
        tile = seen.viewer.tile(event=seen.events[name])
        assert (tile.of_rows, tile.of_cols) == (rows, cols)
    assert seen.viewer.json("histogram", event=seen.events[name])["counts"] == []
    assert seen.viewer.json("find", event=seen.events[name], what="bad") == {"index": None, "count": 0}
    assert seen.viewer.json("tolerance", event=seen.events[name])["mismatches"] == 0
    for axis, size in enumerate(array.shape):
        assert seen.viewer.json("profile", event=seen.events[name], axis=axis)["size"] == size


@st.composite
def slices(draw, shape):
    """What may stand between the brackets with at most two axes left, and the axes that are left."""
    kept = draw(st.sets(st.integers(0, len(shape) - 1), max_size=2)) if shape else set()
    parts = []
    for axis, size in enumerate(shape):
        bounds = st.one_of(st.just(""), st.integers(-size - 1, size + 1).map(str))
        if axis in kept:
            steps = st.sampled_from(["", ":2", ":-1", ":-2", ":3"])
            parts.append(f"{draw(bounds)}:{draw(bounds)}{draw(steps)}")
        else:
            parts.append(str(draw(st.integers(-size, size - 1))))
    tail = 0
    while tail < len(parts) and parts[-1 - tail] == ":" and draw(st.booleans()):
        tail += 1  # what is not named is taken whole
    words = parts[: len(parts) - tail]
    if tail and draw(st.booleans()):
        words.append("...")
    text = ",".join(words)
    return text, sorted(kept)


@st.composite
def looks(draw):
    name = draw(st.sampled_from(["4d", "8d", "small", "row", "scalar", "float16", "int64", "complex64", "bool"]))
    a = TENSORS[name][0]
    of = draw(st.sampled_from(kinds(name)))
    text, kept = draw(slices(a.shape))
    more = {"slice": text} if text else {}
    if draw(st.integers(0, 4)) == 0:
        more, kept = {"fold": 1}, None
    if draw(st.booleans()):
        more["t"] = 1
    sizes = {"h": draw(st.integers(1, 6)), "w": draw(st.integers(1, 6))} if draw(st.booleans()) else {}
    return name, of, more | sizes, kept


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), asked=looks())
@example(data=None, asked=("4d", "a", {"slice": "1,...,2"}, [1, 2]))
@example(data=None, asked=("8d", "diff", {"slice": "...,0,0,:,:,0,1"}, None))
def test_any_slice_is_what_numpy_cuts(seen, data, asked):
    name, of, more, kept = asked
    whole = look(of, *TENSORS[name])
    if "fold" in more:
        matrix = whole.reshape(-1, whole.shape[-1]) if whole.ndim else whole.reshape(1, 1)
        kept = list(range(whole.ndim))
    elif "slice" in more:
        matrix = eval(f"whole[{more['slice']}]", {"whole": whole})
        matrix = matrix.reshape(1, -1) if matrix.ndim < 2 else matrix
    else:
        matrix, kept = matrix_of(whole), list(range(whole.ndim))[-2:]
    if matrix.ndim > 2:
        assert seen.viewer.refusal("tile", event=seen.events[name], of=of, **more)[0] == 400
        return
    axes = None
    if kept is not None:
        axes = [-1, *kept] if len(kept) == 1 else [-1, -1] if not kept else kept if len(kept) == 2 else [-2, kept[-1]]
    if "t" in more:
        matrix, axes = matrix.T, axes and axes[::-1]
    rows, cols = (0, matrix.shape[0]), (0, matrix.shape[1])
    if data is not None and data.draw(st.booleans()):
        rows = tuple(sorted(data.draw(st.tuples(*[st.integers(0, matrix.shape[0])] * 2))))
        cols = tuple(sorted(data.draw(st.tuples(*[st.integers(0, matrix.shape[1])] * 2))))
        more = more | {"rows": f"{rows[0]}:{rows[1]}", "cols": f"{cols[0]}:{cols[1]}"}
    part = matrix[slice(*rows), slice(*cols)]
    tile = seen.viewer.tile(event=seen.events[name], of=of, **more)
    assert (tile.of_rows, tile.of_cols) == matrix.shape
    assert (tile.rows, tile.cols) == (list(rows), list(cols))
    assert tile.height == min(more.get("h", 512), part.shape[0])
    assert tile.width == min(more.get("w", 512), part.shape[1])
    if axes is not None:
        assert tile.axes == axes
    check_scale(tile.scale, matrix)
    if part.size:
        check_planes(tile, part, of)
    asked_elements = {key: value for key, value in more.items() if key not in ("h", "w")}
    text = seen.viewer.elements(event=seen.events[name], of=of, **asked_elements)
    assert len(text) == part.shape[0] and all(len(row) == part.shape[1] for row in text)
    if of in ("a", "b") and (dtype := TENSORS[name][0].dtype).kind == "f":
        read = np.array(text, np.float64).reshape(part.shape).astype(dtype)
        np.testing.assert_array_equal(read.astype(np.float64), part)


def test_more_than_a_million_elements_have_p999_to_one_percent(tmp_path):
    array = random(5).standard_cauchy((1100, 1000)).astype(np.float32)
    with tenscope.Run(tmp_path, name="run") as run:
        run.record("x", array)
    with viewing(tmp_path / "run") as viewer:
        tile = viewer.tile(event=viewer.event("x"), h=64, w=64)
    expected = np.quantile(np.abs(array), 0.999, method="inverted_cdf")
    assert tile.scale["p999"] == pytest.approx(expected, rel=0.01)
    assert tile.scale["abs"] == np.abs(array).max()
    check_planes(tile, array.astype(np.float64), "a")


# Elements.


def read_back(text: str, dtype: np.dtype):
    if dtype.kind == "b":
        assert text in ("True", "False")
        return np.bool_(text == "True")
    if dtype.kind in "iu":
        return dtype.type(int(text))
    if dtype.kind == "c":
        return dtype.type(complex(text.replace(" ", "")))
    return np.array(float(text)).astype(dtype)[()]


def same_number(x, y) -> bool:
    """The same bits, but for what kind of NaN it is."""
    parts = [(x.real, y.real), (x.imag, y.imag)] if isinstance(x, np.complexfloating) else [(x, y)]
    return all((p != p and q != q) or np.asarray(p).tobytes() == np.asarray(q).tobytes() for p, q in parts)


@pytest.mark.parametrize("name", FULL)
def test_an_elements_text_reads_back_as_the_same_number(seen, name):
    for side, of in enumerate("ab"):
        array = TENSORS[name][side]
        matrix = matrix_of(array)[:40, :40]
        text = seen.viewer.elements(event=seen.events[name], of=of, rows="0:40", cols="0:40")
        for row, expected in zip(text, matrix, strict=True):
            for said, number in zip(row, expected, strict=True):
                assert same_number(read_back(said, array.dtype), number), (said, number)


def bits_of(number) -> str:
    """Hexadecimal digits, the sign's first."""
    parts = [number.real, number.imag] if isinstance(number, np.complexfloating) else [number]
    return " ".join(np.asarray(part).tobytes()[::-1].hex() for part in parts)


@pytest.mark.parametrize("name", FULL)
def test_an_element_has_its_bits_and_its_difference(seen, name):
    a, b = TENSORS[name]
    diff, rel = look("diff", a, b), look("rel", a, b)
    ulp = look("ulp", a, b) if name in FLOATS else None
    for flat in {*range(min(a.size, 12)), *random(1).integers(0, a.size, 12).tolist()}:
        index = np.unravel_index(flat, a.shape)
        said = seen.viewer.json("element", event=seen.events[name], index=",".join(map(str, index)))
        assert said["index"] == [int(i) for i in index]
        for side, number in (("a", a[index]), ("b", b[index])):
            assert said[side]["bits"] == bits_of(number) and said[side]["dtype"] == a.dtype.name
            assert same_number(read_back(said[side]["text"], a.dtype), number)
        assert float(said["relative"]) == pytest.approx(rel[index], nan_ok=True, rel=1e-12)
        if a.dtype.kind in "iub":
            assert int(said["difference"]) == int(b[index]) - int(a[index])
        elif a.dtype.kind == "f":
            assert same_number(np.float64(said["difference"]), np.float64(diff[index])) or diff[index] == 0
        if ulp is None:
            assert said["ulp"] is None
        else:
            assert said["ulp"] == (ulp[index] if np.isfinite(ulp[index]) else None)


def test_ulps_are_exact_beyond_2_to_the_53(seen, tmp_path):
    arrays = np.array([1.0, -1.0, 0.0]), np.array([-1.0, 1e300, 5e-324])
    for name, array in zip("ab", arrays, strict=True):
        np.save(tmp_path / f"{name}.npy", array)
    with viewing(tmp_path / "a.npy", tmp_path / "b.npy") as viewer:
        for i, (x, y) in enumerate(zip(ordered(arrays[0]), ordered(arrays[1]), strict=True)):
            assert viewer.json("element", event=0, index=i)["ulp"] == abs(y - x)
        texts = viewer.elements(event=0, of="ulp")[0]
        assert [int(text) for text in texts] == [abs(y - x) for x, y in zip(*map(ordered, arrays), strict=True)]


# The other side, and what cannot be asked.


def test_events_of_the_second_side_show_the_same_pair(seen):
    for name in ("small", "int64.beyond", "complex64"):
        event = seen.viewer.event(name, "b")
        for of in kinds(name):
            own = seen.viewer.get("tile", event=event, side="b", of=of)
            assert own == seen.viewer.get("tile", event=seen.events[name], of=of)
        own = seen.viewer.get("tolerance", event=event, side="b")
        assert own == seen.viewer.get("tolerance", event=seen.events[name])


@pytest.mark.parametrize(
    "what, parameters, word",
    [
        ("tile", {"of": "c"}, "a, b, diff, rel, ulp"),
        ("tile", {"slice": "0,0,0"}, "slice"),
        ("tile", {"slice": "9,:"}, "9"),
        ("tile", {"slice": "::0,:"}, "0"),
        ("tile", {"slice": "x"}, "x"),
        ("tile", {"slice": ":,:", "fold": 1}, "fold"),
        ("tile", {"h": 0}, "h"),
        ("tile", {"w": 4097}, "4096"),
        ("tile", {"h": "1e3"}, "h"),
        ("tile", {"rows": "5"}, "rows"),
        ("tile", {"cols": "5:2"}, "cols"),
        ("tile", {"side": "c"}, "side"),
        ("elements", {"rows": "x:y"}, "rows"),
        ("element", {"index": "1"}, "index"),
        ("element", {"index": "1,2,3"}, "index"),
        ("element", {"index": "7,0"}, "7"),
        ("element", {"index": "0,"}, "index"),
        ("element", {"index": "-1,0"}, "index"),
        ("element", {}, "index"),
        ("find", {"what": "gold"}, "gold"),
        ("find", {}, "what"),
        ("find", {"what": "nan", "of": "diff"}, "nan"),
        ("find", {"what": "nan", "from": "1"}, "from"),
        ("tolerance", {"rtol": "x"}, "rtol"),
        ("tolerance", {"rtol": -1}, "negative"),
        ("tolerance", {"atol": "nan"}, "atol"),
        ("profile", {}, "axis"),
        ("profile", {"axis": 2}, "axis"),
        ("profile", {"axis": -1}, "axis"),
        ("histogram", {"of": "x"}, "of"),
        ("histograms", {"steps": "many"}, "steps"),
        ("event", {"event": "one"}, "event"),
        ("event", {"event": -1}, "event"),
        ("events", {}, "name"),
        ("series", {"names": "0", "stat": "luck"}, "luck"),
        ("series", {"names": "0,x"}, "names"),
        ("series", {"names": "123456"}, "names"),
        ("series", {"names": "0;1"}, "names"),
    ],
)  # fmt: skip
def test_a_wrong_request_is_answered_with_a_sentence(seen, what, parameters, word):
    status, sentence = seen.viewer.refusal(what, **({"event": seen.events["small"]} | parameters))
    assert status == 400 and word in sentence, sentence


def test_what_is_not_there_is_404(seen):
    viewer = seen.viewer
    for what in ("event", "tile", "element", "find", "histogram", "histograms"):
        for number in (10**6, 2**32, 2**62):
            assert viewer.refusal(what, event=number, index="0", what="nan")[0] == 404
    assert viewer.refusal("events", name="nobody")[0] == 404
    assert viewer.refusal("nothing")[0] == 404
    assert viewer.refusal("runs")[0] == 404
    assert viewer.refusal("elements", event=seen.events["large"])[0] == 400


def test_ulps_need_floats_of_one_type(seen):
    for name in ("int32", "bool", "complex64"):
        status, sentence = seen.viewer.refusal("tile", event=seen.events[name], of="ulp")
        assert status == 400 and "floating-point type" in sentence
