"""Checkpoints of one model under other names, in other orders and types: pairs by construction, and mistakes."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tenscope

torch = pytest.importorskip("torch")
gguf = pytest.importorskip("gguf")
transformers = pytest.importorskip("transformers")
from safetensors.numpy import save_file  # noqa: E402

Type = gguf.GGMLQuantizationType
LLAMA = {
    "embed_tokens.weight": "token_embd.weight",
    "norm.weight": "output_norm.weight",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}


def numpy_state(model, seed=0):
    """The state of a model with weights that are all different, norms and biases too."""
    generator = np.random.default_rng(seed)
    state = {}
    for name, tensor in model.state_dict().items():
        values = generator.standard_normal(tuple(tensor.shape)) * 0.05
        state[name] = (values + (tensor.dim() == 1 and "norm" in name)).astype(np.float32)
    return state


def llama(layers=3, heads=4, kv_heads=2, hidden=128, tied=False, **more):
    config = transformers.LlamaConfig(
        hidden_size=hidden, intermediate_size=3 * hidden, num_hidden_layers=layers, num_attention_heads=heads,
        num_key_value_heads=kv_heads, vocab_size=160, tie_word_embeddings=tied, **more,
    )  # fmt: skip
    with torch.device("meta"):
        return transformers.LlamaForCausalLM(config), config


def permuted(weight, heads):
    """The halves of each head become neighbours, as llama.cpp has them."""
    return (
        weight.reshape(heads, 2, weight.shape[0] // heads // 2, *weight.shape[1:]).swapaxes(1, 2).reshape(weight.shape)
    )


def gguf_name(name):
    name = name.removeprefix("model.")
    if name == "lm_head.weight":
        return "output.weight"
    if not name.startswith("layers."):
        return LLAMA[name]
    _, layer, rest = name.split(".", 2)
    module, _, leaf = rest.rpartition(".")
    return f"blk.{layer}.{LLAMA[module]}.{leaf}"


def converted(state, config):
    """A transformers Llama under llama.cpp's names and in its order."""
    tensors = {}
    for name, array in state.items():
        if ".q_proj." in name:
            array = permuted(array, config.num_attention_heads)
        if ".k_proj." in name:
            array = permuted(array, config.num_key_value_heads)
        tensors[gguf_name(name)] = array
    return tensors


