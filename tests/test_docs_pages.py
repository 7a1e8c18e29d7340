"""The code blocks of these pages run, and print what the page says: see page_blocks."""

import shutil
import sys

import page_blocks
import pytest

DOCS = page_blocks.ROOT / "docs"
STORIES = [page_blocks.ROOT / "README.md", DOCS / "start.md", *sorted((DOCS / "stories").glob("*.md"))]
OTHERS = (DOCS / f"{name}.md" for name in ("frames", "integrations", "notebooks", "pytest"))
GUIDES = [*sorted(DOCS.glob("from-*.md")), *OTHERS]
OLD_NAMES = ("tensor_dumper", "tensortrace", "torchspy", "ttracker", "ztrace")


@pytest.mark.parametrize("path", [*STORIES, *GUIDES], ids=lambda path: path.stem)
def test_blocks(path, tmp_path, monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    page = page_blocks.Page(tmp_path)
    for drop_in in [name for name in sys.modules if name.startswith("tenscope.compat.")]:
        monkeypatch.delitem(sys.modules, drop_in)  # as in a new program: their files lie where it began
    before = set(sys.modules)
    monkeypatch.setitem(sys.modules, "page", page.module)
    monkeypatch.setattr(sys, "argv", ["train.py"])
    if path in STORIES:
        shutil.copytree(page_blocks.ROOT / "examples", tmp_path / "examples")
    blocks = page_blocks.blocks(path)
    assert blocks
    page.run(blocks)
    for alias in [name for name in set(sys.modules) - before if name.partition(".")[0] in OLD_NAMES]:
        del sys.modules[alias]


def test_what_is_printed_is_compared():
    says = page_blocks.is_printed
    assert says("loss 0.301\n… events\nend", "loss 0.3012\n17 events\nend\n")
    assert not says("loss 0.301", "loss 0.331")
    assert not says("loss 0.301 nan", "loss 0.301 inf")
    assert says("a\n…\nd", "a\nb\nc\nd") and not says("a\n…\nd", "a\nb\nc")
    assert says("0.5 ┤⠉⠉⢣⠤", "0.5 ┤ ⠉⠉⠉⢣") and says("name  1.5", "name     1.5") and not says("5 of 7", "6 of 7")


def test_a_block_that_prints_something_else_fails(tmp_path):
    page = page_blocks.Page(tmp_path)
    block = page_blocks.Block
    page.run([block("python", "", "print(1)"), block("text", "", "1"), block("console", "", "$ echo 2\n2\n")])
    for wrong in (
        [block("python", "", "print(1)"), block("text", "", "2")],
        [block("console", "", "$ echo 2\n3\n")],
        [block("console", "", "$ false\n")],
        [block("text", "a.txt", "one\n"), block("diff", "a.txt", "-two\n+three\n")],
        [block("sh", "", "make nothing-of-this-name")],
    ):
        with pytest.raises(AssertionError):
            page.run(wrong)


def test_the_front_page_quotes_a_story():
    (quoted,) = page_blocks.blocks(DOCS / "index.md")
    story = " ".join((DOCS / "stories" / "upgrade.md").read_text().split())
    for line in quoted.source.splitlines():
        assert " ".join(line.split()) in story
