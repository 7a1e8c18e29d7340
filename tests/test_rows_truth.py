"""What a comparison by rows says is so: axes, equal bytes, rows that are left out, places, keys that are none."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tenscope

TENSCOPE = Path(sys.executable).with_name("tenscope")
COUNT, HEADS, SIZE = 12, 12, 4
ORDER = np.random.default_rng(1).permutation(COUNT)


def random(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def record(folder, name, *values, steps=None, rank=0, world_size=1):
    """One run of a step with these values, or of several steps."""
    with tenscope.Run(folder, name=name, rank=rank, world_size=world_size, metadata=False) as run:
        for number, step in enumerate(steps if steps is not None else [dict(values)]):
            run.step(number)
            for key, value in step.items():
                run.record(key, value)
    return folder / name


def pair(folder, tensors, changed=None):
    """The same tensors, {name: (value, axis of the rows)}, with the rows in two orders."""
    runs = []
    for name, order, values in (("a", np.arange(COUNT), tensors), ("b", ORDER, {**tensors, **(changed or {})})):
        items = [("id", order)]
        for key, (value, axis) in values.items():
            items.append((key, value if axis is None else np.take(value, order, axis)))
        runs.append(record(folder, name, *items))
    return runs


def command(*words):
    return subprocess.run(list(map(str, words)), capture_output=True, text=True, check=False)


# ---- axes


@pytest.mark.parametrize("prefix", ["", "other."], ids=["equal-names", "other-names"])
def test_the_axis_of_the_rows_is_found_where_another_has_their_number(tmp_path, prefix):
    tensors = {
        "x": (random(COUNT, SIZE, seed=5), 0),
        "k": (random(HEADS, COUNT, SIZE, seed=1), 1),
        "square": (random(COUNT, COUNT, seed=2), 0),
        "transposed": (random(COUNT, COUNT, seed=3), 1),
        "last": (random(SIZE, HEADS, COUNT, seed=4), 2),
    }
    runs = pair(tmp_path, tensors)
    if prefix:
        runs[1] = record(
            tmp_path,
            "named",
            ("id", ORDER),
            *((prefix + k, np.take(v, ORDER, axis)) for k, (v, axis) in tensors.items()),
        )
    for way in (runs, runs[::-1]):
        diff = tenscope.diff(*way, rows="id")
        assert diff.verdict == "equal", str(diff)
        assert diff.json["counts"]["bit_equal"] == 5


def test_a_tensor_that_agrees_in_some_rows_has_its_axis_by_these(tmp_path):
    value = random(HEADS, COUNT, SIZE)
    wrong = value.copy()
    wrong[:, 3] += 1
    diff = tenscope.diff(*pair(tmp_path, {"k": (value, 1)}, {"k": (wrong, 1)}), rows="id")
    assert diff.first_divergence.metrics.row == "id 3"
    assert diff.json["first_divergence"]["metrics"]["rows"] == "1 of 12"


def test_a_tensor_that_agrees_nowhere_has_its_rows_where_its_like_has_them(tmp_path):
    tensors = {"layers.0.k": (random(HEADS, COUNT, SIZE), 1), "layers.1.k": (random(HEADS, COUNT, SIZE, seed=1), 1)}
    wrong = 2 * tensors["layers.1.k"][0]
    diff = tenscope.diff(*pair(tmp_path, tensors, {"layers.1.k": (wrong, 1)}), rows="id")
    assert diff.first_divergence.name == "layers.1.k"
    assert diff.first_divergence.metrics.relation == "b = 2 a", str(diff)


def test_an_axis_that_nothing_tells_is_said_to_be_ambiguous(tmp_path):
    tensors = {"x": (random(COUNT, SIZE), 0), "k": (random(HEADS, COUNT, SIZE), 1)}
    diff = tenscope.diff(*pair(tmp_path, tensors, {"k": (random(HEADS, COUNT, SIZE, seed=9), 1)}), rows="id")
    assert diff.verdict == "unknown" and diff.first_divergence is None
    assert diff.json["rows"]["ambiguous_first"] == diff.json["rows"]["ambiguous_second"] == ["k"]
    assert "left out, since several axes may be the rows: k" in str(diff)


def test_a_row_that_may_as_well_be_a_head_is_not_named(tmp_path):
    """As many heads as tokens in both runs: [sequences, heads, tokens, size] against steps of [tokens, heads, size]."""
    count = 5
    values = {sequence: random(count, count, 3, seed=sequence) for sequence in (7, 9)}  # tokens, heads, size
    trainer = {
        "id": np.repeat(np.array([[7], [9]]), count, 1),
        "place": np.tile(np.arange(count), (2, 1)),
        "q": np.stack([value.transpose(1, 0, 2) for value in values.values()]),
    }
    engine = [{"id": np.full(count, s), "place": np.arange(count), "q": values[s].copy()} for s in (9, 7)]
    engine[0]["q"][3, 1, 2] += 1
    runs = [record(tmp_path, "a", steps=[trainer]), record(tmp_path, "b", steps=engine)]
    for order, index in ((runs, [1, 1, 3, 2]), (runs[::-1], [3, 1, 2])):
        found = tenscope.diff(*order, rows="id,place")
        assert found.json["first_divergence"]["metrics"]["worst_index"] == index
        assert "place 1" not in str(found)
        assert "place 3" not in str(found)


def test_sequences_may_stand_behind_tokens(tmp_path):
    ids = np.arange(12).reshape(3, 4)
    value = random(3, 4, SIZE)
    a = record(tmp_path, "a", ("id", ids), ("h", value.transpose(1, 0, 2)))
    b = record(tmp_path, "b", ("id", ids.ravel()), ("h", value.reshape(12, SIZE)))
    assert tenscope.diff(a, b, rows="id").verdict == "equal"


# ---- equal bytes


def test_a_tensor_that_happens_to_have_the_number_of_rows_is_equal_by_its_bytes(tmp_path):
    tensors = {
        "bias": (random(COUNT), None),
        "table": (random(COUNT, SIZE), None),
        "h": (random(COUNT, SIZE, seed=1), 0),
    }
    diff = tenscope.diff(*pair(tmp_path, tensors), rows="id")
    assert diff.verdict == "equal" and diff.json["counts"]["bit_equal"] == 3, str(diff)
    assert diff.json["rows"]["as_they_are"] == ["bias", "table"]
    diff = tenscope.diff(*pair(tmp_path / "wrong", tensors, {"h": (random(COUNT, SIZE, seed=2), 0)}), rows="id")
    assert diff.first_divergence.name == "h" and len(diff.json["origins"]) == 1


def test_what_every_batch_has_is_no_rows(tmp_path):
    bias, h = random(COUNT), random(COUNT + 3, SIZE)
    a = record(tmp_path, "a", ("id", np.arange(COUNT + 3)), ("bias", bias), ("h", h))
    batches = [np.arange(COUNT)[::-1], np.arange(COUNT, COUNT + 3)]
    b = record(tmp_path, "b", steps=[{"id": ids, "bias": bias, "h": h[ids]} for ids in batches])
    diff = tenscope.diff(a, b, rows="id")
    assert diff.verdict == "equal" and diff.json["counts"]["bit_equal"] == 2, str(diff)


@pytest.mark.parametrize("io", ["param", "buffer"])
def test_parameters_are_never_rows(tmp_path, io):
    weight, h = random(COUNT, SIZE), random(COUNT, SIZE, seed=1)
    for name, order, change in (("a", np.arange(COUNT), 0), ("b", ORDER, 0), ("c", ORDER, 1)):
        with tenscope.init(tmp_path, name=name) as run:
            run.record("weight", weight + change, io=io)
            run.record("id", order)
            run.record("h", h[order])
    assert tenscope.diff(tmp_path / "a", tmp_path / "b", rows="id").verdict == "equal"
    diff = tenscope.diff(tmp_path / "a", tmp_path / "c", rows="id")
    assert diff.first_divergence.name == "weight" and diff.first_divergence.metrics.row is None


def test_keys_that_everything_contradicts_are_doubted(tmp_path):
    x, h = random(COUNT, SIZE), random(COUNT, SIZE, seed=1)
    a = record(tmp_path, "a", ("id", np.arange(COUNT)), ("x", x), ("h", h))
    b = record(tmp_path, "b", ("id", ORDER), ("x", x), ("h", h))
    diff = tenscope.diff(a, b, rows="id")
    assert diff.first_divergence.name == "x" and diff.json["rows"]["are_keys_doubtful"]
    assert "equal in the order of recording, but not by the keys: x, h. Are the keys right?" in str(diff)


# ---- rows that are left out


def padded(sequences, pad, width, left=False):
    out = np.full((len(sequences), width), pad)
    for row, own in zip(out, sequences, strict=True):
        row[width - len(own) if left else 0 : width if left else len(own)] = own
    return out


SEQUENCES = [[5, 1, 2, 3, 4], [5, 1, 9], [7, 7, 2, 8]]
EMBED = random(20, SIZE, seed=8)


def in_context(tokens, pad=None):
    """Each row is a function of all tokens before it, in its sequence; of padding it is anything."""
    out = np.zeros((len(tokens), SIZE), np.float32)
    for i in range(len(tokens)):
        own = [t for t in tokens[: i + 1] if t != pad]
        out[i] = sum(np.float32(0.5 ** (len(own) - k)) * EMBED[t] for k, t in enumerate(own))
    return out


def record_tokens(folder, name, batch, pad=None):
    h = np.stack([in_context(row, pad) for row in batch])
    return record(folder, name, ("tokens", batch), ("h", h))


def record_packed(folder, name, sequences):
    values = [("tokens", np.concatenate(sequences)), ("h", np.concatenate([in_context(own) for own in sequences]))]
    return record(folder, name, *values)


@pytest.mark.parametrize("left", [False, True], ids=["right", "left"])
@pytest.mark.parametrize("pad", [0, 5], ids=["a-pad", "pads-like-the-first-token"])
def test_tokens_find_their_rows_behind_any_padding(tmp_path, left, pad):
    sequences = SEQUENCES if pad == 0 else [[5, 1, 2, 3, 4], [5, 1, 9], [5, 7, 2, 8]]
    a = record_tokens(tmp_path, "a", padded(sequences, pad, 8, left), None if pad == 5 and not left else pad)
    if pad == 5 and left:  # the first token of the sequence, which pads it too, counts once
        batch = padded(sequences, pad, 8, left)
        h = np.stack([np.concatenate([np.zeros((8 - len(own), SIZE)), in_context(own)]) for own in sequences])
        a = record(tmp_path, "again", ("tokens", batch), ("h", h.astype(np.float32)))
    b = record_packed(tmp_path, "b", sequences[::-1])
    for way in ((a, b), (b, a)):
        diff = tenscope.diff(*way, rows="tokens")
        assert diff.verdict == "equal", str(diff)
        assert diff.json["rows"]["common"] == sum(map(len, sequences))


def test_sequences_with_one_beginning_are_told_by_their_ends(tmp_path):
    """Several answers to one prompt: the prompt's rows come several times, or once, where they are cached."""
    answers = [[3, 4, 5, 6], [3, 4, 5, 8, 9], [3, 4, 5, 6]]
    a = record_tokens(tmp_path, "a", padded(answers, 0, 7), 0)
    b = record_packed(tmp_path, "b", answers[::-1])
    diff = tenscope.diff(a, b, rows="tokens")
    assert diff.verdict == "equal" and diff.json["rows"]["common"] == 13, str(diff)
    diff = tenscope.diff(a, record_packed(tmp_path, "c", answers[:2]), rows="tokens")
    assert diff.verdict == "noise" and diff.json["rows"]["duplicates"] == 4, str(diff)
    assert "equal as far as compared: 9 rows, of 13 in the first run and 9 in the second" in str(diff)


