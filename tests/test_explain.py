"""tenscope.explain and `tenscope explain`. NumPy judges: the statement that is found, evaluated, gives the tensor."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tenscope
from hypothesis import given
from hypothesis import strategies as st

TENSCOPE = Path(sys.executable).parent / "tenscope"


def rebuilt(found, a, b):
    """What the statement makes, and what it should make."""
    names = {"np": np, "a": a, "b": b, **found.arrays}
    if "ml_dtypes" in found.numpy:
        names["ml_dtypes"] = pytest.importorskip("ml_dtypes")
    side, expression = found.numpy.split(" = ", 1)
    return np.asarray(eval(expression, names)), {"a": a, "b": b}[side]


def check(a, b, tolerance=0.0):
    found = tenscope.explain(a, b)
    assert found, f"nothing found for {a.dtype} {a.shape}, {b.dtype} {b.shape}"
    made, wanted = rebuilt(found, a, b)
    assert (made.dtype, made.shape) == (wanted.dtype, wanted.shape), found.numpy
    made, wanted = made.astype(np.float64), wanted.astype(np.float64)
    if tolerance == 0:
        assert np.array_equal(made, wanted, equal_nan=True), found.numpy
    else:
        finite = np.isfinite(wanted)
        assert np.array_equal(made[~finite], wanted[~finite], equal_nan=True), found.numpy
        made, wanted = made[finite], wanted[finite]
        assert np.abs(made - wanted).max() <= tolerance * np.abs(wanted).max(), found.numpy
    return found


def normal(shape, seed=0, dtype=np.float32):
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def quantised(x, block, top=127):
    y = x.reshape(-1, block).astype(np.float32)
    scale = np.abs(y).max(1, keepdims=True) / np.float32(top)
    return (np.round(y / scale) * scale.astype(np.float16).astype(np.float32)).reshape(x.shape).astype(x.dtype)


def q4_0(x):
    y = x.reshape(-1, 32)
    scale = np.take_along_axis(y, np.abs(y).argmax(1)[:, None], 1) / np.float32(-8)
    levels = np.minimum(15, (y / scale + np.float32(8.5)).astype(np.int8)) - 8
    return (levels * scale.astype(np.float16).astype(np.float32)).reshape(x.shape).astype(np.float32)


def swapped(x, first, second, size):
    order = np.arange(len(x))
    order[first : first + size], order[second : second + size] = (
        np.arange(second, second + size),
        np.arange(first, first + size),
    )
    return x[order]


A = normal((64, 96))
A3 = normal((8, 24, 64))
MASK = np.random.default_rng(1).random(A.shape) < 0.3


@pytest.mark.parametrize(
    ("a", "b", "words", "statement"),
    [
        (A, A.copy(), "b equals a", "b = a"),
        (A, A.astype(np.float64), "b equals a, as float64", "b = a.astype(np.float64)"),
        (A, A * 4, "b = 4 a", "b = a * 4"),
        (A, A * 4 - 2, "b = 4 a - 2", "b = a * 4 - 2"),
        (A, np.flip(A, 1), "b is a, flipped along axis 1", "b = np.flip(a, 1)"),
        (A, A.T, "b is a, with axes 0 and 1 exchanged", "b = a.T"),
        (A3, A3.transpose(1, 2, 0), "b is a, with its axes in the order (1, 2, 0)", "b = a.transpose(1, 2, 0)"),
        (A, A.reshape(8, 8, 96), "b is a, reshaped to [8, 8, 96]", "b = a.reshape(8, 8, 96)"),
        (A, A.reshape(1, 64, 1, 96), "b is a, reshaped to [1, 64, 1, 96]", "b = a.reshape(1, 64, 1, 96)"),
        (
            A,
            A.reshape(4, 16, 96).transpose(1, 0, 2).reshape(64, 96),
            "b is a, reshaped to [4, 16, 96], with axes 0 and 1 exchanged, reshaped to [64, 96]",
            "b = a.reshape(4, 16, 96).transpose(1, 0, 2).reshape(64, 96)",
        ),
        (
            A,
            A.reshape(4, 2, 8, 96).swapaxes(1, 2).reshape(64, 96),
            "b is a, with the halves of every 16 along axis 0 interleaved",
            "b = a.reshape(4, 2, 8, 96).transpose(0, 2, 1, 3).reshape(64, 96)",
        ),
        (
            A,
            A.reshape(64, 48, 2).swapaxes(1, 2).reshape(64, 96),
            "b is a, with the pairs of axis 1 taken apart into halves",
            "b = a.reshape(64, 48, 2).transpose(0, 2, 1).reshape(64, 96)",
        ),
        (A, np.roll(A, 16, 1), "b is a, rolled by 16 along axis 1", "b = np.roll(a, 16, axis=1)"),
        (A, A[8:24, 5:90], "b is a slice of a: a[8:24, 5:90]", "b = a[8:24, 5:90]"),
        (A, A[7], "b is a slice of a: a[7]", "b = a[7]"),
        (A, A[16:32].reshape(4, 4, 96), "b is a slice of a: a[16:32]", "b = a[16:32].reshape(4, 4, 96)"),
        (A, A[:, 1::3], "b is a slice of a: a[:, 1::3]", "b = a[:, 1::3]"),
        (A, np.concatenate([A, normal((5, 96), 2)]), "b is a with 5 more behind it along axis 0", "a = b[0:64]"),
        (
            A,
            np.pad(A, ((1, 2), (0, 4))),
            "b is a, padded with 0: a is b[1:65, 0:96]",
            "b = np.pad(a, ((1, 2), (0, 4)))",
        ),
        (A, np.repeat(A, 4, 0), "b is a, each slice along axis 0 4 times", "b = np.repeat(a, 4, axis=0)"),
        (
            A,
            np.tile(A, (1, 3)),
            "b is a, 3 times behind each other along axis 1",
            "b = np.concatenate([a] * 3, axis=1)",
        ),
        (
            A,
            swapped(A, 8, 40, 4),
            "b is a, with the blocks 8:12 and 40:44 of axis 0 exchanged",
            "b = np.concatenate([a[0:8], a[40:44], a[12:40], a[8:12], a[44:64]], axis=0)",
        ),
        (
            A,
            A[np.random.default_rng(0).permutation(64)],
            "b is a, permuted along axis 0",
            "b = np.take(a, order, axis=0)",
        ),
        (A, A.astype(np.float16), "b is a, rounded to float16", "b = a.astype(np.float16)"),
        (
            A,
            A.T.astype(np.float16),
            "b is a, with axes 0 and 1 exchanged, rounded to float16",
            "b = a.T.astype(np.float16)",
        ),
        (A, quantised(A, 32), "b is a, quantised in blocks of 32 to 8 bits (q8_0)", None),
        (A, q4_0(A), "b is a, quantised in blocks of 32 to 4 bits (q4_0)", None),
        (A, np.tril(A), "b is a, masked: 0 above diagonal 0 of the last two axes", None),
        (
            A,
            np.where(MASK, -np.inf, A).astype(np.float32),
            f"b is a, masked: -inf for {100 * MASK.mean():.3g} % of the elements",
            None,
        ),
        (A, np.where(np.arange(96) < 32, np.nan, A).astype(np.float32), "b is a, masked: nan in [:, 0:32]", None),
        (
            A3,
            np.repeat(A3[:, -1:], 24, 1),
            "each slice of b along axis 1 is a's last",
            "b = np.repeat(a[:, 23:24], 24, axis=1)",
        ),
        (A, A * 0, "b is all zero", "b = np.zeros_like(a)"),
    ],
)
def test_words_and_statements(a, b, words, statement):
    found = check(a, np.ascontiguousarray(b), tolerance=0)
    assert found.words == words
    if statement:
        assert found.numpy == statement
    assert str(found).startswith(words)


@pytest.mark.parametrize(
    ("b", "relation"),
    [
        (A * normal((1, 96), 5), "scaled"),
        (A + normal((64, 1), 5), "shifted"),
        (A * normal((64, 1), 5) + normal((64, 1), 6), "affine"),
        (np.where(MASK, 0, A / np.float32(0.7)).astype(np.float32), "dropout"),
        (A + np.outer(normal(64, 5), normal(96, 6)), "rank one"),
        (A * (1 + 1e-7 * normal(A.shape, 5)), "nearly equal"),
    ],
)
def test_relations_to_rounding(b, relation):
    assert check(A, b, tolerance=2e-6).relation == relation


def test_a_block_that_differs():
    b = A.copy()
    b[:9, 10:20] *= 2
    found = check(A, b)
    assert found.words == "b is a but for [0:9, 10:20], where b = 2 a"
    b[:9, 10:20] = np.sin(A[:9, 10:20])
    assert check(A, b).words == "b is a but for [0:9, 10:20]"


def test_nothing():
    for a, b in ((A, normal(A.shape, 7)), (A, np.sin(A)), (A, normal((30, 20), 7)), (A, normal((), 7))):
        found = tenscope.explain(a, b)
        assert not found
        assert (found.relation, found.numpy, found.arrays) == ("nothing", None, {})


def test_empty_complex_and_large_integers():
    assert tenscope.explain(np.zeros((0, 3)), np.zeros((0, 3))).relation == "equal"
    assert not tenscope.explain(np.zeros((0, 3)), np.zeros((3,)))
    x = A.astype(np.complex64) * (1 + 2j)
    assert tenscope.explain(x, x.copy()).relation == "equal"
    assert not tenscope.explain(x, x * 2)
    large = np.arange(2**60, 2**60 + 100)
    assert tenscope.explain(large, large.copy()).relation == "equal"
    assert not tenscope.explain(large, large + 1)


def test_torch_tensors():
    torch = pytest.importorskip("torch")
    x = torch.from_numpy(A)
    assert tenscope.explain(x, x.T).numpy == "b = a.T"
    assert tenscope.explain(x.T, x).numpy == "b = a.T"
    assert tenscope.explain(x, x.bfloat16()).words == "b is a, rounded to bfloat16"
    assert tenscope.explain(x.bfloat16(), x.bfloat16().flip(0)).numpy == "b = np.flip(a, 0)"
    x.requires_grad_()
    assert tenscope.explain(x, x * 2).words == "b = 2 a"


# ---- any relation of any tensor


@st.composite
def tensors(draw, min_rank=1):
    shape = draw(st.lists(st.integers(2, 9), min_size=min_rank, max_size=4).filter(lambda s: np.prod(s) >= 64))
    dtype = draw(st.sampled_from([np.float32, np.float64, np.float16, np.int32]))
    x = np.random.default_rng(draw(st.integers(0, 2**32))).normal(size=shape)
    return (1e6 * x).astype(dtype) if dtype is np.int32 else x.astype(dtype)


def axis_of(draw, x, least=1):
    return draw(st.sampled_from([k for k in range(x.ndim) if x.shape[k] >= least] or [0]))


def transposed(draw, x):
    return x.transpose(draw(st.permutations(range(x.ndim))))


def flipped(draw, x):
    return np.flip(x, tuple(draw(st.sets(st.integers(0, x.ndim - 1), min_size=1))))


def rolled(draw, x):
    return np.roll(x, draw(st.integers(1, 8)), axis_of(draw, x))


def sliced(draw, x):
    cuts = []
    for size in x.shape:
        begin = draw(st.integers(0, size // 2))
        cuts.append(slice(begin, draw(st.integers(begin + (size + 1) // 2, size))))
    return x[tuple(cuts)]


def indexed(draw, x):
    axis = axis_of(draw, x)
    return np.take(x, draw(st.integers(0, x.shape[axis] - 1)), axis)


def stepped(draw, x):
    return x[(slice(None),) * axis_of(draw, x) + (slice(draw(st.integers(0, 1)), None, 2),)]


def joined(draw, x):
    axis = axis_of(draw, x)
    more = np.roll(x[::-1] + x.dtype.type(1), 1)
    return np.concatenate([x, more] if draw(st.booleans()) else [more, x], axis)


def padded(draw, x):
    return np.pad(x, [(draw(st.integers(0, 3)), draw(st.integers(0, 3))) for _ in x.shape])


def repeated(draw, x):
    return np.repeat(x, draw(st.integers(2, 4)), axis_of(draw, x))


def tiled(draw, x):
    return np.concatenate([x] * draw(st.integers(2, 4)), axis_of(draw, x))


def permuted(draw, x):
    axis = axis_of(draw, x)
    return np.take(x, draw(st.permutations(range(x.shape[axis]))), axis)


def split(draw, x):
    """An axis is split in two, the axes are permuted, and all are merged again in some way."""
    axis = axis_of(draw, x, 4)
    parts = [d for d in range(1, x.shape[axis] + 1) if x.shape[axis] % d == 0]
    part = draw(st.sampled_from(parts))
    y = x.reshape(*x.shape[:axis], part, x.shape[axis] // part, *x.shape[axis + 1 :])
    y = y.transpose(draw(st.permutations(range(y.ndim))))
    return y.reshape(draw(st.sampled_from([y.shape, (-1,), (y.shape[0], -1), (-1, y.shape[-1]), (1, *y.shape)])))


def reshaped(draw, x):
    return x.reshape(draw(st.sampled_from([(-1,), (1, *x.shape), (*x.shape, 1), (x.shape[0], -1), (-1, x.shape[-1])])))


MOVES = [
    transposed, flipped, rolled, sliced, indexed, stepped, joined, padded, repeated, tiled, permuted, split, reshaped,
]  # fmt: skip


@given(st.data(), tensors(), st.sampled_from(MOVES), st.booleans())
def test_any_move_is_found(data, a, move, is_contiguous):
    b = move(data.draw, a)
    if b.size < 24:  # too few to tell from chance
        return
    check(a, np.ascontiguousarray(b) if is_contiguous else b)


def scaled(draw, x):
    return x * x.dtype.type(draw(st.sampled_from([-3, 0.5, 2, 7.25])))


def shifted(draw, x):
    return x + x.dtype.type(draw(st.sampled_from([-3, 0.5, 2, 7.25])))


def affine(draw, x):
    return shifted(draw, scaled(draw, x))


def by_axis(draw, x):
    shape = [1] * x.ndim
    axis = axis_of(draw, x)
    shape[axis] = x.shape[axis]
    seed = draw(st.integers(0, 2**32))
    return x * (1 + np.random.default_rng(seed).random(shape)).astype(x.dtype)


def masked(draw, x):
    seed, fill = draw(st.integers(0, 2**32)), draw(st.sampled_from([0, -np.inf, np.nan, -1e4]))
    share = draw(st.sampled_from([0.3, 0.5]))
    return np.where(np.random.default_rng(seed).random(x.shape) < share, x.dtype.type(fill), x)


def rounded(draw, x):
    return x.astype(draw(st.sampled_from([np.float16, np.float32])))


VALUES = [scaled, shifted, affine, by_axis, masked, rounded]


@given(st.data(), tensors(min_rank=2), st.sampled_from(VALUES))
def test_any_change_of_values_is_found(data, a, change):
    if a.dtype == np.int32:
        a = (a / 1e6).astype(np.float32)
    if a.dtype == np.float16 and change is by_axis:
        a = a.astype(np.float64)
    check(a, change(data.draw, a), tolerance=2e-3 if a.dtype == np.float16 else 4e-6)


@given(st.data(), tensors(), tensors())
def test_independent_tensors_have_none(data, a, b):
    b = np.random.default_rng(data.draw(st.integers(2**33, 2**34))).normal(size=b.shape).astype(np.float64)
    b = (1e6 * b).astype(np.int32) if a.dtype == np.int32 else b.astype(a.dtype)
    assert not tenscope.explain(a, b), tenscope.explain(a, b)
    assert not tenscope.explain(a, b.reshape(-1)[: a.size]), tenscope.explain(a, b.reshape(-1)[: a.size])


# ---- files, runs, the command line


def explain(*arguments):
    done = subprocess.run([TENSCOPE, "explain", *map(str, arguments)], capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def test_files(tmp_path):
    np.save(tmp_path / "a.npy", A)
    np.savez(tmp_path / "b.npz", q=A.T, k=A * 2)
    code, text, _ = explain(tmp_path / "a.npy", f"{tmp_path}/b.npz:q")
    assert code == 0
    assert text.splitlines()[2:] == ["b is a, with axes 0 and 1 exchanged", "    b = a.T"]
    assert tenscope.explain(tmp_path / "a.npy", f"{tmp_path}/b.npz:k").words == "b = 2 a"
    code, _, errors = explain(tmp_path / "a.npy", tmp_path / "b.npz")
    assert code == 2
    assert "which of its 2 tensors? Say" in errors
    with pytest.raises(tenscope.UsageError, match="which of its 2 tensors"):
        tenscope.explain(tmp_path / "a.npy", tmp_path / "b.npz")
    code, _, errors = explain(tmp_path / "a.npy", f"{tmp_path}/b.npz:qq")
    assert code == 2
    assert "there is no tensor 'qq'" in errors
    with pytest.raises(tenscope.NotFoundError, match="'qq'"):
        tenscope.explain(tmp_path / "a.npy", f"{tmp_path}/b.npz:qq")
    assert explain(tmp_path / "a.npy", tmp_path / "c.npy")[0] == 2
    with pytest.raises(tenscope.NotFoundError, match="no such file"):
        tenscope.explain(tmp_path / "a.npy", tmp_path / "c.npy")


def test_runs(tmp_path):
    with tenscope.Run(tmp_path / "run") as run:
        run.record("x", A)
        run.step()
        run.record("x", A[:, ::-1].copy())
        run.record("y", A * 3)
    path = run.path
    assert explain(f"{path}:x", f"{path}:y", "--step", 0)[0] == 2
    code, text, _ = explain(f"{path}:x", f"{path}:y")
    assert (code, "no simple relation" in text) == (1, True)
    np.save(tmp_path / "a.npy", A)
    assert "    b = a * 3\n" in explain(tmp_path / "a.npy", f"{path}:y")[1]
    assert tenscope.explain(A, f"{path}:x").numpy == "b = np.flip(a, 1)"


def test_json(tmp_path):
    np.save(tmp_path / "a.npy", A)
    np.save(tmp_path / "b.npy", A[np.random.default_rng(0).permutation(64)])
    code, text, _ = explain(tmp_path / "a.npy", tmp_path / "b.npy", "--json")
    document = json.loads(text)
    assert (code, document["relation"], document["numpy"]) == (0, "permuted", "b = np.take(a, order, axis=0)")
    assert document["a"] == {"name": str(tmp_path / "a.npy"), "dtype": "float32", "shape": [64, 96]}
    assert np.array_equal(document["arrays"]["order"]["values"], np.random.default_rng(0).permutation(64))
    np.save(tmp_path / "b.npy", normal(A.shape, 7))
    code, text, _ = explain(tmp_path / "a.npy", tmp_path / "b.npy", "--json")
    assert (code, json.loads(text)["relation"], json.loads(text)["numpy"]) == (1, "nothing", None)
