"""A small Llama with seeded weights, for PyTorch (run as a program) and as a GGUF file (write_gguf)."""

import numpy as np

LAYERS, HIDDEN, HEADS, KV_HEADS, FEED_FORWARD, VOCAB = 2, 128, 4, 2, 352, 256
HEAD = HIDDEN // HEADS
EPSILON, ROPE_BASE = 1e-6, 10000.0
TOKENS = np.array([1, 17, 205, 42, 42, 7, 199, 130, 3, 88])


def weights():
    """By the names that transformers has for them."""
    random = np.random.default_rng(7)

    def matrix(rows, columns, scale=1.0):
        return (scale * random.standard_normal((rows, columns)) / np.sqrt(columns)).astype(np.float32)

    def norm():
        return (1 + 0.2 * random.standard_normal(HIDDEN)).astype(np.float32)

    made = {"model.embed_tokens.weight": matrix(VOCAB, HIDDEN, 0.5), "lm_head.weight": matrix(VOCAB, HIDDEN)}
    for i in range(LAYERS):
        layer = f"model.layers.{i}."
        made[layer + "self_attn.q_proj.weight"] = matrix(HIDDEN, HIDDEN, 2)
        made[layer + "self_attn.k_proj.weight"] = matrix(KV_HEADS * HEAD, HIDDEN, 2)
        made[layer + "self_attn.v_proj.weight"] = matrix(KV_HEADS * HEAD, HIDDEN)
        made[layer + "self_attn.o_proj.weight"] = matrix(HIDDEN, HIDDEN)
        made[layer + "mlp.gate_proj.weight"] = matrix(FEED_FORWARD, HIDDEN)
        made[layer + "mlp.up_proj.weight"] = matrix(FEED_FORWARD, HIDDEN)
        made[layer + "mlp.down_proj.weight"] = matrix(HIDDEN, FEED_FORWARD)
        made[layer + "input_layernorm.weight"] = norm()
        made[layer + "post_attention_layernorm.weight"] = norm()
    made["model.norm.weight"] = norm()
    return made


def in_gguf(mistake=""):
    """The same by the names that llama.cpp has for them, with q and k permuted for its rotary embedding."""

    def rotary(weight, heads):  # halves of a head, as transformers has them, become neighbours
        return weight.reshape(heads, 2, HEAD // 2, -1).swapaxes(1, 2).reshape(weight.shape)

    source = weights()
    made = {"token_embd.weight": source["model.embed_tokens.weight"], "output.weight": source["lm_head.weight"],
            "output_norm.weight": source["model.norm.weight"]}  # fmt: skip
    for i in range(LAYERS):
        layer = f"model.layers.{i}."
        made[f"blk.{i}.attn_q.weight"] = rotary(source[layer + "self_attn.q_proj.weight"], HEADS)
        made[f"blk.{i}.attn_k.weight"] = rotary(source[layer + "self_attn.k_proj.weight"], KV_HEADS)
        made[f"blk.{i}.attn_v.weight"] = source[layer + "self_attn.v_proj.weight"]
        made[f"blk.{i}.attn_output.weight"] = source[layer + "self_attn.o_proj.weight"]
        made[f"blk.{i}.ffn_gate.weight"] = source[layer + "mlp.gate_proj.weight"]
        made[f"blk.{i}.ffn_up.weight"] = source[layer + "mlp.up_proj.weight"]
        made[f"blk.{i}.ffn_down.weight"] = source[layer + "mlp.down_proj.weight"]
        made[f"blk.{i}.attn_norm.weight"] = source[layer + "input_layernorm.weight"]
        made[f"blk.{i}.ffn_norm.weight"] = source[layer + "post_attention_layernorm.weight"]
    if mistake == "norm":
        made["blk.1.ffn_norm.weight"] = np.ones(HIDDEN, np.float32)
    return made


def write_gguf(path, kind, mistake=""):
    """A file of the given type of block, with a mistake that people make: "rope", "eps", "norm", or none."""
    import gguf

    out = gguf.GGUFWriter(path, "llama")
    out.add_block_count(LAYERS)
    out.add_context_length(128)
    out.add_embedding_length(HIDDEN)
    out.add_feed_forward_length(FEED_FORWARD)
    out.add_head_count(HEADS)
    out.add_head_count_kv(KV_HEADS)
    out.add_vocab_size(VOCAB)
    out.add_rope_dimension_count(HEAD)
    out.add_rope_freq_base(5000.0 if mistake == "rope" else ROPE_BASE)
    out.add_layer_norm_rms_eps(1e-5 if mistake == "eps" else EPSILON)
    out.add_tokenizer_model("no_vocab")
    block = gguf.GGMLQuantizationType[kind.upper()]
    for name, value in in_gguf(mistake).items():
        if value.ndim == 1:
            out.add_tensor(name, value)
        else:
            out.add_tensor(name, gguf.quants.quantize(np.ascontiguousarray(value), block), raw_dtype=block)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


def run_in_torch():
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(vocab_size=VOCAB, hidden_size=HIDDEN, intermediate_size=FEED_FORWARD, num_hidden_layers=LAYERS,
                         num_attention_heads=HEADS, num_key_value_heads=KV_HEADS, max_position_embeddings=128,
                         rms_norm_eps=EPSILON, rope_parameters={"rope_theta": ROPE_BASE, "rope_type": "default"},
                         tie_word_embeddings=False)  # fmt: skip
    model = LlamaForCausalLM(config).eval()
    model.load_state_dict({name: torch.from_numpy(value) for name, value in weights().items()})
    with torch.no_grad():
        model(torch.from_numpy(TOKENS)[None])


if __name__ == "__main__":
    run_in_torch()
