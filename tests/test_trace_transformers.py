"""tenscope.trace on transformers' own classes, built small with random weights; plain hooks are the judge."""

import pytest
import tenscope
import torch
from model_zoo import Observer

transformers = pytest.importorskip("transformers")


def bert():
    config = transformers.BertConfig(
        vocab_size=30, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32
    )
    return transformers.BertModel(config), {"input_ids": torch.randint(0, 30, (2, 5))}


def llama():
    config = transformers.LlamaConfig(
        vocab_size=30,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        intermediate_size=32,
    )
    return transformers.LlamaForCausalLM(config), {"input_ids": torch.randint(0, 30, (2, 5)), "use_cache": True}


def vit():
    config = transformers.ViTConfig(
        image_size=8, patch_size=4, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32
    )
    return transformers.ViTModel(config), {"pixel_values": torch.randn(2, 3, 8, 8)}


def t5():
    config = transformers.T5Config(
        vocab_size=30, d_model=16, d_kv=8, d_ff=32, num_layers=2, num_heads=2, decoder_start_token_id=0
    )
    ids = torch.randint(1, 30, (2, 5))
    return transformers.T5ForConditionalGeneration(config), {"input_ids": ids, "labels": ids}


def mamba():
    config = transformers.MambaConfig(
        vocab_size=30, hidden_size=16, state_size=4, num_hidden_layers=2, conv_kernel=3, use_mambapy=False
    )
    return transformers.MambaForCausalLM(config), {"input_ids": torch.randint(0, 30, (2, 5)), "use_cache": False}


@pytest.mark.parametrize("make", [bert, llama, vit, t5, mamba])
def test_sees_what_plain_hooks_see(tmp_path, make):
    torch.manual_seed(0)
    model, inputs = make()
    observer = Observer(model)
    with tenscope.Run(tmp_path, name="run", strict=True) as run, tenscope.trace(model, grads=True):
        output = model(**inputs)
        first = output[0]
        first.float().sum().backward()
    seen = observer.flat()
    recorded = [
        e
        for e in tenscope.open(run.path).events(kind="value")
        if e.is_tensor and e.io in ("input", "output") and "<" not in e.scope
    ]
    assert [(e.scope, e.io, e.shape) for e in recorded] == [(path, io, tuple(v.shape)) for path, io, v in seen]
    for event, (path, io, value) in zip(recorded, seen, strict=True):
        assert torch.equal(event.torch(), value), (path, io)
    root = [e for e in recorded if e.scope == "" and e.io == "output"]
    assert root[0].name in ("output.loss", "output.logits", "output.last_hidden_state")
    assert torch.equal(root[0].torch(), first)
    assert [e for e in tenscope.open(run.path).events(kind="value") if e.io == "grad_output" and e.scope == ""]
