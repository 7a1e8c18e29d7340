"""Which rank this process is, and how the ranks of one job agree on one run folder without talking while they record.

In this order: TENSCOPE_RUN names the folder; an initialised torch.distributed broadcasts it once; a launcher's ids in
the environment (torchrun, SLURM, Open MPI, PMI) give all its processes the same name; else the process is alone.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tenscope.errors import UsageError
from tenscope.recording.replace import remove_run

_LAUNCHERS = (
    ("RANK", "WORLD_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
)


@dataclass(frozen=True)
class Place:
    """Where a process records: base/name/rank-N. An empty name lets the core take a timestamp."""

    base: Path
    name: str
    rank: int
    world_size: int
    join: bool = False  # the folder is shared with other processes


def place(
    base: str | os.PathLike[str], name: str, nth: int, environ: Mapping[str, str] = os.environ, *, replace: bool = False
) -> Place:
    """`nth` counts the runs that this process opened before: a second run of the same job gets a folder of its own."""
    distributed = _distributed()
    rank, world_size = here(environ)
    if environ.get("TENSCOPE_RUN") and not name:
        folder = Path(environ["TENSCOPE_RUN"])
        return Place(folder.parent, _numbered(folder.name, nth), rank, world_size, join=True)
    if distributed is not None and world_size > 1:
        return Place(*_broadcast(distributed, base, name, replace), rank, world_size)
    if world_size > 1:
        if replace:
            raise UsageError("replace needs torch.distributed to be initialised where several ranks record one run")
        job = job_name(environ, world_size)
        name = name_of_launch(Path(base), name) if name else _numbered(job, nth) if job else ""
        return Place(Path(base), name, rank, world_size)
    if replace:
        remove_run(Path(base) / name)
    return Place(Path(base), name, rank, world_size)


def here(environ: Mapping[str, str] = os.environ) -> tuple[int, int]:
    """This process' rank and the number of ranks, as torch.distributed or the launcher has them; 0 and 1 alone."""
    distributed = _distributed()
    if distributed is not None:
        return distributed.get_rank(), distributed.get_world_size()
    return _rank_from(environ)


def name_of_launch(base: Path, name: str) -> str:
    """The same for all ranks of one launch, without talking: the first name_N that no earlier launch has left."""
    launched = _started_of_parent()
    number, chosen = 1, name
    while launched and _made_before(base / chosen, launched):
        number += 1
        chosen = f"{name}_{number}"
    return chosen


def _made_before(folder: Path, time_s: float) -> bool:
    for path in (folder / "run.json", folder):
        with contextlib.suppress(OSError):
            return path.stat().st_mtime < time_s
    return False


def free_name(base: Path, name: str) -> str:
    number, chosen = 1, name
    while os.path.lexists(base / chosen):
        number += 1
        chosen = f"{name}_{number}"
    return chosen


def _numbered(name: str, nth: int) -> str:
    return name if nth == 0 else f"{name}-{nth + 1}"


def _distributed():
    torch = sys.modules.get("torch")
    distributed = getattr(torch, "distributed", None)
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return distributed


def _rank_from(environ: Mapping[str, str]) -> tuple[int, int]:
    for rank, size in _LAUNCHERS:
        try:
            return int(environ[rank]), max(int(environ.get(size, 1)), int(environ[rank]) + 1)
        except (KeyError, ValueError):
            continue
    return 0, 1


def _broadcast(distributed, base: str | os.PathLike[str], name: str, replace: bool) -> tuple[Path, str]:
    """Rank 0 decides, also what goes wrong."""
    chosen: list = [None]
    if distributed.get_rank() == 0:
        try:
            if replace:
                remove_run(Path(base) / name)
            chosen = [(os.fspath(base), free_name(Path(base), name or time.strftime("%Y%m%d_%H%M%S")), "")]
        except (UsageError, OSError) as error:
            chosen = [("", "", str(error))]
    distributed.broadcast_object_list(chosen, src=0)
    folder, agreed, trouble = chosen[0]
    if trouble:
        raise UsageError(trouble)
    return Path(folder), agreed


def job_name(environ: Mapping[str, str], world_size: int) -> str:
    """A name that every process of one launch works out alike, and no other launch."""
    restart = environ.get("TORCHELASTIC_RESTART_COUNT", environ.get("SLURM_RESTART_COUNT", "0"))
    suffix = "" if restart == "0" else f"_restart-{restart}"
    if "SLURM_PROCID" in environ and environ.get("SLURM_JOB_ID"):
        return f"slurm-{environ['SLURM_JOB_ID']}.{environ.get('SLURM_STEP_ID', '0')}{suffix}"
    local = environ.get("LOCAL_WORLD_SIZE") or environ.get("OMPI_COMM_WORLD_LOCAL_SIZE")
    if local is None or int(local) == world_size:
        return _launch_time_of_parent() + suffix
    run_id = environ.get("TORCHELASTIC_RUN_ID", "none")
    if run_id != "none":
        return _clean(run_id) + suffix
    if environ.get("MASTER_ADDR"):
        return _clean(f"{environ['MASTER_ADDR']}_{environ.get('MASTER_PORT', '')}") + suffix
    return ""


def _clean(text: str) -> str:
    return "".join(c if c.isalnum() or c in "-_." else "-" for c in text)


def _launch_time_of_parent() -> str:
    """On one host the launcher is the parent of all: the time it started and its id tell launches apart."""
    started = _started_of_parent()
    stamp = time.strftime("%Y%m%d_%H%M%S", time.localtime(started)) if started else "job"
    return f"{stamp}{'_' if started else '-'}{os.getppid()}"


def launch_on_this_host() -> str:
    """The same in all processes that one launcher started on this host, and in those of no other."""
    return f"{_launch_time_of_parent()}_{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}"


def _started_of_parent() -> float:
    """In seconds since the epoch; 0 where the system does not tell."""
    try:
        stat = Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()
        boot = next(line for line in Path("/proc/stat").read_text().splitlines() if line.startswith("btime "))
        return int(boot.split()[1]) + int(stat[19]) // os.sysconf("SC_CLK_TCK")
    except (OSError, IndexError, ValueError, StopIteration):
        return 0
