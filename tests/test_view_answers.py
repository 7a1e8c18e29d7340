"""What `tenscope view` says of tensors: numpy is the judge of every number."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
import tenscope
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from viewer_client import viewing

ml_dtypes = pytest.importorskip("ml_dtypes")

FLOAT32_MAX = float(np.finfo(np.float32).max)
NAMES = ("a", "b", "diff", "rel", "ulp")
BAD_FLOATS = (np.nan, np.inf, -np.inf, 0.0, -0.0)


def random(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def floats(dtype, shape, seed, spread=3.0) -> np.ndarray:
    """Magnitudes over many powers of ten, with every number that is not ordinary."""
    rng = random(seed)
    info = ml_dtypes.finfo(dtype)
    wide = rng.normal(size=shape) * 10.0 ** rng.uniform(-spread, spread, shape)
    array = np.asarray(wide).astype(dtype)
    special = [*BAD_FLOATS, info.max, info.min, info.tiny, -info.tiny, info.smallest_subnormal]
    flat = array.reshape(-1)
    if flat.size > 4 * len(special):
        for value in special:
            flat[rng.integers(flat.size)] = value
    return array


def differing(array: np.ndarray, seed: int) -> np.ndarray:
    """Another tensor: equal in most places, a little off in some, and quite another number in a few."""
    rng = random(seed)
    other = array.copy()
    flat = other.reshape(-1)
    places = rng.permutation(flat.size)[: max(1, flat.size // 3)] if flat.size else []
    for n, i in enumerate(places):
        if array.dtype == bool:
            flat[i] = not flat[i]
        elif np.issubdtype(array.dtype, np.integer):
            flat[i] = flat[i] ^ array.dtype.type(1) if n % 2 else rng.integers(0, 100)
        elif n % 9 == 0:
            flat[i] = BAD_FLOATS[n // 9 % len(BAD_FLOATS)]
        elif n % 2:
            with np.errstate(all="ignore"):
                flat[i] = flat[i] * array.dtype.type(1 + 1e-2)
        else:
            flat[i] = rng.normal()
    return other


def whole_numbers(dtype, shape, seed) -> np.ndarray:
    info = np.iinfo(dtype)
    array = random(seed).integers(info.min, info.max, shape, dtype, endpoint=True)
    array.reshape(-1)[:3] = info.min, info.max, 0
    return array


def make_tensors() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    first: dict[str, np.ndarray] = {}
    for i, name in enumerate(["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]):
        first[name] = whole_numbers(name, (6, 11), i)
    first["int64.beyond"] = np.array([2**53, 2**53 + 1, 2**63 - 1, -(2**63), 2**62 + 1, 0], np.int64)
    first["uint64.beyond"] = np.array([2**53 + 1, 2**64 - 1, 2**63, 2**63 + 1, 0], np.uint64)
    first["bool"] = random(20).integers(0, 2, (6, 11)).astype(bool)
    for i, name in enumerate(["float16", "float32", "float64", "bfloat16", "float8_e5m2"]):
        dtype = getattr(ml_dtypes, name, None) or np.dtype(name)
        first[name] = floats(np.dtype(dtype), (12, 17), 30 + i)
    for i, (name, part) in enumerate({"complex64": "float32", "complex128": "float64"}.items()):
        parts = floats(np.dtype(part), (9, 8, 2), 40 + i)
        first[name] = np.ascontiguousarray(parts).view(name).reshape(9, 8)
    shapes = {"scalar": (), "one": (1,), "row": (5,), "small": (7, 9), "4d": (2, 3, 4, 5)}
    shapes["8d"] = (2, 1, 3, 2, 1, 2, 2, 3)
    for i, (name, shape) in enumerate(shapes.items()):
        first[name] = np.asarray(floats(np.dtype("float32"), shape, 50 + i))
    first["large"] = floats(np.dtype("float32"), (300, 700), 60)
    first["column"] = floats(np.dtype("float64"), (5000, 1), 61)
    first["many rows"] = floats(np.dtype("float16"), (5000, 3), 62)
    first["huge"] = np.array([[1e300, -1e300, 1e39], [3.5e38, 1.0, np.inf]])
    first["tiny"] = np.array([5e-324, -5e-324, 1e-310, 2.2250738585072014e-308, 0.0, -0.0])
    first["all nan"] = np.full((3, 4), np.nan, np.float32)
    first["zeros"] = np.zeros((3, 4), np.float32)
    first["positive"] = random(63).uniform(1, 50, (20, 30)).astype(np.float32)
    first["negative"] = -random(64).uniform(1, 50, (20, 30)).astype(np.float32)
    first["same"] = np.full((4, 4), 2.5, np.float32)
    first["few"] = random(65).integers(-20, 60, (40, 10)).astype(np.int32)
    first["skewed"] = np.exp(random(66).normal(0, 4, (64, 64))).astype(np.float32)
    tensors = {name: (array, differing(array, 1000 + i)) for i, (name, array) in enumerate(first.items())}
    # b - a of complex infinities is a matter of taste: those are equal here.
    for name in ("complex64", "complex128"):
        a, b = tensors[name]
        b[~np.isfinite(a) & ~np.isfinite(b)] = a[~np.isfinite(a) & ~np.isfinite(b)]
    hollow = {"empty": (0,), "no rows": (0, 3), "no columns": (3, 0), "hollow": (2, 0, 4), "hollow.4d": (3, 2, 0, 5)}
    for name, shape in hollow.items():
        tensors[name] = (np.zeros(shape, np.float32),) * 2
    return tensors


TENSORS = make_tensors()
FULL = [name for name, (a, _) in TENSORS.items() if a.size]
FLOATS = [name for name in FULL if TENSORS[name][0].dtype.kind == "f" or "float" in TENSORS[name][0].dtype.name]
REAL = [name for name in FULL if TENSORS[name][0].dtype.kind != "c"]


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    """Two recordings of all tensors, and a viewer of them."""
    folder = tmp_path_factory.mktemp("runs")
    for side, run_name in enumerate(("first", "second")):
        with tenscope.Run(folder, name=run_name, strict=True) as run:
            for name, pair in TENSORS.items():
                run.record(name, pair[side])
            for step in range(5):
                run.record("moving", moving(step, side), step=step)
    with viewing(folder / "first", folder / "second") as viewer:
        events = {name: viewer.event(name) for name in [*TENSORS, "moving"]}
        yield SimpleNamespace(viewer=viewer, events=events, folder=folder)


def moving(step: int, side: int) -> np.ndarray:
    array = random(step).normal(size=(8, 16)) * 10.0**step
    array[0, :step] = np.nan
    return (array + side * (step == 3)).astype(np.float32)


# What numpy says.


def is_nan(x: np.ndarray) -> np.ndarray:
    return np.isnan(x) if x.dtype.kind in "fc" else np.isnan(x.astype(np.float64))


def magnitude(x: np.ndarray) -> np.ndarray:
    """A complex number's, as NaN where a part is."""
    wide = np.asarray(x, np.clongdouble)
    with np.errstate(all="ignore"):
        return np.where(np.isnan(wide), np.nan, np.abs(wide)).astype(np.float64)


