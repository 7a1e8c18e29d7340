"""Parameters that a program has cut by hand, and copies that differ by mistake: `diff --ranks` and `check`."""

import hand_written_run
import numpy as np
import pytest
import tenscope

STEPS = 2


def record(folder, ranks, weights, gradients=None, inputs=None, biases=None):
    """weights(rank, step), gradients(rank, step), inputs(rank, step): what a rank has of `fc.weight`.
    biases(rank, step): the gradient of `fc.bias`, which begins as zeros, and its value."""
    about = {"root": "Net#0", "cls": "Linear", "scope": "fc"}
    for rank in range(ranks):
        with tenscope.Run(folder, name="run", rank=rank, world_size=ranks, join=rank > 0, metadata=False) as run:
            run.record("fc.weight", weights(rank, 0), io="param", phase="init", step=0, **about)
            if biases is not None:
                run.record("fc.bias", np.zeros(8, np.float32), io="param", phase="init", step=0, **about)
            run.record("norm.weight", np.ones(8), io="param", phase="init", step=0, **about | {"scope": "norm"})
            for step in range(STEPS):
                run.step(step)
                of_model = {"root": "Net#0", "cls": "Net", "scope": "", "call": step, "phase": "forward"}
                run.record("", kind="enter", **of_model)
                if inputs is not None:
                    run.record("input.0", inputs(rank, step), io="input", **of_model)
                run.record("", kind="exit", **of_model)
                if gradients is not None:
                    run.record("fc.weight.grad", gradients(rank, step), io="grad", phase="backward", **about)
                run.record("fc.weight", weights(rank, step + 1), io="param", phase="optimizer", **about)
                if biases is not None:
                    run.record("fc.bias.grad", biases(rank, step)[0], io="grad", phase="backward", **about)
                    run.record("fc.bias", biases(rank, step)[1], io="param", phase="optimizer", **about)
    return folder / "run"


def values(*seed):
    return np.random.default_rng(seed).normal(size=(8, 8)).astype(np.float32)


def differences(run, check):
    found = hand_written_run.tenscope_json("diff", run, "--ranks", check=check)
    return [one["name"] for one in found["differences"]], found["not_compared"]


def is_out_of_sync(run):
    report = hand_written_run.tenscope_json("check", run, "--only", "ranks-out-of-sync", check=None)
    return [finding["name"] for finding in report["findings"]]


def test_parts_have_gradients_of_their_own(tmp_path):
    run = record(tmp_path, 2, lambda r, s: values(0, r, s), lambda r, s: values(1, r, s))
    assert differences(run, 0) == ([], ["fc.weight", "fc.weight.grad"])
    assert is_out_of_sync(run) == []


@pytest.mark.parametrize("is_part", [True, False])
def test_a_bias_of_zeros_is_a_part_as_its_weight_is(tmp_path, is_part):
    def bias(rank, step):  # of a layer that adds it to what all ranks have made together, it is a copy
        return values(2, rank * is_part, step)[0], values(3, rank, step)[0]

    run = record(tmp_path, 2, lambda r, s: values(0, r, s), lambda r, s: values(1, r, s), biases=bias)
    assert differences(run, 0 if is_part else 1)[0] == ([] if is_part else ["fc.bias"])
    assert is_out_of_sync(run) == ([] if is_part else ["fc.bias"])


def test_replicas_of_a_part_are_compared(tmp_path):
    def run(name, weights):
        (tmp_path / name).mkdir()
        return record(tmp_path / name, 4, weights, lambda r, s: values(1, r % 2, s))

    right = run("right", lambda r, s: values(0, r % 2, s))
    assert differences(right, 0) == ([], [])
    wrong = run("wrong", lambda r, s: values(0, r % 2, s) + np.float32(0.1 if (r, s) == (3, 2) else 0))
    assert differences(wrong, 1)[0] == ["fc.weight"]
    assert is_out_of_sync(wrong) == ["fc.weight"]


def test_a_copy_that_was_initialised_otherwise(tmp_path):
    run = record(tmp_path, 2, lambda r, s: values(0, r, s), lambda r, s: values(1, s), lambda r, s: values(2, r, s))
    assert differences(run, 1)[0] == ["fc.weight"]
    assert is_out_of_sync(run) == ["fc.weight"]


def test_one_copy_of_three_is_no_mesh(tmp_path):
    run = record(tmp_path, 3, lambda r, s: values(0, r == 2, s), lambda r, s: values(1, r == 2, s))
    assert is_out_of_sync(run) == ["fc.weight"]


def test_copies_that_part_later(tmp_path):
    run = record(tmp_path, 2, lambda r, s: values(0, s, r if s else 0), lambda r, s: values(1, r, s))
    assert is_out_of_sync(run) == ["fc.weight"]


@pytest.mark.parametrize("is_same", [True, False])
def test_without_gradients_the_inputs_tell(tmp_path, is_same):
    run = record(tmp_path, 2, lambda r, s: values(0, r, s), None, lambda r, s: values(2, s, 0 if is_same else r))
    assert is_out_of_sync(run) == ([] if is_same else ["fc.weight"])
