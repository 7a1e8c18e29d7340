"""Five kinds of models under two libraries' names, clean and with the mistakes of converters. Each names its tensor."""

import numpy as np
import pytest
import tenscope

pytest.importorskip("gguf")
from test_checkpoint_mistakes import write, write_gguf

LAYERS = 4
_random = np.random.default_rng(0)


def make(*shape):
    return (_random.standard_normal(shape) * 0.05).astype(np.float32)


def norm(name):
    return {f"{name}.weight": 1 + make(64), f"{name}.bias": make(64)}


def linear(name, rows, columns):
    return {f"{name}.weight": make(rows, columns), f"{name}.bias": make(rows)}


def replaced(name, *pairs):
    for old, new in pairs:
        name = name.replace(old, new)
    return name


def gpt2():
    """Matrices are transposed, and the output is the embedding."""
    a = {"transformer.wte.weight": make(100, 64), "transformer.wpe.weight": make(32, 64)}
    for i in range(LAYERS):
        own = norm("ln_1") | norm("ln_2")
        for name, rows, columns in (("attn.c_attn", 64, 192), ("attn.c_proj", 64, 64), ("mlp.c_fc", 64, 256)):
            own |= {f"{name}.weight": make(rows, columns), f"{name}.bias": make(columns)}
        a |= {f"transformer.h.{i}.{name}": value for name, value in own.items()}
    a |= norm("transformer.ln_f")
    names = (
        ("transformer.h.", "blk."), ("attn.c_attn", "attn_qkv"), ("attn.c_proj", "attn_output"), ("mlp.c_fc", "ffn_up"),
        ("ln_1", "attn_norm"), ("ln_2", "ffn_norm"), ("transformer.wte", "token_embd"),
        ("transformer.wpe", "position_embd"), ("transformer.ln_f", "output_norm"),
    )  # fmt: skip
    b = {replaced(name, *names): value.T if ".c_" in name else value for name, value in a.items()}
    return a, b | {"output.weight": b["token_embd.weight"]}


def bert():
    """A buffer of positions that one library alone has."""
    a = {"bert.embeddings.word_embeddings.weight": make(100, 64)} | norm("bert.embeddings.LayerNorm")
    for i in range(LAYERS):
        own = {}
        for name in ("attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense"):
            own |= linear(name, 64, 64)
        own |= linear("intermediate.dense", 256, 64) | linear("output.dense", 64, 256)
        own |= norm("attention.output.LayerNorm") | norm("output.LayerNorm")
        a |= {f"bert.encoder.layer.{i}.{name}": value for name, value in own.items()}
    names = (
        ("bert.encoder.layer.", "blk."), ("attention.output.LayerNorm", "attn_output_norm"),
        ("output.LayerNorm", "layer_output_norm"), ("attention.output.dense", "attn_output"),
        ("attention.self.query", "attn_q"), ("attention.self.key", "attn_k"), ("attention.self.value", "attn_v"),
        ("intermediate.dense", "ffn_up"), ("output.dense", "ffn_down"),
        ("bert.embeddings.word_embeddings", "token_embd"), ("bert.embeddings.LayerNorm", "token_embd_norm"),
    )  # fmt: skip
    b = {replaced(name, *names): value for name, value in a.items()}
    return a | {"bert.embeddings.position_ids": np.arange(32)[None]}, b


def vit():
    """q, k and v in one tensor."""
    a = {"cls_token": make(1, 1, 64), "pos_embed": make(1, 17, 64)} | linear("head", 10, 64)
    for i in range(LAYERS):
        own = norm("norm1") | norm("norm2") | linear("attn.qkv", 192, 64) | linear("attn.proj", 64, 64)
        own |= linear("mlp.fc1", 256, 64) | {"ls1.gamma": make(64)}
        a |= {f"blocks.{i}.{name}": value for name, value in own.items()}
    b = {}
    for name, value in a.items():
        to = replaced(
            name, ("blocks.", "vit.layer."), ("attn.proj", "attention.output.dense"), ("norm1", "layernorm_before"),
            ("norm2", "layernorm_after"), ("mlp.fc1", "intermediate.dense"), ("head", "classifier"),
        )  # fmt: skip
        if "attn.qkv" in name:
            for part, own in zip(("query", "key", "value"), np.split(value, 3), strict=True):
                b[to.replace("attn.qkv", f"attention.{part}")] = own
        else:
            b[to] = value
    return a, b


def mixtral():
    """Experts in a stack."""
    a = {"model.embed_tokens.weight": make(100, 64), "lm_head.weight": make(100, 64)}
    b = {"token_embd.weight": a["model.embed_tokens.weight"], "output.weight": a["lm_head.weight"]}
    for i in range(LAYERS):
        for name, to in (("self_attn.q_proj", "attn_q"), ("self_attn.k_proj", "attn_k")):
            a[f"model.layers.{i}.{name}.weight"] = b[f"blk.{i}.{to}.weight"] = make(64, 64)
        a[f"model.layers.{i}.input_layernorm.weight"] = b[f"blk.{i}.attn_norm.weight"] = 1 + make(64)
        for name, to, shape in (("w1", "gate", (96, 64)), ("w2", "down", (64, 96))):
            experts = make(8, *shape)
            b[f"blk.{i}.ffn_{to}_exps.weight"] = experts
            for j, expert in enumerate(experts):
                a[f"model.layers.{i}.block_sparse_moe.experts.{j}.{name}.weight"] = expert
    return a, b


