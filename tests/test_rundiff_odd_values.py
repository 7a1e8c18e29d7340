"""Odd values and what a run diff says of them: numpy and plain Python are the judges."""

import ml_dtypes
import numpy as np
import pytest
import tenscope
from hand_written_run import tenscope as command
from hand_written_run import tenscope_json

INF, NAN = float("inf"), float("nan")


@pytest.fixture
def compared(tmp_path):
    def compare(a, b, values="full"):
        runs = []
        for name, value in (("a", a), ("b", b)):
            with tenscope.Run(tmp_path, name=name, replace=(tmp_path / name).exists()) as run:
                run.record("x", value, values=values)
            runs.append(run.path)
        document = tenscope_json("diff", *runs, check=None)
        done = command("diff", *runs, check=None)
        assert done.returncode == {"equal": 0, "noise": 0, "nothing": 2}.get(document["verdict"], 1)
        return document, done.stdout

    return compare


def array(*values, dtype=np.float32):
    return np.array(values, dtype=dtype)


MASK = np.where(np.triu(np.ones((9, 9), bool), 1), np.float32(-INF), np.float32(0))
NORMAL = np.random.default_rng(0).standard_normal(500)
# Pairs of which numpy says that they differ, and statistics, counts of NaN and fingerprint do not tell by how much.
HIDDEN = {
    "a mask, transposed": (MASK, MASK.T.copy()),
    "NaN and infinity exchanged": (array(INF, NAN, 1, 1), array(NAN, INF, 1, 1)),
    "infinities exchanged": (array(INF, -INF, 1), array(-INF, INF, 1)),
    "NaN in place of another zero": (array(NAN, 0, 1, 0), array(0, NAN, 1, 0)),
    "very large": (NORMAL * 1e200, (NORMAL * 1e200)[::-1].copy()),
    "very small": (NORMAL * 1e-200, (NORMAL * 1e-200)[::-1].copy()),
    "opposite ends": (array(1e308, -1e308, dtype=np.float64), array(-1e308, 1e308, dtype=np.float64)),
}


@pytest.mark.parametrize("case", HIDDEN)
def test_statistics_never_hide_a_difference(compared, case):
    a, b = HIDDEN[case]
    assert not np.array_equal(a, b, equal_nan=True)
    document, text = compared(a, b, "stats")
    assert document["verdict"] == "unknown" and document["counts"]["unknown"] == 1
    assert text.startswith("unknown: ")
    document, _ = compared(a, b)
    assert document["verdict"] == "differs"


@pytest.mark.parametrize("dtypes", [("int32", "int64"), ("bool", "int64"), ("int64", "float32"), ("uint8", "float64")])
def test_equal_integers_of_another_dtype_are_no_difference(compared, dtypes):
    a, b = (np.arange(300).reshape(30, 10) % 2).astype(dtypes[0]), None
    b = a.astype(dtypes[1])
    document, _ = compared(a, b, "stats")
    assert document["verdict"] == "unknown"
    assert compared(a, b)[0]["verdict"] == "noise"
    b[3, 3] = 1 - b[3, 3]
    assert compared(a, b, "stats")[0]["verdict"] == "differs"
    assert compared(a, b)[0]["verdict"] == "differs"


def test_without_elements_the_dtype_alone_is_no_difference(compared):
    for values in ("full", "stats"):
        document, _ = compared(np.empty((0, 3)), np.empty((0, 3), np.float32), values)
        assert document["verdict"] == "noise" and document["counts"]["same_values"] == 1
        assert compared(np.empty((0, 3)), np.empty((0, 4)), values)[0]["verdict"] == "differs"
        assert compared(np.ones((1, 3)), np.ones((3, 1), np.float64), values)[0]["verdict"] == "noise"


def test_a_difference_that_is_no_number(compared):
    a, b = array(1e308, 2, 3, dtype=np.float64), array(-1e308, 2.5, 3, dtype=np.float64)
    document, text = compared(a, b)
    assert document["first_divergence"]["metrics"]["max_abs"] is None
    assert "max |b-a| is beyond what a float64 holds, 2 of 3 elements" in text and "max |b-a| 0" not in text
    assert "worst at [0]: 1e+308 became -1e+308" in text


@pytest.mark.parametrize("other", [(-INF, 1, 2), (1, INF, 2)])
def test_infinities_elsewhere_are_not_called_no_difference(compared, other):
    a, b = array(INF, 1, 2), array(*other)
    document, text = compared(a, b)
    differing = int((a != b).sum())
    assert document["first_divergence"]["metrics"]["differing"] == differing
    assert f"{differing} of 3 elements, worst at [0]" in text and "max |b-a|" not in text


