"""Starting a run anew: removing the folder of an earlier run, and nothing that is anything else."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
from pathlib import Path

from tenscope.errors import UsageError

_OWN_FILES = re.compile(
    r"run\.json|push\.json|runtime_info\.json|packages\.json|git_info\.json|metadata_error\.txt|[^/]*\.patch"
    r"|\.(run|runtime_info|packages|git_info)\.json\.\d+|\.[^/]*\.patch\.\d+"
)
_WRITER_FOLDER = re.compile(r"rank-\d+(\.pid-\d+(\.\d+)?)?")
_SOURCE_FILES = re.compile(r"[0-9a-f]{32}\.py|\.[0-9a-f]{32}\.\d+")
_WRITER_FILES = re.compile(r"journal(-\d+)?\.jsonl(\.next)?|\d+\.safetensors(\.open)?")


def check_name(name: str) -> None:
    """A run's name is that of one folder below its base."""
    if not isinstance(name, str):
        raise TypeError(f"a run's name is text, not {type(name).__name__}")
    if name in (".", "..") or "/" in name or "\0" in name:
        raise UsageError(f"cannot create run: its name is no file name: {name}")


def remove_run(folder: Path) -> None:
    """Removes a run's folder; nothing where there is none. Where it is no run, holds something else too, or is being
    written, it raises UsageError and removes nothing."""
    if not os.path.lexists(folder):
        return
    trouble = _why_not(folder)
    if trouble:
        raise UsageError(f"cannot replace the run: {trouble}: {folder}")
    aside = folder.with_name(f".{folder.name}.replaced-{os.getpid()}")
    folder.rename(aside)  # gone at once, so that nobody meets half of it
    shutil.rmtree(aside)


def _why_not(folder: Path) -> str:
    if folder.is_symlink() or not folder.is_dir():
        return "it is not a folder"
    entries = sorted(folder.iterdir())
    if not entries:
        return ""
    try:
        is_run = "tenscope_format" in json.loads((folder / "run.json").read_text())
    except (OSError, ValueError, TypeError):
        is_run = False
    if not is_run:
        return "it is not a run's folder"
    foreign = [entry.name for entry in entries if not _is_own(entry)]
    if foreign:
        more = f" and {len(foreign) - 3} more" if len(foreign) > 3 else ""
        return f"it also holds what is no part of a run ({', '.join(foreign[:3])}{more})"
    alive = [journal.parent.name for journal in folder.glob("rank-*/journal.jsonl") if _is_locked(journal)]
    return f"it is being written by {', '.join(alive)}" if alive else ""


def _is_own(entry: Path) -> bool:
    if entry.is_symlink():
        return False
    if entry.is_dir():
        files = _SOURCE_FILES if entry.name == "sources" else _WRITER_FILES
        return bool(entry.name == "sources" or _WRITER_FOLDER.fullmatch(entry.name)) and all(
            file.is_file() and not file.is_symlink() and files.fullmatch(file.name) for file in entry.iterdir()
        )
    return bool(_OWN_FILES.fullmatch(entry.name))


def _is_locked(journal: Path) -> bool:
    with journal.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
    return False
