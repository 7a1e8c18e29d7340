"""The viewer's page: its types, style and tests, and that what is built into the program is made of these sources."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(
    sys.version_info[:2] != (3, 11), reason="once is enough, and deno is installed for CPython 3.11 only"
)

WEB = Path(__file__).resolve().parent.parent / "web"
SOURCES = ["src/main.tsx", *sorted(str(path.relative_to(WEB)) for path in (WEB / "test").glob("*_test.ts"))]


def run(*command: object, folder: Path = WEB, **environment: str) -> None:
    done = subprocess.run(
        [str(word) for word in command],
        cwd=folder,
        env=os.environ | {"NO_COLOR": "1"} | environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout


@pytest.fixture(scope="module")
def deno(tmp_path_factory):
    """Runs deno, which takes nothing from the network."""
    beside = Path(sys.executable).with_name("deno")
    found = str(beside) if beside.exists() else shutil.which("deno")
    assert found, "deno is not installed (make setup)"
    cache = tmp_path_factory.mktemp("deno")
    return lambda *words: run(found, *words, DENO_DIR=str(cache), DENO_NO_UPDATE_CHECK="1")


def test_its_types_are_right(deno):
    deno("check", "--no-remote", *SOURCES)


def test_its_style_is_right(deno):
    deno("lint")
    deno("fmt", "--check")


def test_its_own_tests_pass(deno):
    deno("test", "--no-remote", "--cached-only", "--no-check")


def test_the_built_page_is_made_of_these_sources(tmp_path):
    assert shutil.which("esbuild"), "esbuild is not installed (make setup)"
    run(WEB / "build.sh", tmp_path)
    built = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    kept = {path.name: path.read_bytes() for path in (WEB / "dist").iterdir()}
    assert built.keys() == kept.keys() == {"index.html", "viewer.js", "viewer.css"}
    stale = [name for name in kept if built[name] != kept[name]]
    assert not stale, f"{', '.join(stale)} in web/dist: make web builds the page anew"


def test_it_takes_nothing_from_elsewhere():
    """The page may be read without a network, and its policy allows scripts and styles of the server alone."""
    page = (WEB / "dist" / "index.html").read_text()
    for start in ("src=", "href=", "url(", "@import"):
        for part in page.split(start)[1:]:
            assert not part.lstrip("\"'").startswith(("http:", "https:", "//")), part[:80]
    assert "<script>" not in page.replace(" ", "") and "onclick" not in page
    for name in ("viewer.js", "viewer.css"):
        text = (WEB / "dist" / name).read_text()
        for word in ("eval(", "new Function(", "innerHTML", "document.write", "@import"):
            assert word not in text, f"{word} in {name}"
