"""A trainer's padded batch against an engine that packs tokens, in another order and over several steps."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tenscope

TENSCOPE = Path(sys.executable).with_name("tenscope")
LENGTHS, SIZE, HEADS, VOCABULARY = (6, 3, 5), 8, 2, 11
LONGEST = max(LENGTHS)
IDS = (40, 7, 23)  # of the requests
RANDOM = np.random.default_rng(0)
TOKENS = [RANDOM.integers(0, VOCABULARY, length) for length in LENGTHS]
EMBED, W1, W2 = (
    RANDOM.standard_normal(shape).astype(np.float32) for shape in ((VOCABULARY, SIZE), (SIZE, SIZE), (SIZE, VOCABULARY))
)


def model(tokens, scale=1.0):
    """Each row by itself, so that any packing gives the same numbers."""
    x = EMBED[tokens]
    h = np.tanh(x @ W1) * np.float32(scale)
    logits = h @ W2
    logprobs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    return {"x": x, "h": h, "logits": logits, "logprobs": logprobs.max(-1)}


def heads_in_front(h):
    return np.moveaxis(h.reshape(*h.shape[:-1], HEADS, SIZE // HEADS), -2, -3)


def record_padded(folder, names=("request", "position")):
    tokens = np.zeros((3, LONGEST), np.int64)
    request = np.full((3, LONGEST), -1)
    position = np.full((3, LONGEST), -1)
    for i, own in enumerate(TOKENS):
        tokens[i, : len(own)], request[i, : len(own)], position[i, : len(own)] = own, IDS[i], np.arange(len(own))
    with tenscope.init(folder, name="padded") as run:
        run.step(5)
        for name, value in zip(names, (request, position), strict=True):
            run.record(name, value)
        run.record("w1", W1, io="param", phase="init")
        for name, value in model(tokens).items():
            run.record(name, value)
        run.record("heads", heads_in_front(model(tokens)["h"]))
    return folder / "padded"


def record_packed(folder, names=("request", "position"), prefix="", wrong=(), within_a_step=False):
    """A prefill of two requests, then the third one and the rest token by token."""
    batches = [[(1, p) for p in range(3)] + [(0, p) for p in range(4)], [(2, p) for p in range(5)] + [(0, 4)], [(0, 5)]]
    with tenscope.init(folder, name="packed") as run:
        run.record(prefix + "w1", W1, io="param", phase="init")
        for batch in batches:
            run.record(names[0], np.array([IDS[i] for i, _ in batch], np.int32))
            run.record(names[1], np.array([p for _, p in batch], np.int32))
            tokens = np.array([TOKENS[i][p] for i, p in batch])
            scale = np.array([[1.5 if (IDS[i], p) in wrong else 1] for i, p in batch])
            for name, value in model(tokens, scale).items():
                run.record(prefix + name, value)
            run.record(prefix + "heads", heads_in_front(model(tokens, scale)["h"]))
            if not within_a_step:
                run.step()
    return folder / "packed"


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("prefix", ["", "engine."], ids=["equal-names", "other-names"])
@pytest.mark.parametrize("within_a_step", [False, True])
def test_the_same_tokens_in_another_order_are_equal(tmp_path, swapped, prefix, within_a_step):
    runs = record_padded(tmp_path), record_packed(tmp_path, prefix=prefix, within_a_step=within_a_step)
    assert tenscope.diff(*runs), "the rows stand in other places"
    diff = tenscope.diff(*(runs[::-1] if swapped else runs), rows="request,position")
    assert not diff, str(diff)
    rows = diff.json["rows"]
    assert rows["common"] == sum(LENGTHS) and rows["duplicates"] == 0
    assert rows["left_out_first"] == rows["left_out_second"] == []
    assert diff.json["counts"]["compared"] == 6  # a parameter, and x, h, logits, logprobs, heads


def test_the_row_that_is_off_is_named(tmp_path):
    runs = record_padded(tmp_path), record_packed(tmp_path, wrong={(23, 3)})
    diff = tenscope.diff(*runs, rows=["request", "position"])
    assert diff.first_divergence.name == "h"
    assert diff.first_divergence.metrics.row == "request 23, position 3"
    (table,) = diff.json["rows"]["tables"]
    truth = {}
    for i, tokens in enumerate(TOKENS):
        for position, number in enumerate(model(tokens)["logprobs"]):
            truth[IDS[i], position] = number
    assert {tuple(row["key"]): row["a"] for row in table["rows"]} == pytest.approx(truth)
    assert [tuple(row["key"]) for row in table["rows"] if abs(row["a"] - row["b"]) > 1e-5] == [(23, 3)]
    words = [TENSCOPE, "diff", *runs, "--rows", "request,position"]
    shown = subprocess.run(words, capture_output=True, text=True)
    assert shown.returncode == 1
    assert "14 pairs by request, position, of 14 in the first run and 14 in the second" in shown.stdout
    assert (
        "logprobs, row by row: mean |b-a|" in shown.stdout
        and "ratios exp(b-a) from 1 to 1.186, 0 of 14 beyond" in shown.stdout
    )
    assert f"tenscope show {runs[0]} h --step 5 --call 0 --slice 2,3," in shown.stdout
    again = subprocess.run([*words, "--json"], capture_output=True, text=True)
    assert json.loads(again.stdout)["rows"] == diff.json["rows"]


def test_keys_may_have_other_names_and_some_rows_no_partner(tmp_path):
    runs = record_padded(tmp_path), record_packed(tmp_path, names=("req_id", "pos"))
    assert not tenscope.diff(*runs, rows="request=req_id,position=pos")
    with tenscope.init(tmp_path, name="some") as run:
        run.record("request", 7)
        run.record("position", 1)
        run.record("h", model(TOKENS[1][1:2])["h"])
    diff = tenscope.diff(runs[0], tmp_path / "some", rows="request,position")
    assert not diff and diff.json["rows"]["common"] == 1, str(diff)


@pytest.mark.parametrize("swapped", [False, True])
def test_token_ids_tell_rows_of_whole_sequences(tmp_path, swapped):
    padded = np.full((3, LONGEST), VOCABULARY)
    for i, own in enumerate(TOKENS):
        padded[i, : len(own)] = own
    packed = np.concatenate([TOKENS[2], TOKENS[0], TOKENS[1]])
    for name, tokens in (("a", padded), ("b", packed)):
        with tenscope.init(tmp_path, name=name) as run:
            run.record("tokens", tokens)
            run.record("h", model(np.minimum(tokens, VOCABULARY - 1))["h"])
    runs = [tmp_path / "a", tmp_path / "b"]
    diff = tenscope.diff(*(runs[::-1] if swapped else runs), rows="tokens")
    assert not diff, str(diff)
    assert diff.json["rows"]["common"] == sum(LENGTHS) and diff.json["rows"]["keys"] == ["sequence", "place"]


def test_large_identifiers_are_exact_and_doubles_are_told(tmp_path):
    numbers = 2**60 + np.arange(4)
    values = np.arange(8, dtype=np.float32).reshape(4, 2)
    for name, order in (("a", [0, 1, 2, 3]), ("b", [3, 1, 0, 2, 2])):
        with tenscope.init(tmp_path, name=name) as run:
            run.record("id", numbers[order])
            run.record("v", values[order])
    diff = tenscope.diff(tmp_path / "a", tmp_path / "b", rows="id")
    assert not diff and diff.json["rows"]["duplicates"] == 1
    assert "1 more has a key" in str(diff)


def test_a_key_that_comes_again_goes_with_its_next_row(tmp_path):
    keys, values = np.arange(6), np.random.default_rng(3).standard_normal((6, 4)).astype(np.float32)
    for name, change in (("a", 0), ("b", 0), ("c", 1)):
        with tenscope.init(tmp_path, name=name) as run:
            for step in range(3):
                run.record("id", keys)
                run.record("h", values + step + (change if step == 2 else 0))
                run.step()
    assert not tenscope.diff(tmp_path / "a", tmp_path / "b", rows="id")
    diff = tenscope.diff(tmp_path / "a", tmp_path / "c", rows="id")
    assert diff.first_divergence.name == "h" and diff.json["rows"]["common"] == 18


def test_a_loss_is_compared_as_it_is(tmp_path):
    for name, loss in (("a", 1.0), ("b", 2.0)):
        with tenscope.init(tmp_path, name=name) as run:
            run.record("id", np.arange(4))
            run.record("h", np.ones((4, 3)))
            run.record("loss", loss)
    assert tenscope.diff(tmp_path / "a", tmp_path / "b", rows="id").first_divergence.name == "loss"


def test_what_has_no_rows_is_told(tmp_path):
    runs = []
    for name in ("a", "b"):
        with tenscope.init(tmp_path, name=name) as run:
            run.record("id", np.arange(4))
            run.record("v", np.ones((4, 3)))
            run.record("last", np.full(3, len(runs)))
        runs.append(tmp_path / name)
    diff = tenscope.diff(*runs, rows="id")
    assert diff.json["rows"]["left_out_first"] == ["last"] and diff.verdict == "unknown"
    for rows, message in (("idd", "idd"), ("v", "no integers")):
        done = subprocess.run([TENSCOPE, "diff", *runs, "--rows", rows], capture_output=True, text=True)
        assert done.returncode == 2 and message in done.stderr, done.stderr
    with tenscope.init(tmp_path, name="c") as run:
        run.record("id", np.arange(10, 14))
    done = subprocess.run([TENSCOPE, "diff", runs[0], tmp_path / "c", "--rows", "id"], capture_output=True, text=True)
    assert done.returncode == 2 and "no row in common" in done.stderr
