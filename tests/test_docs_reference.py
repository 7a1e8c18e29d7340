"""The reference has every public name, verb and header, and what it says of each is more than a few words."""

import importlib.util
import inspect
import re
import sys
from pathlib import Path

import pytest
import tenscope

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def reference():
    spec = importlib.util.spec_from_file_location("reference", ROOT / "tools" / "site" / "reference.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_python_name(reference):
    pytest.importorskip("torch")
    page = reference.python_page(["tenscope"])
    for name in reference.public_names(tenscope):
        assert f"{{#tenscope.{name}}}" in page, name
        docstring = inspect.cleandoc(getattr(tenscope, name).__doc__ or "")
        assert len(docstring) > 25, f"tenscope.{name} has hardly a docstring"
    assert set(" ".join(reference.GROUPS.values()).split()) <= set(tenscope.__all__)


def test_members_and_links(reference):
    page = reference.described("tenscope", "Recording")
    for member in ("names", "steps", "find", "stack", "rank", "path", "problems"):
        assert re.search(rf"^\| `{member}\b", page, re.MULTILINE), member
    for link in re.findall(r"\]\(\.\./([\w-]+\.md)\)", reference.python_page(["tenscope", "tenscope.testing"])):
        assert (ROOT / "docs" / link).exists(), link


def test_every_verb(reference):
    page, listed = reference.commands_page(), {verb for verbs in reference.verbs().values() for verb in verbs}
    assert {"run", "ls", "show", "diff", "zoom", "repro", "view", "export"} <= listed
    for verb in listed:
        assert f"### {verb} " in page and f"tenscope {verb}" in page


def test_every_header(reference):
    page = reference.cpp_page()
    for header in (ROOT / "include" / "tenscope").glob("*.hpp"):
        text = header.read_text()
        if header.name != "tenscope.hpp":
            assert f"## {header.name}\n" in page
            for name in re.findall(r"^(?:class|struct|enum class) (\w+) (?:: \S+ )?\{", text, re.MULTILINE):
                assert re.search(rf"\b{name}\b", page), name
    assert "tenscope_status tenscope_record" in page or "tenscope_record" in page
    assert "private:" not in page and "#pragma" not in page


def test_docstrings_become_markdown(reference):
    text = reference.as_markdown(
        """What it does with `code` and a * star (docs/diff.md).

        one, two  the first
                  and on
        three     the last | one

            tenscope.diff(a, b)
        """
    )
    assert text == (
        "What it does with `code` and a \\* star ([diff](../diff.md)).\n\n"
        "| | |\n|---|---|\n| `one, two` | the first and on |\n| `three` | the last \\| one |\n\n"
        "```python\ntenscope.diff(a, b)\n```"
    )
    assert reference.as_markdown("") == "" and "reference" not in sys.modules
