"""A child records known contents and is killed at a random moment; what it acknowledged must be there, bit for bit.

The judge here is independent of the reader: json, xxhash and numpy only, as docs/format.md says.
TENSCOPE_KILLS sets the number of kills (make torture N=10000).
"""

import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import time

import numpy as np
import pytest

KILLS = int(os.environ.get("TENSCOPE_KILLS", "60"))
MODES = ["plain", "tiny", "threads", "fork", "ring", "large"]
ROOT = pathlib.Path(__file__).resolve().parent.parent


def find_child():
    built = sorted((ROOT / "build").glob("*/tests/crash_child"), key=lambda path: path.stat().st_mtime)
    if not built:
        pytest.fail("crash_child is not built (cmake --build build/release --target crash_child)")
    return built[-1]


def contents(kind, seed, size):
    words = np.uint64(seed) + np.arange((size + 7) // 8, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    data = words.view(np.uint8)[:size]
    return data.reshape(-1, 16).T.ravel() if kind == "s" else data  # s: 16 rows, column by column in memory


def journal_lines(folder):
    parts = [*sorted(folder.glob("journal-*.jsonl")), folder / "journal.jsonl"]
    for part in parts:
        if not part.exists():
            continue
        text = part.read_bytes()
        end = text.find(b"\0")
        text = text if end < 0 else text[:end]
        yield from text.split(b"\n")[:-1]


def read_events(run):
    """Every event by (kind, name, step, call), with its tensor's bytes; checks what the format promises on the way."""
    events = {}
    for folder in run.glob("rank-*"):
        expected_seq = None
        for line in journal_lines(folder):
            event = json.loads(line)
            assert expected_seq in (None, event["seq"]), f"gap in {folder}"
            expected_seq = event["seq"] + 1
            if event["kind"] != "value":
                continue
            key = event["name"], event["step"], event["call"]
            assert key not in events, f"{key} twice in {run}"
            events[key] = (folder, event)
    return events


def tensor_bytes(folder, event):
    segment, offset, size = event["tensor"]["at"]
    for name in (f"{segment:06}.safetensors", f"{segment:06}.safetensors.open"):
        if (folder / name).exists():
            with open(folder / name, "rb") as file:
                file.seek(offset)
                return np.frombuffer(file.read(size), np.uint8)
    return None


def check_acknowledged(run, acknowledged, mode):
    events = read_events(run)
    dropped = 0
    for line in acknowledged:
        kind, name, step, call, seed, size = line.split()
        found = events.get((name, int(step), int(call)))
        if found is None and mode == "ring":
            dropped += 1
            continue
        assert found is not None, f"lost: {line}"
        folder, event = found
        if kind == "n":
            assert event["value"] % 2**64 == int(seed), line
            continue
        data = tensor_bytes(folder, event)
        if data is None and mode == "ring":
            dropped += 1
            continue
        assert np.array_equal(data, contents(kind, int(seed), int(size))), f"wrong bytes: {line}"
    return dropped


def kill_once(child, base, seed, mode):
    name = f"run{seed}"
    process = subprocess.Popen([child, base, name, str(seed), mode], stdout=subprocess.PIPE, start_new_session=True)
    # Most kills come early, some late; the first acknowledgement shows that recording has begun.
    first = process.stdout.readline()
    time.sleep(random.Random(seed).random() ** 2 * 0.12)
    os.killpg(process.pid, signal.SIGKILL)
    rest = process.stdout.read()
    process.wait()
    lines = (first + rest).decode().split("\n")
    return base / name, [line for line in lines[:-1] if line]


def repair_when_dead(core, run, patience=30):
    """A forked process that was killed may take a moment longer to let its folder go."""
    until = time.monotonic() + patience
    while True:
        try:
            return core.repair(run)
        except Exception as error:
            if "being written" not in str(error) or time.monotonic() > until:
                raise
            time.sleep(0.01)


@pytest.mark.torture
def test_nothing_acknowledged_is_lost(tmp_path):
    child = find_child()
    core = pytest.importorskip("tenscope._core")
    start = random.randrange(10**9)
    acknowledged = 0
    for kill in range(KILLS):
        seed, mode = start + kill, MODES[kill % len(MODES)]
        context = f"seed {seed}, mode {mode}"
        run, lines = kill_once(child, tmp_path, seed, mode)
        acknowledged += len(lines)
        check_acknowledged(run, lines, mode)
        repair_when_dead(core, run)
        problems = core.verify(run)
        assert not problems, f"{context}: {problems}"
        assert not list(run.glob("*/*.open")), context
        check_acknowledged(run, lines, mode)
        if kill % 10 < 2:
            check_with_safetensors(run)
        shutil.rmtree(run)
    print(f"{KILLS} kills, {acknowledged} acknowledged records, none lost")


def check_with_safetensors(run):
    """Every sealed segment opens, and holds under its keys what the journal says of its places."""
    safetensors = pytest.importorskip("safetensors")
    places = {}
    for folder, event in read_events(run).values():
        if "at" in event.get("tensor", {}):
            segment, offset, size = event["tensor"]["at"]
            places.setdefault((folder, segment), {})[offset, offset + size] = event
    for path in run.glob("*/*.safetensors"):
        told = places.get((path.parent, int(path.stem)), {})
        raw = path.read_bytes()
        named = named_places(raw)
        with safetensors.safe_open(path, "np") as file:
            assert {key for key in file.keys() if not is_filler(key)} == set(named.values())  # noqa: SIM118
            for (begin, end), key in named.items():
                assert file.get_tensor(key).tobytes() == raw[begin:end], key
            has_all_names = not any(key.startswith("__unnamed__") for key in file.keys())  # noqa: SIM118
        if has_all_names:
            assert not [place for place in told if place not in named and place[0] < place[1]], path
    return places


def is_filler(key):
    return key.startswith(("__pad__", "__unnamed__"))


def named_places(raw):
    """The keys of a sealed segment by the range of their bytes in the file."""
    begin = 8 + int.from_bytes(raw[:8], "little")
    entries = json.loads(raw[8:begin]).items()
    return {tuple(begin + at for at in entry["data_offsets"]): key for key, entry in entries if not is_filler(key)}


CHAOS = int(os.environ.get("TENSCOPE_CHAOS", "8"))


@pytest.mark.parametrize("seed", range(CHAOS))
def test_chaos_leaves_a_whole_run(tmp_path, seed):
    """Threads, forks, flushes, files that may not grow and a close in the middle: what was acknowledged is there, and
    three judges agree on it: verify, safetensors, and this file."""
    core = pytest.importorskip("tenscope._core")
    child = [find_child(), tmp_path, "run", str(seed), "chaos"]
    result = subprocess.run(child, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    run = tmp_path / "run"
    acknowledged = result.stdout.split("\n")[:-1]
    assert len(acknowledged) > 20
    assert [problem for problem in core.verify(run) if not problem.is_loss] == []
    assert not list(run.glob("*/*.open"))
    assert check_acknowledged(run, acknowledged, "chaos") == 0
    assert len(read_events(run)) == len(acknowledged), "an event that was not acknowledged"
    places = check_with_safetensors(run)
    for path in run.glob("*/*.safetensors"):  # closed in order: a segment names nothing of which no event tells
        assert set(named_places(path.read_bytes())) <= set(places[path.parent, int(path.stem)]), path
    for folder in run.glob("rank-*"):
        assert json.loads(list(journal_lines(folder))[-1])["name"] == "closed"
