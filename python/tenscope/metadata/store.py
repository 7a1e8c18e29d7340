"""Writes a run's metadata files: at init in the background, later only what has changed."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import threading
import weakref
from collections.abc import Iterable
from pathlib import Path

from . import git, packages, patches, runtime

PATCH = "project.patch"


def excluded_folders(run: Path, working_directory: str) -> list[Path]:
    """What stays out of the patch: the folder of runs, unless the program itself lies below it; then the runs in it."""
    base = run.parent
    if not Path(working_directory).resolve().is_relative_to(base):
        return [base]
    return [run, *(path.parent for path in base.glob("*/run.json"))]


class MetadataStore:
    """The metadata files of one run folder. Thread-safe.

    `start()` returns at once: what is cheap and may change (command, environment, folder) is taken in the call, the
    rest in a thread that `wait()`, a fork and the interpreter's exit wait for.
    """

    def __init__(
        self, folder: str | os.PathLike, *, packages_asked: Iterable[str] = (), working_directory: str | None = None
    ):
        self.folder = Path(folder).resolve()
        self.cwd = working_directory or os.getcwd()
        self.packages_asked = tuple(packages_asked)
        self.owner = os.getpid()
        self._lock = threading.RLock()
        self._written: dict[str, bytes] = {}
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._write_json("runtime_info.json", self._runtime())
        self._thread = threading.Thread(target=self._update_quietly, name="tenscope-metadata", daemon=True)
        _pending.add(self)
        self._thread.start()

    def wait(self) -> None:
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()
            self._thread = None

    def update(self) -> None:
        """Collects again and writes the files whose content has changed."""
        with self._lock:
            self._write_json("packages.json", self._packages())
            info, patch = self._git()
            self._write_patch(PATCH, patch)
            self._write_json("git_info.json", info)

    def _runtime(self) -> dict:
        return runtime.collect()

    def _packages(self) -> dict:
        return packages.collect()

    def _git(self) -> tuple[dict, bytes]:
        project, patch = git.collect(self.cwd, excluded=excluded_folders(self.folder, self.cwd))
        root = project["root"] if project else self.cwd
        return {
            "project_git_info": project,
            "packages_git_info": self._packages_git(root),
            "runtime_modifications": patches.collect(("torch", "numpy", *self.packages_asked), root),
        }, patch

    def _packages_git(self, project_root: str) -> dict[str, dict]:
        """The git state of packages that were installed editable."""
        return self._git_of(packages.editable_installs(), project_root)

    def _git_of(self, locations: dict[str, str], project_root: str) -> dict[str, dict]:
        found = {}
        for name, location in locations.items():
            repository = git.Repository.around(location) if os.path.isdir(location) else None
            if repository is None or str(repository.root) == str(project_root):
                continue
            patch_name = f"{name}.patch"
            new_files, _ = repository.untracked([])
            patch = repository.patch(new_files)
            self._write_patch(patch_name, patch)
            found[name] = repository.info(patch, patch_name)
        return found

    def _update_quietly(self) -> None:
        try:
            self.update()
        except Exception as error:  # the program must go on; the run says what is missing
            with contextlib.suppress(OSError):
                (self.folder / "metadata_error.txt").write_text(f"{type(error).__name__}: {error}\n")
        finally:
            _pending.discard(self)

    def _write_json(self, name: str, content: dict) -> None:
        self._write(
            name,
            (json.dumps(content, indent=2, ensure_ascii=False, default=str) + "\n").encode("utf-8", "surrogateescape"),
        )

    def _write_patch(self, name: str, patch: bytes) -> None:
        if patch:
            self._write(name, patch)
        else:
            self._written.pop(name, None)
            (self.folder / name).unlink(missing_ok=True)

    def _write(self, name: str, content: bytes) -> None:
        with self._lock:
            path = self.folder / name
            if self._written.get(name) == content and path.exists():
                return
            scratch = path.with_name(f".{name}.{os.getpid()}")
            scratch.write_bytes(content)
            scratch.replace(path)
            self._written[name] = content


_pending: weakref.WeakSet[MetadataStore] = weakref.WeakSet()


def _wait_for_all() -> None:
    for store in list(_pending):
        store.wait()


atexit.register(_wait_for_all)
os.register_at_fork(before=_wait_for_all)  # a thread must not hold a lock that the child would inherit
