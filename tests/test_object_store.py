"""Runs on an object store: read by ranges through a bounded cache, from an S3 server on loopback and by fsspec's own
file systems."""

import gc
import json
import os
import shutil
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest
import tenscope
from s3_server import SECRET, TENSCOPE, tenscope_cli
from tenscope.remote.push import push
from viewer_client import Viewer, viewing

fsspec = pytest.importorskip("fsspec")
s3fs = pytest.importorskip("s3fs")

BIG = 4 << 20  # bytes of a tensor; the cache fetches by blocks of one MiB


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TENSCOPE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def tensor(i, wrong=0.0):
    return (np.arange(BIG // 4, dtype=np.float32) % 1000 + i + wrong) / 1000


def record(folder, name, wrong=None, tensors=6, size=None, **options):
    """Tensors h0, h1, ... of 4 MiB each, of which `wrong` is off; then a small one."""
    with tenscope.Run(folder, name=name, **options) as run:
        for i in range(tensors):
            run.record(f"h{i}", tensor(i, 0.5 * (i == wrong)), io="output", phase="forward")
        run.record("loss", 0.25)
    return folder / name


def size_on_disk(folder):
    return sum(path.stat().st_blocks * 512 for path in Path(folder).rglob("*") if path.is_file())


# Reading.


def test_open_reads_the_journal_and_then_just_the_tensors_that_are_looked_at(s3, tmp_path):
    run = record(tmp_path, "run")
    push(run, "s3://bucket/runs/run")
    s3.clear()
    remote = tenscope.open("s3://bucket/runs/run")
    assert remote.names() == tenscope.open(run).names() and remote["loss"] == 0.25
    assert remote.state == "closed" and remote.problems == []
    assert remote.url == "s3://bucket/runs/run" and "s3://bucket/runs/run: 9 events" in str(remote)  # one of its source
    assert s3.reads(".safetensors") == [] and s3.reads(".py") == []
    assert list(remote.sources.values()) == [Path(__file__).read_text()] and len(s3.reads(".py")) == 1
    assert len(s3.reads("journal.jsonl")) == 1
    assert np.array_equal(remote["h3"], tensor(3))
    fetched = sum(request.size for request in s3.reads(".safetensors"))
    assert BIG <= fetched <= BIG + (3 << 20)
    assert all(request.range for request in s3.reads(".safetensors"))
    s3.clear()
    assert np.array_equal(remote["h3"], tensor(3)) and s3.reads() == []


def test_a_second_process_finds_it_in_the_cache(s3, tmp_path):
    push(record(tmp_path, "run"), "s3://bucket/run")
    first = tenscope_cli("show", "s3://bucket/run", "h2", "--json")
    s3.clear()
    second = tenscope_cli("show", "s3://bucket/run", "h2", "--json")
    assert second.stdout == first.stdout and json.loads(second.stdout)["run"] == "s3://bucket/run"
    assert s3.reads() == []


def test_diff_reads_only_what_differs(s3, tmp_path):
    good, bad = record(tmp_path, "good"), record(tmp_path, "bad", wrong=4)
    push(good, "s3://bucket/good")
    push(bad, "s3://bucket/bad")
    local = tenscope.diff(good, bad)
    for a, b in [("s3://bucket/good", "s3://bucket/bad"), (good, "s3://bucket/bad"), ("s3://bucket/good", bad)]:
        shutil.rmtree(tmp_path / "cache", ignore_errors=True)
        s3.clear()
        found = tenscope.diff(str(a), str(b))
        assert found.verdict == "differs" and found.first_divergence.name == "h4"
        assert found.json["counts"] == local.json["counts"]
        told = str(found) + json.dumps(found.json)
        assert str(tmp_path / "cache") not in told
        assert all(str(path) in told for path in (a, b))
        fetched = sum(request.size for request in s3.reads(".safetensors"))
        assert fetched <= 2 * (BIG + (3 << 20))
    same = tenscope.diff(tenscope.open("s3://bucket/good"), good)
    assert same.equal


def test_equal_runs_need_no_tensor(s3, tmp_path):
    push(record(tmp_path, "a"), "s3://bucket/a")
    push(record(tmp_path, "b"), "s3://bucket/b")
    s3.clear()
    assert tenscope.diff("s3://bucket/a", "s3://bucket/b").equal
    assert s3.reads(".safetensors") == []


def test_many_small_tensors_take_few_requests(s3, tmp_path):
    for name, wrong in (("a", 0), ("b", 1)):
        with tenscope.Run(tmp_path, name=name) as run:
            for i in range(2000):
                run.record(f"x{i}", np.full(64, i + wrong, np.float32))
        push(tmp_path / name, f"s3://bucket/{name}")
    s3.clear()
    assert tenscope.diff("s3://bucket/a", "s3://bucket/b").verdict == "differs"
    assert len(s3.reads()) <= 10


def test_the_command_line_reads_urls(s3, tmp_path):
    good, bad = record(tmp_path, "good"), record(tmp_path, "bad", wrong=4)
    push(good, "s3://bucket/runs/")
    push(bad, "s3://bucket/runs/")
    url = "s3://bucket/runs"
    for verb, *options in (["ls"], ["tree"], ["verify"], ["check"], ["show", "h1"], ["show", "loss"]):
        ours = tenscope_cli(verb, good, *options).stdout
        assert tenscope_cli(verb, f"{url}/good", *options).stdout == ours.replace(str(good), f"{url}/good")
    document = json.loads(tenscope_cli("ls", f"{url}/good", "--json").stdout)
    assert document["path"] == f"{url}/good" and str(tmp_path / "cache") not in json.dumps(document)
    for verb, code in (("diff", 1), ("map", 0)):
        ours = tenscope_cli(verb, good, bad, code=code).stdout
        theirs = tenscope_cli(verb, f"{url}/good", f"{url}/bad", code=code).stdout
        assert theirs == ours.replace(str(good), f"{url}/good").replace(str(bad), f"{url}/bad")
    listed = json.loads(tenscope_cli("ls", url, "--json").stdout)["runs"]
    assert [run["path"] for run in listed] == [f"{url}/good", f"{url}/bad"]
    assert json.loads(tenscope_cli("show", url, "h4", "--json").stdout)["run"] == f"{url}/bad"  # the newest
    tenscope_cli("export", f"{url}/good", tmp_path / "h2.npy", "--name", "h2")
    assert np.array_equal(np.load(tmp_path / "h2.npy"), tensor(2))
    for ending in (".csv", ".arrow"):
        ours, theirs = tmp_path / f"ours{ending}", tmp_path / f"theirs{ending}"
        tenscope_cli("export", good, ours)
        tenscope_cli("export", f"{url}/good", theirs)
        assert theirs.read_bytes() == ours.read_bytes()
    tenscope_cli("export", f"{url}/good", "--tensorboard", tmp_path / "board", "--no-histograms")
    assert len(list((tmp_path / "board" / "good").iterdir())) == 1
    assert "equal" in tenscope_cli("explain", f"{url}/good:h2", f"{url}/bad:h2").stdout.lower()
    assert f"no module calls to draw; tenscope run and tenscope.trace record them: {url}/good" in (
        tenscope_cli("graph", f"{url}/good", "-o", tmp_path / "graph.json", code=2).stderr
    )
    for verb in ("repair", "repro"):
        assert "not on one at a URL" in tenscope_cli(verb, f"{url}/good", code=2).stderr


def test_what_the_command_line_says_of_a_url_that_cannot_be_read(s3, tmp_path):
    record(tmp_path, "run")
    assert "there is none in it: s3://bucket/nowhere" in tenscope_cli("ls", "s3://bucket/nowhere", code=2).stderr
    told = tenscope_cli("show", "s3://no-such-bucket/run", "h1", "--json", code=2)
    assert json.loads(told.stdout)["error"]["code"] == "NotFound"
    told = tenscope_cli("diff", tmp_path / "run", "nonsense://user:pass-word@host/run", code=2)
    assert "nonsense" in told.stderr and "pass-word" not in told.stderr


def test_ranks_are_read_as_they_are_needed(s3, tmp_path):
    for name in ("a", "b"):
        for rank in range(4):
            with tenscope.Run(tmp_path, name=name, rank=rank, world_size=4, join=rank > 0) as run:
                run.record("h", np.full(8, rank, np.float32))
        push(tmp_path / name, f"s3://bucket/{name}")
    s3.clear()
    assert tenscope.diff("s3://bucket/a", "s3://bucket/b", ranks=[2]).equal
    assert {request.key for request in s3.reads(".jsonl")} == {f"bucket/{n}/rank-2/journal.jsonl" for n in "ab"}
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        spread = tenscope.diff("s3://bucket/a", "s3://bucket/b", executor=pool)
    assert spread.equal and spread.json["a"] == "s3://bucket/a"


def test_a_dask_cluster_opens_the_urls_itself(s3, tmp_path):
    distributed = pytest.importorskip("distributed")
    good, bad = record(tmp_path, "good"), record(tmp_path, "bad", wrong=4)
    push(good, "s3://bucket/good")
    push(bad, "s3://bucket/bad")
    urls = ("s3://bucket/good", "s3://bucket/bad")
    alone = tenscope_cli("diff", *urls, code=1).stdout
    before = dict(os.environ)
    with distributed.LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0") as cluster:
        spread = tenscope_cli("diff", *urls, "--dask", cluster.scheduler_address, code=1).stdout
    for name in os.environ.keys() - before.keys():  # Dask sets some, and leaves them
        del os.environ[name]
    assert spread == alone and "h4" in alone


def test_a_forked_child_is_told_to_open_the_run_again(s3, tmp_path):
    push(record(tmp_path, "run"), "s3://bucket/run")
    remote = tenscope.open("s3://bucket/run")
    out, into = os.pipe()
    if (child := os.fork()) == 0:
        try:
            remote["h1"]
        except tenscope.IoError as error:
            os.write(into, str(error).encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert b"open it again" in os.read(out, 1000)
    assert np.array_equal(remote["h1"], tensor(1))


# What changes, what is missing, what fails.


def test_a_run_that_was_replaced_is_not_served_from_the_cache(s3, tmp_path):
    fs = s3fs.S3FileSystem()
    push(record(tmp_path, "one"), "s3://bucket/run")
    old = tenscope.open("s3://bucket/run")
    assert old["h0"][0] == 0
    with tenscope.Run(tmp_path, name="two") as run:
        run.record("h0", np.full(8, 77, np.float32))
    fs.rm("bucket/run", recursive=True)
    push(tmp_path / "two", "s3://bucket/run")
    assert tenscope.open("s3://bucket/run")["h0"][0] == 77
    assert old["h0"][0] == 0  # its mirror is another one


def test_a_segment_that_changed_is_noticed(s3, tmp_path):
    run = record(tmp_path, "run")
    push(run, "s3://bucket/run")
    assert np.array_equal(tenscope.open("s3://bucket/run")["h1"], tensor(1))
    gc.collect()
    segment = next(run.glob("rank-0/*.safetensors"))
    data = bytearray(segment.read_bytes())
    data[-1000 - 5 * BIG] ^= 255  # in h0
    s3fs.S3FileSystem().pipe_file(f"bucket/run/rank-0/{segment.name}", bytes(data))
    again = tenscope.open("s3://bucket/run")
    with pytest.raises(tenscope.CorruptError, match="have changed"):
        again["h0"]
    assert np.array_equal(again["h1"], tensor(1))
    assert "have changed" in tenscope_cli("verify", "s3://bucket/run", code=1).stdout


def test_a_missing_segment_is_told_as_for_a_local_run(s3, tmp_path):
    run = record(tmp_path, "run")
    push(run, "s3://bucket/run")
    segment = next(run.glob("rank-0/*.safetensors"))
    s3fs.S3FileSystem().rm_file(f"bucket/run/rank-0/{segment.name}")
    segment.unlink()
    local, remote = tenscope.open(run), tenscope.open("s3://bucket/run")
    assert [str(loss) for loss in remote.losses] == [str(loss) for loss in local.losses] != []
    with pytest.raises(tenscope.NotFoundError, match="is missing"):
        remote["h0"]
    ours = tenscope_cli("verify", run, code=1).stdout
    assert tenscope_cli("verify", "s3://bucket/run", code=1).stdout == ours.replace(str(run), "s3://bucket/run")


def test_a_store_that_fails_at_once_is_an_error(s3, tmp_path):
    push(record(tmp_path, "run"), "s3://bucket/run")
    s3.refuse = lambda method, key: key.endswith("run.json")
    with pytest.raises(tenscope.IoError, match=r"^cannot read an object: .*: s3://bucket/run/run.json$"):
        tenscope.open("s3://bucket/run")
    s3.refuse = lambda method, key: True
    with pytest.raises(tenscope.IoError, match=r"^cannot list a store: .*: s3://bucket/run$"):
        tenscope.open("s3://bucket/run")


def test_a_cache_that_cannot_be_used_is_an_error(s3, tmp_path, monkeypatch):
    push(record(tmp_path, "run"), "s3://bucket/run")
    (tmp_path / "file").touch()
    monkeypatch.setenv("TENSCOPE_CACHE", str(tmp_path / "file"))
    with pytest.raises(tenscope.IoError, match=r"^cannot use the cache: "):
        tenscope.open("s3://bucket/run")
    monkeypatch.setenv("TENSCOPE_CACHE_BYTES", "much")
    with pytest.raises(tenscope.UsageError, match="TENSCOPE_CACHE_BYTES"):
        tenscope.open("s3://bucket/run")


@pytest.mark.parametrize("ending", [".safetensors", "journal.jsonl"])
def test_a_store_that_fails_in_the_middle_is_an_error(s3, tmp_path, ending):
    good, bad = record(tmp_path, "good"), record(tmp_path, "bad", wrong=4)
    push(bad, "s3://bucket/bad")
    s3.refuse = lambda method, key: key.endswith(ending)
    with pytest.raises(tenscope.Error, match=rf"s3://bucket/bad/rank-0/\S*{ending}") as raised:
        tenscope.diff(good, "s3://bucket/bad")
    assert isinstance(raised.value, OSError) and SECRET not in str(raised.value)
    told = tenscope_cli("diff", good, "s3://bucket/bad", code=2)
    assert "the line is cut" in told.stderr or "Forbidden" in told.stderr
    assert f"{ending}" in told.stderr and str(tmp_path / "cache") not in told.stderr
    document = json.loads(tenscope_cli("verify", "s3://bucket/bad", "--json", code=2).stdout)
    assert document["error"]["code"] == "Io"
    s3.refuse = lambda method, key: False
    assert tenscope.diff(good, "s3://bucket/bad").first_divergence.name == "h4"


def test_credentials_are_in_no_message(s3, tmp_path, monkeypatch):
    from tenscope.remote.store import Store

    push(record(tmp_path, "run"), "s3://bucket/run")
    store = Store("s3://bucket/run", {"secret": "option-secret-1"})
    with pytest.raises(tenscope.Error) as raised, store.trouble("cannot read"):
        raise RuntimeError(f"signed {SECRET} option-secret-1 http://me:pass-word@host/?X-Amz-Signature=abc123&x=1")
    text = str(raised.value)
    for secret in (SECRET, "option-secret-1", "pass-word", "abc123"):
        assert secret not in text
    assert "x=1" in text and text.endswith("s3://bucket/run")


def test_what_to_install_is_said(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "s3fs", None)
    monkeypatch.delitem(sys.modules["fsspec.registry"]._registry, "s3", raising=False)
    with pytest.raises(tenscope.UnsupportedError, match=r"tenscope\[s3\]"):
        tenscope.open("s3://bucket/run", storage_options={"skip_instance_cache": True})
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(tenscope.UnsupportedError, match="fsspec"):
        tenscope.open("s3://bucket/run")
    with pytest.raises(tenscope.NotFoundError):
        tenscope.open(tmp_path / "nothing")  # needs none of them


# The cache.


def test_the_cache_is_bounded_and_drops_what_was_used_least_recently(s3, tmp_path, monkeypatch):
    monkeypatch.setenv("TENSCOPE_CACHE_BYTES", str(4 * BIG))
    for i in range(4):
        push(record(tmp_path, f"run{i}", tensors=3), f"s3://bucket/run{i}")
    for i in range(4):
        remote = tenscope.open(f"s3://bucket/run{i}")
        assert all(np.array_equal(remote[f"h{k}"], tensor(k)) for k in range(2))
        del remote
        gc.collect()
        assert size_on_disk(tmp_path / "cache") <= 4 * BIG + (1 << 20)
    s3.clear()
    assert np.array_equal(tenscope.open("s3://bucket/run3")["h0"], tensor(0)) and s3.reads() == []
    assert np.array_equal(tenscope.open("s3://bucket/run0")["h0"], tensor(0)) and s3.reads() != []


def test_what_is_in_use_is_not_removed(s3, tmp_path, monkeypatch):
    monkeypatch.setenv("TENSCOPE_CACHE_BYTES", str(BIG))
    push(record(tmp_path, "a", tensors=3), "s3://bucket/a")
    push(record(tmp_path, "b", tensors=3), "s3://bucket/b")
    a = tenscope.open("s3://bucket/a")
    held = a["h0"]
    tenscope_cli("verify", "s3://bucket/b")  # another process, which trims
    assert np.array_equal(a["h1"], tensor(1)) and np.array_equal(held, tensor(0))
    del a, held
    gc.collect()
    assert size_on_disk(tmp_path / "cache") <= BIG + (1 << 20)


def test_several_processes_share_the_cache(s3, tmp_path):
    push(record(tmp_path, "run"), "s3://bucket/run")
    say = [str(TENSCOPE), "verify", "s3://bucket/run", "--json"]
    at_once = [subprocess.Popen(say, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(4)]
    for process in at_once:
        out, error = process.communicate()
        assert process.returncode == 0, out + error
    assert size_on_disk(tmp_path / "cache") < 2 * 7 * BIG  # one slot, or perhaps two
    (slot, *_) = (tmp_path / "cache").iterdir()
    assert oct(slot.stat().st_mode)[-3:] == "700"


def test_names_from_a_store_stay_in_the_cache(cache):
    from tenscope.remote.store import _is_plain

    assert _is_plain("rank-0/journal.jsonl")
    for name in ("../x", "a/../../x", "/x", "a//b", "", ".", "a\0b"):
        assert not _is_plain(name)


def test_ranges_against_a_set_of_numbers():
    from tenscope.remote.ranges import Ranges

    random = np.random.default_rng(0)
    for _ in range(300):
        ranges, known = Ranges(), set()
        for _ in range(random.integers(0, 12)):
            start, end = sorted(int(x) for x in random.integers(0, 40, 2))
            if start < end:
                ranges.add(start, end)
                known |= set(range(start, end))
        start, end = sorted(int(x) for x in random.integers(0, 45, 2))
        gaps = ranges.gaps(start, end)
        assert {i for a, b in gaps for i in range(a, b)} == set(range(start, end)) - known
        assert all(a < b for a, b in gaps)


@pytest.mark.parametrize("scheme", ["memory", "file"])
def test_other_file_systems(scheme, cache, tmp_path):
    url = f"file://{tmp_path}/there/run" if scheme == "file" else "memory://there/run"
    run = record(tmp_path, "run")
    done = push(run, url)
    assert done.checked["read back"] == done.sent and done.left == 0
    assert push(run, url).sent == 0
    remote = tenscope.open(url)
    assert np.array_equal(remote["h5"], tensor(5)) and remote.state == "closed"
    assert (remote.url is None) == (scheme == "file")
    assert tenscope.diff(url, run).equal
    if scheme == "memory":
        fsspec.filesystem("memory").rm("/there", recursive=True)


def test_of_a_folder_of_runs_only_the_newest_is_read(s3, tmp_path):
    for i in range(3):
        push(record(tmp_path, f"run{i}", tensors=1), "s3://bucket/runs/")
    s3.clear()
    newest = tenscope.open("s3://bucket/runs")
    assert newest.url == "s3://bucket/runs/run2" and np.array_equal(newest["h0"], tensor(0))
    assert {request.key for request in s3.reads("journal.jsonl")} == {"bucket/runs/run2/rank-0/journal.jsonl"}
    assert len(s3.reads("run.json")) == 3


def test_the_viewer_shows_runs_at_urls(s3, tmp_path):
    good, bad = record(tmp_path, "good"), record(tmp_path, "bad", wrong=4)
    push(good, "s3://bucket/runs/")
    push(bad, "s3://bucket/runs/")
    url = "s3://bucket/runs"
    s3.clear()
    with viewing(f"{url}/good", bad) as viewer:
        said = viewer.answer()
        assert (said["verdict"], said["command"]) == ("differs", f"tenscope diff {url}/good {bad}")
        assert said["places"][0]["commands"][0].startswith(f"tenscope show {url}/good h4")
        assert s3.reads(".safetensors")
        session = viewer.json("session")
        assert [side["path"] for side in session["sides"]] == [f"{url}/good", str(bad)]
        assert viewer.tile(event=viewer.event("h4"), of="diff", h=1, w=1).max[0, 0] == pytest.approx(5e-4, rel=1e-3)
        s3.refuse = lambda method, key: key.endswith(".safetensors")
        status, sentence = viewer.refusal("tile", event=viewer.event("h1"))
        s3.refuse = lambda method, key: False
        assert status == 500 and "s3://bucket/runs/good" in sentence
        assert str(tmp_path / "cache") not in json.dumps([said, session, sentence])
    with Viewer(url) as viewer:
        assert viewer.json("session")["title"] == "runs"
        assert {run["name"] for run in viewer.json("runs")["runs"]} == {"good", "bad"}
        said = viewer.answer(run="good", against="bad")
        assert (said["verdict"], said["command"]) == ("differs", f"tenscope diff {url}/good {url}/bad")
    page = tmp_path / "page.html"
    tenscope_cli("diff", f"{url}/good", f"{url}/bad", "--html", page, code=1)
    assert page.stat().st_size > 10_000