def numbers(x: np.ndarray) -> np.ndarray:
    return magnitude(x) if x.dtype.kind == "c" else x.astype(np.float64)


def ordered(x: np.ndarray) -> list[int]:
    """Floats as integers in the same order, one apart where they are neighbours."""
    bits = np.ascontiguousarray(x).view(f"u{x.itemsize}").reshape(-1)
    sign = 1 << (8 * x.itemsize - 1)
    return [-(int(n) & (sign - 1)) if int(n) & sign else int(n) for n in bits]


def look(of: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """What is shown of a pair, as doubles."""
    if of in ("a", "b"):
        return numbers(a if of == "a" else b)
    nan_a, nan_b = is_nan(a), is_nan(b)
    with np.errstate(all="ignore"):
        equal = (a == b) | (nan_a & nan_b)
        if of == "ulp":
            steps = [float(abs(y - x)) for x, y in zip(ordered(a), ordered(b), strict=True)]
            value = np.array(steps).reshape(a.shape)
            value = np.where(np.isinf(numbers(a)) | np.isinf(numbers(b)), np.inf, value)
        elif a.dtype.kind in "iub":
            exact = [float(int(y) - int(x)) for x, y in zip(a.reshape(-1), b.reshape(-1), strict=True)]
            value = np.array(exact).reshape(a.shape)
        elif a.dtype.kind == "c":
            value = magnitude(b.astype(np.clongdouble) - a.astype(np.clongdouble))
        else:
            value = b.astype(np.float64) - a.astype(np.float64)
        if of == "rel":
            size = numbers(a)
            value = np.where((size == 0) | np.isinf(size), np.inf, np.abs(value) / np.abs(size))
    return np.where(equal, 0.0, np.where(nan_a | nan_b, np.nan, value))


def to_float32(x: np.ndarray) -> np.ndarray:
    limited = np.where(np.isfinite(x), np.clip(x, -FLOAT32_MAX, FLOAT32_MAX), x)
    return limited.astype(np.float32)


def flags_of(x: np.ndarray, is_pair: bool) -> int:
    found = np.isnan(x).any() * 1 + np.isposinf(x).any() * 2 + np.isneginf(x).any() * 4
    return int(found + (is_pair and (x != 0).any()) * 8)


def reduced(matrix: np.ndarray, height: int, width: int, is_pair: bool) -> dict[str, np.ndarray]:
    """The planes of a matrix in height x width cells, each by itself."""
    rows = [i * matrix.shape[0] // height for i in range(height + 1)]
    cols = [i * matrix.shape[1] // width for i in range(width + 1)]
    planes = {name: np.full((height, width), np.nan) for name in ("min", "max", "mean")}
    flags = np.zeros((height, width), np.uint8)
    for i in range(height):
        for j in range(width):
            block = matrix[rows[i] : rows[i + 1], cols[j] : cols[j + 1]]
            flags[i, j] = flags_of(block, is_pair)
            finite = block[np.isfinite(block)]
            if finite.size:
                with np.errstate(over="ignore"):
                    mean = float(np.mean(finite.astype(np.longdouble)))
                planes["min"][i, j], planes["max"][i, j], planes["mean"][i, j] = finite.min(), finite.max(), mean
    return {name: to_float32(plane) for name, plane in planes.items()} | {"flags": flags}


def check_planes(tile, matrix: np.ndarray, of: str) -> None:
    """A tile against all elements that it stands for."""
    is_pair = of not in ("a", "b")
    height, width = tile.height, tile.width
    is_exact = (height, width) == matrix.shape
    assert tile.exact is is_exact
    if is_exact:
        expected = {"value": to_float32(matrix)}
        bits = np.isnan(matrix) * 1 + np.isposinf(matrix) * 2 + np.isneginf(matrix) * 4 + (is_pair & (matrix != 0)) * 8
        expected["flags"] = bits.astype(np.uint8)
    else:
        expected = reduced(matrix, height, width, is_pair)
    assert list(tile.planes) == list(expected)
    for name, plane in expected.items():
        if name == "mean":
            scale = np.abs(np.where(np.isfinite(matrix), matrix, 0)).max(initial=0)
            np.testing.assert_allclose(tile.mean, plane, rtol=1e-5, atol=1e-12 * scale)
        else:
            np.testing.assert_array_equal(tile.planes[name], plane, err_msg=name)


def check_scale(scale: dict, matrix: np.ndarray) -> None:
    finite = matrix[np.isfinite(matrix)]
    assert scale["nan"] == np.isnan(matrix).sum() and scale["zero"] == (matrix == 0).sum()
    assert scale["pos_inf"] == np.isposinf(matrix).sum() and scale["neg_inf"] == np.isneginf(matrix).sum()
    if not finite.size:
        assert [scale[name] for name in ("min", "max", "abs", "p999")] == ["nan"] * 4
        return
    sizes = np.sort(np.abs(finite))
    assert (scale["min"], scale["max"], scale["abs"]) == (finite.min(), finite.max(), sizes[-1])
    assert scale["p999"] == sizes[-(-999 * sizes.size // 1000) - 1]
    assert scale["p999"] == np.quantile(sizes, 0.999, method="inverted_cdf")


def matrix_of(array: np.ndarray) -> np.ndarray:
    """The last two axes, 0 in the others."""
    return array.reshape(1, -1) if array.ndim < 2 else array[(0,) * (array.ndim - 2)]


def kinds(name: str) -> list[str]:
    return [of for of in NAMES if of != "ulp" or name in FLOATS]


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
