"""The sources that a run keeps: `tenscope.open(run).sources`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tenscope import _core


class Sources(Mapping[str, str]):
    """The text of every source file that a run keeps, by its file as sites have it; of several texts of one file the
    last. `left_out` has the files that were not kept, and why."""

    def __init__(self, reader: _core.Reader) -> None:
        self._reader = reader
        told = reader.sources()
        self._kept = {source.file: source for source in told if source.fingerprint}
        self.left_out = {source.file: source.left_out for source in told if source.left_out}

    def __getitem__(self, file: str) -> str:
        return self._reader.source_text(self._kept[file].fingerprint).decode(errors="replace")

    def path(self, file: str) -> str:
        """Where the file lay; empty for code that is in no file, such as a notebook's."""
        return self._kept[file].path

    def __iter__(self) -> Iterator[str]:
        return iter(self._kept)

    def __len__(self) -> int:
        return len(self._kept)

    def __repr__(self) -> str:
        return f"<tenscope sources: {', '.join(self._kept) or 'none'}>"