@pytest.mark.parametrize("swapped", [False, True])
def test_dropped_rows_are_said_and_are_not_equal(tmp_path, swapped):
    whole = record_tokens(tmp_path, "a", padded(SEQUENCES, 0, 6), 0)
    without_a_sequence = record_packed(tmp_path, "b", SEQUENCES[1:])
    runs = (whole, without_a_sequence)[:: -1 if swapped else 1]
    diff = tenscope.diff(*runs, rows="tokens")
    assert diff.verdict == "noise" and "7 rows" in str(diff), str(diff)
    assert sorted((diff.json["rows"]["first_run"], diff.json["rows"]["second_run"])) == [7, 12]
    rows = np.delete(np.concatenate([in_context(own) for own in SEQUENCES]), 2, 0)
    tokens = np.delete(np.concatenate(SEQUENCES), 2)
    broken = record(tmp_path, "c", ("tokens", tokens), ("h", rows))
    diff = tenscope.diff(*(whole, broken)[:: -1 if swapped else 1], rows="tokens")
    assert diff.verdict == "unknown" and diff.json["rows"]["unplaced"] > 0, str(diff)
    assert "left out, since token ids do not place them: 2 rows" in str(diff)


@pytest.mark.parametrize("swapped", [False, True])
def test_doubled_rows_are_said_and_are_not_equal(tmp_path, swapped):
    whole = record_tokens(tmp_path, "a", padded(SEQUENCES, 0, 6), 0)
    doubled = record_packed(tmp_path, "b", [*SEQUENCES, SEQUENCES[1]])
    diff = tenscope.diff(*(whole, doubled)[:: -1 if swapped else 1], rows="tokens")
    assert diff.verdict == "noise" and diff.json["rows"]["duplicates"] == 3, str(diff)
    assert "3 more have a key that the other run has fewer times" in str(diff)


