"""Writes a run's metadata files: at init in the background, later only what has changed."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import sys
import threading
import weakref
from collections.abc import Iterable
from pathlib import Path

from . import packages, runtime
from .modifications import Modifications
from .working_tree import WorkingTree

PATCH = "project.patch"
NEW_FILES_PATCH = "untracked.patch"


def excluded_folders(run: Path, working_directory: str) -> list[Path]:
    """What stays out of the patch: the folder of runs, unless the program itself lies below it; then the runs in it."""
    base = run.parent
    if not Path(working_directory).resolve().is_relative_to(base):
        return [base]
    return [run, *(path.parent for path in base.glob("*/run.json"))]


class MetadataStore:
    """The metadata files of one run folder. Thread-safe.

    `update()` may be called at every step: what cannot have changed is not looked at again. `start()` returns at once:
    what is cheap and may change (command, environment, folder) is taken in the call, the rest in a thread that
    `wait()`, a fork and the interpreter's exit wait for.
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
        self._project = self._working_tree()
        self._package_trees: dict[str, WorkingTree] = {}
        self._packages_state: object = None
        self._modifications: Modifications | None = None
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
        """Looks at what may have changed since the last time, and writes the files whose content has changed."""
        with self._lock:
            state = packages.installed_state(), self._imported()
            if state != self._packages_state or not (self.folder / "packages.json").exists():
                self._write_json("packages.json", self._packages())
                self._packages_state = state
                self._package_trees = {
                    name: WorkingTree(folder, patch_name=f"{name}.patch")
                    for name, folder in self._package_folders().items()
                    if os.path.isdir(folder)
                }
            looked = [tree.look() for tree in (self._project, *self._package_trees.values())]
            root = self._project.root or self.cwd
            if self._modifications is None or self._modifications.project_root != root:
                self._modifications = Modifications(("torch", "numpy", *self.packages_asked), root)
            if self._modifications.look() or any(looked) or not (self.folder / "git_info.json").exists():
                self._write_git(root)

    def _runtime(self) -> dict:
        return runtime.collect()

    def _working_tree(self) -> WorkingTree:
        return WorkingTree(self.cwd, lambda: excluded_folders(self.folder, self.cwd), patch_name=PATCH)

    def _packages(self) -> dict:
        return packages.collect()

    def _imported(self) -> object:
        """What `_packages` depends on, besides what is installed."""
        return tuple(map(id, sys.modules.copy().values()))

    def _package_folders(self) -> dict[str, str]:
        """Packages whose git state is told: those that were installed editable."""
        return packages.editable_installs()

    def _write_git(self, root: str) -> None:
        self._write_patch(PATCH, self._project.patch)
        self._write_patch(NEW_FILES_PATCH, self._project.new_files)
        found = {}
        for name, tree in self._package_trees.items():
            if tree.root is None or tree.root == root:
                continue
            self._write_patch(f"{name}.patch", tree.patch)
            found[name] = tree.info
        info = {
            "project_git_info": self._project.info,
            "packages_git_info": found,
            "runtime_modifications": self._modifications.found,
        }
        self._write_json("git_info.json", info)

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
