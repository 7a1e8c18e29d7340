"""Runs a recorded program again: in its folder, with the variables that numbers depend on, with all of its ranks."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

from tenscope.metadata.repro import Recorded, Trouble
from tenscope.metadata.runtime import PROGRAM_VARIABLE

# What a launcher tells each of its processes.
_LAUNCHERS = re.compile(r"^(RANK|WORLD_SIZE|LOCAL_.*|GROUP_.*|ROLE_.*|MASTER_.*|TORCHELASTIC_.*|SLURM_.*|OMPI_.*)$")
_GRACE_S = 20  # that the other ranks have when one has failed


def run_again(label: str, command: list[str], recorded: Recorded, folder: str) -> str:
    """What the program prints, run in that folder. `label` is how messages call it."""
    program = recorded.program
    if not Path(folder).is_dir():
        raise Trouble(f"the folder that {label} was run in is gone: {folder}")
    environment = environment_of(recorded)
    world_size = program.get("world_size", 1)
    if program.get("local_world_size", world_size) != world_size:
        raise Trouble(f"{label} was run by {world_size} ranks on several machines, and can be run again on one only")
    ranks = rank_environments(world_size)
    # A process starts others, which may outlive it: they end with it by being one group.
    with tempfile.TemporaryFile("w+", errors="replace") as output:
        started = []
        try:
            for of_rank in ranks:
                process = subprocess.Popen(
                    command,
                    cwd=folder,
                    env=environment | of_rank,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
                started.append(process)
            wait_for(started)
        except OSError as error:
            raise Trouble(f"cannot start Python for {label}: {error.strerror}: {command[0]}") from None
        finally:
            for process in started:
                end_group(process)
        output.seek(0)
        return output.read()


def environment_of(recorded: Recorded) -> dict[str, str]:
    then = {name: value for name, value in recorded.relevant_environment.items() if not _LAUNCHERS.match(name)}
    environment = {name: value for name, value in os.environ.items() if not _LAUNCHERS.match(name)} | then
    environment["PYTHONDONTWRITEBYTECODE"] = "1"  # of sources that may stand in for others
    environment["TENSCOPE_QUIET"] = "1"
    environment["PYTHONPATH"] = without_our_site(environment.get("PYTHONPATH", ""))
    for word in ("TENSCOPE_RUN", "TENSCOPE_RUN_OPTIONS", PROGRAM_VARIABLE):
        environment.pop(word, None)
    return environment


def without_our_site(path: str) -> str:
    """PYTHONPATH as the program had it: `tenscope run` puts a folder of its own in front of it."""
    site = str(Path(__file__).parent / "site")
    return os.pathsep.join(word for word in path.split(os.pathsep) if word and word != site)


def rank_environments(world_size: int) -> list[dict[str, str]]:
    """As torchrun sets it, on this machine; nothing for a program that was no rank of a launcher's."""
    if world_size == 1:
        return [{}]
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    size, host = str(world_size), "127.0.0.1"
    common = {"WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size, "MASTER_ADDR": host, "MASTER_PORT": port}
    return [common | {"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(world_size)]


def wait_for(started: list[subprocess.Popen]) -> None:
    """Until all have ended; where one has failed, the others may wait for it forever and get some time only."""
    failed_at = None
    while any(process.poll() is None for process in started):
        if failed_at is None and any(process.poll() for process in started):
            failed_at = time.monotonic()
        if failed_at is not None and time.monotonic() - failed_at > _GRACE_S:
            return
        time.sleep(0.05)


def end_group(process: subprocess.Popen) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