def test_a_number_for_each_row_is_no_token(tmp_path):
    ids, value = np.arange(12).reshape(3, 4)[::-1], random(3, 4, SIZE)
    a = record(tmp_path, "a", ("id", ids), ("h", value))
    b = record(tmp_path, "b", ("id", ids.ravel()[ORDER]), ("h", value.reshape(12, SIZE)[ORDER]))
    diff = tenscope.diff(a, b, rows="id")
    assert diff.verdict == "equal" and diff.json["rows"]["keys"] == ["id"], str(diff)


def test_a_tensor_that_one_run_has_without_its_rows_is_not_equal(tmp_path):
    h, last = random(COUNT, SIZE), random(COUNT, SIZE, seed=3)
    a = record(tmp_path, "a", ("id", np.arange(COUNT)), ("h", h), ("logits", last))
    b = record(tmp_path, "b", ("id", ORDER), ("h", h[ORDER]), ("logits", last[:1]))
    diff = tenscope.diff(a, b, rows="id")
    assert diff.verdict == "unknown" and diff.json["rows"]["left_out_first"] == ["logits"], str(diff)


# ---- places


def steps_of(batches, values):
    return [{"id": ids, **{name: value[ids] for name, value in values.items()}} for ids in batches]


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("calls", [1, 2])
@pytest.mark.parametrize("names", [("h", "h"), ("h", "hidden")], ids=["equal-names", "other-names"])
def test_the_printed_command_leads_to_the_very_element(tmp_path, rank, calls, names):
    values = random(2, COUNT, 3, SIZE)
    wrong = values.copy()
    wrong[calls - 1, 9, 2, 1] += 5
    batches = [[3, 1], [0, 2, 4], [10, 9, 11], [5], [8, 7, 6]]
    if rank == 0:
        with tenscope.Run(tmp_path, name="b", metadata=False) as run:
            for ids in batches:
                run.record("id", np.array(ids))
                for call in range(calls):
                    run.record(names[1], wrong[call][ids].swapaxes(0, 1))
                run.step()
    else:  # each rank has some of the requests
        for one in (0, 1):
            with tenscope.Run(tmp_path, name="b", rank=one, world_size=2, metadata=False) as run:
                for ids in batches[one::2]:
                    run.record("id", np.array(ids))
                    for call in range(calls):
                        run.record(names[1], wrong[call][ids].swapaxes(0, 1))
                    run.step()
    with tenscope.Run(tmp_path, name="a", metadata=False) as run:
        run.step(7)
        run.record("id", np.arange(COUNT).reshape(3, 4))
        for call in range(calls):
            run.record(names[0], values[call].reshape(3, 4, 3, SIZE).transpose(0, 2, 1, 3))
    for way in (("a", "b"), ("b", "a")):
        shown = command(TENSCOPE, "diff", tmp_path / way[0], tmp_path / way[1], "--rows", "id")
        assert shown.returncode == 1 and "(id 9)" in shown.stdout, shown.stdout
        assert f"step {7 if way[0] == 'a' else 2 if rank == 0 else 1}, call {calls - 1}" in shown.stdout.splitlines()[0]
        found = {}
        for line in shown.stdout.splitlines():
            if "tenscope show" in line:
                words = shlex.split(line[line.index("tenscope show") :])[1:]
                answer = json.loads(command(TENSCOPE, *words, "--json").stdout)
                found[Path(words[1]).name] = np.array(answer["values"], np.float32)
        assert found["a"] == values[calls - 1, 9, 2, 1], shown.stdout
        assert found["b"] == wrong[calls - 1, 9, 2, 1], shown.stdout


