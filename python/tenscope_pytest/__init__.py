"""The pytest plugin: tests whose tensors are held against a reference that was recorded before. docs/pytest.md

Every pytest of an environment that has tenscope imports this module: it imports nothing but pytest, and tenscope only
in a test that asks for the fixture. So it is a package of its own; `import tenscope.x` would import tenscope.
"""

from __future__ import annotations

import pytest

_REFERENCE = "_tenscope_reference"  # an attribute of the test's item
_PROPERTY = "tenscope_reference"


def pytest_addoption(parser) -> None:
    group = parser.getgroup("tenscope")
    group.addoption(
        "--tenscope-update",
        action="store_true",
        help="record the references of the tests that run, where they are missing or differ, instead of failing",
    )
    parser.addini("tenscope_references", "where references lie, seen from a test's file", default="tenscope_references")
    parser.addini("tenscope_values", 'what references keep of tensors: "stats" or "full"', default="stats")


def pytest_configure(config) -> None:
    config.addinivalue_line(
        "markers",
        "tenscope(values, tolerance, strict, bitwise, map, ...): how tenscope_reference records and compares;"
        " other options as of tenscope.diff",
    )


@pytest.fixture
def tenscope_reference(request, tmp_path_factory):
    """A run that is recorded while the test runs, and then compared with the one that was recorded before."""
    from tenscope_pytest.reference import Reference

    reference = Reference(request.node, tmp_path_factory.mktemp("tenscope"))
    setattr(request.node, _REFERENCE, reference)
    with reference.recording():
        yield reference


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item):
    outcome = yield
    reference = getattr(item, _REFERENCE, None)
    if reference is None or outcome.excinfo is not None:
        return
    try:
        item.user_properties.append((_PROPERTY, reference.settle()))
    except BaseException as error:  # in the test's own phase: it has failed, and is no error of the set-up
        outcome.force_exception(error)


def pytest_terminal_summary(terminalreporter, config) -> None:
    if not config.getoption("--tenscope-update"):
        return
    settled = [
        value
        for report in terminalreporter.stats.get("passed", ())
        for name, value in getattr(report, "user_properties", ())
        if name == _PROPERTY
    ]
    counts = [f"{settled.count(word)} {word}" for word in ("recorded", "renewed", "unchanged") if word in settled]
    terminalreporter.write_line(f"tenscope references: {', '.join(counts) or 'no test has one'}")
