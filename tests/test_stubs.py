"""The stubs of the extension are written by hand: they must name what is there, all of it and nothing else."""

import ast
import pathlib

import tenscope
from tenscope import _core

STUBS = pathlib.Path(tenscope.__file__).with_name("_core.pyi")


def stub_names(body):
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, ast.AnnAssign):
            yield node.target.id
        elif isinstance(node, ast.Assign):
            yield from (target.id for target in node.targets)


def public(names):
    return {name for name in names if not name.startswith("_")}


def test_the_module():
    assert public(stub_names(ast.parse(STUBS.read_text()).body)) == public(vars(_core))


def test_the_classes():
    for node in ast.parse(STUBS.read_text()).body:
        if isinstance(node, ast.ClassDef) and hasattr(_core, node.name):
            assert public(stub_names(node.body)) == public(vars(getattr(_core, node.name))), node.name
