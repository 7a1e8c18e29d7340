"""Links between the pages lead somewhere, in the repository and on the site, and every page is in the navigation."""

import functools
import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted(DOCS.rglob("*.md"))]
LINK = re.compile(r"\]\(([^()\s]+)\)")


def hooks():
    spec = importlib.util.spec_from_file_location("hooks", ROOT / "tools" / "site" / "hooks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def links(page):
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    return LINK.findall(re.sub(r"`[^`\n]*`", "", text))


@functools.cache
def anchors(page):
    """What a # may name in a page: its headings as the site and code hosts write them, and <a name="...">."""
    found, text = set(), re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)|`", r"\1", heading).strip().lower()
        slug = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        assert slug not in found, f"{page.name} has two headings {heading!r}: nobody can link to the second"
        found.add(slug)
    return found | set(re.findall(r'<a (?:name|id)="([^"]+)"', text))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links(page):
    for link in links(page):
        target, _, anchor = link.partition("#")
        if re.match(r"[a-z]+:", link):
            assert link.startswith("https://"), link
            continue
        there = (page.parent / target).resolve() if target else page
        assert there.is_relative_to(ROOT) and there.exists(), f"{link} leads nowhere"
        if anchor:
            assert there.suffix == ".md" and anchor in anchors(there), f"{link}: no such heading"


def test_wrong_links_are_found(tmp_path):
    page = tmp_path / "a.md"
    page.write_text("# One `two`: three\n[a](b.md#c) `[not](this)` ![d](e.png)\n```\n[nor](that)\n# nor this\n```\n")
    assert links(page) == ["b.md#c", "e.png"]
    assert anchors(page) == {"one-two-three"}


def test_every_page_is_in_the_navigation():
    nav = (ROOT / "mkdocs.yml").read_text().partition("\nnav:")[2]
    named = re.findall(r"^ +- (?:.*: )?([\w/-]+\.md)$", nav, re.MULTILINE)
    generated = {"contributing.md", "changelog.md"}
    there = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")}
    in_docs = [name for name in named if not name.startswith("reference/") and name not in generated]
    assert sorted(in_docs) == sorted(there), "mkdocs.yml: nav"


def test_links_out_of_the_docs_become_pages_of_the_site():
    module, missing = hooks(), []
    text = "[a](../README.md#x) [b](../examples/cpp) [c](diff.md) [d](https://e.f)"
    there = module.with_links(text, "docs", "cpp.md", missing.append)
    assert there == "[a](index.md#x) [b](files/examples/cpp.md) [c](diff.md) [d](https://e.f)"
    assert missing == ["examples/cpp"]
    readme = module.with_links("[a](docs/stories/nan.md) ![b](docs/images/answer.png)", ".", "index.md")
    assert readme == "[a](stories/nan.md) ![b](images/answer.png)"
    assert module.with_links("[a](../cpp.md)", "docs/stories", "stories/nan.md") == "[a](../cpp.md)"
