"""tenscope push: what is at the store is a valid run at any time, and in the end the run."""

import json
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import tenscope
from s3_server import TENSCOPE, tenscope_cli
from tenscope.remote import checksums
from tenscope.remote.push import push
from tenscope.remote.store import Store

fsspec = pytest.importorskip("fsspec")
s3fs = pytest.importorskip("s3fs")

SMALL = 200_000


def value(i):
    return np.full(SMALL // 4, i, np.float32)


def record(folder, name="run", tensors=6, **options):
    """A run of several segments."""
    with tenscope.Run(folder, name=name, segment_bytes=2 * SMALL, **options) as run:
        for i in range(tensors):
            run.record("h", value(i), step=i)
    assert len(list((folder / name).glob("rank-0/*.safetensors"))) > 2
    return folder / name


def all_is_there(url, run):
    """The copy is the run, event by event and byte by byte."""
    ours, theirs = tenscope.open(run), tenscope.open(url)
    assert theirs.state == ours.state and len(theirs) == len(ours)
    for a, b in zip(ours, theirs, strict=True):
        assert (a.name, a.step, a.seq, a.fingerprint) == (b.name, b.step, b.seq, b.fingerprint)
        assert not a.is_tensor or np.array_equal(a.tensor(), b.tensor())


def test_a_run_is_pushed_and_left_alone_when_it_is_there(s3, tmp_path):
    run = record(tmp_path)
    files = [path for path in run.rglob("*") if path.is_file()]
    done = push(run, "s3://bucket/run")
    assert (done.sent, done.left) == (len(files), 0) and done.checked == {"checksum": len(files), "read back": 0}
    all_is_there("s3://bucket/run", run)
    tenscope_cli("verify", "s3://bucket/run")
    s3.clear()
    again = push(run, "s3://bucket/run")
    assert (again.sent, again.left) == (0, len(files)) and s3.sent() == []
    assert push(run, "s3://bucket/run", verify=True).checked["read back"] == len(files)


def test_journals_come_last(s3, tmp_path):
    push(record(tmp_path), "s3://bucket/run")
    keys = [request.key for request in s3.sent()]
    last = len(keys) - 1 - keys[::-1].index("bucket/run/rank-0/journal.jsonl")
    assert all(keys.index(key) < last for key in keys if key.endswith(".safetensors"))
    assert keys[-1] == "bucket/run/push.json" and keys.index("bucket/run/run.json") < last


def test_wherever_it_stops_a_valid_run_is_there_and_another_push_completes_it(s3, tmp_path):
    run = record(tmp_path)
    push(run, "s3://bucket/run")
    total = len(s3.sent())
    assert total > 6
    for stop in range(total):
        s3.empty_bucket()
        s3.refuse = lambda method, key, stop=stop: method == "PUT" and len(s3.sent()) >= stop
        with pytest.raises(tenscope.Error):
            push(run, "s3://bucket/run")
        s3.refuse = lambda method, key: False
        there = len(s3.sent())
        if any(request.key.endswith("run.json") for request in s3.sent()):
            partial = tenscope.open("s3://bucket/run")
            assert partial.problems == [] and partial.losses == []
            assert all(np.array_equal(event.tensor(), value(event.step)) for event in partial if event.is_tensor)
        s3.clear()
        push(run, "s3://bucket/run")
        assert len(s3.sent()) <= total - there + 2  # push.json and an empty journal may be replaced
        all_is_there("s3://bucket/run", run)


def test_a_killed_push_is_resumed(s3, tmp_path):
    run = record(tmp_path)
    words = [str(TENSCOPE), "push", str(run), "s3://bucket/run"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    there = set()

    def kill(method, key):
        sent = s3.sent(".safetensors")
        if method != "PUT" or not sent:
            return False
        if not there:  # what comes after is cut off in the middle
            there.update(request.key for request in sent)
        process.send_signal(signal.SIGKILL)
        return True

    s3.refuse = kill
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    s3.refuse = lambda method, key: False
    s3.clear()
    document = json.loads(tenscope_cli("push", run, "s3://bucket/run", "--json").stdout)
    assert there and there.isdisjoint(request.key for request in s3.sent(".safetensors"))
    assert document["left"] >= len(there) and document["sent_bytes"] > 0 and document["running"] == []
    all_is_there("s3://bucket/run", run)


def test_a_running_run(s3, tmp_path):
    url = "s3://bucket/run"
    run = tenscope.Run(tmp_path, name="run", segment_bytes=2 * SMALL)
    for i in range(100):
        run.record("loss", i)
    for i in range(5):
        run.record("h", value(i), step=i)
    done = push(tmp_path / "run", url)
    assert done.running == ["rank-0"] and "still being written by rank-0" in str(done)
    first = tenscope.open(url)
    assert first.state == "running" and np.array_equal(first["h", 4], value(4))
    size = s3fs.S3FileSystem().info("bucket/run/rank-0/journal.jsonl")["size"]
    assert 5_000 < size < 50_000  # without the zeros that the writer has reserved
    del first
    run.record("h", value(5), step=5)
    push(tmp_path / "run", url)
    s3.clear()
    second = tenscope.open(url)
    assert np.array_equal(second["h", 5], value(5)) and second.state == "running"
    (read,) = s3.reads("journal.jsonl")
    assert 0 < int(read.range.removeprefix("bytes=").partition("-")[0]) <= size  # just what was added
    run.close()
    assert push(tmp_path / "run", url).running == []
    all_is_there(url, tmp_path / "run")
    assert not [key for key in s3fs.S3FileSystem().find("bucket/run") if key.endswith(".open")]
    tenscope_cli("verify", url)


def test_follow_ends_with_the_run(s3, tmp_path):
    run = tenscope.Run(tmp_path, name="run", segment_bytes=2 * SMALL)
    run.record("h", value(0), step=0)
    words = [str(TENSCOPE), "push", str(tmp_path / "run"), "s3://bucket/run", "--follow", "--interval", "0.2"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.time() + 60
    while not s3.sent("journal.jsonl") and time.time() < deadline:
        time.sleep(0.1)
    s3.refuse = lambda method, key: method == "PUT" and key.endswith("journal.jsonl")
    for i in range(1, 6):
        run.record("h", value(i), step=i)
    told = [process.stderr.readline() for _ in range(2)]
    assert all("the line is cut" in line and "trying again" in line for line in told), told
    s3.refuse = lambda method, key: False
    run.close()
    out, error = process.communicate(timeout=60)
    assert process.returncode == 0 and "Traceback" not in error, out + error
    all_is_there("s3://bucket/run", tmp_path / "run")


def test_a_crashed_run_opens_as_the_crashed_run_does(s3, tmp_path):
    program = (
        "import os, sys, numpy as np, tenscope\n"
        "run = tenscope.Run(sys.argv[1], name='run', segment_bytes=400_000)\n"
        "for i in range(5):\n    run.record('h', np.full(50_000, i, np.float32), step=i)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    assert subprocess.run([sys.executable, "-c", program, str(tmp_path)]).returncode == -9
    run = tmp_path / "run"
    push(run, "s3://bucket/run")
    all_is_there("s3://bucket/run", run)
    assert tenscope.open("s3://bucket/run").state == "crashed"
    for verb, code in (("verify", 1), ("tree", 0)):
        ours, theirs = tenscope_cli(verb, run, code=code), tenscope_cli(verb, "s3://bucket/run", code=code)
        assert len(ours.stdout.splitlines()) == len(theirs.stdout.splitlines())
        assert theirs.stdout.splitlines()[0] == ours.stdout.splitlines()[0].replace(str(run), "s3://bucket/run")


def test_a_ring_is_pushed_without_what_it_dropped(s3, tmp_path):
    run = tenscope.Run(tmp_path, name="run", segment_bytes=SMALL, max_bytes=6 * SMALL, keep="last")
    for i in range(30):
        run.record("h", value(i), step=i)
        if i in (8, 15):
            push(tmp_path / "run", "s3://bucket/run")
    run.close()
    push(tmp_path / "run", "s3://bucket/run")
    there = {path.rpartition("run/rank-0/")[2] for path in s3fs.S3FileSystem().find("bucket/run/rank-0")}
    assert there == {path.name for path in (tmp_path / "run" / "rank-0").iterdir()}
    assert tenscope.open("s3://bucket/run").problems == []


def test_another_run_is_not_overwritten(s3, tmp_path):
    push(record(tmp_path, "one"), "s3://bucket/run")
    two = record(tmp_path, "two")
    with pytest.raises(tenscope.UsageError, match="another run is there"):
        push(two, "s3://bucket/run")
    told = tenscope_cli("push", two, "s3://bucket/run", "--json", code=2)
    assert json.loads(told.stdout)["error"]["code"] == "InvalidArgument" and "another run" in told.stderr


def test_what_arrives_damaged_is_told(tmp_path, monkeypatch):
    from fsspec.implementations.memory import MemoryFileSystem

    put = MemoryFileSystem.put_file

    def put_badly(self, local, remote, **options):
        put(self, local, remote, **options)
        if ".safetensors" in remote:
            data = bytearray(self.cat_file(remote))
            data[1000] ^= 1
            self.pipe_file(remote, bytes(data))

    run = record(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(MemoryFileSystem, "put_file", put_badly)
        with pytest.raises(tenscope.IoError, match="what arrived is not what was sent"):
            push(run, "memory://damaged/run")
    push(run, "memory://damaged/run")
    monkeypatch.setenv("TENSCOPE_CACHE", str(tmp_path / "cache"))
    all_is_there("memory://damaged/run", run)
    assert not [name for name in fsspec.filesystem("memory").find("/damaged") if name.endswith(".part")]


def test_objects_that_were_uploaded_in_parts_have_a_checksum_too(s3, tmp_path):
    path = tmp_path / "large"
    path.write_bytes(np.random.default_rng(0).bytes(12 << 20))
    s3fs.S3FileSystem().put_file(str(path), "bucket/large", chunksize=5 << 20)
    store = Store("s3://bucket")
    item = store.item("large")
    assert item.info["ETag"].endswith('-3"')
    assert checksums.agreement(store, "large", item, path, read_back=False) == "checksum"
    with path.open("r+b") as file:
        file.write(b"\0\0\0\0")
    assert checksums.agreement(store, "large", item, path, read_back=False) is None


def test_folders_are_targets_too(tmp_path):
    run = record(tmp_path)
    told = tenscope_cli("push", run, f"{tmp_path}/there/")
    assert "every checksum is right" in told.stdout and told.stderr == ""
    all_is_there(tmp_path / "there" / "run", run)
    all_is_there(f"file://{tmp_path}/there/run", run)
    assert "0 files were sent" in tenscope_cli("push", run, f"{tmp_path}/there/run").stdout


def test_what_cannot_be_pushed(tmp_path):
    assert "there is no run" in tenscope_cli("push", tmp_path, "s3://bucket/run", code=2).stderr
    tenscope_cli("push", record(tmp_path), "nonsense://host/run", code=2)


def test_a_copy_can_be_replaced_as_a_run_is(tmp_path):
    push(record(tmp_path), f"{tmp_path}/there/run")
    record(tmp_path / "there", replace=True)
    assert [path.name for path in (tmp_path / "there").iterdir()] == ["run"]
    assert not (tmp_path / "there" / "run" / "push.json").exists()
