"""compare and diff against references: Python integers and fractions, NumPy in float64, torch."""

import dataclasses
import json
import subprocess
import sys
from collections import OrderedDict
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import tenscope
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

torch = pytest.importorskip("torch")

INTS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
FLOATS = ["float16", "float32", "float64"]


def exact_close(value, reference, atol, rtol, equal_nan=False):
    """The definition, in exact arithmetic."""
    x, y = value.item(), reference.item()
    if x != x or y != y:
        return equal_nan and x != x and y != y
    if x in (float("inf"), float("-inf")) or y in (float("inf"), float("-inf")):
        return x == y
    return abs(Fraction(x) - Fraction(y)) <= Fraction(atol) + Fraction(rtol) * abs(Fraction(y))


def is_a_matter_of_rounding(x, y, atol):
    """Whether a difference in float64 falls on the tolerance although the exact one does not."""
    x, y = x.item(), y.item()
    if not np.isfinite(float(x)) or not np.isfinite(float(y)) or not isinstance(x + y, float):
        return False
    beyond = abs(Fraction(x) - Fraction(y)) - Fraction(atol)
    return beyond != 0 and abs(beyond) <= Fraction(atol) * Fraction(2) ** -52


def arrays(dtypes, shape):
    return st.sampled_from(dtypes).flatmap(
        lambda dtype: hnp.arrays(dtype, shape, elements=hnp.from_dtype(np.dtype(dtype)))
    )


