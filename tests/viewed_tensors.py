"""Tensors of all types and shapes in pairs, and what numpy says of them: the judge of the viewer's answers."""

from __future__ import annotations

import contextlib
from pathlib import Path
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import tenscope
from viewer_client import viewing

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


@contextlib.contextmanager
def seeing(folder: Path):
    """Two recordings of all tensors, and a viewer of them."""
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
