"""Whether every layout trains the model of one process, and every mistake another one.

    python bench/layouts/check.py [PATTERN]...

Runs the programs without tenscope and compares the final parameters, put together, with those of one process: of a
layout they must be the same but for noise, of a mistake they must not. torch is loaded once; each rank is a fork.
"""

from __future__ import annotations

import contextlib
import io
import multiprocessing
import os
import runpy
import socket
import sys
import traceback
from fnmatch import fnmatchcase
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"

import torch._dynamo
import torch.distributed.fsdp
import torch.distributed.pipelining
import torch.distributed.tensor.parallel  # noqa: F401
from cases import BY_NAME, LAYOUTS, MISTAKES, Layout

HERE = Path(__file__).resolve().parent
TIMEOUT_S = 120


def play(layout: Layout, bug: str | None, rank: int, port: int, answer) -> None:
    """One rank, in a process of its own."""
    if layout.ranks > 1:
        os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(layout.ranks)}
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    sys.argv = [layout.program, *layout.arguments, *(["--bug", bug] if bug else []), "--check"]
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(io.StringIO()):
            runpy.run_path(str(HERE / layout.program), run_name="__main__")
        answer.send((True, said.getvalue().strip()))
    except SystemExit as end:
        answer.send((False, str(end)))
    except BaseException:
        answer.send((False, "failed: " + traceback.format_exc()))
    os._exit(0)


def run(layout: Layout, bug: str | None) -> list[tuple[bool, str]]:
    """What each rank found."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = multiprocessing.get_context("fork")
    answers, processes = [], []
    for rank in range(layout.ranks):
        mine, theirs = context.Pipe()
        processes.append(context.Process(target=play, args=(layout, bug, rank, port, theirs)))
        processes[-1].start()
        theirs.close()
        answers.append(mine)
    found = []
    for answer, process in zip(answers, processes, strict=True):
        try:
            found.append(answer.recv() if answer.poll(TIMEOUT_S) else (False, f"failed: not done in {TIMEOUT_S} s"))
        except EOFError:
            found.append((False, "failed: it ended without an answer"))
        process.kill()
        process.join()
    return found


def main() -> int:
    cases = [(layout.name, layout, None) for layout in LAYOUTS]
    cases += [(mistake.name, BY_NAME[mistake.layout], mistake.bug) for mistake in MISTAKES]
    wrong = 0
    for name, layout, bug in cases:
        if sys.argv[1:] and not any(fnmatchcase(name, pattern) for pattern in sys.argv[1:]):
            continue
        found = run(layout, bug)
        failed = [said for _, said in found if said.startswith("failed")]
        is_right = not failed and (any if bug else all)(is_same is not bool(bug) for is_same, _ in found)
        wrong += not is_right
        told = next(iter(failed or [said for is_same, said in found if not is_same] or [found[0][1]]))
        print(f"{'right' if is_right else 'WRONG'}  {name:28} {told}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