def test_the_rank_of_a_row_is_told(tmp_path):
    values = random(COUNT, SIZE)
    a = record(tmp_path, "a", ("id", np.arange(COUNT)), ("h", values))
    wrong = values.copy()
    wrong[10, 2] += 3
    for rank in (0, 1):
        ids = np.arange(6) if rank == 0 else np.arange(6, 12)[::-1]
        record(tmp_path, "b", ("id", ids), ("h", wrong[ids]), rank=rank, world_size=2)
    shown = command(TENSCOPE, "diff", a, tmp_path / "b", "--rows", "id").stdout
    (line,) = [line for line in shown.splitlines() if f"show {tmp_path / 'b'}" in line]
    assert line.endswith("h --step 0 --call 0 --rank 1 --slice 1,2"), shown


# ---- keys


def test_keys_that_are_none_are_refused(tmp_path):
    a, b = pair(tmp_path, {"h": (random(COUNT, SIZE), 0)})
    for rows in ("", "id,", ",id"):
        done = command(TENSCOPE, "diff", a, b, "--rows", rows)
        assert done.returncode == 2 and "'request,position'" in done.stderr, done.stderr
        with pytest.raises(tenscope.Error, match="one of them is empty"):
            tenscope.diff(a, b, rows=rows)
    done = command(TENSCOPE, "diff", a, b, "--rows", "idx")
    assert done.returncode == 2 and "did you mean 'id'?" in done.stderr and str(a) in done.stderr, done.stderr
    done = command(TENSCOPE, "diff", a, b, "--rows", "id=ids")
    assert done.returncode == 2 and "did you mean 'id'?" in done.stderr and str(b) in done.stderr, done.stderr
    np.save(tmp_path / "x.npy", np.arange(3))
    done = command(TENSCOPE, "diff", tmp_path / "x.npy", tmp_path / "x.npy", "--rows", "id")
    assert done.returncode == 2 and "two runs" in done.stderr, done.stderr


