"""Virtual environments for released versions of libraries: one base with torch, and thin ones that look through to it.

They are kept in $TENSCOPE_UPGRADES_CACHE (`upgrades` in the folder for temporary files if it is not set). Each is
made in a folder of its own and renamed when it is done: one that was broken off, or made twice at once, does no harm.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

CACHE = Path(os.environ.get("TENSCOPE_UPGRADES_CACHE") or Path(tempfile.gettempdir()) / "upgrades")
BASE = ("torch==2.13.0", "numpy==2.4.6", "pillow==12.3.0", "setuptools==80.9.0")
SITE = Path(sysconfig.get_path("purelib")).relative_to(sys.prefix)
UNREACHABLE = ("from versions: none", "NewConnectionError", "ConnectTimeoutError", "NameResolutionError", "ProxyError")


def call(*words: object) -> None:
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    if done.returncode == 0:
        return
    said = (done.stderr or done.stdout).strip()
    if any(word in said for word in UNREACHABLE):
        raise RuntimeError("pip cannot reach a package index that has it (the cases that need none: --local)")
    raise RuntimeError("\n".join(line for line in said.splitlines() if not line.startswith("WARNING"))[-600:])


def make(folder: Path, packages: tuple[str, ...], base: Path | None) -> Path:
    """The Python of a virtual environment with these packages, made where it is missing."""
    mark = folder / "requirements"
    python = folder / "bin" / "python"
    if mark.exists():
        return python
    print(f"making {folder.name}: {' '.join(packages)}", file=sys.stderr, flush=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        if base is None:
            call(sys.executable, "-m", "venv", draft)
            pip = [draft / "bin" / "python", "-m", "pip"]
        else:
            call(sys.executable, "-m", "venv", "--without-pip", draft)
            (draft / SITE / "base.pth").write_text(f"{base / SITE}\n")
            pip = [base / "bin" / "python", "-m", "pip", "--python", draft / "bin" / "python"]
        call(*pip, "install", "-q", "--disable-pip-version-check", *BASE, *packages)
        (draft / "requirements").write_text("\n".join(packages))
        try:
            draft.rename(folder)
        except OSError:  # another one was faster
            if not mark.exists():
                raise
    except RuntimeError as error:
        raise RuntimeError(f"cannot install {' '.join(packages)}: {error}") from None
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return python


def base() -> Path:
    name = "base-" + hashlib.sha256(" ".join(BASE).encode()).hexdigest()[:8]
    make(CACHE / name, BASE, None)
    return CACHE / name


def requirements(name: str) -> tuple[str, ...]:
    return tuple((Path(__file__).parent / "requirements" / f"{name}.txt").read_text().split())


def python(name: str) -> Path:
    """The Python of the environment of that name; another folder where its packages are others."""
    packages = requirements(name)
    digest = hashlib.sha256(" ".join((*BASE, *packages)).encode()).hexdigest()[:8]
    return make(CACHE / f"{name}-{digest}", packages, base())
