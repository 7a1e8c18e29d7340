"""A repository's state, asked of git again only when something in it may have changed.

Overview. Asking git takes several processes, a tenth of a second in all; a program that dumps a tensor at every step
asks at every step. So what git was asked about is remembered by the state of its files (times, size, inode): those
that are tracked, the new ones that belong in the patch, git's own (HEAD, the branch, the index, settings), submodules'
too. While they are the same, so is the answer. A folder whose entries have changed may hold a new file: then git is
asked for the list of untracked files alone.

A file that is written again within one tick of the clock and keeps its size looks the same. As git does, we do not
trust states that are as young as the look at them: such a look is made again the next time.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from . import git

_TICK_NS = 20_000_000  # more than the kernel's tick, by which it writes the times of files


class _States:
    """Times, sizes and inodes of files or folders, none where one is missing."""

    def __init__(self, paths: Iterable[str], since_ns: int):
        self._paths = list(dict.fromkeys(paths))
        self._states = self._now()
        self._settled = max(self._states[::4] + self._states[1::4], default=0) < since_ns - _TICK_NS

    def _now(self) -> list[int]:
        states = []  # flat: thousands of tuples at every look would set the garbage collector going
        for path in self._paths:
            try:
                found = os.lstat(path)
                states += found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino
            except OSError:
                states += 0, 0, 0, 0
        return states

    def are_the_same(self) -> bool:
        return self._settled and self._now() == self._states


class WorkingTree:
    """What git says of the repository around a folder: `info` (None outside a repository), `patch`, `new_files`.

    new_files_apart  the patch holds what git tracks, and `new_files` a patch of untracked sources; else one has all
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        excluded: Callable[[], list[Path]] = list,
        *,
        patch_name: str = "project.patch",
        new_files_apart: bool = False,
    ):
        self.info: dict | None = None
        self.patch = b""
        self.new_files = b""
        self._folder = Path(folder).absolute()
        self._excluded_now = excluded
        self._patch_name = patch_name
        self._apart = new_files_apart
        self._repository: git.Repository | None = None
        self._excluded: list[Path] = []
        self._untracked: tuple[list[str], list[str]] = ([], [])
        self._files: _States | None = None
        self._folders: _States | None = None

    @property
    def root(self) -> str | None:
        return str(self._repository.root) if self._repository else None

    def look(self) -> bool:
        """Asks git where something may have changed; whether it did ask for everything."""
        if self._files is not None and self._files.are_the_same() and self._has_the_same_names():
            return False
        since_ns = time.time_ns()
        self._repository = git.Repository.around(self._folder)
        if self._repository is None:
            self.info, self.patch, self.new_files = None, b"", b""
            places = (self._folder, *self._folder.parents)
            self._files, self._folders = _States((str(place / ".git") for place in places), since_ns), None
            return True
        self._excluded = [path.resolve() for path in self._excluded_now()]
        self._untracked = self._repository.untracked(self._excluded)
        files, folders = self._watched(self._repository, self._untracked)
        self._files, self._folders = _States(files, since_ns), _States(folders, since_ns)
        self._describe(self._repository)
        return True

    def _has_the_same_names(self) -> bool:
        if self._folders is None or self._folders.are_the_same():
            return True
        since_ns = time.time_ns()
        if self._repository.untracked(self._excluded) != self._untracked:
            return False
        self._folders = _States(self._watched(self._repository, self._untracked)[1], since_ns)
        return True

    def _describe(self, repository: git.Repository) -> None:
        kept, left_out = self._untracked
        self.patch = repository.patch([] if self._apart else kept)
        self.new_files = repository.patch_of_new(kept) if self._apart and kept else b""
        self.info = repository.describe(self.patch, self._patch_name, left_out)
        if self.new_files:
            self.info.update(status="dirty", is_dirty=True)

    def _watched(self, repository: git.Repository, untracked: tuple[list[str], list[str]]) -> tuple[set[str], set[str]]:
        """The files whose content the answer depends on, and the folders whose entries it depends on."""
        root = str(repository.root)
        files = {*repository.own_files(), *_user_settings()}
        folders = {root}
        for name in repository.tracked():
            path = os.path.join(root, name)
            files.add(path)
            if os.path.isdir(path) and not os.path.islink(path):  # a submodule
                inner = git.Repository.around(path)
                if inner is not None and str(inner.root) != root:
                    inner_files, inner_folders = self._watched(inner, ([], []))
                    files |= inner_files
                    folders |= inner_folders
            folders.update(_folders_above(name, root))
        kept, left = untracked
        files.update(os.path.join(root, name) for name in kept)
        for name in (*kept, *left):
            folders.update(_folders_above(name, root))
        for folder in list(folders):  # those that are empty, or ignored, as yet
            with os.scandir(folder) if os.path.isdir(folder) else _nothing() as entries:
                folders.update(entry.path for entry in entries if entry.is_dir(follow_symlinks=False))
        excluded = {str(path) for path in self._excluded}
        return files, {f for f in folders if f not in excluded and os.path.basename(f) != ".git"}


class _nothing:
    def __enter__(self) -> tuple:
        return ()

    def __exit__(self, *_: object) -> None:
        pass


def _folders_above(name: str, root: str) -> Iterable[str]:
    while name := os.path.dirname(name):
        yield os.path.join(root, name)


def _user_settings() -> Iterable[str]:
    home = os.path.expanduser("~")
    settings = os.path.join(os.environ.get("XDG_CONFIG_HOME") or os.path.join(home, ".config"), "git")
    yield os.path.join(home, ".gitconfig")
    yield from (os.path.join(settings, name) for name in ("config", "ignore", "attributes"))