def test_names_are_no_keys_and_it_says_what_to_do(tmp_path):
    a = record(tmp_path, "a", ("request", "req-7"), ("h", random(1, SIZE)))
    with pytest.raises(tenscope.Error, match="number what it names"):
        tenscope.diff(a, a, rows="request")


@pytest.mark.parametrize("dtype", [np.uint64, np.int64, np.int32, np.uint8])
def test_keys_of_every_integer_type_are_exact(tmp_path, dtype):
    numbers = np.array([np.iinfo(dtype).max - k for k in range(COUNT)], dtype)
    values = random(COUNT)
    a = record(tmp_path, "a", ("id", numbers), ("h", values))
    b = record(tmp_path, "b", ("id", numbers[ORDER]), ("h", values[ORDER] + (ORDER == 2)))
    diff = tenscope.diff(a, b, rows="id")
    assert diff.first_divergence.metrics.row == f"id {numbers[2]}"
    (table,) = diff.json["rows"]["tables"]
    assert sorted(row["key"][0] for row in table["rows"]) == sorted(int(number) for number in numbers)


def test_a_number_for_a_whole_batch_and_keys_of_other_types(tmp_path):
    values = random(3, 4, SIZE)
    request = np.array([[30], [10], [20]])
    a = record(tmp_path, "a", ("request", request), ("position", np.arange(4)), ("h", values))
    steps = [
        {"request": int(request[i, 0]), "position": np.arange(4, dtype=np.int32), "h": values[i]} for i in (2, 0, 1)
    ]
    assert tenscope.diff(a, record(tmp_path, "b", steps=steps), rows="request,position").verdict == "equal"


