"""The stubs of the extension are nanobind's: what `make stubs` would write is what is there."""

import ast
import pathlib
import shutil
import subprocess
import sys

import pytest
import tenscope
from tenscope import _core

SOURCES = pathlib.Path(__file__).parents[1] / "python"
STUBS = SOURCES / "tenscope" / "_core.pyi"


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="written by the main Python, 3.11")
def test_they_are_fresh(tmp_path):
    pytest.importorskip("nanobind.stubgen")
    shutil.copy(_core.__file__, tmp_path)  # alone: the package adds to the module when it is imported
    patterns = SOURCES / "bindings" / "stubs.pat"
    command = [sys.executable, "-m", "nanobind.stubgen", "-q", "-i", tmp_path, "-m", "_core", "-p", patterns]
    subprocess.run([*command, "-o", tmp_path / "_core.pyi"], check=True)
    assert (tmp_path / "_core.pyi").read_text() == STUBS.read_text(), "stale: run `make stubs`"


def test_they_are_valid_and_name_everything():
    def names(body):
        for node in body:
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                yield node.name
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                yield node.target.id

    def public(names):
        return {name for name in names if not name.startswith("_")}

    tree = ast.parse(STUBS.read_text())
    assert public(names(tree.body)) == public(vars(_core))
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            assert public(names(node.body)) == public(vars(getattr(_core, node.name))), node.name


def test_they_are_part_of_the_package():
    installed = pathlib.Path(tenscope.__file__).with_name("_core.pyi")
    assert installed.read_text() == STUBS.read_text()