def t5():
    """An embedding in three places, and names with a number more."""
    a = {name: make(100, 64) for name in ("shared.weight", "lm_head.weight")}
    b = {"token_embd.weight": a["shared.weight"], "output.weight": a["lm_head.weight"]}
    for side, short, last in (("encoder", "enc", 1), ("decoder", "dec", 2)):
        a[f"{side}.embed_tokens.weight"] = a["shared.weight"]
        for i in range(LAYERS):
            block, to = f"{side}.block.{i}.layer", f"{short}.blk.{i}"
            for name in "qkvo":
                a[f"{block}.0.SelfAttention.{name}.weight"] = b[f"{to}.attn_{name}.weight"] = make(64, 64)
            a[f"{block}.0.layer_norm.weight"] = b[f"{to}.attn_norm.weight"] = 1 + make(64)
            a[f"{block}.{last}.DenseReluDense.wi.weight"] = b[f"{to}.ffn_up.weight"] = make(256, 64)
            a[f"{block}.{last}.layer_norm.weight"] = b[f"{to}.ffn_norm.weight"] = 1 + make(64)
    return a, b


MODELS = {build.__name__: build() for build in (gpt2, bert, vit, mixtral, t5)}


def missing(b, matrix, _):
    del b[matrix]


def missing_vector(b, _, vector):
    del b[vector]


def transposed(b, matrix, _):
    b[matrix] = b[matrix].swapaxes(-1, -2).copy()


def of_another_layer(b, matrix, _):
    other = matrix.replace(".1.", ".2.")
    b[matrix], b[other] = b[other], b[matrix]


def shifted(b, matrix, _):
    names = [matrix.replace(".1.", f".{i}.") for i in range(LAYERS)]
    for name, value in zip(names, [b[name] for name in names[1:] + names[:1]], strict=True):
        b[name] = value


def one_element(b, matrix, _):
    b[matrix].flat[7] += 0.5


def one_element_of_a_vector(b, _, vector):
    b[vector][3] += 0.2


def negated_row(b, matrix, _):
    b[matrix].reshape(-1, b[matrix].shape[-1])[3] *= -1


def zeros(b, matrix, _):
    b[matrix][:] = 0


def copied(b, matrix, _):
    b["blk.1.copy.weight"] = b[matrix]


MISTAKES = [
    *(missing, missing_vector, transposed, of_another_layer, shifted, one_element, one_element_of_a_vector),
    *(negated_row, zeros, copied),
]


def blamed(found):
    """Names of b that the report is about."""
    names = {pair.b.name for pair in found.pairs if pair.finding}
    return names | {tensor.name for tensor in found.only_b}


@pytest.mark.parametrize("kind", ["F32", "Q8_0", "Q4_0"])
@pytest.mark.parametrize("model", MODELS)
def test_clean(tmp_path, model, kind):
    a, b = MODELS[model]
    paths = [write(tmp_path / "a.safetensors", a), write_gguf(tmp_path / "b.gguf", b, kind)]
    for order in (paths, paths[::-1]):
        found = tenscope.diff(*order)
        assert found.verdict == ("equal" if kind == "F32" else "noise"), str(found)
        assert not blamed(found)


@pytest.mark.parametrize("kind", ["F32", "Q4_0"])
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.__name__)
def test_mistake(tmp_path, model, mistake, kind):
    a, clean = MODELS[model]
    b = {name: value.copy() for name, value in clean.items()}
    matrix = next(name for name, value in b.items() if ".1." in name and value.ndim == 2)
    if mistake is transposed:
        matrix = next(name for name in b if ".1." in name and b[name].ndim == 2 and len(set(b[name].shape)) == 1)
    vector = next(name for name, value in b.items() if ".1." in name and value.ndim == 1)
    mistake(b, matrix, vector)
    paths = [write(tmp_path / "a.safetensors", a), write_gguf(tmp_path / "b.gguf", b, kind)]
    changed = {
        name for name in clean.keys() | b.keys() if name not in b or not np.array_equal(b[name], clean.get(name))
    }
    assert changed
    found = tenscope.diff(*paths)
    assert found.verdict == "differs", str(found)
    back = tenscope.diff(*paths[::-1])
    assert back.verdict == "differs", str(back)
    assert blamed(found) >= changed & b.keys(), str(found)
    if model == "vit" and mistake in (missing, shifted):
        return  # what is joined with the wrong one may be blamed, too
    assert blamed(found) == changed & b.keys(), str(found)
    assert len(back.only_a) == len(found.only_b)
    assert len(back.only_b) == len(found.only_a) == len(changed - b.keys())
