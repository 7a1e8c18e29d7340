"""git_info.json and project.patch: the commit, its history, and all that is not committed."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

SOURCE_SUFFIXES = frozenset(
    [
        ".py",
        ".pyi",
        ".pyx",
        ".pxd",
        ".ipynb",
        ".c",
        ".cc",
        ".cpp",
        ".cxx",
        ".h",
        ".hh",
        ".hpp",
        ".cu",
        ".cuh",
        ".metal",
        ".cl",
        ".rs",
        ".go",
        ".java",
        ".js",
        ".ts",
        ".jsx",
        ".tsx",
        ".jl",
        ".r",
        ".m",
        ".sh",
        ".bash",
        ".zsh",
        ".fish",
        ".ps1",
        ".mk",
        ".cmake",
        ".toml",
        ".yaml",
        ".yml",
        ".json",
        ".cfg",
        ".ini",
        ".conf",
        ".txt",
        ".md",
        ".rst",
        ".proto",
        ".sql",
        ".html",
        ".css",
    ]
)
SOURCE_NAMES = frozenset({"Makefile", "Dockerfile", "CMakeLists.txt", "Justfile", ".gitignore", ".gitattributes"})
MAX_UNTRACKED_BYTES = 1 << 20
HISTORY = 50

# The patch must not depend on the user's settings, and must hold every byte.
_DIFF = [
    "diff",
    "-O/dev/null",
    "--binary",
    "--full-index",
    "--no-color",
    "--no-ext-diff",
    "--no-textconv",
    "--no-renames",
    "--no-relative",
    "--unified=3",
    "--inter-hunk-context=0",
    "--src-prefix=a/",
    "--dst-prefix=b/",
    "--ignore-submodules=dirty",
]
_EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"


class GitError(RuntimeError):
    pass


class Repository:
    """The git repository around a folder. All output is taken as bytes: names and contents may be in any encoding."""

    def __init__(self, root: Path):
        self.root = root

    @staticmethod
    def around(folder: str | os.PathLike) -> Repository | None:
        if shutil.which("git") is None:
            return None
        try:
            found = subprocess.run(
                ["git", "rev-parse", "--show-toplevel"], cwd=folder, capture_output=True, timeout=30, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        if found.returncode != 0 or not found.stdout.strip():
            return None
        return Repository(Path(os.fsdecode(found.stdout.rstrip(b"\n"))))

    def run(self, *arguments: str, environment: dict[str, str] | None = None, stdin: bytes = b"") -> bytes:
        settings = {**os.environ, "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C", **(environment or {})}
        settings.pop("GIT_EXTERNAL_DIFF", None)
        settings.pop("GIT_DIFF_OPTS", None)
        settings.pop("GIT_DIR", None)
        settings.pop("GIT_WORK_TREE", None)
        done = subprocess.run(
            ["git", *arguments],
            cwd=self.root,
            input=stdin,
            capture_output=True,
            env=settings,
            check=False,
        )
        if done.returncode != 0:
            raise GitError(f"git {arguments[0]} failed: {done.stderr.decode('utf-8', 'replace').strip()}")
        return done.stdout

    def text(self, *arguments: str) -> str | None:
        try:
            return self.run(*arguments).decode("utf-8", "replace").strip()
        except GitError:
            return None

    def commit(self) -> str | None:
        return self.text("rev-parse", "--verify", "-q", "HEAD")

    def branch(self) -> str | None:
        return self.text("symbolic-ref", "--short", "-q", "HEAD") or ("HEAD" if self.commit() else None)

    def history(self) -> list[dict[str, str]]:
        try:
            out = self.run(
                "log",
                f"-{HISTORY}",
                "--no-show-signature",
                "--date=iso-strict",
                "-z",
                "--format=%H%x01%an%x01%ae%x01%ad%x01%s",
            )
        except GitError:
            return []
        entries = []
        for record in out.split(b"\0"):
            fields = record.decode("utf-8", "replace").split("\x01", 4)
            if len(fields) == 5:
                entries.append(dict(zip(("commit", "author", "email", "date", "message"), fields, strict=True)))
        return entries

    def submodules(self) -> list[dict[str, object]]:
        try:
            lines = self.run("submodule", "status").decode("utf-8", "replace").splitlines()
        except GitError:
            return []
        found = []
        for line in lines:
            commit, _, rest = line[1:].partition(" ")
            path = rest.rsplit(" (", 1)[0]
            state = {"-": "not initialised", "+": "other commit", "U": "conflict"}.get(line[:1], "clean")
            if state == "clean" and (inner := Repository.around(self.root / path)) and inner.is_dirty():
                state = "dirty"
            found.append({"path": path, "commit": commit, "state": state})
        return found

    def is_dirty(self) -> bool:
        return bool(self.run("status", "--porcelain", "--untracked-files=no", "--ignore-submodules=dirty").strip())

    def untracked(self, excluded: list[Path]) -> tuple[list[str], list[str]]:
        """New files that belong in the patch, and those left out (not source, too large, or in an excluded folder)."""
        names = self.run("ls-files", "--others", "--exclude-standard", "-z").split(b"\0")
        kept, left = [], []
        for raw in filter(None, names):
            name = os.fsdecode(raw)
            path = self.root / name
            if any(path.is_relative_to(folder) for folder in excluded):
                continue
            is_source = path.suffix.lower() in SOURCE_SUFFIXES or path.name in SOURCE_NAMES
            try:
                small = path.is_file() and path.lstat().st_size <= MAX_UNTRACKED_BYTES
            except OSError:
                small = False
            (kept if is_source and small else left).append(name)
        return kept, left

    def tracked(self) -> list[str]:
        return [os.fsdecode(raw) for raw in self.run("ls-files", "-z").split(b"\0") if raw]

    def own_files(self) -> list[str]:
        """Git's own files that say what is checked out, staged and ignored."""
        folders = self.run("rev-parse", "--absolute-git-dir", "--git-common-dir").split(b"\n")
        own, common = (os.path.join(self.root, os.fsdecode(folder)) for folder in folders[:2])
        files = [os.path.join(own, name) for name in ("HEAD", "index", "config.worktree")]
        of_all_worktrees = ("config", "packed-refs", "info/exclude", "reftable/tables.list")
        files += [os.path.join(common, name) for name in of_all_worktrees]
        try:
            head = Path(own, "HEAD").read_text().strip()
        except (OSError, ValueError):
            head = ""
        if head.startswith("ref: "):
            files.append(os.path.join(common, head.removeprefix("ref: ")))
        return files

    def patch(self, new_files: list[str]) -> bytes:
        """Staged and unstaged changes and `new_files` against HEAD; applied to a clean checkout it gives the same tree.

        New files are added to a copy of the index, and objects go to a folder of our own: the repository stays.
        """
        base = self.commit() or _EMPTY_TREE
        if not new_files:
            return self.run(*_DIFF, base)
        with self._scratch_index() as environment:
            self._add_new(new_files, environment)
            return self.run(*_DIFF, base, environment=environment)

    def patch_of_new(self, new_files: list[str]) -> bytes:
        """`new_files` alone, as a patch that applies on top of what `patch([])` gives."""
        with self._scratch_index() as environment:
            self.run("add", "--update", environment=environment)
            base = self.run("write-tree", environment=environment).decode().strip()
            self._add_new(new_files, environment)
            return self.run(*_DIFF, base, environment=environment)

    @contextlib.contextmanager
    def _scratch_index(self) -> Iterator[dict[str, str]]:
        git_dir = Path(os.fsdecode(self.run("rev-parse", "--absolute-git-dir").rstrip(b"\n")))
        objects = os.fsdecode(self.run("rev-parse", "--git-path", "objects").rstrip(b"\n"))
        with tempfile.TemporaryDirectory(prefix="tenscope-git-") as scratch:
            index = Path(scratch, "index")
            if (git_dir / "index").exists():
                # With its time: git looks into files that are as new as the index, and trusts the size of older ones.
                shutil.copy2(git_dir / "index", index)
            yield {
                "GIT_INDEX_FILE": str(index),
                "GIT_OBJECT_DIRECTORY": scratch,
                "GIT_ALTERNATE_OBJECT_DIRECTORIES": str((self.root / objects).resolve()),
            }

    def _add_new(self, new_files: list[str], environment: dict[str, str]) -> None:
        listed = b"".join(os.fsencode(name) + b"\0" for name in new_files)
        self.run(
            "add", "--intent-to-add", "--pathspec-from-file=-", "--pathspec-file-nul",
            environment={**environment, "GIT_LITERAL_PATHSPECS": "1"}, stdin=listed,
        )  # fmt: skip

    def describe(self, patch: bytes, patch_name: str, left_out: list[str]) -> dict:
        info = self.info(patch, patch_name)
        info["root"] = str(self.root)
        info["submodules"] = self.submodules()
        info["untracked_left_out"] = left_out
        return info

    def info(self, patch: bytes, patch_name: str) -> dict:
        history = self.history()
        dirty = self.is_dirty() or bool(patch)
        return {
            "commit_id": self.commit(),
            "branch": self.branch(),
            "status": "dirty" if dirty else "clean",
            "is_dirty": dirty,
            "git_log": history,
            "git_diff": f"See {patch_name}" if patch else "",
            "log_entries_count": len(history),
        }


def collect(
    folder: str | os.PathLike, excluded: list[Path], patch_name: str = "project.patch"
) -> tuple[dict | None, bytes]:
    """What git says of the repository around `folder`, and its patch. None outside a repository."""
    repository = Repository.around(folder)
    if repository is None:
        return None, b""
    new_files, left_out = repository.untracked([path.resolve() for path in excluded])
    patch = repository.patch(new_files)
    return repository.describe(patch, patch_name, left_out), patch