@settings(max_examples=300, deadline=None)
@given(
    st.data(),
    hnp.array_shapes(min_dims=0, max_dims=3, max_side=5),
    st.sampled_from([0.0, 1.0, 0.5, 2.0**-20]),
    st.booleans(),
)
def test_any_pair_of_dtypes_against_exact_arithmetic(data, shape, tolerance, equal_nan):
    a = data.draw(arrays(INTS + FLOATS + ["bool"], shape))
    b = data.draw(arrays(INTS + FLOATS + ["bool"], shape))
    if data.draw(st.booleans()):
        with np.errstate(all="ignore"):
            b = a.astype(b.dtype)
    assume(not any(is_a_matter_of_rounding(x, y, tolerance) for x, y in zip(a.flat, b.flat, strict=True)))
    expected = all(
        exact_close(x, y, tolerance, 0, equal_nan) for x, y in zip(a.reshape(-1), b.reshape(-1), strict=True)
    )
    assert tenscope.compare(a, b, atol=tolerance, rtol=0, equal_nan=equal_nan) is expected
    found = tenscope.diff(a, b, atol=tolerance, rtol=0, equal_nan=equal_nan)
    assert bool(found) is not expected
    assert found.mismatches == sum(
        not exact_close(x, y, tolerance, 0, equal_nan) for x, y in zip(a.reshape(-1), b.reshape(-1), strict=True)
    )


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_strides_and_directions(data):
    base = data.draw(arrays(["float32", "int64"], (6, 7)))
    index = data.draw(hnp.basic_indices((6, 7), allow_ellipsis=False))
    a = base[index]
    copy = np.array(a, copy=True, order="C")
    assert tenscope.compare(a, copy, equal_nan=True)
    assert tenscope.compare(np.asarray(a).T, copy.T, equal_nan=True)


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 3000), st.integers(0, 2**32 - 1), st.sampled_from(["float32", "float64", "float16"]))
def test_measures_against_numpy(count, seed, dtype):
    random = np.random.default_rng(seed)
    a = random.normal(size=count).astype(dtype)
    b = (a + random.normal(size=count) * 1e-3 * (random.random(count) < 0.3)).astype(dtype)
    found = tenscope.diff(a, b, atol=1e-4, rtol=1e-3)
    x, y = a.astype(np.float64), b.astype(np.float64)
    error = np.abs(x - y)
    wrong = ~(error <= 1e-4 + 1e-3 * np.abs(x))
    assert found.mismatches == wrong.sum()
    assert found.bit_equal == (a.tobytes() == b.tobytes())
    np.testing.assert_allclose(found.max_abs, error.max())
    np.testing.assert_allclose(found.mean_abs, error.mean(), rtol=1e-12)
    nonzero = x != 0
    if nonzero.any():
        np.testing.assert_allclose(found.max_rel, (error[nonzero] / np.abs(x[nonzero])).max(), rtol=1e-12)
        np.testing.assert_allclose(found.mean_rel, (error[nonzero] / np.abs(x[nonzero])).mean(), rtol=1e-12)
        np.testing.assert_allclose(found.relative_l2, np.linalg.norm(x - y) / np.linalg.norm(x), rtol=1e-12)
        np.testing.assert_allclose(found.cosine, x @ y / np.linalg.norm(x) / np.linalg.norm(y), rtol=1e-12)
    if wrong.any():
        assert found.first["index"] == [int(np.argmax(wrong))]
    if error.max() > 0:
        assert found.worst["index"] == [int(np.argmax(error))]
    bits = {2: np.int16, 4: np.int32, 8: np.int64}[a.dtype.itemsize]

    def ordered(z):
        i = z.view(bits).astype(object)
        return np.where(i < 0, -(i - np.iinfo(bits).min), i)

    ulps = np.sort(np.abs(ordered(a) - ordered(b)))
    assert found.ulps["max"] == ulps[-1]
    median = int(ulps[max(0, -(-count // 2) - 1)])
    assert median <= found.ulps["median"] <= median * 9 / 8
    histogram = found.histogram
    assert histogram["zero"] == (error == 0).sum()
    for decade in histogram["decades"]:
        low, high = 10.0 ** decade["exponent"], 10.0 ** (decade["exponent"] + 1)
        assert decade["count"] == ((error >= low) & (error < high)).sum()


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.integers(-100, 100), st.integers(-100, 100)), min_size=1, max_size=40),
    st.sampled_from(["int8", "int64", "float16", "float32", "float64", "complex128"]),
    st.sampled_from(["int16", "uint64", "float32", "float64"]),
    st.sampled_from([0.0, 0.25, 0.5, 2.0]),
    st.sampled_from([0.0, 1.0]),
)
def test_diff_measures_by_the_first_and_compare_by_the_second(pairs, a_dtype, b_dtype, rtol, atol):
    a = np.array([x for x, _ in pairs]).astype(a_dtype)
    b = np.array([abs(y) for _, y in pairs]).astype(b_dtype)
    x, y = a.astype(np.complex128).real, b.astype(np.float64)  # all of it is exact
    assert tenscope.diff(a, b, atol=atol, rtol=rtol).mismatches == (np.abs(y - x) > atol + rtol * np.abs(x)).sum()
    plain = tenscope.diff(x.tolist(), y.tolist(), atol=atol, rtol=rtol)
    assert plain.different == (np.abs(y - x) > atol + rtol * np.abs(x)).sum()
    is_close = bool(np.allclose(x, y, atol=atol, rtol=rtol))
    assert tenscope.compare(a, b, atol=atol, rtol=rtol) is is_close
    assert tenscope.compare(x.tolist(), y.tolist(), atol=atol, rtol=rtol) is is_close


def test_the_first_is_the_reference(tmp_path):
    """Of 100 and 110 the difference is 10 % of the one and 9.1 % of the other."""
    small, large = np.array([100.0]), np.array([110.0])
    np.save(tmp_path / "small.npy", small)
    np.save(tmp_path / "large.npy", large)
    for a, b in ((small, large), ([100.0], [110.0]), (tmp_path / "small.npy", tmp_path / "large.npy")):
        assert tenscope.diff(a, b, rtol=0.095) and not tenscope.diff(b, a, rtol=0.095)
        assert tenscope.compare(a, b, rtol=0.095) and not tenscope.compare(b, a, rtol=0.095)
    found = tenscope.diff(small, large)
    assert found.max_rel == found.mean_rel == found.relative_l2 == 0.1
    assert (found.worst["a"], found.worst["b"]) == ("100.0", "110.0")
    assert "worst        100.0 became 110.0 at [0]" in str(found)
    assert "0.5 became 0.75" in str(tenscope.diff({"x": 0.5}, {"x": 0.75}))
    zero = tenscope.diff(np.zeros(2), np.array([0.0, 1.0]))
    assert zero.max_rel is None and zero.relative_l2 == float("inf")
    assert command(tmp_path / "small.npy", tmp_path / "large.npy", "--rtol", "0.095").returncode == 1
    assert command(tmp_path / "large.npy", tmp_path / "small.npy", "--rtol", "0.095").returncode == 0


def test_integers_are_exact():
    big = np.array([2**53 + 1])
    assert not tenscope.compare(big, np.array([2.0**53]), atol=0, rtol=0)
    assert not tenscope.compare(np.array([-1]), np.array([2**64 - 1], dtype=np.uint64))
    assert not tenscope.compare(np.array([-128], dtype=np.int8), np.array([127], dtype=np.int8))
    assert tenscope.diff(big, np.array([2**53])).mismatches == 1


def test_broadcasting_is_a_difference():
    assert not tenscope.compare(np.ones(3), np.ones((1, 3)))
    assert not tenscope.compare(np.ones(1), 1.0)
    assert tenscope.compare(np.array(1.0), 1.0)
    assert tenscope.compare(1, torch.tensor(1.0))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.float8_e5m2])
