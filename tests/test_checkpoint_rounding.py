"""What rounding to other types does to weights, and what it does not do."""

import numpy as np
import pytest
import tenscope

pytest.importorskip("gguf")
from test_checkpoint_mistakes import random, write, write_gguf


def rows_scaled(array, rows, factor):
    array = array.copy()
    array[rows] *= factor
    return array


@pytest.mark.parametrize("kind", ["Q8_0", "Q5_1", "Q4_0", "Q4_1"])
@pytest.mark.parametrize(
    ("rows", "factor", "words"),
    [
        (7, -1, "in row 7 of b, b is -"),
        (7, 1.12, "in row 7 of b, b is 1.1"),
        (slice(None), 1.05, "b = 1.0"),
        (slice(None), 0.95, "b = 0.9"),
    ],
)
def test_a_scaled_row_is_no_rounding(tmp_path, kind, rows, factor, words):
    make = random(3)
    state = {f"l.{i}.w.weight": make(96, 512) for i in range(5)}
    clean = write_gguf(tmp_path / "clean.gguf", {f"m.{i}.w": state[f"l.{i}.w.weight"] for i in range(5)}, kind)
    path = write(tmp_path / "a.safetensors", state)
    assert tenscope.diff(path, clean).verdict == "noise"
    tensors = {f"m.{i}.w": state[f"l.{i}.w.weight"] for i in range(5)}
    tensors["m.3.w"] = rows_scaled(tensors["m.3.w"], rows, factor)
    bad = write_gguf(tmp_path / "bad.gguf", tensors, kind)
    found = tenscope.diff(path, bad)
    assert [pair.b.name for pair in found.pairs if pair.changed] == ["m.3.w"]
    (pair,) = [pair for pair in found.pairs if pair.changed]
    assert words in pair.finding
    back = tenscope.diff(bad, path)
    assert [pair.a.name for pair in back.pairs if pair.changed] == ["m.3.w"]


def columns_exchanged(array):
    array[:, [3, 70]] = array[:, [70, 3]]


def column_negated(array):
    array[:, 7] *= -1


def block_negated(array):
    array[5, 64:96] *= -1


@pytest.mark.parametrize("kind", ["Q8_0", "Q5_0", "Q4_0", "Q4_1", "MXFP4"])
@pytest.mark.parametrize(
    ("mistake", "words"),
    [
        (column_negated, "in column 7 of b, b is -"),
        (columns_exchanged, "2 of 2048 columns of b differ by more than rounding does to the others: 3, 70"),
        (block_negated, "b goes against a in [5, 64:96]"),
    ],
)
def test_columns_and_blocks_are_no_rounding(tmp_path, kind, mistake, words):
    make = random(3)
    state = {f"l.{i}.w.weight": make(96, 2048) for i in range(2)}
    path = write(tmp_path / "a.safetensors", state)
    tensors = {f"m.{i}.w": state[f"l.{i}.w.weight"].copy() for i in range(2)}
    assert tenscope.diff(path, write_gguf(tmp_path / "clean.gguf", tensors, kind)).verdict == "noise"
    mistake(tensors["m.1.w"])
    bad = write_gguf(tmp_path / "bad.gguf", tensors, kind)
    (pair,) = [pair for pair in tenscope.diff(path, bad).pairs if pair.changed]
    assert pair.b.name == "m.1.w"
    assert words in pair.finding or kind == "Q8_0"  # there the error over all tells it already
    assert [pair.a.name for pair in tenscope.diff(bad, path).pairs if pair.changed] == ["m.1.w"]


@pytest.mark.parametrize("kind", ["Q8_0", "Q5_0", "Q4_0", "MXFP4"])
def test_weights_of_other_distributions_are_rounded_as_well(tmp_path, kind):
    generator = np.random.default_rng(8)
    shape = (128, 256)
    state = {
        "normal": generator.standard_normal(shape),
        "laplace": generator.laplace(size=shape),
        "heavy": generator.standard_t(2.5, size=shape),
        "uniform": generator.uniform(-1, 1, shape),
        "outliers": generator.standard_normal(shape) * np.where(generator.random(shape) < 0.002, 20, 1),
        "rows": generator.standard_normal(shape) * np.exp(generator.standard_normal((128, 1))),
        "columns": generator.standard_normal(shape) * np.exp(generator.standard_normal(256)),
        "sparse": generator.standard_normal(shape) * (generator.random(shape) < 0.3),
        "shifted": generator.standard_normal(shape) + 0.5,
    }
    state = {name: (0.02 * array).astype(np.float32) for name, array in state.items()}
    found = tenscope.diff(write(tmp_path / "a.safetensors", state), write_gguf(tmp_path / "b.gguf", state, kind))
    assert found.verdict == "noise", str(found)


@pytest.mark.parametrize("kind", ["F16", "BF16"])
def test_one_element_of_a_rounded_tensor_is_changed(tmp_path, kind):
    state = {"w": random(1)(200, 128), "v": random(2)(64, 32)}
    path = write(tmp_path / "a.safetensors", state)
    tensors = {"x": state["w"].copy(), "y": state["v"]}
    assert tenscope.diff(path, write_gguf(tmp_path / "fine.gguf", tensors, kind)).verdict == "noise"
    tensors["x"][3, 4] *= 1.1
    found = tenscope.diff(path, write_gguf(tmp_path / "bad.gguf", tensors, kind))
    (changed,) = [pair for pair in found.pairs if pair.changed]
    assert changed.finding == "rounding explains all but 1 element of b: [3, 4]"


def test_rounded_but_for_some_elements():
    torch = pytest.importorskip("torch")
    a = torch.from_numpy(random(1)(64, 128))
    b = a.bfloat16()
    assert str(tenscope.explain(a, b)).startswith("b is a, rounded to bfloat16\n")
    b[3, 4] = 0.5
    b[50, 7] = -2
    found = tenscope.explain(a, b)
    assert found.words == "b is a, rounded to bfloat16, but for 2 elements: [3, 4], [50, 7]"
    assert found.arrays["places"].tolist() == [3 * 128 + 4, 50 * 128 + 7]
    # Where several elements happen to be what one was changed to, it is no mask.
    for value in b.unique().tolist()[100:110]:
        changed = a.bfloat16()
        changed[3, 4] = value
        assert "masked" not in tenscope.explain(a, changed).words
