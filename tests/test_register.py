"""tenscope.register: a quantised tensor class and a sparse one of the user's own."""

import numpy as np
import pytest
import tenscope
from tenscope.recording import registry


class Quantised:
    """int8 values and a scale: many pairs mean the same numbers."""

    def __init__(self, values, scale):
        self.values, self.scale = np.asarray(values, np.int8), float(scale)

    def real(self):
        return self.values.astype(np.float64) * self.scale


class Sparse:
    def __init__(self, indices, values, shape):
        self.indices, self.values, self.shape = np.asarray(indices), np.asarray(values, float), tuple(shape)


@pytest.fixture(autouse=True)
def registered():
    tenscope.register(
        Quantised,
        to_value=lambda q: {"values": q.values, "scale": q.scale},
        from_value=lambda v: Quantised(v["values"], v["scale"]),
        compare=lambda a, b, atol, rtol, equal_nan: bool(np.allclose(a.real(), b.real(), rtol=rtol, atol=atol)),
    )
    tenscope.register(Sparse, to_value=lambda s: {"indices": s.indices, "values": s.values, "shape": s.shape})
    yield
    for table in (registry._entries, registry._to_value):
        table.clear()


def test_record_and_open_give_the_object_back(tmp_path):
    with tenscope.Run(tmp_path) as run:
        run.record("w", Quantised([1, 2, 3], 0.5))
        run.record("nest", {"q": [Quantised([4], 2.0)], "s": Sparse([[0, 1]], [7.0], (2, 2))})
    opened = tenscope.open(tmp_path)
    assert opened.names() == [
        "w.values", "w.scale", "nest.q.0.values", "nest.q.0.scale",
        "nest.s.indices", "nest.s.values", "nest.s.shape.0", "nest.s.shape.1",
    ]  # fmt: skip
    w = opened["w", 0]
    assert isinstance(w, Quantised) and np.array_equal(w.real(), [0.5, 1.0, 1.5])
    assert opened["nest.q.0"].scale == 2.0
    assert opened["nest.s"]["shape"] == [2, 2]


def test_a_plain_value_stays_one(tmp_path):
    tenscope.register(Sparse, to_value=lambda s: s.values, from_value=lambda v: ("sparse", np.asarray(v).tolist()))
    with tenscope.Run(tmp_path) as run:
        run.record("s", Sparse([[0, 1]], [7.0], (2, 2)))
        run.record("x", np.ones(2))
    assert tenscope.open(tmp_path)["s"] == ("sparse", [7.0])
    assert np.array_equal(tenscope.open(tmp_path)["x"], np.ones(2))


def test_compare_and_diff():
    a, b, c = Quantised([2, 4], 0.5), Quantised([1, 2], 1.0), Quantised([1, 3], 1.0)
    assert tenscope.compare(a, b) is True and tenscope.compare(a, c) is False
    assert tenscope.compare({"x": [a]}, {"x": [b]}) is True
    s, t = Sparse([[0, 1]], [7.0], (2, 2)), Sparse([[0, 1]], [7.5], (2, 2))
    assert tenscope.compare(s, s) and not tenscope.compare(s, t)
    assert not tenscope.diff(s, Sparse([[0, 1]], [7.0], (2, 2)))
    difference = tenscope.diff({"s": s}, {"s": t})
    assert difference and "values" in str(difference)


def test_a_failing_conversion_does_not_reach_the_program(tmp_path):
    tenscope.register(Sparse, to_value=lambda s: 1 / 0)
    with tenscope.Run(tmp_path) as run, pytest.warns(tenscope.RecordingWarning):
        run.record("s", Sparse([], [], ()))
        run.record("after", 1)
    assert tenscope.open(tmp_path)["after"] == 1


def record_inside_a_conversion(run):
    def to_value(s):
        run.record("inside", 1)
        return s.values

    tenscope.register(Sparse, to_value=to_value)
    run.record("s", Sparse([[0]], [7.0], (1,)))


def test_a_record_inside_a_conversion_is_counted_and_noted(tmp_path):
    with tenscope.Run(tmp_path) as run:
        with pytest.warns(tenscope.RecordingWarning, match="recording inside failed: .*in the midst of another record"):
            record_inside_a_conversion(run)
        run.record("after", 1)
        assert run.dropped == 1
    opened = tenscope.open(tmp_path)
    assert opened.names() == ["s", "after"] and np.array_equal(opened["s"].numpy(), [7.0])
    (note,) = opened.events(kind="note", name="not_seen")
    assert note.meta["name"] == "inside" and "in the midst of another record" in note.meta["reason"]
    (loss,) = opened.losses
    assert loss.events == 1 and not loss.is_limit


def test_a_record_inside_a_conversion_raises_where_the_run_is_strict(tmp_path):
    with (
        tenscope.Run(tmp_path, strict=True) as run,
        pytest.raises(RuntimeError, match="in the midst of another record"),
    ):
        record_inside_a_conversion(run)


def test_dump(tmp_path, monkeypatch):
    pytest.importorskip("torch")
    from tenscope.compat.tensor_dumper.core import TensorDumper

    monkeypatch.chdir(tmp_path)
    tenscope.register(Sparse, to_value=lambda s: s.values)
    dumper = TensorDumper()
    dumper.init("d")
    dumper.dump(Sparse([[0]], [7.0], (1,)), "s", False)
    (file,) = (tmp_path / "d").rglob("s.npy")
    assert np.array_equal(np.load(file), [7.0])
