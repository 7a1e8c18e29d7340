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

KILLS = int(os.environ.get("TENSCOPE_KILLS", "200"))
MODES = ["plain", "tiny", "threads", "fork", "ring", "large"]
ROOT = pathlib.Path(__file__).resolve().parent.parent


def find_child():
    built = sorted((ROOT / "build").glob("*/tests/crash_child"), key=lambda path: path.stat().st_mtime)
    if not built:
        pytest.fail("crash_child is not built (cmake --build build/release --target crash_child)")
    return built[-1]


def contents(seed, size):
    words = (np.uint64(seed) + np.arange((size + 7) // 8, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)).view(
        np.uint8
    )
    return words[:size]


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
            events[event.get("name"), event["step"], event.get("call")] = (folder, event)
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
        assert np.array_equal(data, contents(int(seed), int(size))), f"wrong bytes: {line}"
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
        core.repair(run)
        problems = core.verify(run)
        assert not problems, f"{context}: {problems}"
        assert not list(run.glob("*/*.open")), context
        check_acknowledged(run, lines, mode)
        if kill % 10 == 0:
            check_with_safetensors(run)
        shutil.rmtree(run)
    print(f"{KILLS} kills, {acknowledged} acknowledged records, none lost")


def check_with_safetensors(run):
    safetensors = pytest.importorskip("safetensors")
    for path in run.glob("*/*.safetensors"):
        with safetensors.safe_open(path, "np") as file:
            assert list(file.keys())
