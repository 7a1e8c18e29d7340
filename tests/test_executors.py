"""Runs of 64 ranks compared on executors: the answer is that of one process, whoever did the work and in what order."""

import os
import pickle
import signal
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest
import tenscope
from hypothesis import given, settings
from hypothesis import strategies as st
from tenscope import _core
from tenscope.comparing import parts

RANKS = 64
TENSCOPE = Path(sys.executable).with_name("tenscope")


def record(folder, name, wrong=(), late=(), crashed=(), without=()):
    """Three steps of data parallel training: on `wrong` ranks the forward of step 1 is off, and with it the weights of
    all; on `late` ranks the weights are off in every step, which is more than a report lists."""
    for rank in sorted(set(range(RANKS)) - set(without)):
        with tenscope.Run(folder, name=name, rank=rank, world_size=RANKS, join=rank > 0, metadata=False) as run:
            run.record("data", np.arange(8, dtype=np.float32) + rank)
            for step in range(3):
                off = step == 1 and rank in wrong
                follows = 0.25 if wrong and step >= 1 else 0.5 if rank in late else 0
                run.record("h", np.full(8, rank + step + 2 * off, np.float32), io="output", phase="forward")
                run.record("w", np.full(8, step + follows, np.float32), io="param", phase="optimizer")
                if rank % 16 == 5:
                    run.record(f"only{rank // 16}", step)
                run.step(step + 1)
    for rank in crashed:
        journal = folder / name / f"rank-{rank}" / "journal.jsonl"
        journal.write_bytes(b"".join(journal.read_bytes().splitlines(keepends=True)[:-1]))
    return folder / name


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    return {
        "good": record(folder, "good"),
        "same": record(folder, "same", crashed=[3, 9]),
        "wrong": record(folder, "wrong", wrong=[40, 17], crashed=[5], without=[63]),
        "late": record(folder, "late", late=range(1, RANKS)),
    }


@pytest.fixture(scope="module", autouse=True)
def same_environment():
    """Dask sets variables of this process for those that it starts, and leaves them."""
    before = dict(os.environ)
    yield
    for name in os.environ.keys() - before.keys():
        del os.environ[name]
    os.environ.update(before)


@pytest.fixture(scope="module")
def cluster():
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=3, threads_per_worker=1, processes=True, dashboard_address=":0") as local,
        Client(local) as client,
    ):
        assert len(set(client.run(os.getpid).values())) == 3
        yield client


def everything(diff, tmp_path):
    diff.save_html(tmp_path / "page.html")
    return str(diff), diff.json, (tmp_path / "page.html").read_text()


OTHERS = ["same", "wrong", "late"]


def test_one_process_finds_what_was_done(runs):
    assert tenscope.diff(runs["good"], runs["same"]).equal
    wrong = tenscope.diff(runs["good"], runs["wrong"])
    assert wrong.verdict == "differs"
    assert [(o.rank, o.step, o.name) for o in wrong.origins] == [(17, 1, "h"), (40, 1, "h")]
    assert "rank 40 differs from the same step and phase on: which rank was first is not known" in wrong.notes
    assert "rank 63 is only in the first run" in wrong.notes
    late = tenscope.diff(runs["good"], runs["late"])
    each = [(step, step > 0 and rank % 16 == 5, rank) for step in range(3) for rank in range(1, RANKS)]
    assert [(o.step, o.rank) for o in late.origins] == [(step, rank) for step, _, rank in sorted(each)][:100]


@pytest.mark.parametrize("other", OTHERS)
def test_threads_and_processes_give_the_same_answer(runs, other, tmp_path):
    expected = everything(tenscope.diff(runs["good"], runs[other]), tmp_path)
    with ThreadPoolExecutor(3) as threads:
        assert everything(tenscope.diff(runs["good"], runs[other], executor=threads), tmp_path) == expected
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as processes:
        assert everything(tenscope.diff(runs["good"], runs[other], executor=processes), tmp_path) == expected


@pytest.mark.parametrize("other", OTHERS)
def test_a_dask_cluster_gives_the_same_answer(runs, other, cluster, tmp_path):
    expected = everything(tenscope.diff(runs["good"], runs[other]), tmp_path)
    done = []
    diff = tenscope.diff(runs["good"], runs[other], executor=cluster.get_executor(), progress=done.append)
    assert everything(diff, tmp_path) == expected
    assert done == sorted(done) and len(done) > 3 and done[-1] == 1


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("json", [[], ["--json"]])
def test_the_command_line_hands_over_to_dask(runs, other, json, cluster):
    good, other = (Path(runs[name].name) for name in ("good", other))  # the workers are in another folder
    say = [str(TENSCOPE), "diff", str(good), str(other), *json]
    alone = subprocess.run(say, capture_output=True, text=True, cwd=runs["good"].parent)
    dask = subprocess.run(
        [*say, "--dask", cluster.scheduler.address], capture_output=True, text=True, cwd=runs["good"].parent
    )
    assert (dask.stdout, dask.returncode) == (alone.stdout, alone.returncode), dask.stderr


def test_the_command_line_says_what_dask_cannot_do(runs, cluster):
    def trouble(*words):
        done = subprocess.run([TENSCOPE, "diff", *words], capture_output=True, text=True)
        assert done.returncode == 2
        return done.stderr

    address = cluster.scheduler.address
    assert "--dask compares two runs" in trouble(runs["good"], "--ranks", "--dask", address)
    assert "it does not go with --dask" in trouble(runs["good"], runs["same"], "--rows", "x", "--dask", address)
    assert "fits nothing" in trouble(runs["good"], runs["same"], "--map", "no=where", "--dask", address)
    assert "tenscope: " in trouble(runs["good"], runs["same"], "--dask", "no address")


