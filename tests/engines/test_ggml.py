"""tenscope/ggml.hpp with ggml and llama.cpp themselves: what it records, and that diff understands it."""

import json
import os
import socket
import subprocess
from pathlib import Path

import gguf
import numpy as np
import pytest
import tenscope
from llama_model import LAYERS, TOKENS, in_gguf, write_gguf

HERE = Path(__file__).resolve().parent
PROGRAMS = Path(os.environ["ENGINE_PROGRAMS"])  # tests/engines/run.sh has built them


def run(*words, codes=(0,)):
    result = subprocess.run(list(map(str, words)), capture_output=True, text=True, timeout=300, check=False)
    assert result.returncode in codes, result.stdout + result.stderr
    return result


def llama(folder, kind, mistake="", *words):
    """A run of llama.cpp, by the example program."""
    name = "-".join(filter(None, (kind, mistake, *words)))
    write_gguf(folder / f"{name}.gguf", kind, mistake)
    run(PROGRAMS / "ggml" / "record_gguf", folder / f"{name}.gguf", folder, name, *words, *TOKENS)
    return folder / name


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """The run of PyTorch."""
    folder = tmp_path_factory.mktemp("torch")
    run("tenscope", "run", "--out", folder, "--name", "torch", HERE / "llama_model.py")
    return folder / "torch"


@pytest.fixture(scope="module")
def clean(tmp_path_factory):
    return llama(tmp_path_factory.mktemp("llama"), "f32")


def diff(a, b, code):
    return json.loads(run("tenscope", "diff", a, b, "--json", codes=(code,)).stdout)


def events(folder):
    (journal,) = folder.glob("*/journal.jsonl")
    return [json.loads(line) for line in journal.read_text().splitlines()]


@pytest.mark.parametrize("kind", ["f32", "f16", "q8_0"])
def test_a_right_port_is_silent(reference, tmp_path, kind):
    report = diff(reference, llama(tmp_path, kind), 0)
    assert report["verdict"] == "noise"
    pairs = {(pair["a"], pair["b"]) for pair in report["content_pairs"]}
    assert ("lm_head.output", "result_output") in pairs
    for i in range(LAYERS):
        assert (f"model.layers.{i}.self_attn.q_proj.weight", f"blk.{i}.attn_q.weight") in pairs
        assert (f"model.layers.{i}.mlp.down_proj.output", f"ffn_out-{i}") in pairs


@pytest.mark.parametrize(
    ("kind", "mistake", "module"),
    [
        ("f32", "rope", "model.layers.0.self_attn"),
        ("q8_0", "rope", "model.layers.0.self_attn"),
        ("f32", "eps", "model.layers.0.input_layernorm"),
        ("q8_0", "eps", "model.layers.0.input_layernorm"),
        ("f32", "norm", "model.layers.1.post_attention_layernorm"),
        ("q8_0", "norm", "model.layers.1.post_attention_layernorm"),
    ],
)
def test_a_mistake_of_the_port_is_named(reference, tmp_path, kind, mistake, module):
    report = diff(reference, llama(tmp_path, kind, mistake), 1)
    assert report["verdict"] == "differs"
    assert report["first_divergence"]["module"] == module


def test_weights_are_recorded_once_and_as_parameters(clean):
    recorded = [event for event in events(clean) if event.get("io") == "param"]
    assert sorted(event["name"] for event in recorded) == sorted(in_gguf())
    back = tenscope.open(clean)
    for name, value in in_gguf().items():
        assert np.array_equal(back[name, 0], value), name


def test_tensors_say_what_they_were_made_of(clean):
    made = [event for event in events(clean) if event.get("name") == "Qcur-0"]
    assert made[0]["meta"] == {"op": "MUL_MAT", "inputs": ["blk.0.attn_q.weight", "attn_norm-0"]}
    assert made[-1]["meta"]["op"] == "ROPE"
    (tokens,) = [event for event in events(clean) if event.get("name") == "inp_tokens"]
    assert tokens["io"] == "input"
    assert tenscope.open(clean)["inp_tokens", 0].tolist() == TOKENS.tolist()


def test_rearranged_weights_are_said_to_be_unseen(tmp_path):
    folder = llama(tmp_path, "q4_0", "", "--repack")
    seen = {event["name"] for event in events(folder) if event.get("io") == "param"}
    unseen = {event["scope"] for event in events(folder) if event.get("name") == "not_seen"}
    assert seen | unseen == set(in_gguf()) and not seen & unseen


def graph(folder, *words):
    result = run(PROGRAMS / "ggml_graph", folder, "graph", *words, codes=(0, 77))
    if result.returncode:
        pytest.skip("this ggml has no RPC backend")
    return tenscope.open(folder / "graph")


@pytest.fixture(scope="module", params=["processor", "remote"])
def recorded(request, tmp_path_factory):
    """A graph on the processor, and on a backend whose memory has to be copied from."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    return graph(tmp_path_factory.mktemp(request.param), *([port] if request.param == "remote" else []))


def test_blocks_become_the_numbers_they_stand_for(recorded):
    kinds = [name.removeprefix("w.") for name in recorded.names() if name.startswith("w.")]
    assert len(kinds) == 19
    for kind in kinds:
        block = gguf.GGMLQuantizationType[kind.upper()]
        expected = gguf.quants.dequantize(np.asarray(recorded[f"raw.{kind}", 0]), block)
        value = recorded[f"w.{kind}", 0]
        if kind == "bf16":
            value = value.torch().float().numpy()
        assert np.array_equal(np.asarray(value, np.float32), expected), kind
        assert len(recorded.steps(f"w.{kind}")) == 1
    assert str(recorded["w.f16", 0].dtype) == "float16"


def test_views_lie_as_ggml_sees_them(recorded):
    twice = recorded["twice", 1]
    assert twice.shape == (3, 256) and np.array_equal(recorded["cut", 1], twice[:, 32:48])
    assert np.array_equal(recorded["heads", 1], twice.reshape(3, 8, 32).transpose(1, 0, 2))


def test_inputs_are_recorded_in_every_evaluation(recorded):
    assert [(event.step, event.call) for event in recorded.events("x")] == [(0, 0), (0, 1), (1, 0)]
    assert np.array_equal(recorded["twice", 1], 2 * recorded["x", 1])
    first, second = (event.value for event in recorded.events("x") if event.step == 0)
    assert not np.array_equal(first, second)


def test_what_a_glob_excludes_is_not_recorded(recorded):
    assert "twice" in recorded.names() and "left out" not in recorded.names()