SAME_NUMBERS = [
    (5, np.array(5)),
    (np.array(2**60 + 1), 2**60 + 1),
    (0.1, np.array(0.1)),
    (np.float32(0.1).item(), np.array([0.1], np.float32)),
    (True, np.array(True)),
    (1.5, np.array(1.5, ml_dtypes.bfloat16)),
    (2**64 - 1, np.array(2**64 - 1, np.uint64)),
    (2**70, np.array(2.0**70)),
    (NAN, np.array(NAN)),
    (-INF, np.array(-INF)),
]


@pytest.mark.parametrize("pair", SAME_NUMBERS, ids=str)
def test_a_number_agrees_with_a_tensor_of_no_dimensions(compared, pair):
    for values in ("full", "stats"):
        document, _ = compared(*pair, values)
        is_rounded = values == "stats" and any(
            isinstance(x, np.ndarray) and x.dtype.kind in "iu" and x > 2**53 for x in pair
        )
        expected = ("unknown", 0) if is_rounded else ("noise", 1)
        assert (document["verdict"], document["counts"]["same_values"]) == expected


def test_a_number_and_a_tensor_that_differ(compared):
    document, text = compared(2**60, np.array(2**60 + 1))
    assert document["verdict"] == "differs"
    assert "1152921504606846976 became 1152921504606846977; int became int64" in text
    assert "a tensor in one run only" in compared(2**60, np.array([1, 2]))[1]
    assert compared(2, np.array(2**64 - 1, np.uint64))[0]["verdict"] == "differs"
    assert compared(2**60, np.array(2**61), "stats")[0]["verdict"] == "differs"
    assert compared(2**64 - 2, np.array(2**64 - 1, np.uint64))[0]["verdict"] == "differs"


@pytest.mark.parametrize(
    ("a", "b", "is_same"), [(2**70, 2.0**70, True), (2**70 + 1, 2.0**70, False), (-INF, -(2**70), False)]
)
def test_integers_of_any_size_are_exact_beside_floats(compared, a, b, is_same):
    for pair in ((a, b), (b, a)):
        assert (compared(*pair)[0]["verdict"] == "noise") == is_same


def test_a_difference_below_what_a_sketch_tells_is_not_called_none(compared):
    big = np.full(100, 2**60)
    other = big.copy()
    other[99] += 1
    document, text = compared(big, other, "stats")
    assert document["verdict"] == "differs"
    assert "the fingerprints differ, by less than sketches tell" in text and "about 0" not in text


@pytest.mark.parametrize(("a", "b", "shown"), [("5", 5, '"5" became 5'), (None, "None", 'None became "None"')])
def test_texts_that_look_like_something_else(compared, a, b, shown):
    document, text = compared(a, b)
    assert document["verdict"] == "differs" and shown in text


def test_empty_nests_are_values_of_a_kind(compared):
    document, _ = compared({}, {})
    assert document["verdict"] == "equal"
    assert [document["counts"][key] for key in ("first_run", "compared", "bit_equal")] == [1, 1, 1]
    document, text = compared({}, [])
    assert document["verdict"] == "differs" and "an empty dict became an empty list" in text


class Thing:
    pass


@pytest.mark.parametrize(("a", "b"), [(Thing(), Thing()), (np.array([1, None]), np.array([2, None]))])
def test_what_was_only_described_was_not_compared(compared, a, b):
    document, text = compared(a, b)
    assert document["verdict"] == "nothing" and document["counts"]["compared"] == 0
    document, text = compared({"seen": 1, "thing": a}, {"seen": 1, "thing": b})
    assert document["verdict"] == "noise" and document["counts"]["compared"] == document["counts"]["bit_equal"] == 1
    assert text.startswith("equal as far as compared: 1 of 2 ")
    assert "x.thing could not be recorded" in text and "was not compared" in text
    assert compared(Thing(), object())[0]["verdict"] == "differs"


def test_a_program_that_failed_is_not_healthy(tmp_path):
    with pytest.raises(ValueError, match="boom"), tenscope.Run(tmp_path, name="run") as run:
        run.record("x", np.ones(3))
        raise ValueError("boom")
    document = tenscope_json("check", run.path, check=1)
    assert document["failures"] == ["the program failed: ValueError: boom"] and not document["healthy"]
    first, *_, last = command("check", run.path, check=1).stdout.splitlines()
    assert first == "the program failed: ValueError: boom"
    assert last.startswith("not healthy: the program failed; 1 tensor")
    with pytest.raises(SystemExit), tenscope.Run(tmp_path, name="exit") as run:
        run.record("x", np.ones(3))
        raise SystemExit(3)
    document = tenscope_json("check", run.path)
    assert document["healthy"] and "the program ended with exit code 3" in document["notes"]