def q4_k(array):
    """Blocks of 256 in eight parts, each with a scale and an offset of six bits: a plain quantiser."""
    blocks = array.reshape(-1, 8, 32).astype(np.float32)
    least = np.minimum(blocks.min(-1), 0)
    step = (blocks.max(-1) - least) / 15
    scale, offset = step.max(-1, keepdims=True) / 63, -least.min(-1, keepdims=True) / 63
    scale, offset = (x.astype(np.float16).astype(np.float32) for x in (scale, offset))
    steps = np.rint(step / np.maximum(scale, 1e-12)).clip(1, 63).astype(np.uint8)
    offsets = np.rint(-least / np.maximum(offset, 1e-12)).clip(0, 63).astype(np.uint8)
    real_step, real_offset = (scale * steps)[..., None], (offset * offsets)[..., None]
    quants = np.rint((blocks + real_offset) / real_step).clip(0, 15).astype(np.uint8).reshape(-1, 4, 2, 32)
    packed = (quants[:, :, 0] | (quants[:, :, 1] << 4)).reshape(-1, 128)
    first = np.concatenate([steps[:, :4] | (steps[:, 4:] >> 4 << 6), offsets[:, :4] | (offsets[:, 4:] >> 4 << 6)], 1)
    last = (steps[:, 4:] & 15) | ((offsets[:, 4:] & 15) << 4)
    halves = [x.astype(np.float16).view(np.uint8).reshape(-1, 2) for x in (scale, offset)]
    rows = np.concatenate([*halves, first, last, packed], 1)
    return rows.reshape(*array.shape[:-1], array.shape[-1] // 256 * 144)


def write_gguf(path, tensors, kind="F32", architecture="llama"):
    writer = gguf.GGUFWriter(path, architecture)
    for name, array in tensors.items():
        array = np.ascontiguousarray(array)
        own = Type.F32 if array.ndim == 1 else Type[kind]
        if own == Type.Q4_K:
            writer.add_tensor(name, q4_k(array), raw_dtype=own)
        else:
            writer.add_tensor(name, gguf.quants.quantize(array, own), raw_dtype=own)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def write_safetensors(path, tensors):
    save_file({name: np.ascontiguousarray(array) for name, array in tensors.items()}, path)
    return path


def pairs_of(diff):
    return {(pair.a.name, pair.b.name) for pair in diff.pairs}


@pytest.fixture
def model(tmp_path):
    """A Llama as .safetensors, its state and its configuration."""
    module, config = llama()
    state = numpy_state(module)
    return write_safetensors(tmp_path / "model.safetensors", state), state, config


@pytest.mark.parametrize(("kind", "error"), [("F32", 0), ("F16", 2.1e-4), ("BF16", 1.7e-3), ("Q8_0", 5.4e-3)])
def test_llama_against_gguf(tmp_path, model, kind, error):
    path, state, config = model
    other = write_gguf(tmp_path / "model.gguf", converted(state, config), kind)
    diff = tenscope.diff(path, other)
    assert pairs_of(diff) == {(name, gguf_name(name)) for name in state}
    assert diff.verdict == ("noise" if error else "equal")
    assert not diff
    for pair in diff.pairs:
        assert pair.layout == (
            "rows permuted in heads of 32 (rotary)" if "q_proj" in pair.a.name or "k_proj" in pair.a.name else ""
        )
        assert pair.error == pytest.approx(error if "proj" in pair.a.name else pair.error, rel=0.2)
    rule = next(rule for rule in diff.rules if "q_proj" in rule.a)
    assert (rule.a, rule.b, rule.tensors) == ("model.layers.{i}.self_attn.q_proj.weight", "blk.{i}.attn_q.weight", 3)
    back = tenscope.diff(other, path)
    assert pairs_of(back) == {(b, a) for a, b in pairs_of(diff)}
    assert not back


@pytest.mark.parametrize("kind", ["Q4_K", "Q4_0", "Q5_1", "MXFP4"])
def test_four_bits(tmp_path, kind):
    module, config = llama(layers=6, hidden=256, heads=8, kv_heads=4)
    state = numpy_state(module)
    path = write_safetensors(tmp_path / "model.safetensors", state)
    other = write_gguf(tmp_path / "model.gguf", converted(state, config), kind)
    diff = tenscope.diff(path, other)
    assert pairs_of(diff) == {(name, gguf_name(name)) for name in state}
    assert diff.verdict == "noise"
    weights = [pair for pair in diff.pairs if "proj" in pair.a.name]
    assert all(0.5 * pair.rounding < pair.error < 2 * pair.rounding for pair in weights)


def test_thirty_two_layers(tmp_path):
    module, config = llama(layers=32, hidden=64, heads=2, kv_heads=1)
    state = numpy_state(module)
    path = write_safetensors(tmp_path / "model.safetensors", state)
    other = write_gguf(tmp_path / "model.gguf", converted(state, config), "Q8_0")
    diff = tenscope.diff(path, other)
    assert len(state) == 291
    assert pairs_of(diff) == {(name, gguf_name(name)) for name in state}
    assert "291 of 291 tensors of a are paired, 291 of 291 of b, by content" in str(diff).splitlines()[1]


def mistake(tensors, name):
    changed = dict(tensors)
    if name == "swapped":
        changed["blk.1.ffn_gate.weight"], changed["blk.1.ffn_up.weight"] = (
            tensors["blk.1.ffn_up.weight"],
            tensors["blk.1.ffn_gate.weight"],
        )
    elif name == "transposed":
        changed["blk.2.attn_output.weight"] = tensors["blk.2.attn_output.weight"].T
    elif name == "missing":
        del changed["blk.1.attn_k.weight"]
    elif name == "extra":
        changed["rope_freqs.weight"] = np.linspace(0, 1, 16, dtype=np.float32)
    elif name == "norm":
        changed["blk.2.ffn_norm.weight"] = np.ones_like(tensors["blk.2.ffn_norm.weight"])
    elif name == "scaled":
        changed["blk.0.ffn_down.weight"] = 2 * tensors["blk.0.ffn_down.weight"]
    elif name == "element":
        changed["blk.0.attn_v.weight"] = tensors["blk.0.attn_v.weight"].copy()
        changed["blk.0.attn_v.weight"][3, 5] += 1
    elif name == "nan":
        changed["blk.0.attn_v.weight"] = tensors["blk.0.attn_v.weight"].copy()
        changed["blk.0.attn_v.weight"][3, 5] = np.nan
    elif name == "layers":
        for leaf in ("attn_v.weight", "ffn_up.weight", "attn_norm.weight"):
            changed[f"blk.0.{leaf}"], changed[f"blk.1.{leaf}"] = tensors[f"blk.1.{leaf}"], tensors[f"blk.0.{leaf}"]
    return changed


MISTAKES = {
    "swapped": ["blk.1.ffn_up.weight holds model.layers.1.mlp.gate_proj.weight", "2 in another's place"],
    "transposed": ["blk.2.attn_output.weight", "it is transposed, where the other 2 of its kind are in the order of a"],
    "missing": ["1 only in a", "model.layers.1.self_attn.k_proj.weight"],
    "extra": ["1 only in b", "rope_freqs.weight"],
    "norm": ["1 changed", "blk.2.ffn_norm.weight (a: model.layers.2.post_attention_layernorm.weight)"],
    "scaled": ["1 changed", "blk.0.ffn_down.weight (a: model.layers.0.mlp.down_proj.weight)", "b = 2 a"],
    "element": ["1 changed", "blk.0.attn_v.weight (a: model.layers.0.self_attn.v_proj.weight)"],
    "nan": ["1 changed", "NaN or infinities are on one side only"],
}


@pytest.mark.parametrize("name", MISTAKES)
@pytest.mark.parametrize("kind", ["F32", "F16", "Q8_0"])
def test_mistakes_are_named(tmp_path, model, name, kind):
    path, state, config = model
    if name == "nan" and kind == "Q8_0":
        pytest.skip("a block has no NaN")
    tensors = mistake(converted(state, config), name)
    diff = tenscope.diff(path, write_gguf(tmp_path / "bad.gguf", tensors, kind))
    assert diff.verdict == "differs"
    for words in MISTAKES[name]:
        assert words in str(diff), str(diff)
    wrong = [pair for pair in diff.pairs if pair.changed]
    assert len(wrong) + len(diff.contradictions) + len(diff.only_a) + len(diff.only_b) <= 2


def test_layers_in_another_order(tmp_path):
    module, config = llama(layers=8)
    state = numpy_state(module)
    path = write_safetensors(tmp_path / "model.safetensors", state)
    diff = tenscope.diff(path, write_gguf(tmp_path / "bad.gguf", mistake(converted(state, config), "layers")))
    assert diff.verdict == "differs"
    assert len(diff.contradictions) == 6
    assert (
        "blk.1.attn_v.weight holds model.layers.0.self_attn.v_proj.weight; "
        "by the others of its kind blk.0.attn_v.weight should" in diff.contradictions
    )


def test_two_layers_of_four_are_exchanged(tmp_path):
    random = np.random.default_rng(2)
    a = {f"l.{i}.{n}": random.standard_normal((16, 16)).astype(np.float32) for i in range(4) for n in "uvw"}
    other = {0: 0, 1: 2, 2: 1, 3: 3}
    b = {f"m.{other[int(name[2])]}.{name[4:]}": value for name, value in a.items()}
    files = [write_safetensors(tmp_path / "a.safetensors", a), write_safetensors(tmp_path / "b.safetensors", b)]
    diff = tenscope.diff(*files)
    assert diff and "m.2.u holds l.1.u" in str(diff)


def test_missing_permutation_of_q_and_k(tmp_path, model):
    path, state, _ = model
    plain = {gguf_name(name): array for name, array in state.items()}
    diff = tenscope.diff(path, write_gguf(tmp_path / "bad.gguf", plain))
    changed = [pair for pair in diff.pairs if pair.changed]
    assert {pair.b.name for pair in changed} == {f"blk.{i}.attn_{x}.weight" for i in range(3) for x in "qk"}
    assert "needs those of each head permuted" in changed[0].finding
    # Others have halves as transformers has them.
    assert not tenscope.diff(path, write_gguf(tmp_path / "fine.gguf", plain, architecture="qwen2"))


def test_one_layer_is_not_permuted(tmp_path, model):
    path, state, config = model
    tensors = converted(state, config)
    tensors["blk.1.attn_q.weight"] = state["model.layers.1.self_attn.q_proj.weight"]
    diff = tenscope.diff(path, write_gguf(tmp_path / "bad.gguf", tensors, architecture="other"))
    (changed,) = [pair for pair in diff.pairs if pair.changed]
    assert changed.b.name == "blk.1.attn_q.weight"
    assert changed.finding == (
        "it is in the order of a, where the other 2 of its kind are rows permuted in heads of 32 (rotary)"
    )


def test_fused_q_k_v_and_gate_up(tmp_path, model):
    path, state, _ = model
    fused = {}
    for name, array in state.items():
        layer = name.split(".self_attn.")[0].split(".mlp.")[0]
        if "q_proj" in name:
            rows = [state[f"{layer}.self_attn.{x}_proj.weight"] for x in "qkv"]
            fused[f"{layer}.attention.qkv.weight"] = np.concatenate(rows)
        elif "gate_proj" in name:
            rows = [state[f"{layer}.mlp.{x}_proj.weight"] for x in ("gate", "up")]
            fused[f"{layer}.ff.gate_up.weight"] = np.concatenate(rows)
        elif not any(part in name for part in ("k_proj", "v_proj", "up_proj")):
            fused["renamed." + name] = array
    other = write_safetensors(tmp_path / "fused.safetensors", fused)
    for first, second, side in ((path, other, "b"), (other, path, "a")):
        diff = tenscope.diff(first, second)
        assert diff.verdict == "equal", str(diff)
        parts = {(pair.a.name, pair.b.name): pair.layout for pair in diff.pairs if pair.how == "part"}
        assert len(parts) == 3 * 5
        names = ("model.layers.1.self_attn.k_proj.weight", "model.layers.1.attention.qkv.weight")
        assert parts[names if side == "b" else names[::-1]] == f"rows [128, 192) of {side}"


@pytest.mark.parametrize("is_whole_first", [False, True])
def test_q_k_v_of_each_head_together(tmp_path, is_whole_first):
    random = np.random.default_rng(5)
    heads, head, size = 4, 16, 64
    parts, whole = {}, {}
    for i in range(3):
        own = [random.standard_normal((size, size)).astype(np.float32) for _ in range(3)]
        parts |= {f"layers.{i}.{name}.weight": value for name, value in zip("qkv", own, strict=True)}
        fused = np.stack([value.reshape(heads, head, size) for value in own], 1).reshape(3 * size, size)
        whole[f"h.{i}.query_key_value.weight"] = fused
    files = [write_safetensors(tmp_path / "parts.safetensors", parts), tmp_path / "whole.safetensors"]
    for change, changed in ((0, None), (0.3, "layers.1.k.weight")):
        whole["h.1.query_key_value.weight"][head : 2 * head] += change
        write_safetensors(files[1], whole)
        diff = tenscope.diff(*(files[::-1] if is_whole_first else files))
        assert bool(diff) == bool(change)
        assert len(pairs_of(diff)) == 9
        assert ("rows [16, 32) of every 48" in str(diff)) and (changed is None or changed in str(diff).split("\n\n")[1])


def test_gpt2_with_its_transposed_and_fused_weights(tmp_path):
    config = transformers.GPT2Config(n_embd=64, n_layer=3, n_head=4, vocab_size=96, n_positions=32)
    with torch.device("meta"):
        state = numpy_state(transformers.GPT2LMHeadModel(config))
    del state["lm_head.weight"]
    split = {}
    for name, array in state.items():
        to = name.replace("transformer.h.", "decoder.blocks.").replace("transformer.", "decoder.")
        if "c_attn" in name:
            for x, part in zip("qkv", np.split(array, 3, axis=-1), strict=True):
                split[to.replace("attn.c_attn", f"attention.{x}")] = part.T if part.ndim == 2 else part
        else:
            split[to] = array.T if array.ndim == 2 and ("c_proj" in name or "c_fc" in name) else array
    a, b = write_safetensors(tmp_path / "a.safetensors", state), write_safetensors(tmp_path / "b.safetensors", split)
    for first, second in ((a, b), (b, a)):
        diff = tenscope.diff(first, second)
        assert diff.verdict == "equal", str(diff)
        assert len(diff.pairs) == len(split)
    parts = {pair.a.name: pair.layout for pair in diff.pairs if pair.how == "part"}
    assert parts["decoder.blocks.2.attention.v.weight"] == "axis 1 [128, 192) of b, transposed"
    assert parts["decoder.blocks.2.attention.v.bias"] == "rows [128, 192) of b"


def test_experts_in_one_tensor(tmp_path):
    random = np.random.default_rng(0)
    single, stacked = {}, {}
    for layer in range(2):
        for leaf, shape in (("w1", (24, 16)), ("w2", (16, 24))):
            experts = random.standard_normal((4, *shape)).astype(np.float32)
            stacked[f"blk.{layer}.ffn_{leaf}_exps.weight"] = experts
            for i, expert in enumerate(experts):
                single[f"model.layers.{layer}.block_sparse_moe.experts.{i}.{leaf}.weight"] = expert
        gate = random.standard_normal((4, 16)).astype(np.float32)
        single[f"model.layers.{layer}.block_sparse_moe.gate.weight"] = gate
        stacked[f"blk.{layer}.ffn_gate_inp.weight"] = gate
    a, b = write_safetensors(tmp_path / "a.safetensors", single), write_gguf(tmp_path / "b.gguf", stacked)
    diff = tenscope.diff(a, b)
    assert diff.verdict == "equal", str(diff)
    assert len(diff.pairs) == len(single)
    expected = "model.layers.1.block_sparse_moe.experts.2.w2.weight", "blk.1.ffn_w2_exps.weight"
    assert expected in pairs_of(diff)


def test_tied_embedding(tmp_path, model):
    _, state, config = model
    del state["lm_head.weight"]
    path = write_safetensors(tmp_path / "tied.safetensors", state)
    tensors = converted(state, config)
    tensors["output.weight"] = tensors["token_embd.weight"]
    diff = tenscope.diff(path, write_gguf(tmp_path / "tied.gguf", tensors))
    assert diff.verdict == "equal"
    embedding = {pair.b.name for pair in diff.pairs if pair.a.name == "model.embed_tokens.weight"}
    assert embedding == {"output.weight", "token_embd.weight"}
    assert diff.notes[0].startswith("tied: model.embed_tokens.weight of a and ")
    state["lm_head.weight"] = state["model.embed_tokens.weight"]
    diff = tenscope.diff(write_safetensors(path, state), tmp_path / "tied.gguf")
    assert diff.verdict == "equal"
    assert not any(pair.a.shape == [160, 128] for pair in diff.pairs)  # which is which nobody can tell
    assert "lm_head.weight, model.embed_tokens.weight of a" in diff.notes[0]
    assert diff.json["paired_a"] == len(state)


def test_norms_of_ones_are_never_paired_by_guessing(tmp_path, model):
    path, state, config = model
    for name, array in state.items():
        if "norm" in name:
            array[:] = 1
    write_safetensors(path, state)
    tensors = converted(state, config)
    diff = tenscope.diff(path, write_gguf(tmp_path / "ones.gguf", tensors))
    assert diff.verdict == "equal"
    assert not any("norm" in pair.a.name for pair in diff.pairs)
    assert "7 tensors of 128 elements hold nothing but 1 on both sides" in diff.notes[0]
    del tensors["blk.0.ffn_norm.weight"]
    diff = tenscope.diff(path, write_gguf(tmp_path / "ones.gguf", tensors))
    assert diff.verdict == "differs"


def test_shards_folders_states_and_runs(tmp_path, model):
    path, state, config = model
    other = write_gguf(tmp_path / "model.gguf", converted(state, config))
    folder = tmp_path / "sharded"
    folder.mkdir()
    names = list(state)
    shards = {"model-00001-of-00002.safetensors": names[::2], "model-00002-of-00002.safetensors": names[1::2]}
    for file, members in shards.items():
        write_safetensors(folder / file, {name: state[name] for name in members})
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {name: file for file, members in shards.items() for name in members}}))
    (folder / "config.json").write_text("{}")
    torch.save({name: torch.from_numpy(array) for name, array in state.items()}, tmp_path / "state.pt")
    np.savez(tmp_path / "state.npz", **state)
    with tenscope.Run(tmp_path / "runs", name="run") as run:
        for name, array in state.items():
            run.record(name, array, io="param")
    for form in (path, folder, index, tmp_path / "state.pt", tmp_path / "state.npz", tmp_path / "runs" / "run"):
        assert tenscope.diff(form, other).verdict == "equal", form
        assert tenscope.diff(other, form).verdict == "equal", form
        assert tenscope.compare(form, other)
    index.unlink()
    assert tenscope.diff(folder, other).verdict == "equal"


