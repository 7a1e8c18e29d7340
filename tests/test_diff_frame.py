"""The table of a diff: every value of both runs, with what is said of it. The judge is numpy on the runs' arrays."""

import duckdb
import numpy as np
import pandas
import polars
import pyarrow
import pytest
import tenscope


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    base = tmp_path_factory.mktemp("runs")
    for name in ("a", "b"):
        random = np.random.default_rng(0)
        with tenscope.Run(base, name=name) as run:
            for step in range(3):
                run.record("loss", 1.0 / (step + 1))
                run.record("note", f"step {step}")
                for layer in range(2):
                    values = random.normal(size=(4, 5)).astype(np.float32)
                    if name == "b" and step == 1 and layer == 1:
                        values *= 1.5
                    run.record(f"blocks.{layer}.out", values)
                if name == "b":
                    run.record("only.b", np.ones(2))
                run.step()
    return tenscope.open(base / "a"), tenscope.open(base / "b")


def test_every_value_has_a_row(pair):
    a, b = pair
    diff = tenscope.diff(a, b)
    table = diff.frame()
    assert isinstance(table, pandas.DataFrame)
    assert len(table) == len([e for e in b if e.kind == "value"])
    for event in (e for e in b if e.kind == "value"):
        row = table[(table.name == event.name) & (table.step == event.step)].iloc[0]
        if event.name == "only.b":
            assert row.verdict == "not seen" and row.name_b == "only.b"
            assert pandas.isna(row.name_a) and np.isnan(row.l2_a)
        elif event.is_tensor:
            x, y = np.asarray(a[event.name, event.step]), np.asarray(event.value)
            assert row.error == pytest.approx(np.linalg.norm(y - x) / np.linalg.norm(x))
            assert (row.verdict == "equal") == np.array_equal(x, y)
            assert row.l2_b == pytest.approx(np.linalg.norm(y)) and row.shape_b == (4, 5)
        elif event.name == "loss":
            assert row.verdict == "equal" and row.value_a == row.value_b == event.value
    first = diff.first_divergence
    started = table[table.verdict == "starts"]
    assert started[["name", "step"]].values.tolist() == [[first.name, first.step]] == [["blocks.1.out", 1]]
    assert table[["rank", "step"]].values.tolist() == sorted(table[["rank", "step"]].values.tolist())


def test_other_tools_take_it(pair):
    diff = tenscope.diff(*pair)
    count = len(diff.frame())
    assert len(pyarrow.table(diff)) == len(polars.DataFrame(diff)) == count
    assert duckdb.sql("select count(*) from diff where verdict = 'starts'").fetchall() == [(1,)]


def test_runs_compared_by_rows_have_none(pair, tmp_path):
    for name in ("a", "b"):
        with tenscope.Run(tmp_path, name=name) as run:
            run.record("position", np.arange(4))
            run.record("x", np.ones((4, 2)))
    diff = tenscope.diff(tmp_path / "a", tmp_path / "b", rows="position")
    with pytest.raises(tenscope.UnsupportedError, match=r"rows or whole tensors were compared.*\.json"):
        diff.frame()


def test_it_stays_with_the_chosen_ranks(tmp_path):
    for name, factor in (("a", 1), ("b", 2)):
        for rank in range(2):
            with tenscope.Run(tmp_path, name=name, rank=rank, world_size=2) as run:
                run.record("x", np.full(3, rank * factor + 1.0))
    table = tenscope.diff(tmp_path / "a", tmp_path / "b", ranks=[1]).frame()
    assert table[["rank", "name"]].values.tolist() == [[1, "x"]] and table.l2_b[0] == pytest.approx(27**0.5)
