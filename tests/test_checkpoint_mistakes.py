"""Conversions of made-up checkpoints, clean and with one mistake each: what is said, and what the exit code is."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tenscope

gguf = pytest.importorskip("gguf")
from safetensors.numpy import save_file  # noqa: E402

Type = gguf.GGMLQuantizationType
TENSCOPE = Path(sys.executable).parent / "tenscope"
HIDDEN, HEADS, LAYERS = 64, 4, 5


def random(seed=0):
    generator = np.random.default_rng(seed)
    return lambda *shape: (generator.standard_normal(shape) * 0.05).astype(np.float32)


def run(*arguments, **environment):
    return subprocess.run(
        [TENSCOPE, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "COLUMNS": "", **environment},
    )


def write(path, tensors):
    save_file({name: np.ascontiguousarray(array) for name, array in tensors.items()}, path)
    return path


def write_gguf(path, tensors, kind="F32", architecture="other"):
    writer = gguf.GGUFWriter(path, architecture)
    for name, array in tensors.items():
        own = Type.F32 if np.ndim(array) < 2 else Type[kind]
        writer.add_tensor(name, gguf.quants.quantize(np.ascontiguousarray(array), own), raw_dtype=own)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def diff(tmp_path, a, b):
    return tenscope.diff(write(tmp_path / "a.safetensors", a), write(tmp_path / "b.safetensors", b))


def decoder(layers=LAYERS, bias=False, rows=None):
    """q, k, v, the output and two layers of a feed-forward in each layer, under the names of transformers."""
    make = random()
    rows = rows or HIDDEN
    state = {"model.embed_tokens.weight": make(96, HIDDEN), "model.norm.weight": 1 + make(HIDDEN)}
    for i in range(layers):
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            state[f"model.layers.{i}.self_attn.{name}.weight"] = make(rows if name == "o_proj" else HIDDEN, HIDDEN)
            if bias:
                state[f"model.layers.{i}.self_attn.{name}.bias"] = make(HIDDEN)
        state[f"model.layers.{i}.mlp.up_proj.weight"] = make(3 * HIDDEN, HIDDEN)
        state[f"model.layers.{i}.mlp.down_proj.weight"] = make(HIDDEN, 3 * HIDDEN)
        state[f"model.layers.{i}.input_layernorm.weight"] = 1 + make(HIDDEN)
    return state


RENAMED = {
    "model.layers.": "blk.", "self_attn.o_proj": "attn_output", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "input_layernorm": "attn_norm", "model.embed_tokens": "token_embd", "model.norm": "output_norm",
}  # fmt: skip


def renamed(name):
    for old, new in RENAMED.items():
        name = name.replace(old, new)
    return name


def converted(state):
    return {renamed(name): array for name, array in state.items()}


def fused(state, name="attn_qkv", order="qkv", by_heads=False, odd=None):
    """q, k and v in one tensor of each layer; `odd`: the order in layer 2."""
    tensors = {}
    for key, array in state.items():
        if ".q_proj." in key:
            layer = int(key.split(".")[2])
            own = odd if odd and layer == 2 else order
            parts = [state[key.replace("q_proj", f"{x}_proj")] for x in own]
            if by_heads:
                parts = [part.reshape(HEADS, -1, *part.shape[1:]) for part in parts]
                joined = np.concatenate(parts, 1).reshape(-1, *parts[0].shape[2:])
            else:
                joined = np.concatenate(parts)
            tensors[f"blk.{layer}.{name}.{key.rsplit('.', 1)[1]}"] = joined
        elif not any(f".{x}_proj." in key for x in "kv"):
            tensors[renamed(key)] = array
    return tensors


# ---- copies


def test_an_extra_copy_is_said(tmp_path):
    state = decoder()
    tensors = converted(state)
    tensors["blk.9.ffn_up.weight"] = tensors["blk.1.ffn_up.weight"]
    for first, second, side in ((state, tensors, "b"), (tensors, state, "a")):
        found = diff(tmp_path, first, second)
        assert found.verdict == "differs"
        (alone,) = found.only_b if side == "b" else found.only_a
        assert alone.name == "blk.9.ffn_up.weight"
        words = f"blk.9.ffn_up.weight, which is only in {side}, holds the same numbers as blk.1.ffn_up.weight"
        assert words in found.notes
        assert all(rule.tensors <= LAYERS for rule in found.rules)


def test_a_layer_that_was_written_over_by_another(tmp_path):
    state = decoder()
    tensors = converted(state)
    tensors["blk.3.ffn_up.weight"] = tensors["blk.1.ffn_up.weight"]
    found = diff(tmp_path, state, tensors)
    (changed,) = [pair for pair in found.pairs if pair.changed]
    assert (changed.a.name, changed.b.name) == ("model.layers.3.mlp.up_proj.weight", "blk.3.ffn_up.weight")
    assert "it holds the numbers of blk.1.ffn_up.weight" in changed.finding


@pytest.mark.parametrize("kind", ["F32", "F16", "Q8_0"])
def test_embeddings_that_are_stored_in_several_places(tmp_path, kind):
    make = random(5)
    shared = make(96, HIDDEN)
    state = {f"encoder.block.{i}.wo.weight": make(HIDDEN, HIDDEN) for i in range(4)}
    names = ["shared.weight", "encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "lm_head.weight"]
    state |= dict.fromkeys(names, shared)
    layers = {f"enc.blk.{i}.ffn.weight": state[f"encoder.block.{i}.wo.weight"] for i in range(4)}
    path = write(tmp_path / "a.safetensors", state)
    for own in (["token_embd.weight"], ["output.weight", "token_embd.weight", "dec.token_embd.weight"]):
        other = write_gguf(tmp_path / "b.gguf", {**dict.fromkeys(own, shared), **layers}, kind)
        assert not tenscope.diff(path, other), str(tenscope.diff(path, other))
        assert not tenscope.diff(other, path)
    mixed = {"output.weight": shared.T, "token_embd.weight": shared, **layers}
    found = tenscope.diff(path, write_gguf(tmp_path / "b.gguf", mixed, kind))
    assert not found, str(found)


# ---- several in one


def test_q_k_and_v_in_one_where_most_names_agree(tmp_path):
    state = decoder(bias=True)
    for name in state:
        if name.endswith(".bias"):
            state[name][:] = 0
    joined = {}
    for name, array in state.items():
        if ".q_proj." in name:
            parts = [state[name.replace("q_proj", f"{x}_proj")] for x in "qkv"]
            joined[name.replace("q_proj", "qkv_proj")] = np.concatenate(parts)
        elif ".k_proj." not in name and ".v_proj." not in name:
            joined[name] = array
    for first, second in ((state, joined), (joined, state)):
        found = diff(tmp_path, first, second)
        assert found.verdict == "equal", str(found)
        assert len(found.pairs) == len(state)
    assert "model.layers.{i}.self_attn.qkv_proj.weight of a is q_proj | k_proj | v_proj" in str(found).split("\n\n")[0]
    joined["model.layers.1.self_attn.qkv_proj.bias"][70] = 0.5
    found = diff(tmp_path, state, joined)
    assert [pair.a.name for pair in found.pairs if pair.changed] == ["model.layers.1.self_attn.k_proj.bias"]


@pytest.mark.parametrize("zeros", ["k", "qk", "kv", "qkv"])
def test_biases_of_which_some_are_zero(tmp_path, zeros):
    state = decoder(bias=True)
    for name in state:
        if name.endswith(".bias") and any(f".{x}_proj" in name for x in zeros):
            state[name][:] = 0
    joined = fused(state)
    for first, second in ((state, joined), (joined, state)):
        found = diff(tmp_path, first, second)
        assert found.verdict == "equal", str(found)
        assert " is q_proj | k_proj | v_proj\n" in str(found)
    joined["blk.1.attn_qkv.bias"][70] = 0.5
    found = diff(tmp_path, state, joined)
    assert [pair.a.name for pair in found.pairs if pair.changed] == ["model.layers.1.self_attn.k_proj.bias"]
    assert "rows [64, 128) of b it is nothing but zeros in a, and not in b" in str(found)


def test_a_bias_that_one_part_does_not_have(tmp_path):
    state = decoder(bias=True)
    tensors = fused(state)
    for i in range(LAYERS):
        del state[f"model.layers.{i}.self_attn.k_proj.bias"]
        tensors[f"blk.{i}.attn_qkv.bias"][HIDDEN : 2 * HIDDEN] = 0
    assert not diff(tmp_path, state, tensors)
    tensors["blk.2.attn_qkv.bias"][HIDDEN + 3] = 0.4
    found = diff(tmp_path, state, tensors)
    assert "64 of the 192 elements of blk.2.attn_qkv.bias have no counterpart, and are not zero" in str(found)


@pytest.mark.parametrize(
    ("name", "options", "wrong"),
    [
        ("query_key_value", {"by_heads": True}, None),
        ("query_key_value", {}, "has q, k and v of each head together by its name; here they lie one behind another"),
        ("attn_qkv", {}, None),
        ("attn_qkv", {"by_heads": True}, "lie one behind another by its name; here those of each head are together"),
        ("attn_qkv", {"order": "kqv"}, "lie as k_proj | q_proj | v_proj, which is not the order that its name says"),
        ("mixer", {"order": "kqv"}, None),
        ("mixer", {"by_heads": True}, None),
        ("mixer", {"odd": "qvk"}, "lie as q_proj | v_proj | k_proj, in the other 4 of its kind as q_proj | k_proj | v"),
    ],
)
def test_the_order_of_parts(tmp_path, name, options, wrong):
    state = decoder()
    tensors = fused(state, name, **options)
    for first, second, side in ((state, tensors, "b"), (tensors, state, "a")):
        found = diff(tmp_path, first, second)
        assert len(found.pairs) == len(state)
        assert found.verdict == ("differs" if wrong else "equal"), str(found)
        assert not wrong or wrong in str(found)
        order = " | ".join(f"{x}_proj" for x in options.get("order", "qkv"))
        each = " of each head" if options.get("by_heads") else ""
        pattern = f"  blk.{{i}}.{name}.weight of {side} is {order}{each}\n"
        assert pattern in str(found)
    if "odd" in options:
        assert {pair.b.name for pair in found.pairs if pair.changed} == {
            f"model.layers.2.self_attn.{x}_proj.weight" for x in "kv"
        }


def test_two_layers_that_contradict_each_other(tmp_path):
    state = decoder(layers=3)
    tensors = fused(state, "mixer", odd="qvk")
    for side in (state, tensors):
        for name in [name for name in side if ".0." in name]:
            del side[name]
    found = diff(tmp_path, state, tensors)
    assert found.verdict == "differs"
    words = "q_proj | v_proj | k_proj, in the other 1 of its kind as q_proj | k_proj | v_proj: which is right"
    assert words in str(found)
    plain = {f"l.{i}.weight": random(i)(32, 32) for i in range(2)} | {"l.2.weight": random(9)(32)}
    turned = {f"t.{i}": plain[f"l.{i}.weight"].T for i in range(2)} | {"t.2": plain["l.2.weight"]}
    assert diff(tmp_path, plain, turned).verdict == "equal"
    turned["t.1"] = plain["l.1.weight"]
    found = diff(tmp_path, plain, turned)
    assert "where the other 1 of its kind is in the order of a: which is right is not known" in str(found)


@pytest.mark.parametrize("wrong", "qkv")
@pytest.mark.parametrize("transposed", [False, True])
def test_one_part_of_the_only_layer_is_changed(tmp_path, wrong, transposed):
    state = decoder(layers=1, bias=True)
    joined = fused(state)
    begin = HIDDEN * "qkv".index(wrong)
    joined["blk.0.attn_qkv.weight"][begin : begin + HIDDEN] = random(7)(HIDDEN, HIDDEN)
    if transposed:
        joined["blk.0.attn_qkv.weight"] = joined["blk.0.attn_qkv.weight"].T
    name = f"model.layers.0.self_attn.{wrong}_proj.weight"
    found = diff(tmp_path, state, joined)
    assert [pair.a.name for pair in found.pairs if pair.changed] == [name], str(found)
    assert f"[{begin}, {begin + HIDDEN}) of b" in str(found)
    assert not found.only_a
    assert not found.only_b
    back = diff(tmp_path, joined, state)
    assert [pair.b.name for pair in back.pairs if pair.changed] == [name], str(back)


def test_experts_in_another_order(tmp_path):
    make = random(2)
    state, stacked = {}, {}
    for layer in range(3):
        experts = [make(24, 16) for _ in range(4)]
        state |= {f"model.layers.{layer}.experts.{i}.w1.weight": expert for i, expert in enumerate(experts)}
        stacked[f"blk.{layer}.ffn_exps.weight"] = np.stack(experts)
    found = diff(tmp_path, state, stacked)
    assert found.verdict == "equal"
    assert len(found.rules) == 1
    for layers in ([1], [0, 1, 2]):
        wrong = dict(stacked)
        for layer in layers:
            wrong[f"blk.{layer}.ffn_exps.weight"] = stacked[f"blk.{layer}.ffn_exps.weight"][[0, 2, 1, 3]]
        found = diff(tmp_path, state, wrong)
        expected = {f"model.layers.{layer}.experts.{i}.w1.weight" for layer in layers for i in (1, 2)}
        assert {pair.a.name for pair in found.pairs if pair.changed} == expected


# ---- names against values


@pytest.mark.parametrize("leaf", ["scale", "attn_norm.weight"])
def test_what_lies_in_other_layers_throughout(tmp_path, leaf):
    state = decoder()
    for i in range(LAYERS):
        state[f"model.layers.{i}.scale"] = np.float32([0.1 * (i + 1)])
    tensors = converted(state)
    assert diff(tmp_path, state, tensors).verdict == "equal"
    reversed_ = dict(tensors)
    for i in range(LAYERS):
        reversed_[f"blk.{i}.{leaf}"] = tensors[f"blk.{LAYERS - 1 - i}.{leaf}"]
    found = diff(tmp_path, state, reversed_)
    wrong = {pair.b.name for pair in found.pairs if pair.finding}
    assert wrong == {f"blk.{i}.{leaf}" for i in range(LAYERS) if i != LAYERS // 2}, str(found)
    assert found


def test_the_only_one_of_its_kind_is_changed(tmp_path):
    state = decoder()
    tensors = converted(state)
    tensors["output_norm.weight"] = tensors["output_norm.weight"] * 2
    tensors["token_embd.weight"] = tensors["token_embd.weight"].copy()
    tensors["token_embd.weight"][5] = 0
    found = diff(tmp_path, state, tensors)
    changed = {pair.b.name: pair for pair in found.pairs if pair.changed}
    assert set(changed) == {"output_norm.weight", "token_embd.weight"}
    assert {pair.how for pair in changed.values()} == {"left"}
    assert "b = 2 a" in changed["output_norm.weight"].finding
    assert "output_norm.weight (a: model.norm.weight, less sure: both are left over): the values differ" in str(found)


def test_buffers_that_one_format_has_not(tmp_path):
    make = random(4)
    state, tensors = {}, {}
    for i in range(4):
        for leaf, array in (("weight", 1 + make(32)), ("bias", make(32)), ("running_mean", make(32))):
            state[f"layer{i}.bn.{leaf}"] = tensors[f"blocks.{i}.norm.{leaf}"] = array
        state[f"layer{i}.bn.num_batches_tracked"] = np.int64(1000)
    found = diff(tmp_path, state, tensors)
    assert found.verdict == "equal", str(found)
    assert found.notes == [
        "only in a, and no weights: layer0.bn.num_batches_tracked, layer1.bn.num_batches_tracked, "
        "layer2.bn.num_batches_tracked and 1 more"
    ]
    for i in range(4):
        tensors[f"blocks.{i}.norm.num_batches_tracked"] = np.int64(1000 + (i == 2))
    found = diff(tmp_path, state, tensors)
    assert [pair.b.name for pair in found.pairs if pair.changed] == ["blocks.2.norm.num_batches_tracked"]


# ---- shards, NaN, the terminal


def test_shards_where_names_agree(tmp_path):
    state = decoder()
    folder = tmp_path / "sharded"
    folder.mkdir()
    names = list(state)
    shards = {f"model-0000{k + 1}-of-00002.safetensors": names[k::2] for k in range(2)}
    for file, members in shards.items():
        write(folder / file, {name: state[name] for name in members})
    index = folder / "model.safetensors.index.json"
    weight_map = {name: file for file, members in shards.items() for name in members}
    index.write_text(json.dumps({"weight_map": weight_map}))
    single = write(tmp_path / "model.safetensors", state)
    for form in (index, folder):
        assert run("diff", form, single).returncode == 0
        assert run("diff", single, form).returncode == 0
    assert run("diff", index, folder).returncode == 0
    other = write(tmp_path / "other.safetensors", {**state, names[1]: state[names[1]] * 2})
    answer = run("diff", index, other)
    assert answer.returncode == 1
    assert f"{names[1]}: the values differ" in answer.stdout
    index.write_text(json.dumps({"weight_map": {**weight_map, "lost.weight": "model-00001-of-00002.safetensors"}}))
    answer = run("diff", index, single)
    assert answer.returncode == 2
    assert "the index of shards says that 'lost.weight' is in model-00001-of-00002.safetensors" in answer.stderr
    index.write_text(json.dumps({"weight_map": weight_map}))
    (folder / "model-00002-of-00002.safetensors").unlink()
    for form in (index, folder):
        answer = run("diff", single, form)
        assert answer.returncode == 2
        assert "the shard model-00002-of-00002.safetensors, which has 18 of its tensors, is not there" in answer.stderr


def test_nan_in_the_same_places(tmp_path):
    array = random(1)(8, 8)
    array[2, 3] = np.nan
    paths = [write(tmp_path / f"{x}.safetensors", {"w": array, "v": random(2)(4)}) for x in "ab"]
    answer = run("diff", *paths)
    assert answer.returncode == 1
    assert "relation     b equals a, with NaN in the same places: NaN differs from NaN without" in answer.stdout
    assert run("diff", *paths, "--equal-nan").returncode == 0


@pytest.mark.parametrize("verb", ["diff", "map"])
def test_tables_fit_the_terminal(tmp_path, verb):
    state = decoder()
    files = [write(tmp_path / "a.safetensors", state), write(tmp_path / "b.safetensors", converted(state))]
    for columns in ("", "60", "200"):
        lines = run(verb, *files, COLUMNS=columns).stdout.splitlines()
        table = lines[next(i for i, line in enumerate(lines) if line[:2] in ("a", "a ")) :]
        assert max(map(len, table)) <= int(columns or 80)
        assert (" b " in table[0]) == (columns == "200")


# ---- what is said of a few numbers


def test_scaled_is_no_other_draw(tmp_path):
    torch = pytest.importorskip("torch")
    for name, factor in (("good", 1), ("bad", 1.1)):
        torch.manual_seed(0)
        model = torch.nn.Linear(3, 2)
        with torch.no_grad():
            model.weight *= factor
        with tenscope.Run(tmp_path, name=name) as recording, tenscope.trace(model, run=recording, params=True):
            model(torch.ones(1, 3))
    text = str(tenscope.diff(tmp_path / "good", tmp_path / "bad"))
    assert "b = 1.1 a" in text
    assert "another draw" not in text


def permuted(weight, heads):
    """Halves of each head become neighbours."""
    return weight.reshape(heads, 2, -1, weight.shape[1]).swapaxes(1, 2).reshape(weight.shape)


@pytest.mark.parametrize("layers", [[2], range(LAYERS)])
def test_k_is_permuted_as_if_it_had_as_many_heads_as_q(tmp_path, layers):
    state = decoder()
    make = random(8)
    for i in range(LAYERS):
        state[f"model.layers.{i}.self_attn.k_proj.weight"] = make(HIDDEN // 2, HIDDEN)
    tensors = converted(state)
    for i in range(LAYERS):
        tensors[f"blk.{i}.attn_q.weight"] = permuted(tensors[f"blk.{i}.attn_q.weight"], HEADS)
        heads = HEADS if i in layers else HEADS // 2
        tensors[f"blk.{i}.attn_k.weight"] = permuted(tensors[f"blk.{i}.attn_k.weight"], heads)
    for first, second in ((state, tensors), (tensors, state)):
        found = diff(tmp_path, first, second)
        changed = {pair.a.name for pair in found.pairs if pair.changed}
        names = [f"model.layers.{i}.self_attn.k_proj.weight" for i in layers]
        names = names if first is state else [f"blk.{i}.attn_k.weight" for i in layers]
        assert changed == set(names), str(found)
        assert "heads of 8 (rotary)" in str(found)


@pytest.mark.parametrize(("one", "other"), [("attn_k", "attn_v"), ("attn_q", "attn_k")])
def test_weights_that_are_exchanged_in_every_layer(tmp_path, one, other):
    state = decoder()
    tensors = converted(state)
    for i in range(LAYERS):
        names = [f"blk.{i}.{name}.weight" for name in (one, other)]
        tensors[names[0]], tensors[names[1]] = tensors[names[1]], tensors[names[0]]
    for first, second in ((state, tensors), (tensors, state)):
        found = diff(tmp_path, first, second)
        assert found.verdict == "differs"
        assert len(found.contradictions) == 2 * LAYERS
        assert "by their names these are different weights" in str(found)