def test_a_bad_index_is_refused(tmp_path, model):
    folder = tmp_path / "sharded"
    folder.mkdir()
    index = folder / "model.safetensors.index.json"
    for text, reason in (("{", "no weight_map"), ('{"weight_map": {"x": "../y.safetensors"}}', "is no file beside it")):
        index.write_text(text)
        with pytest.raises(tenscope.CorruptError, match=reason):
            tenscope.diff(index, model[0])


def test_names_that_pair_are_compared_as_files(tmp_path, model):
    path, state, _ = model
    other = write_safetensors(tmp_path / "other.safetensors", state)
    diff = tenscope.diff(path, other)
    assert type(diff) is tenscope.ValueDiff
    assert not diff


def test_types_that_are_not_read_are_said(tmp_path, model):
    path, state, config = model
    tensors = converted(state, config)
    file = tmp_path / "iq.gguf"
    writer = gguf.GGUFWriter(file, "llama")
    for name, array in tensors.items():
        if name == "blk.0.ffn_up.weight":
            raw = np.zeros((array.shape[0], 66), np.uint8)
            writer.add_tensor(name, raw, raw_dtype=Type.IQ2_XXS)
        else:
            writer.add_tensor(name, np.ascontiguousarray(array))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    diff = tenscope.diff(path, file)
    assert "cannot read the type iq2_xxs yet, of 1 tensor in b: blk.0.ffn_up.weight" in diff.notes
    assert [tensor.name for tensor in diff.only_b] == ["blk.0.ffn_up.weight"]
    assert diff.verdict == "differs"


