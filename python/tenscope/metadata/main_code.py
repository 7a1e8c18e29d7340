"""The part of a script that its classes need, without what the script does: so that a class of `__main__` can be
imported again without running the program."""

from __future__ import annotations

import ast
import symtable
from collections.abc import Iterable

_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def needed_code(text: str, names: Iterable[str]) -> str:
    """The statements of the script, in their order, that bind the names or what these refer to, directly or not.

    Imports, definitions and assignments; a statement that changes something needed (`Net.forward = patched`,
    `parser.add_argument(...)`) comes along. Raises SyntaxError.
    """
    lines = text.splitlines()
    statements = [each for each in ast.parse(text).body if not _is_main_guard(each)]
    facts = [(each, _bound(each), _loaded(_text(each, lines))) for each in statements]
    needed, assigned = set(names), set()
    chosen: set[int] = set()
    has_news = True
    while has_news:
        has_news = False
        for number, (statement, bound, loaded) in enumerate(facts):
            if number in chosen:
                continue
            if bound & needed or _changes(statement, needed, assigned) or _is_always_needed(statement):
                chosen.add(number)
                needed |= loaded
                if not isinstance(statement, (*_DEFINITIONS, ast.Import, ast.ImportFrom)):
                    assigned |= bound
                has_news = True
    return "\n\n".join(_text(facts[number][0], lines) for number in sorted(chosen)) + "\n"


def _text(statement: ast.stmt, lines: list[str]) -> str:
    first = min([statement.lineno, *(each.lineno for each in getattr(statement, "decorator_list", []))])
    return "\n".join(lines[first - 1 : statement.end_lineno])


def _is_main_guard(statement: ast.stmt) -> bool:
    is_if = isinstance(statement, ast.If) and isinstance(statement.test, ast.Compare)
    return is_if and isinstance(statement.test.left, ast.Name) and statement.test.left.id == "__name__"


def _is_always_needed(statement: ast.stmt) -> bool:
    is_import = isinstance(statement, ast.ImportFrom)
    return is_import and (statement.module == "__future__" or any(each.name == "*" for each in statement.names))


def _bound(statement: ast.stmt) -> set[str]:
    if isinstance(statement, _DEFINITIONS):
        return {statement.name}
    if isinstance(statement, (ast.Import, ast.ImportFrom)):
        return {each.asname or each.name.partition(".")[0] for each in statement.names}
    found = set()
    for node in _without_bodies(statement):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, _DEFINITIONS):
            found.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)) and node is not statement:
            found |= _bound(node)
    return found


def _without_bodies(statement: ast.stmt):
    """The nodes of a statement, without those of functions and classes in it."""
    pending = [statement]
    while pending:
        node = pending.pop()
        yield node
        if not isinstance(node, (*_DEFINITIONS, ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
            pending.extend(ast.iter_child_nodes(node))


def _loaded(text: str) -> set[str]:
    """The names of the module that a statement refers to; not the local variables of functions in it."""
    table = symtable.symtable(text, "<script>", "exec")
    found = {symbol.get_name() for symbol in table.get_symbols() if symbol.is_referenced()}
    pending = table.get_children()
    while pending:
        table = pending.pop()
        found |= {symbol.get_name() for symbol in table.get_symbols() if symbol.is_global()}
        pending += table.get_children()
    return found


def _changes(statement: ast.stmt, needed: set[str], assigned: set[str]) -> bool:
    if isinstance(statement, (ast.Assign, ast.AugAssign, ast.AnnAssign)):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        return any(not isinstance(target, ast.Name) and _base(target) in needed for target in targets)
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        return _base(statement.value.func) in needed & assigned and not isinstance(statement.value.func, ast.Name)
    return False


def _base(node: ast.expr) -> str:
    while isinstance(node, (ast.Attribute, ast.Subscript, ast.Call)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""
