"""Helpers of the tests that start programs: scripts, `tenscope run`, and what was recorded."""

import os
import subprocess
import sys

import warm_start


def write(folder, text, name="script.py"):
    path = folder / name
    path.write_text(text)
    return path


def start(folder, *words, env=None):
    """Runs Python with the words, in the folder."""
    return subprocess.run(
        [sys.executable, *map(str, words)],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", **(env or {})},
        capture_output=True,
        text=True,
        timeout=120,
    )


def tenscope_run(folder, *words, env=None):
    return start(folder, "-m", "tenscope.run", *words, env=env)


def warm_run(folder, *words, env=None):
    """The same by warm_start: for tests that are about what is recorded, not about the start of the program."""
    return warm_start.run(["-m", "tenscope.run", *words], cwd=folder, env={**os.environ, **(env or {})})


def folders(base):
    return sorted(path.name for path in base.iterdir()) if base.exists() else []


def notes(run, *names):
    return [event for event in run.events(kind="note") if event.name in names]