def test_narrow_floats_by_value(dtype):
    x = torch.randn(1000).to(dtype)
    assert tenscope.compare(x, x.float().numpy(), atol=0, rtol=0)
    y = x.clone()
    y[700] = 100.0
    found = tenscope.diff(x, y)
    assert found.mismatches == 1 and found.first["index"] == [700] and found.where == "all of [700]"


def test_complex_by_magnitude():
    a = np.array([3 + 4j, 1j])
    assert tenscope.compare(a, a + 0.3 + 0.4j, atol=0.51, rtol=0)
    assert not tenscope.compare(a, a + 0.3 + 0.4j, atol=0.49, rtol=0)
    assert tenscope.diff(a, a * 1j, atol=0).cosine == pytest.approx(0)


def test_conj_and_grad_views():
    z = torch.randn(5, dtype=torch.complex64)
    assert tenscope.compare(z.conj(), z.conj().resolve_conj().numpy())
    assert tenscope.compare(torch.nn.Parameter(torch.ones(2)), np.ones(2))


@dataclasses.dataclass
class Pair:
    weight: object
    name: str


def test_nests_by_structure():
    a = {"x": [torch.ones(2), (1, 2.0)], "p": Pair(np.zeros(3), "n"), "s": {1, 2}, "none": None}
    b = {"none": None, "s": {2, 1}, "p": Pair(torch.zeros(3), "n"), "x": [np.ones(2), (1, 2.0 + 1e-9)]}
    assert tenscope.compare(a, b) is True
    assert not tenscope.compare(a, {**b, "p": Pair(np.ones(3), "n")})
    assert not tenscope.compare([1, 2], (1, 2))
    assert not tenscope.compare([1], [1, 2])
    assert not tenscope.compare({"a": 1}, {"a": 1, "b": 2})
    assert not tenscope.compare([b"x"], [b"y"])
    assert tenscope.compare(OrderedDict(a=1), {"a": 1.0})
    found = tenscope.diff(a, {**b, "p": Pair(np.ones(3), "n")})
    assert [entry["name"] for entry in found.entries if entry["status"] == "different"] == ["p.weight"]


def test_plain_values():
    assert not tenscope.compare(float("nan"), float("nan"))
    assert tenscope.compare(float("nan"), float("nan"), equal_nan=True)
    assert tenscope.compare(float("inf"), float("inf"))
    assert not tenscope.compare(1.0, float("inf"))
    assert not tenscope.compare(2**53 + 1, 2.0**53, atol=0, rtol=0)
    assert not tenscope.compare(10**30, 10**30 + 1)
    assert tenscope.compare(True, 1)
    assert not tenscope.compare(None, 0)
    assert tenscope.compare(np.array(["a", "b"]), np.array(["a", "b"]))
    assert not tenscope.compare(np.array(["a", "b"]), np.array(["a", "c"]))


def test_a_value_in_itself_is_refused():
    loop = []
    loop.append(loop)
    with pytest.raises(ValueError):
        tenscope.compare(loop, [loop])
    with pytest.raises(ValueError):
        tenscope.diff(loop, loop)


def test_what_cannot_be_read_is_said():
    sparse = torch.eye(3).to_sparse()
    with pytest.raises(tenscope.UnsupportedError):
        tenscope.compare(sparse, sparse)


def test_files_in_any_mixture(tmp_path):
    values = np.arange(12, dtype=np.float32).reshape(3, 4)
    np.save(tmp_path / "x.npy", values)
    torch.save(torch.from_numpy(values), tmp_path / "x.pt")
    torch.save({"w": torch.from_numpy(values), "step": 3}, tmp_path / "d.pt")
    assert tenscope.compare(tmp_path / "x.npy", str(tmp_path / "x.pt")) is True
    assert tenscope.compare(tmp_path / "x.npy", values)
    assert tenscope.compare(torch.from_numpy(values), tmp_path / "x.pt")
    assert tenscope.compare({"w": values, "step": 3}, tmp_path / "d.pt")
    assert not tenscope.compare({"w": values, "step": 4}, tmp_path / "d.pt")
    with pytest.raises(FileNotFoundError):
        tenscope.compare(tmp_path / "none.npy", values)
    (tmp_path / "x.txt").write_text("1")
    with pytest.raises(ValueError):
        tenscope.compare(tmp_path / "x.txt", values)
    assert tenscope.diff(tmp_path / "x.npy", tmp_path / "x.pt").bit_equal