# ---- the command line

TENSCOPE = Path(sys.executable).parent / "tenscope"


def run(*arguments):
    return subprocess.run([TENSCOPE, *map(str, arguments)], capture_output=True, text=True, check=False)


def test_command_line(tmp_path, model):
    path, state, config = model
    fine = write_gguf(tmp_path / "fine.gguf", converted(state, config), "F16")
    bad = write_gguf(tmp_path / "bad.gguf", mistake(converted(state, config), "swapped"), "F16")
    answer = run("diff", path, fine)
    assert answer.returncode == 0
    assert answer.stdout.startswith("the same weights but for rounding: at most 2.")
    answer = run("diff", path, bad)
    assert answer.returncode == 1
    document = json.loads(run("diff", path, bad, "--json").stdout)
    assert document["verdict"] == "differs"
    assert document["paired_a"] == document["tensors_a"] == len(state)
    unrelated = write_safetensors(
        tmp_path / "unrelated.safetensors", {f"x{i}": np.random.default_rng(i).random((7, 9)) for i in range(4)}
    )
    answer = run("diff", path, unrelated)
    assert answer.returncode == 2
    assert answer.stdout.startswith("nothing was compared")


def test_map_is_written_and_read(tmp_path, model):
    path, state, config = model
    other = write_gguf(tmp_path / "model.gguf", converted(state, config), "Q8_0")
    file = tmp_path / "names.map"
    answer = run("map", path, other, "--write", file)
    assert answer.returncode == 0
    assert f"{len(state)} of {len(state)} tensors of a are paired" in answer.stdout
    rules = dict(line.split("=") for line in file.read_text().splitlines())
    assert rules == {name: gguf_name(name) for name in state}
    document = json.loads(run("diff", path, other, "--map-file", file, "--json").stdout)
    assert {pair["how"] for pair in document["pairs"]} == {"map"}
    assert document["verdict"] == "noise"
    answer = run("diff", path, other, "--map", "nothing.*=blk.*")
    assert answer.returncode == 2
    assert "by 'nothing.*=blk.*'" in answer.stderr
    diff = tenscope.diff(path, other, map="model.layers.*.mlp.up_proj.weight=blk.*.ffn_up.weight")
    assert sum(pair.how == "map" for pair in diff.pairs) == 3
