"""tenscope as `cmake --install` installs it from a build tree, and what is built against it."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
CMAKE = shutil.which("cmake") or str(Path(sys.executable).with_name("cmake"))


def newest_build():
    """The newest build tree without sanitizers that has the library."""

    def is_plain(build):
        return "TENSCOPE_SANITIZE:STRING=\n" in (build / "CMakeCache.txt").read_text()

    libraries = (ROOT / "build").glob("*/libtenscope.so")
    builds = sorted(libraries, key=lambda path: path.stat().st_mtime)
    builds = [path.parent for path in builds if is_plain(path.parent)]
    if not builds:
        pytest.fail("the library is not built (cmake --build build/release)")
    return builds[-1]


def run(*words, **how):
    result = subprocess.run(list(map(str, words)), capture_output=True, text=True, timeout=300, check=False, **how)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def install(folder, *words):
    """The newest build, installed below `folder` and moved after that: its new place."""
    run(CMAKE, "--install", newest_build(), "--prefix", folder / "first", *words)
    return (folder / "first").rename(folder / "prefix")