def test_diff_object_and_json():
    a = np.zeros((8, 128), dtype=np.float32)
    b = a.copy()
    b[:, 64:128] = 1
    found = tenscope.diff(a, b)
    assert found and not found.equal
    assert str(found).startswith("different: 512 of 1,024 elements (50 %)")
    assert "all of [:, 64:128]" in str(found)
    tensor = json.loads(found.to_json())["entries"][0]["tensor"]
    assert tensor["mismatches"] == found.mismatches == 512
    assert tensor["axes"][1]["ranges"] == [[64, 128]]
    assert not tenscope.diff(a, a)
    assert str(tenscope.diff(a, a)).startswith("identical")
    with pytest.raises(AttributeError):
        found.no_such_measure  # noqa: B018
    shapes = tenscope.diff(a, a[:4])
    assert shapes and "shape [8, 128] became [4, 128]" in str(shapes)


def test_the_relation_is_told():
    a = np.random.default_rng(0).standard_normal((32, 48)).astype(np.float32)
    found = tenscope.diff(a, np.flip(a, 1))
    assert "relation     b is a, flipped along axis 1" in str(found) and "b = np.flip(a, 1)" in str(found)
    assert found.entries[0]["tensor"]["relation_numpy"] == "b = np.flip(a, 1)"
    assert "b is a, with axes 0 and 1 exchanged" in str(tenscope.diff(a, a.T))
    assert tenscope.diff(a, np.sin(a)).entries[0]["tensor"]["relation"] is None
    many = tenscope.diff([a] * 12, [2 * a] * 12)
    assert sum(entry["tensor"]["relation"] == "b = 2 a" for entry in many.entries) == 8


def test_default_tolerances_follow_the_dtype():
    a = torch.ones(4)
    assert not tenscope.diff(a, a * (1 + 1e-6))
    assert tenscope.diff(a.double(), a.double() * (1 + 1e-6))
    assert not tenscope.diff(a.bfloat16(), a * 1.01)
    assert tenscope.diff(a, a * (1 + 1e-6), atol=0, rtol=0)
    assert not tenscope.diff(a, torch.nextafter(a, a + 1), ulp=1)


def test_one_side_not_finite():
    a = np.array([np.nan, np.inf, 1, np.nan, -np.inf])
    b = np.array([1, 1, np.nan, np.nan, np.inf])
    found = tenscope.diff(a, b)
    assert found.nan == {"only_a": 1, "only_b": 1, "both": 1}
    assert found.inf == {"only_a": 2, "only_b": 1}
    assert found.mismatches == 5


def test_large_ones_use_threads_and_agree():
    a = np.random.default_rng(0).normal(size=4_000_000).astype(np.float32)
    b = a.copy()
    b[3_000_000] += 1
    assert not tenscope.compare(a, b)
    assert tenscope.compare(a, a.copy())
    found = tenscope.diff(a, b)
    assert found.mismatches == 1 and found.where == "all of [3000000]"


def command(*arguments):
    program = Path(sys.prefix) / "bin" / "tenscope"
    if not program.exists():
        pytest.fail("the command line program is not installed: pip install -e .")
    return subprocess.run([program, "diff", *map(str, arguments)], capture_output=True, text=True, timeout=60)


def test_command_line(tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        np.save(tmp_path / folder / "same.npy", np.ones(3))
    np.save(tmp_path / "a" / "other.npy", np.ones(3))
    same = command(tmp_path / "a" / "same.npy", tmp_path / "b" / "same.npy")
    assert (same.returncode, same.stderr) == (0, "")
    assert same.stdout.startswith("identical")
    folders = command(tmp_path / "a", tmp_path / "b", "--json")
    assert folders.returncode == 1
    assert json.loads(folders.stdout)["one_sided"] == 1
    assert command(tmp_path / "a", tmp_path / "none").returncode == 2
    np.save(tmp_path / "x.npy", np.array([1.0, 2.0]))
    np.save(tmp_path / "y.npy", np.array([1.0, 2.1]))
    assert command(tmp_path / "x.npy", tmp_path / "y.npy").returncode == 1
    assert command(tmp_path / "x.npy", tmp_path / "y.npy", "--atol", "0.2").returncode == 0
    assert command(tmp_path / "x.npy", tmp_path / "y.npy", "--rtol", "0.2").returncode == 0
