"""What the native tracer asks of Python per code object: which lines can write, which are to be ignored."""

from __future__ import annotations

import ast
import dis
import linecache
import re
from types import CodeType

from tenscope import _core
from tenscope.recording.callers import OWN_FOLDER

_INERT, _IGNORED = 1, 2
_ignore_marks = ["tenscope: ignore"]

# Instructions that call nothing that could write into a list, a tensor or an object's attributes. Arithmetic is here:
# an operator that is not in-place does not write into its operands.
_INERT_OPS = re.compile(
    r"^(NOP|CACHE|RESUME|EXTENDED_ARG|PUSH_NULL|POP_TOP|COPY|SWAP|DUP_TOP.*|ROT_.*|LOAD_FAST.*|LOAD_CONST.*|LOAD_SMALL_INT|"
    r"LOAD_DEREF|LOAD_CLASSDEREF|LOAD_CLOSURE|LOAD_GLOBAL|STORE_FAST.*|STORE_DEREF|COMPARE_OP|IS_OP|UNARY_.*|TO_BOOL|"
    r"BINARY_OP|BINARY_(ADD|SUBTRACT|MULTIPLY|TRUE_DIVIDE|FLOOR_DIVIDE|MODULO|POWER|AND|OR|XOR|LSHIFT|RSHIFT|"
    r"MATRIX_MULTIPLY)|BUILD_TUPLE|JUMP_.*|POP_JUMP_.*|RETURN_.*|MAKE_CELL|COPY_FREE_VARS|NOT_TAKEN)$"
)
_STORES = re.compile(r"^(STORE_FAST|STORE_DEREF)")
_CALLS = re.compile(r"^(CALL|CALL_FUNCTION)$")
_PURE_LOOP_OPS = re.compile(r"^(PRECALL|KW_NAMES|CALL|CALL_FUNCTION|GET_ITER|FOR_ITER|END_FOR|POP_ITER)$")
_PURE_GLOBALS = {"range", "len"}


def _describe(code: CodeType) -> tuple[int, bytes, bool, tuple[tuple[int, int], ...]]:
    """First line, one flag byte per line, whether a loop stands on one line, and where comprehensions are (see
    tracer/watcher.hpp)."""
    kinds: dict[int, bool] = {}
    stores: dict[int, int] = {}
    range_loops = _range_loops(code)
    line_of: dict[int, int | None] = {}
    jumps: list[tuple[int, int]] = []
    line, unplaced = None, False
    for instruction in dis.get_instructions(code):
        starts = instruction.line_number if hasattr(instruction, "line_number") else instruction.starts_line
        if starts is not None or hasattr(instruction, "line_number"):
            line = starts
        line_of[instruction.offset] = line
        name = instruction.opname
        inert = bool(_INERT_OPS.match(name)) and not (name == "BINARY_OP" and instruction.argrepr.endswith("="))
        if instruction.opcode in dis.hasjrel or instruction.opcode in dis.hasjabs:
            jumps.append((instruction.offset, instruction.argval))
        if not inert and line in range_loops:
            inert = bool(_PURE_LOOP_OPS.match(name))
        if line is None:
            unplaced = unplaced or not inert
            continue
        kinds[line] = kinds.get(line, True) and inert
        if _STORES.match(name):
            stores[line] = stores.get(line, 0) + (2 if name.startswith("STORE_FAST_") else 1)
    comprehensions = _comprehensions(code)
    one_line_loops = any(
        target <= offset
        and line_of.get(target) == line_of[offset]
        and not any(start <= offset <= end for start, end in comprehensions)
        for offset, target in jumps
    )
    if not kinds:
        return code.co_firstlineno, b"", one_line_loops, comprehensions
    ignored = _ignored_lines(code.co_filename)
    first, last = min(kinds), max(kinds)
    flags = bytearray(last - first + 1)
    for line, inert in kinds.items():
        if inert and not unplaced and stores.get(line, 0) <= 1:
            flags[line - first] |= _INERT
        if line in ignored:
            flags[line - first] |= _IGNORED
    return first, bytes(flags), one_line_loops, comprehensions


_RESTORES = ("SWAP", "STORE_FAST", "STORE_FAST_STORE_FAST", "POP_TOP", "END_FOR", "POP_ITER")


def _comprehensions(code: CodeType) -> tuple[tuple[int, int], ...]:
    """Where the code is a comprehension that Python 3.12 and later run in the function's own frame: first and last
    offset, from after the first of its variables was taken (and the function's own of that name put aside) until the
    last is given back. Also where an exception that leaves it gives them back."""
    found: list[tuple[int, int]] = []
    instructions = list(dis.get_instructions(code))
    if not any(instruction.opname == "LOAD_FAST_AND_CLEAR" for instruction in instructions):
        return ()
    at = {instruction.offset: index for index, instruction in enumerate(instructions)}

    def last_restore(index: int) -> int:
        while index + 1 < len(instructions) and instructions[index + 1].opname in _RESTORES:
            index += 1
        return index

    for index, instruction in enumerate(instructions):
        if instruction.opname == "LOAD_FAST_AND_CLEAR":
            loop = index
            while instructions[loop].opname not in ("FOR_ITER", "GET_ANEXT", "RETURN_VALUE"):
                loop += 1
            if instructions[loop].opname == "FOR_ITER":
                end = last_restore(at[instructions[loop].argval])
                found.append((instructions[index + 1].offset, instructions[end].offset))
        elif instruction.opname == "SWAP":
            end = last_restore(index)
            if end + 1 < len(instructions) and instructions[end + 1].opname == "RERAISE":
                found.append((instruction.offset, instructions[end].offset))
    return tuple(found)


def _range_loops(code: CodeType) -> set[int]:
    """Lines that only head a loop over a range: `for i in range(n)`, `for i in range(len(x))`."""
    facts: dict[int, list] = {}
    line = None
    for instruction in dis.get_instructions(code):
        starts = instruction.line_number if hasattr(instruction, "line_number") else instruction.starts_line
        line = starts if starts is not None else line
        calls, loads, loops = facts.setdefault(line, [0, [], 0])
        name = instruction.opname
        facts[line][0] = calls + bool(_CALLS.match(name))
        facts[line][2] = loops + (name == "FOR_ITER")
        if name in ("LOAD_GLOBAL", "LOAD_NAME"):
            loads.append(instruction.argval)
    return {
        line
        for line, (calls, loads, loops) in facts.items()
        if loops == 1 and "range" in loads and calls == len([name for name in loads if name in _PURE_GLOBALS])
    }


def _ignored_lines(filename: str) -> frozenset[int]:
    """Lines of the file that carry an ignore mark; for a statement of several lines all of its lines."""
    lines = linecache.getlines(filename)
    marked = {number for number, line in enumerate(lines, 1) if any(mark in line for mark in _ignore_marks)}
    if not marked:
        return frozenset()
    try:
        tree = ast.parse("".join(lines))
    except SyntaxError:
        return frozenset(marked)
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt) and not hasattr(node, "body"):
            covered = range(node.lineno, (node.end_lineno or node.lineno) + 1)
            if len(covered) > 1 and not marked.isdisjoint(covered):
                marked.update(covered)
    return frozenset(marked)


def add_ignore_mark(text: str) -> None:
    """Lines that carry this text make no change either, in code that is watched from now on."""
    if text not in _ignore_marks:
        _ignore_marks.append(text)


_core.set_describe(_describe, OWN_FOLDER)
