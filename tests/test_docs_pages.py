"""Every code block of these pages runs, in its page's order and in one folder.

A `python` block goes on where the page's last one ended; a `sh` block is typed into a shell. A `text` block is what the
block before it prints, with … for what differs from run to run.
"""

import contextlib
import io
import os
import re
import subprocess
import sys
import types
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"
PAGES = [*sorted(path.name for path in DOCS.glob("from-*.md")), "integrations.md", "notebooks.md", "pytest.md"]
OLD_NAMES = ("tensor_dumper", "tensortrace", "torchspy", "ttracker", "ztrace")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def as_pattern(text):
    return r"\s*".join(".*?".join(map(re.escape, line.split("…"))) for line in text.strip().splitlines())


class Page:
    def __init__(self, folder):
        self.folder = folder
        self.module = types.ModuleType("page")
        self.count = 0

    def python(self, source):
        self.count += 1
        file = self.folder / f"block_{self.count}.py"
        file.write_text(source)
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile(source, str(file), "exec"), vars(self.module))
        return printed.getvalue()

    def sh(self, source):
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            ["bash", "-ec", source], cwd=self.folder, env=os.environ | {"PATH": path}, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@pytest.mark.parametrize("name", PAGES)
def test_blocks(name, tmp_path, monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    page, printed = Page(tmp_path), ""
    for drop_in in [name for name in sys.modules if name.startswith("tenscope.compat.")]:
        monkeypatch.delitem(sys.modules, drop_in)  # as in a new program: their files lie where it began
    before = set(sys.modules)
    monkeypatch.setitem(sys.modules, "page", page.module)
    monkeypatch.setattr(sys, "argv", ["train.py"])
    blocks = BLOCK.findall((DOCS / name).read_text())
    assert blocks
    for language, source in blocks:
        if language == "text":
            assert re.fullmatch(as_pattern(source), printed.strip(), re.DOTALL), f"printed:\n{printed}"
        else:
            printed = getattr(page, language)(source) if language in ("python", "sh") else printed
    for alias in [name for name in set(sys.modules) - before if name.partition(".")[0] in OLD_NAMES]:
        del sys.modules[alias]