class Deadly:
    """An executor whose task for rank `rank` kills the process that it is in, the first time."""

    def __init__(self, executor, rank, scratch):
        self.executor, self.rank, self.mark = executor, rank, scratch / "killed"

    def submit(self, task, *args):
        if self.rank in args[3] and not self.mark.exists():
            return self.executor.submit(die_once, self.mark, task, *args)
        return self.executor.submit(task, *args)


def die_once(mark, task, *args):
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return task(*args)


@pytest.mark.parametrize("allowed_failures", [0, 3])
def test_a_killed_dask_worker_changes_nothing(runs, allowed_failures, tmp_path):
    """With 0, Dask gives the task up at once, and it is submitted again; with 3 Dask itself tries again."""
    import dask
    from distributed import Client, LocalCluster

    expected = everything(tenscope.diff(runs["good"], runs["wrong"]), tmp_path)
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": allowed_failures}),
        LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0") as local,
        Client(local) as client,
    ):
        executor = Deadly(client.get_executor(), 20, tmp_path)
        assert everything(tenscope.diff(runs["good"], runs["wrong"], executor=executor), tmp_path) == expected
    assert executor.mark.exists()


def test_a_killed_process_of_a_pool_is_told(runs, tmp_path):
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as processes:
        executor = Deadly(processes, 20, tmp_path)
        with pytest.raises(tenscope.Error, match=r"rank \d+ failed in the executor, .*BrokenProcessPool"):
            tenscope.diff(runs["good"], runs["wrong"], executor=executor)
    assert executor.mark.exists()


def test_a_task_that_never_succeeds_is_told(runs):
    class Failing:
        tries = 0

        def submit(self, task, *args):
            Failing.tries += 20 in args[3]
            return threads.submit(fail if 20 in args[3] else task, *args)

    def fail(*args):
        raise MemoryError("no room")

    with ThreadPoolExecutor(2) as threads, pytest.raises(tenscope.Error) as raised:
        tenscope.diff(runs["good"], runs["wrong"], executor=Failing())
    assert str(raised.value) == "the comparison of rank 20 failed in the executor, 3 times: MemoryError: no room"
    assert Failing.tries == 3


def test_some_ranks(runs, tmp_path):
    assert tenscope.diff(runs["good"], runs["wrong"], ranks=range(17)).counts.compared == 17 * 7 + 3
    expected = everything(tenscope.diff(runs["good"], runs["wrong"], ranks=[40, 2, 17]), tmp_path)
    assert [o["rank"] for o in expected[1]["origins"]] == [17, 40]
    with ThreadPoolExecutor(2) as threads:
        found = tenscope.diff(runs["good"], runs["wrong"], ranks=[40, 2, 17], executor=threads)
        assert everything(found, tmp_path) == expected
        for executor in (None, threads):
            with pytest.raises(tenscope.NotFoundError, match="no rank 64 is in either run"):
                tenscope.diff(runs["good"], runs["wrong"], ranks=[64], executor=executor)
            with pytest.raises(tenscope.UsageError, match="at least one rank"):
                tenscope.diff(runs["good"], runs["wrong"], ranks=[], executor=executor)
        with pytest.raises(tenscope.UsageError, match="rows="):
            tenscope.diff(runs["good"], runs["wrong"], rows="x", executor=threads)
    with pytest.raises(tenscope.UsageError, match="submit"):
        tenscope.diff(runs["good"], runs["wrong"], executor=3)


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_parts_merge_in_any_order(runs, data):
    ranks = data.draw(st.permutations(range(RANKS)))
    cuts = sorted(data.draw(st.sets(st.integers(1, RANKS - 1), max_size=8)))
    other = data.draw(st.sampled_from(OTHERS))
    chosen = [ranks[i:j] for i, j in zip([0, *cuts], [*cuts, RANKS], strict=True)]
    a, b = str(runs["good"]), str(runs[other])
    found = [pickle.loads(pickle.dumps(_core.diff_some_ranks(a, b, part, [], None, False))) for part in chosen]
    while len(found) > 1:  # as a tree
        found = [*(merged(*pair) for pair in zip(found[::2], found[1::2], strict=False)), *found[len(found) // 2 * 2 :]]
    assert found[0].ranks == list(range(RANKS))
    assert found[0].report(10, False) == _core.diff_runs(a, b, [], None, 10, False, False, [], [], None)


def merged(one, other):
    one.merge(other)
    return one


def test_what_does_not_belong_together_is_not_merged(runs):
    good, same, wrong = (str(runs[name]) for name in ("good", "same", "wrong"))
    part = _core.diff_some_ranks(good, same, [1], [], None, False)
    with pytest.raises(tenscope.UsageError, match="both have rank 1"):
        part.merge(_core.diff_some_ranks(good, same, [0, 1], [], None, False))
    with pytest.raises(tenscope.UsageError, match="different runs"):
        part.merge(_core.diff_some_ranks(good, wrong, [0], [], None, False))


def test_many_ranks_are_few_tasks():
    assert parts._parts_of(list(range(5))) == [[0], [1], [2], [3], [4]]
    thousand = parts._parts_of(list(range(1000)))
    assert len(thousand) <= 64 and [rank for part in thousand for rank in part] == list(range(1000))
