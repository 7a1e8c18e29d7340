"""One test's reference: where it lies, how it is compared, and when it is written anew."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tenscope


class Reference:
    """What a test gets. Its run is the current one: `tenscope.record` and every probe write to it.

    path  the folder of the reference
    run   what this test records
    """

    def __init__(self, item: pytest.Item, scratch: Path):
        marker = item.get_closest_marker("tenscope")
        self._options: dict[str, Any] = dict(marker.kwargs) if marker else {}
        if marker and marker.args:
            raise pytest.UsageError(f"pytest.mark.tenscope takes named options only: {item.nodeid}")
        self._values = self._options.pop("values", item.config.getini("tenscope_values"))
        self._bitwise = self._options.pop("bitwise", False)
        self._options.setdefault("strict", True)  # what is on one side only
        self._item = item
        self._is_update = item.config.getoption("--tenscope-update")
        self.path = _place(item)
        self.run = tenscope.Run(
            scratch, name=self.path.name, rank=0, values=self._values, metadata=False, sources=False
        )

    def record(self, name: str, value: Any, **options: Any) -> None:
        """As `tenscope.record`."""
        self.run.record(name, value, **options)

    def step(self, number: int | None = None) -> int:
        """As `tenscope.step`."""
        return self.run.step(number)

    def trace(self, model: Any, **options: Any) -> Any:
        """As `tenscope.trace`: what goes into and out of the model's modules while the context is open."""
        return tenscope.trace(model, run=self.run, **options)

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        with self.run:
            yield

    def settle(self) -> str:
        """Compares what the test has recorded with its reference; "equal", or what was done to the reference."""
        __tracebackhide__ = True
        self.run.close()
        if not tenscope.open(self.run.path).names():
            self._fail("the test has a tenscope_reference, but it recorded nothing", "")
        if not (self.path / "run.json").exists():
            if not self._is_update:
                self._fail("the test has no reference yet", "to record it")
            self._write()
            return "recorded"
        found = tenscope.diff(_shown(self.path), self.run, **self._options)
        if not found and not (self._bitwise and found.counts.compared != found.counts.bit_equal):
            return "unchanged" if self._is_update else "equal"
        if not self._is_update:
            self._fail(f"the test departs from its reference\n{found}", "if it is meant to")
        self._write()
        return "renewed"

    def _write(self) -> None:
        unfinished = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        shutil.rmtree(unfinished, ignore_errors=True)
        shutil.copytree(self.run.path, unfinished)
        if self.path.exists():
            shutil.rmtree(self.path)
        unfinished.replace(self.path)

    def _fail(self, what: str, advice: str) -> None:
        __tracebackhide__ = True
        lines = [what.rstrip(), f"reference: {_shown(self.path)}", f"this run:  {_shown(self.run.path)}"]
        if advice:
            lines.append(f'{advice}: pytest --tenscope-update "{self._item.nodeid}"')
        pytest.fail("\n".join(lines), pytrace=False)


def _place(item: pytest.Item) -> Path:
    """<folder of the test's file>/tenscope_references/<test file>/<test>"""
    folder = item.path.parent / item.config.getini("tenscope_references")
    inside = "::".join(item.nodeid.split("::")[1:])
    return folder / item.path.stem / _file_name(inside)


def _file_name(test: str) -> str:
    """Letters and digits stay; where something else is left out, a few digits tell tests apart that look the same."""
    clean = re.sub(r"[^\w.=-]+", "-", test.replace("::", ".")).strip("-.")[:100]
    if clean == test.replace("::", "."):
        return clean
    return f"{clean}-{hashlib.sha256(test.encode()).hexdigest()[:6]}"


def _shown(path: Path) -> str:
    path = Path(path)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
