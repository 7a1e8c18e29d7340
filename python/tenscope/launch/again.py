"""Runs a recorded program again: in its folder, with the variables that numbers depend on, with all of its ranks."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from tenscope.launch.then import Then
from tenscope.metadata.repro import Recorded, Trouble, newest_run, split_command
from tenscope.metadata.runtime import PROGRAM_VARIABLE

# What a launcher tells each of its processes.
_LAUNCHERS = re.compile(r"^(RANK|WORLD_SIZE|LOCAL_.*|GROUP_.*|ROLE_.*|MASTER_.*|TORCHELASTIC_.*|SLURM_.*|OMPI_.*)$")
_GRACE_S = 20  # that the other ranks have when one has failed


class Program:
    """The program of a recording, and how to run it again. `label` is how messages call it."""

    def __init__(self, label: str, folder: str, command: str | None = None):
        self.label = label
        self.folder = newest_run(folder)
        self._command = shlex.split(command) if command else None
        self._printed = ""  # when it was run again

    @functools.cached_property
    def recorded(self) -> Recorded:
        return Recorded(self.folder)

    @functools.cached_property
    def words(self) -> tuple[list[str], list[str]]:
        """The interpreter with its options, and the program with its arguments."""
        program = self.recorded.program
        words = self._command or [program["executable"], *program["arguments"]]
        python, rest = split_command(words)
        if not rest or rest[0] in ("-c", "-"):
            raise Trouble(f"{self.label} is no script or module that can be run again: {shlex.join(words)}")
        return python, rest

    @functools.cached_property
    def then(self) -> Then:
        """The program's folder as it was; where another command is given, it is meant as it is now."""
        folder = self.recorded.program["working_directory"]
        script = self.words[1][0]
        roots = [folder] if script == "-m" else [folder, os.path.dirname(os.path.join(folder, script))]
        return Then(self.folder, [] if self._command else roots)

    def record(
        self,
        run: Path,
        options: list[str],
        *,
        say: Callable[[str], None],
        environment: Mapping[str, str] | None = None,
        shows_output: bool = False,
    ) -> Path:
        """Runs it again, with these words of `tenscope run`, and records it into the folder `run`."""
        python, program = self.words
        folder = self.recorded.program["working_directory"]
        if self.then.files:
            say(f"{self.label} is run with these files as they were: {', '.join(self.then.files)}")
            self.then.lay_out(run.parent / f"then-{run.name}")
            if program[0] != "-m":
                program = [self.then.path(os.path.join(folder, program[0])), *program[1:]]
            folder = self.then.path(folder)
        words = ["-m", "tenscope.run", "--out", str(run.parent), "--name", run.name, *options]
        command = [*python, *words, *program]
        self._printed = run_again(self.label, command, self.recorded, folder, environment or {})
        if shows_output:
            sys.stderr.write(self._printed)
        if not (run / "run.json").exists():
            told = f"{shlex.join(command)}\n{self._printed[-2000:]}"
            raise Trouble(f"running {self.label} again recorded nothing: {told}")
        return run

    def has_failed(self, state: str) -> Trouble:
        """What to say where the program does not get as far as it did."""
        told = self._printed[-2000:].rstrip()
        return Trouble(f"running {self.label} again {state}, before the place of the divergence:\n{told}")

    def has_changed_since(self, first: dict) -> Trouble:
        """What to say where running it again gives other numbers, first at that origin of a diff."""
        others = self.then.elsewhere
        changed = f" These files have changed since: {', '.join(others)}." if others else ""
        return Trouble(
            f"running {self.label} again gives other numbers, first in {first['name']} in step {first['step']}: its "
            f"code, inputs or seeds are no longer those of the recording, or it is not deterministic.{changed} "
            f"{self.label}: {self.folder}"
        )


def run_again(label: str, command: list[str], recorded: Recorded, folder: str, extra: Mapping[str, str]) -> str:
    """What the program prints, run in that folder, with these variables besides its own."""
    program = recorded.program
    if not Path(folder).is_dir():
        raise Trouble(f"the folder that {label} was run in is gone: {folder}")
    environment = environment_of(recorded) | dict(extra)
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
    return without_recording(environment)


def without_recording(environment: Mapping[str, str]) -> dict[str, str]:
    """For a process that is not recorded by the `tenscope run` that this one may run under."""
    ours = ("TENSCOPE_RUN", "TENSCOPE_RUN_OPTIONS", PROGRAM_VARIABLE)
    path = without_our_site(environment.get("PYTHONPATH", ""))
    return {name: value for name, value in environment.items() if name not in ours} | {"PYTHONPATH": path}


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
