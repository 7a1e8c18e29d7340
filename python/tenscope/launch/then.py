"""The program's folder as it was when it was recorded: links to what is there, and the sources that have changed since.

Overview. A run keeps the text of the program's own files. Where one of them is another now, the folder is laid out
anew: a folder of links, in which just the files that changed are files, with the text that the run keeps. What lies
elsewhere (an installed package) cannot be put back like this, and is named.
"""

from __future__ import annotations

import contextlib
import io
import os
import tokenize
from pathlib import Path

from tenscope import _core
from tenscope.errors import Error

_NOT_LINKED = {"__pycache__"}  # of the files as they are now


class Then:
    """What of a run's sources has changed since, and where to run the program as it was."""

    def __init__(self, run: Path, roots: list[str]):
        self._roots = sorted({os.path.realpath(root) for root in roots}, key=len, reverse=True)
        self._changed: dict[str, bytes] = {}  # by path, below one of the roots
        self.elsewhere: list[str] = []  # changed, and not below
        self._laid_out: dict[str, str] = {}  # root to the folder that stands for it
        reader = _core.Reader(run)
        for source in reader.sources():
            if not source.path or not source.fingerprint:
                continue
            with contextlib.suppress(Error):  # its text is damaged, or was not fetched: the file is taken as it is
                self._look_at(source.path, reader.source_text(source.fingerprint))

    def _look_at(self, path: str, text: bytes) -> None:
        try:
            now = Path(path).read_bytes()
        except FileNotFoundError:
            now = None
        except OSError:
            return
        if now == text or (now is not None and _in_utf8(now) == text):
            return
        # A text is kept in UTF-8: one that says that it is in another encoding cannot be put back.
        if self._root_of(path) is None or _in_utf8(text) != text:
            self.elsewhere.append(path)
        else:
            self._changed[path] = text

    @property
    def files(self) -> list[str]:
        """That are put back."""
        return sorted(self._changed)

    def lay_out(self, folder: Path) -> None:
        """Makes the folders that stand for those of the program, where something in them has changed."""
        for number, root in enumerate(self._roots):
            files = {path: text for path, text in self._changed.items() if self._root_of(path) == root}
            if files:
                mirror = folder / str(number)
                self._laid_out[root] = str(mirror)
                if not mirror.exists():  # of an earlier time
                    _mirror(Path(root), mirror, files)

    def path(self, path: str) -> str:
        """Where that path of the program is now: itself, where nothing has changed around it."""
        real = os.path.realpath(path)
        root = self._root_of(real)
        if root is None or root not in self._laid_out:
            return path
        return os.path.join(self._laid_out[root], os.path.relpath(real, root))

    def _root_of(self, path: str) -> str | None:
        return next((root for root in self._roots if path == root or path.startswith(root + os.sep)), None)


def _in_utf8(text: bytes) -> bytes | None:
    """As runs keep it; None where it cannot be decoded."""
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(text).readline)
        return text if encoding in ("utf-8", "utf-8-sig") else text.decode(encoding).encode()
    except (SyntaxError, UnicodeError):
        return None


def _mirror(root: Path, target: Path, files: dict[str, bytes]) -> None:
    """Links to all that is in `root`; folders on the way to one of the files are folders."""
    target.mkdir(parents=True)
    here = {path: text for path, text in files.items() if Path(path).parent == root}
    below = {Path(path).relative_to(root).parts[0] for path in files if path not in here}
    names = {entry.name for entry in os.scandir(root)} if root.is_dir() else set()
    for name in names - below - {Path(path).name for path in here} - _NOT_LINKED:
        (target / name).symlink_to(root / name)
    for path, text in here.items():
        (target / Path(path).name).write_bytes(text)
    for name in below:
        inside = {path: text for path, text in files.items() if path.startswith(str(root / name) + os.sep)}
        _mirror(root / name, target / name, inside)
