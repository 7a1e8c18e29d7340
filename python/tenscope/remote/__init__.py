"""Runs that lie on an object store, or wherever fsspec reaches: read through a local cache, and pushed there.

Overview. A Mirror is a folder of the cache that has the run's files at their right size, but empty. The core asks for
the bytes that it is about to read (_core.Fetching); the mirror fetches them by ranges and writes them into its files.
fsspec is imported when a URL is given, and only then.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from tenscope.errors import Error

if TYPE_CHECKING:
    from tenscope.remote.mirror import Mirror

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*://")


def is_url(run: Any) -> bool:
    return isinstance(run, str) and _URL.match(run) is not None


class Place:
    """Where a run is read from: `path` is its local folder, `name` what the user calls it."""

    def __init__(self, path: str | os.PathLike[str], mirror: Mirror | None = None) -> None:
        self.mirror = mirror
        self.path = os.fspath(path)
        self.name = self.shown(self.path)

    def shown(self, text: str) -> str:
        """A text of the core's, with the run's URL instead of the mirror's folder."""
        return text if self.mirror is None else text.replace(self.mirror.folder, self.mirror.url)


def place_of(run: str | os.PathLike[str], storage_options: dict[str, Any] | None = None) -> Place:
    """The place of a run's path or URL; of a URL, what it lists is fetched, but no journal and no tensor."""
    if not is_url(run):
        return Place(run)
    from tenscope.remote.mirror import Mirror
    from tenscope.remote.store import local_path

    path = local_path(run)
    if path is not None:
        return Place(path)
    mirror = Mirror(run, storage_options)
    return Place(mirror.folder, mirror)


@contextmanager
def reading(*places: Place, all_ranks: bool = True) -> Iterator[None]:
    """Within it the core reads these places' runs; its errors name their URLs. With `all_ranks` every journal will be
    needed, so they are fetched side by side first."""
    with ExitStack() as stack:
        try:
            for mirror in [place.mirror for place in places if place.mirror is not None]:
                stack.enter_context(mirror.fetching())
                if all_ranks:
                    mirror.fetch_journals()
            yield
        except Error as error:
            text = str(error)
            for place in places:
                text = place.shown(text)
            if text == str(error):
                raise
            raise type(error)(text) from None
