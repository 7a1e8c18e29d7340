"""The statement that a source line belongs to: its text in one line, and the variables that it assigns."""

from __future__ import annotations

import ast
import dataclasses
import functools
import linecache

_MAX_TEXT = 200  # characters
_HAVE_BODIES = ("body", "orelse", "finalbody", "handlers", "cases")


@dataclasses.dataclass(frozen=True)
class Statement:
    text: str = ""
    assigns: str = ""  # "att", "q, k"; empty: nothing


def statement_at(file: str, line: int) -> Statement:
    text = linecache.getline(file, line).strip()
    first, last, assigns = _statements(file).get(line, (line, line, ""))
    if last > first:
        lines = (linecache.getline(file, number).strip() for number in range(first, last + 1))
        text = " ".join(part for part in lines if part)
    return Statement(text if len(text) <= _MAX_TEXT else text[: _MAX_TEXT - 3] + "...", assigns)


@functools.lru_cache(maxsize=256)
def _statements(file: str) -> dict[int, tuple[int, int, str]]:
    """First line, last line and assigned variables of the statement on each line; empty for what cannot be parsed."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return {}
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt):
            for line in range(node.lineno, _end_of_own_lines(node) + 1):
                # Of several statements on one line, which of them ran is not known.
                is_shared = line in found and not any(getattr(node, name, None) for name in _HAVE_BODIES)
                found[line] = (line, line, "") if is_shared else (node.lineno, _end_of_own_lines(node), _assigned(node))
    return found


def _end_of_own_lines(node: ast.stmt) -> int:
    """Of a statement with a body, only the lines before it are its own."""
    bodies = [child for name in _HAVE_BODIES for child in getattr(node, name, None) or []]
    first = min((child.lineno for child in bodies if hasattr(child, "lineno")), default=None)
    return node.end_lineno if first is None else max(node.lineno, first - 1)


def _assigned(node: ast.stmt) -> str:
    if isinstance(node, ast.Assign):
        targets = node.targets
    elif isinstance(node, (ast.AnnAssign, ast.AugAssign)):
        targets = [node.target]
    else:
        return ""
    return ", ".join(ast.unparse(target).strip("()") for target in targets)