# ---- tables


def test_tables_are_no_wider_than_the_terminal(tmp_path):
    keys = [f"inputs.metadata.identifier_of_the_request_{k}" for k in range(3)]
    numbers = [np.arange(COUNT) + 10 ** (5 * k) for k in range(3)]
    values = -np.abs(random(COUNT))
    for name, change in (("a", 0), ("b", 0.1)):
        record(tmp_path, name, *zip(keys, numbers, strict=True), ("logprobs", values - change * np.arange(COUNT)))
    shown = command(TENSCOPE, "diff", tmp_path / "a", tmp_path / "b", "--rows", ",".join(keys)).stdout.splitlines()
    (head,) = [k for k, line in enumerate(shown) if line.endswith("exp(b-a)")]
    assert max(map(len, shown[head : head + 11])) <= 80, "\n".join(shown)
    assert all(f"request_{k}" in shown[head] for k in range(3))


# ---- what else is known of the runs


def test_how_the_runs_ended_and_were_set_up_is_told(tmp_path):
    code = """
import os, sys, numpy as np, tenscope
run = tenscope.init(sys.argv[1], name=sys.argv[2])
run.record("id", np.arange(4))
run.record("h", np.ones((4, 3)))
if sys.argv[2] == "fails":
    raise ValueError("no more tokens")
if sys.argv[2] == "dies":
    os._exit(1)
"""
    for name in ("ends", "fails", "dies"):
        command(sys.executable, "-c", code, tmp_path, name)
    assert "note" not in str(tenscope.diff(tmp_path / "ends", tmp_path / "ends", rows="id"))
    failed = tenscope.diff(tmp_path / "ends", tmp_path / "fails", rows="id")
    assert "second run: it ended by an exception: ValueError: no more tokens" in str(failed)
    assert "first run: rank-0 was not closed" in str(tenscope.diff(tmp_path / "dies", tmp_path / "ends", rows="id"))
    for name, seed in (("a", "1"), ("b", "2")):
        with tenscope.init(tmp_path, name=name) as run:
            run.record("seeds", None, kind="note", phase="init", meta={"torch": seed})
            run.record("id", np.arange(4))
            run.record("h", np.ones((4, 3)))
    assert "seeds.torch: 1 became 2" in str(tenscope.diff(tmp_path / "a", tmp_path / "b", rows="id"))


def test_parameters_that_change_or_have_no_bytes_are_not_called_equal(tmp_path):
    h, weight = random(2 * COUNT, SIZE), random(3, 3)
    for name, later, keep in (("a", 0, "full"), ("b", 1, "full"), ("stats", 0, "stats"), ("other", 1, "stats")):
        with tenscope.init(tmp_path, name=name) as run:
            for step in range(2):
                ids = np.arange(COUNT) + step * COUNT
                run.record("id", ids)
                change = later if keep == "stats" else step * later
                run.record("weight", weight + change, io="param", values=keep)
                run.record("h", h[ids])
                run.step()
    diff = tenscope.diff(tmp_path / "a", tmp_path / "b", rows="id")
    assert diff.verdict == "noise" and diff.json["rows"]["partial"] == ["weight"], str(diff)
    diff = tenscope.diff(tmp_path / "a", tmp_path / "stats", rows="id")
    assert diff.verdict == "equal" and diff.json["counts"]["compared"] == 2, str(diff)
    diff = tenscope.diff(tmp_path / "a", tmp_path / "other", rows="id")
    assert diff.verdict == "unknown" and diff.json["rows"]["left_out_second"] == ["weight"], str(diff)
