"""Expressions to watch: a variable and a path from it, parsed once; the native tracer evaluates them without eval."""

from __future__ import annotations

import ast
import re
import sys
from functools import lru_cache

_TOKEN = re.compile(r"\s*(?:(?P<dot>\.)\s*(?P<name>\w+|\*)|(?P<open>\[))")


@lru_cache(maxsize=1024)
def parse(text: str) -> tuple[str, str, tuple[tuple[str, object], ...]]:
    """`self.a[0].*.w` as ("self.a[0].*.w", "self", (("attr", "a"), ("item", 0), ("any", None), ("attr", "w")))."""
    if not isinstance(text, str):
        raise TypeError(f"an expression to watch is text, not {type(text).__name__}")
    source = text.strip()
    root = re.match(r"[^\W\d]\w*", source)
    if root is None:
        raise ValueError(f"cannot watch {text!r}: it does not begin with a variable's name")
    steps: list[tuple[str, object]] = []
    position = root.end()
    while position < len(source):
        token = _TOKEN.match(source, position)
        if token is None:
            raise ValueError(f"cannot watch {text!r}: expected .name, .* or [index] at {source[position:]!r}")
        if token["dot"]:
            steps.append(("any", None) if token["name"] == "*" else ("attr", sys.intern(token["name"])))
            position = token.end()
        else:
            index, position = _parse_index(source, token.end(), text)
            steps.append(index)
    return text, root[0], tuple(steps)


def _parse_index(source: str, start: int, text: str) -> tuple[tuple[str, object], int]:
    for end in (i for i in range(start, len(source)) if source[i] == "]"):
        inside = source[start:end].strip()
        if inside == "*":
            return ("any", None), end + 1
        try:
            tree = ast.parse(f"_[{inside}]", mode="eval").body
        except (SyntaxError, ValueError):
            continue  # the bracket is inside a text or a nested one
        if isinstance(tree, ast.Subscript):
            return _index_step(tree.slice, text), end + 1
    raise ValueError(f"cannot watch {text!r}: no ] to end the index at {source[start:]!r}")


def _index_step(node: ast.expr, text: str) -> tuple[str, object]:
    if isinstance(node, ast.Name):
        return "var", sys.intern(node.id)
    return "item", _constant(node, text)


def _constant(node: ast.expr | None, text: str) -> object:
    if isinstance(node, ast.Slice):
        return slice(*(_constant(part, text) if part else None for part in (node.lower, node.upper, node.step)))
    if isinstance(node, ast.Tuple) and any(isinstance(item, ast.Slice) for item in node.elts):
        return tuple(_constant(item, text) for item in node.elts)
    try:
        return ast.literal_eval(node)
    except ValueError:
        raise ValueError(f"cannot watch {text!r}: an index is a constant or a variable's name") from None
