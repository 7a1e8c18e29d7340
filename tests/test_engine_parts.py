"""One engine keeps in one tensor what another keeps in several; and weights that have changed places."""

from __future__ import annotations

import numpy as np
import pytest
import tenscope

HEADS, HEAD, SIZE, EXPERTS, LAYERS = 4, 8, 32, 3, 3


def parts(seed: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    shapes = {f"layers.{i}.{name}": (SIZE, SIZE) for i in range(LAYERS) for name in "qkv"}
    shapes |= {f"layers.{i}.experts.{k}": (20, SIZE) for i in range(LAYERS) for k in range(EXPERTS)}
    return {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def behind_each_other(q, k, v):
    return np.concatenate([q, k, v])


def along_the_last_axis(q, k, v):
    return np.concatenate([q.T, k.T, v.T], axis=1)


def by_heads(q, k, v):
    return np.stack([x.reshape(HEADS, HEAD, SIZE) for x in (q, k, v)], axis=1).reshape(3 * SIZE, SIZE)


def record(folder, name, tensors, io="param"):
    with tenscope.init(folder, name=name) as run:
        run.record("heads", np.arange(2 * HEADS * HEAD).reshape(2, HEADS, HEAD).astype(np.float32))
        for key, value in tensors.items():
            run.record(key, value, io=io, phase="init" if io == "param" else None)
    return folder / name


def fused(tensors, how):
    whole = {}
    for i in range(LAYERS):
        whole[f"h.{i}.qkv"] = how(*(tensors[f"layers.{i}.{name}"] for name in "qkv"))
        whole[f"h.{i}.experts"] = np.stack([tensors[f"layers.{i}.experts.{k}"] for k in range(EXPERTS)])
    return whole


@pytest.mark.parametrize("how", [behind_each_other, along_the_last_axis, by_heads])
@pytest.mark.parametrize("is_whole_first", [False, True], ids=["second", "first"])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_joined_and_stacked(tmp_path, how, is_whole_first, dtype):
    tensors = parts(1)
    whole = {name: value.astype(dtype) for name, value in fused(tensors, how).items()}
    runs = [record(tmp_path, "parts", tensors, io=None), record(tmp_path, "whole", whole, io=None)]
    diff = tenscope.diff(*(runs[::-1] if is_whole_first else runs))
    assert not diff, str(diff)
    pairs = {(pair["a"], pair["b"]) for pair in diff.json["content_pairs"]}
    true = {(f"layers.{i}.{name}", f"h.{i}.qkv") for i in range(LAYERS) for name in "qkv"}
    true |= {(f"layers.{i}.experts.{k}", f"h.{i}.experts") for i in range(LAYERS) for k in range(EXPERTS)}
    assert pairs == ({(b, a) for a, b in true} if is_whole_first else true)


@pytest.mark.parametrize("is_whole_first", [False, True], ids=["second", "first"])
def test_what_changed_in_a_part_is_found_by_the_rule_of_the_other_layers(tmp_path, is_whole_first):
    tensors = parts(2)
    runs = [record(tmp_path, "parts", tensors)]
    tensors["layers.1.k"] = np.random.default_rng(9).standard_normal((SIZE, SIZE)).astype(np.float32)
    runs.append(record(tmp_path, "whole", fused(tensors, behind_each_other)))
    diff = tenscope.diff(*(runs[::-1] if is_whole_first else runs))
    assert {origin.name for origin in diff.origins} == {"h.1.qkv" if is_whole_first else "layers.1.k"}, str(diff)
    assert "[32, 64) of axis 0" in diff.first_divergence.metrics.layout


def test_parts_that_do_not_cover_the_whole_are_not_paired(tmp_path):
    tensors = parts(3)
    whole = fused(tensors, behind_each_other)
    del tensors["layers.0.v"]
    runs = [record(tmp_path, "parts", tensors), record(tmp_path, "whole", whole)]
    pairs = {(pair["a"], pair["b"]) for pair in tenscope.diff(*runs).json["content_pairs"]}
    assert ("layers.1.q", "h.1.qkv") in pairs
    assert not any(pair["error"] > 1e-6 for pair in tenscope.diff(*runs).json["content_pairs"])


@pytest.mark.parametrize("wrong", "qkv")
@pytest.mark.parametrize("how", [behind_each_other, along_the_last_axis])
def test_a_changed_part_of_the_only_layer_is_named(tmp_path, wrong, how):
    tensors = {f"attention.{name}": parts(2)[f"layers.0.{name}"] for name in "qkv"}
    tensors["other"] = parts(3)["layers.0.q"]
    changed = {**tensors, f"attention.{wrong}": tensors[f"attention.{wrong}"].copy()}
    changed[f"attention.{wrong}"][3, 5] += 4
    whole = {"joined": how(*(changed[f"attention.{name}"] for name in "qkv")), "o": tensors["other"]}
    runs = [record(tmp_path, "parts", tensors), record(tmp_path, "whole", whole)]
    diff = tenscope.diff(*runs)
    assert diff.first_divergence.seen_as == f"attention.{wrong}", str(diff)
    assert diff.json["first_divergence"]["metrics"]["worst_index"] == [3, 5]
    assert diff.counts.compared == 5
    back = tenscope.diff(*runs[::-1])
    place = [3 + SIZE * "qkv".index(wrong), 5]
    place = place if how is behind_each_other else [5, 3 + SIZE * "qkv".index(wrong)]
    assert back.json["first_divergence"]["metrics"]["worst_index"] == place, str(back)
    assert whole["joined"][tuple(place)] == changed[f"attention.{wrong}"][3, 5]


def test_exchanged_weights_are_told(tmp_path):
    tensors = parts(4)
    names = {name: name.replace("layers.", "blk.").replace(".q", ".attn_q") for name in tensors}
    other = {names[name]: value for name, value in tensors.items()}
    other["blk.1.k"], other["blk.1.v"] = other["blk.1.v"], other["blk.1.k"]
    diff = tenscope.diff(record(tmp_path, "a", tensors), record(tmp_path, "b", other))
    assert "blk.1.v holds layers.1.k, whose place would be blk.1.k as 2 others say" in str(diff)
    assert "blk.1.k holds layers.1.v" in str(diff)
    assert str(diff).count(" holds ") == 2


def test_exchanged_layers_are_told(tmp_path):
    tensors = {f"layers.{i}.w": value for i, value in enumerate(np.random.default_rng(0).standard_normal((6, 40)))}
    other = {name.replace("layers", "blk"): value for name, value in tensors.items()}
    other["blk.2.w"], other["blk.3.w"] = other["blk.3.w"], other["blk.2.w"]
    diff = tenscope.diff(record(tmp_path, "a", tensors), record(tmp_path, "b", other))
    assert "blk.3.w holds layers.2.w, whose place would be blk.2.w as 4 others say" in str(diff), str(diff)


@pytest.mark.parametrize("number", ["fc", "proj"])
def test_weights_of_two_layers_that_were_exchanged_are_told(tmp_path, number):
    """The names of the others say so: of the exchanged ones alone, two numbers change place, which could be a rule."""
    random = np.random.default_rng(0)
    tensors = {f"layers.{i}.{n}": random.standard_normal((8, 6)) for i in range(2) for n in ("fc", "proj", "up", "q")}
    other = {name.replace("layers", "blk"): value for name, value in tensors.items()}
    other[f"blk.0.{number}"], other[f"blk.1.{number}"] = other[f"blk.1.{number}"], other[f"blk.0.{number}"]
    diff = tenscope.diff(record(tmp_path, "a", tensors), record(tmp_path, "b", other))
    assert diff.verdict == "unknown"
    assert f"blk.1.{number} holds layers.0.{number}, whose place would be blk.0.{number}" in str(diff), str(diff)


def test_a_square_matrix_that_was_not_transposed_as_the_others_is_told(tmp_path):
    tensors = {f"layers.{i}.w": value for i, value in enumerate(np.random.default_rng(0).standard_normal((4, 8, 8)))}
    other = {name.replace("layers", "blk"): np.ascontiguousarray(value.T) for name, value in tensors.items()}
    other["blk.2.w"] = tensors["layers.2.w"]
    diff = tenscope.diff(record(tmp_path, "a", tensors), record(tmp_path, "b", other))
    assert diff.verdict == "unknown"
    assert "layers.2.w -> blk.2.w: same order; 3 others like it: [8, 8] permuted to [1, 0]" in str(diff), str(diff)


def test_parts_in_another_order_than_in_other_layers_are_told(tmp_path):
    random = np.random.default_rng(0)
    layers = [{n: random.standard_normal((8, 6)) for n in "qkv"} for _ in range(4)]
    tensors = {f"layers.{i}.{n}": layer[n] for i, layer in enumerate(layers) for n in "qkv"}
    other = {f"blk.{i}.qkv": np.concatenate([layer[n] for n in "qkv"]) for i, layer in enumerate(layers)}
    other["blk.1.qkv"] = np.concatenate([layers[1][n] for n in "qvk"])
    a, b = record(tmp_path, "a", tensors), record(tmp_path, "b", other)
    for diff in (tenscope.diff(a, b), tenscope.diff(b, a)):
        assert diff.verdict == "unknown" and str(diff).count("3 others like it") == 2, str(diff)


@pytest.mark.parametrize("wrong", [np.zeros((8, 200), np.float32), np.full((8, 200), np.nan, np.float32)])
def test_what_the_models_return_last_is_compared(tmp_path, wrong):
    random = np.random.default_rng(0)
    x, logits = random.standard_normal((8, 64)), random.standard_normal((8, 200)).astype(np.float32)
    a = record(tmp_path, "a", {"x": x, "logits": logits}, io=None)
    diff = tenscope.diff(a, record(tmp_path, "b", {"i": x, "lg": wrong}, io=None))
    assert diff.verdict == "differs" and diff.first_divergence.seen_as == "logits"
    other = tenscope.diff(a, record(tmp_path, "c", {"i": x, "lg": wrong[:, :199]}, io=None))
    assert other.verdict == "unknown" and "logits and lg" in str(other)


@pytest.mark.parametrize(("loss", "verdict"), [(2.5, "equal"), (2.75, "differs")])
def test_a_number_that_is_recorded_last_is_compared(tmp_path, loss, verdict):
    x = np.random.default_rng(0).standard_normal((8, 64))
    a = record(tmp_path, "a", {"x": x, "loss": 2.5}, io=None)
    diff = tenscope.diff(a, record(tmp_path, "b", {"i": x, "nll": loss}, io=None))
    assert diff.verdict == verdict and diff.renamed["loss"] == "nll"


def test_a_row_that_stands_for_the_whole_is_told(tmp_path):
    random = np.random.default_rng(0)
    x, logits = random.standard_normal((8, 64)), random.standard_normal((8, 5)).astype(np.float32)
    a = record(tmp_path, "a", {"x": x, "logits": logits}, io=None)
    diff = tenscope.diff(a, record(tmp_path, "b", {"i": x, "lg": logits[7]}, io=None))
    assert diff.within_tolerance
    assert str(diff).startswith("equal as far as compared: the same values; 1 tensor compared in part; 2 tensors")
    assert "of logits (first run) a part alone could be compared: slice 7 of axis 0" in str(diff), str(diff)
    wrong = tenscope.diff(a, record(tmp_path, "c", {"i": x, "lg": logits[7] * 1.01}, io=None))
    assert wrong.json["first_divergence"]["metrics"]["worst_index"][0] == 7, str(wrong)
    assert "only in" not in str(wrong)


def test_biases_of_two_modules_that_were_exchanged_are_told(tmp_path):
    random = np.random.default_rng(0)
    shapes = {"fc.weight": (16, 8), "fc.bias": (16,), "norm.weight": (16,), "norm.bias": (16,), "out.weight": (4, 16)}
    tensors = {name: random.standard_normal(shape) for name, shape in shapes.items()}
    names = {"fc.weight": "Dense.kernel", "fc.bias": "Dense.bias", "norm.weight": "ln.scale", "norm.bias": "ln.bias"}
    other = {names.get(name, "head.kernel"): value for name, value in tensors.items()}
    other["ln.bias"], other["Dense.bias"] = other["Dense.bias"], other["ln.bias"]
    diff = tenscope.diff(record(tmp_path, "a", tensors), record(tmp_path, "b", other))
    assert diff.verdict == "unknown"
    assert "ln.bias holds fc.bias, whose place would be Dense.bias as 3 others say" in str(diff), str(diff)


def test_a_changed_parameter_is_paired_with_what_its_owner_has_left(tmp_path):
    random = np.random.default_rng(0)
    tensors = {"fc.weight": random.standard_normal((16, 8)), "fc.bias": random.standard_normal(16)}
    other = {"Dense.kernel": tensors["fc.weight"].T.copy(), "Dense.bias": np.zeros(16)}
    diff = tenscope.diff(record(tmp_path, "a", tensors), record(tmp_path, "b", other))
    assert diff.verdict == "differs" and diff.first_divergence.seen_as == "fc.bias"


def test_matrices_of_other_sizes_lie_alike(tmp_path):
    """Layers of different widths, all transposed: nothing is odd about the one that is wider."""
    random = np.random.default_rng(0)
    tensors = {f"layers.{i}.w": random.standard_normal((6, 8 + i)) for i in range(4)}
    other = {name.replace("layers", "blk"): value.T.copy() for name, value in tensors.items()}
    assert tenscope.diff(record(tmp_path, "a", tensors), record(tmp_path, "b", other)).within_tolerance


@pytest.mark.parametrize("is_swapped", [False, True])
def test_a_step_that_was_forgotten_is_named(tmp_path, is_swapped):
    """Its result has the values of its input, and is not taken for it."""
    runs = []
    for name, names, forgotten in (("a", ("layers.{}.branch", "layers.{}.sum"), -1), ("b", ("h.{}.p", "h.{}.q"), 1)):
        random = np.random.default_rng(5)
        x, tensors = random.standard_normal((6, SIZE)).astype(np.float32), {}
        for i in range(LAYERS):
            branch = np.tanh(x @ random.standard_normal((SIZE, SIZE)).astype(np.float32))
            x = branch if i == forgotten else x + branch
            tensors |= {names[0].format(i): branch, names[1].format(i): x}
        runs.append(record(tmp_path, name, tensors, io=None))
    diff = tenscope.diff(*(runs[::-1] if is_swapped else runs))
    assert diff.first_divergence.seen_as == ("h.1.q" if is_swapped else "layers.1.sum"), str(diff)
    assert ("layers.1.sum" if is_swapped else "h.1.q") in str(diff)


@pytest.mark.parametrize("is_swapped", [False, True])
def test_names_of_one_owner_are_no_exchanged_weights(tmp_path, is_swapped):
    """b calls the matrices blk.0.fc and blk.0.proj, and their biases blk.0.fc.b and blk.0.proj.b."""
    random = np.random.default_rng(6)
    a, b = {}, {}
    for i in range(LAYERS):
        for name, to, shape in (("norm", "n", (SIZE,)), ("up", "fc", (48, SIZE)), ("down", "proj", (SIZE, 48))):
            for leaf, end, size in (("weight", "", shape), ("bias", ".b", shape[:1])):
                a[f"layers.{i}.{name}.{leaf}"] = random.standard_normal(size).astype(np.float32)
                b[f"blk.{i}.{to}{end}"] = a[f"layers.{i}.{name}.{leaf}"]
    runs = [record(tmp_path, "a", a), record(tmp_path, "b", b)]
    diff = tenscope.diff(*(runs[::-1] if is_swapped else runs))
    assert "exchanged" not in str(diff), str(diff)


def test_a_written_map_pairs_in_the_same_layouts(tmp_path):
    """Heads in front of tokens, and a rotary embedding's halves as neighbours: other tensors tell the sizes."""
    random = np.random.default_rng(3)
    weight = random.standard_normal((48, 48)).astype(np.float32)
    q = random.standard_normal((4, 9, 12)).astype(np.float32)  # heads, tokens, size
    neighbours = q.reshape(4, 9, 2, 6).swapaxes(2, 3).reshape(4, 9, 12).swapaxes(0, 1)
    a = {"w": weight, "rows": random.standard_normal((9, 6)).astype(np.float32), "q": q}
    b = {"m": weight.T, "r": a["rows"], "p": neighbours}
    runs = [record(tmp_path, "a", a, io=None), record(tmp_path, "b", b, io=None)]
    assert not tenscope.diff(*runs)
    found = tenscope.diff(*runs, map=["w=m", "rows=r", "q=p"])
    assert not found, str(found)
