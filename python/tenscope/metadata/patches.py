"""Runtime modifications: what runs is not what the files say.

Overview. For every loaded module of the packages in question (the user's project, torch, numpy, what was asked for)
three things are looked at:

- *replaced*: a module attribute, class method or property that is a Python function or class defined elsewhere, where
  the module's source gives no reason for it. "Elsewhere" is judged by the file of the code object, not by `__module__`,
  which anybody can set. A package's own files, the standard library and what the module's source imports, assigns
  or decorates are no surprise; what lies in the user's project or was typed in is.
- *code*: a function whose code is not the one its source gives (`f.__code__ = ...`, or an edited source that was not
  reloaded). The user's modules are compiled again and compared; of large packages only code that claims another file or
  name than its function is.
- *file*: a source that changed on disk after it was imported.

Sources are parsed only where something looks odd, so that a plain `import torch, numpy` costs a walk over dictionaries.
"""

from __future__ import annotations

import ast
import os
import re
import sys
import sysconfig
import time
import types
from collections.abc import Iterable, Iterator
from functools import cached_property, lru_cache
from pathlib import Path

_STDLIB = tuple({sysconfig.get_path("stdlib") + os.sep, sysconfig.get_path("platstdlib") + os.sep})
_SITE = tuple({sysconfig.get_path("purelib") + os.sep, sysconfig.get_path("platlib") + os.sep})
_SITE_MARKS = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
_GENERATED = (
    "<string>",
    "<frozen",
    "<attrs generated",
    "<__array_function__",
    "<eval_with_key>",
    "<torch_package",
    "<makefun",
    "<decorator-gen",
)
_OWN = str(Path(__file__).resolve().parent.parent) + os.sep


class _Source:
    """What a module's source says: names bound at its top level and in its classes' bodies."""

    def __init__(self, path: str):
        self.path = path
        self._bindings: dict[str | None, dict[str, str]] = {}

    @cached_property
    def text(self) -> bytes:
        try:
            return Path(self.path).read_bytes()
        except OSError:
            return b""

    @cached_property
    def tree(self) -> ast.Module | None:
        try:
            return ast.parse(self.text, self.path)
        except (SyntaxError, ValueError, RecursionError):
            return None

    @cached_property
    def code(self) -> dict[str, types.CodeType] | None:
        """Code objects by qualified name, of what is defined once under that name."""
        try:
            top = compile(self.text, self.path, "exec", dont_inherit=True)
        except (SyntaxError, ValueError, RecursionError):
            return None
        found: dict[str, types.CodeType] = {}
        twice: set[str] = set()

        def walk(code: types.CodeType, prefix: str) -> None:
            for const in code.co_consts:
                if isinstance(const, types.CodeType) and not const.co_name.startswith("<"):
                    name = prefix + const.co_name
                    (twice.add(name) if name in found else found.setdefault(name, const))
                    walk(const, f"{name}." if const.co_flags & 0x1 == 0 else f"{name}.<locals>.")

        walk(top, "")
        return {name: code for name, code in found.items() if name not in twice}

    def may_define(self, name: str) -> bool:
        """False where every definition of it has a decorator that may give something else: told without parsing."""
        for found in re.finditer(
            rf"^[ \t]*((async[ \t]+)?def|class)[ \t]+{re.escape(name)}\b".encode(), self.text, re.MULTILINE
        ):
            line_before = self.text[max(0, found.start() - 400) : found.start()].rstrip().rpartition(b"\n")[2].strip()
            if not line_before.startswith(b"@") or line_before[1:].decode("utf-8", "replace") in _PLAIN_DECORATORS:
                return True
        return False

    def imports(self, package: str) -> bool:
        """Whether a line imports that top-level package: told without parsing."""
        line = rf"^[ \t]*(from[ \t]+|import[ \t]+([\w.]+[ \t]*,[ \t]*)*){re.escape(package)}\b".encode()
        return re.search(line, self.text, re.MULTILINE) is not None

    def bindings(self, class_name: str | None) -> dict[str, str]:
        """name -> how it is bound: "def", "decorated", "import", "assign".

        "*" stands for a star import, "@" for a decorated class.
        """
        if class_name in self._bindings:
            return self._bindings[class_name]
        if self.tree is None:
            return {}
        body: list[ast.stmt] = self.tree.body
        decorators: list[ast.expr] = []
        for part in class_name.split(".") if class_name else ():
            inner = next((n for n in _statements(body) if isinstance(n, ast.ClassDef) and n.name == part), None)
            if inner is None:
                return {}
            body = inner.body
            decorators = inner.decorator_list
        found: dict[str, str] = {"@": "decorated"} if decorators else {}
        for node in _statements(body):
            for name, how in _bound(node):
                found[name] = "assign" if name in found else how
        if class_name is None:
            for names in re.findall(rb"^\s*global\s+([\w, \t]+)", self.text, re.MULTILINE):
                found.update(dict.fromkeys(re.findall(r"\w+", names.decode()), "assign"))
        self._bindings[class_name] = found
        return found


def _statements(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a body and of its if, try, with, for and while blocks, but not of functions or classes."""
    for node in body:
        yield node
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            for field in ("body", "orelse", "finalbody"):
                yield from _statements(getattr(node, field, []))
            for handler in getattr(node, "handlers", []):
                yield from _statements(handler.body)


_PLAIN_DECORATORS = {"property", "staticmethod", "classmethod"}  # which keep the function they are given


def _bound(node: ast.stmt) -> Iterator[tuple[str, str]]:
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        plain = all(isinstance(d, ast.Name) and d.id in _PLAIN_DECORATORS for d in node.decorator_list)
        yield node.name, "def" if plain else "decorated"
    elif isinstance(node, (ast.Import, ast.ImportFrom)):
        for alias in node.names:
            yield (alias.asname or alias.name.split(".")[0]), "import"
    else:
        for inner in ast.walk(node):
            if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
                yield inner.id, "assign"


@lru_cache(maxsize=4096)
def _source(path: str) -> _Source:
    return _Source(path)


def _function_of(value) -> types.FunctionType | None:
    """The Python function behind a method, static method or property; None for anything else.

    By `type()`: `isinstance` asks the object, and a lazy proxy would import things or warn.
    """
    for _ in range(8):
        kind = type(value)
        if kind is types.FunctionType:
            return value
        if kind is staticmethod or kind is classmethod or kind is types.MethodType:
            value = value.__func__
        elif kind is property:
            value = value.fget
        else:
            return None
    return None


_NATIVE = (
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.GetSetDescriptorType,
    types.BuiltinFunctionType,
)


def _hides_native(cls: type, attribute: str) -> bool:
    """Whether a base class has a method of that name written in C."""
    return any(type(vars(base).get(attribute)) in _NATIVE for base in cls.__mro__[1:-1])


def _innermost(function: types.FunctionType) -> types.FunctionType:
    for _ in range(32):
        inner = function.__dict__.get("__wrapped__")
        if not isinstance(inner, types.FunctionType):
            break
        function = inner
    return function


@lru_cache(maxsize=4096)
def _is_stdlib(where: str) -> bool:
    return where.startswith(_STDLIB) and not any(mark in where for mark in _SITE_MARKS)


@lru_cache(maxsize=4096)
def _is_user_code(where: str) -> bool:
    """Typed in, or in a file that is neither of the standard library nor of an installed package."""
    if where.startswith("<"):
        return True
    return not where.startswith((*_STDLIB, *_SITE, _OWN)) and not any(mark in where for mark in _SITE_MARKS)


def _file_of_class(cls: type) -> str | None:
    module = sys.modules.get(cls.__module__)
    return getattr(module, "__file__", None) or ("<main>" if cls.__module__ == "__main__" else None)


class Scanner:
    """Looks at the loaded modules of `packages` and of the project below `project_root`."""

    def __init__(self, packages: Iterable[str], project_root: str | os.PathLike | None):
        self.packages = tuple(packages)
        self.root = str(Path(project_root).resolve()) + os.sep if project_root else None
        self.found: list[dict] = []

    def scan(self) -> list[dict]:
        self.found = []
        for place, module in self.modules():
            self._scan_module(place, module)
        return self.found

    def scan_module(self, place: Place, module: types.ModuleType) -> list[dict]:
        self.found = []
        self._scan_module(place, module)
        return self.found

    def modules(self) -> Iterator[tuple[Place, types.ModuleType]]:
        """Those to be looked at."""
        for name, module in list(sys.modules.items()):
            if not isinstance(module, types.ModuleType):
                continue
            path = getattr(module, "__file__", None)
            top = name.partition(".")[0]
            in_project = name == "__main__" or (path is not None and self._is_project_file(path))
            if path is None and top not in self.packages and name != "__main__":
                continue
            if path and path.startswith(_OWN):
                continue
            if top in self.packages or in_project:
                folder = os.path.dirname(getattr(sys.modules.get(top), "__file__", None) or path or "") + os.sep
                yield Place(name, path, top, folder, in_project), module

    def _is_project_file(self, path: str) -> bool:
        return (
            self.root is not None
            and os.path.abspath(path).startswith(self.root)
            and not any(mark in path for mark in _SITE_MARKS)
            and not path.startswith(_SITE)
            and not path.startswith(_OWN)
        )

    def _scan_module(self, place: Place, module: types.ModuleType) -> None:
        name, path = place.module, place.path
        if path and path.endswith(".py") and _changed_after_import(module, path):
            self._report(place, "file", "", path, "the source changed on disk after it was imported")
        for attribute, value in list(vars(module).items()):
            if attribute.startswith("__") and attribute.endswith("__"):
                continue
            if issubclass(type(value), type):
                if value.__module__ == name:
                    if value.__name__ == attribute:
                        self._scan_class(place, value)
                elif place.is_surprising_class(value):
                    self._check_replaced(place, None, attribute, _file_of_class(value) or "", 0, value.__name__)
                continue
            function = _function_of(value)
            if function is not None:
                self._look_at(place, None, attribute, function)

    def _scan_class(self, place: Place, cls: type) -> None:
        for attribute, value in list(vars(cls).items()):
            function = _function_of(value)
            if function is not None:
                self._look_at(place, cls, attribute, function)
            elif issubclass(type(value), type) and value.__qualname__ == f"{cls.__qualname__}.{attribute}":
                self._scan_class(place, value)

    def _look_at(self, place: Place, cls: type | None, attribute: str, function: types.FunctionType) -> None:
        code = _innermost(function).__code__
        where = code.co_filename
        if place.is_home(where):
            self._check_code(place, cls.__qualname__ if cls else None, attribute, function)
        elif not self._is_expected(place, where):
            self._check_replaced(place, cls, attribute, where, code.co_firstlineno, code.co_name)

    def _is_expected(self, place: Place, where: str) -> bool:
        """Code that a package may hold without anybody having replaced something."""
        if where.startswith(_GENERATED) or where.startswith(_OWN) or _is_stdlib(where):
            return True
        return not place.in_project and where.startswith(place.folder)

    def _check_replaced(
        self, place: Place, cls: type | None, attribute: str, where: str, line: int, name: str
    ) -> None:
        by_user = _is_user_code(where)  # nothing that a library would import by itself
        if not by_user and (attribute.startswith("__") or _is_explained(place, cls, attribute, where)):
            return
        class_name = cls.__qualname__ if cls else None
        bound = _source(place.path).bindings(class_name) if place.path and place.path.endswith(".py") else {}
        how = bound.get(attribute)
        if how in ("import", "assign", "decorated") and (place.in_project or not by_user):
            return
        if not by_user and "@" in bound:  # a decorator's doing
            return
        if how is None and not by_user:
            if place.in_project or "*" in bound or (cls is not None and not _hides_native(cls, attribute)):
                return
            if cls is None and _imports_package(place.path, where):
                return
        full = f"{class_name}.{attribute}" if class_name else attribute
        kind = "replaced" if how or not place.in_project else "added"
        self._report(place, kind, full, f"{where}:{line}" if line else where, f"{full} is {name}, defined elsewhere")

    def _check_code(self, place: Place, class_name: str | None, attribute: str, function: types.FunctionType) -> None:
        if function is not _innermost(function):
            return
        code = function.__code__
        full = f"{class_name}.{attribute}" if class_name else attribute
        if not place.in_project:
            source = _source(place.path)
            if (
                code.co_name != function.__name__
                and source.may_define(attribute)
                and source.bindings(class_name).get(attribute) == "def"
            ):
                self._report(
                    place,
                    "code",
                    full,
                    f"{code.co_filename}:{code.co_firstlineno}",
                    f"{full} runs the code of {code.co_name}",
                )
            return
        sources = _source(place.path).code if place.path else None
        if not sources or _source(place.path).bindings(class_name).get(attribute) != "def":
            return
        expected = sources.get(full)
        if expected is not None and not same_code(code, expected):
            kind = "code" if code.co_name == expected.co_name else "replaced"
            self._report(
                place, kind, full, f"{code.co_filename}:{code.co_firstlineno}", f"{full} is not what its source says"
            )

    def _report(self, place: Place, kind: str, name: str, where: str, why: str) -> None:
        entry = {
            "package": place.top,
            "module": place.module,
            "name": name,
            "kind": kind,
            "defined_at": where,
            "reason": why,
        }
        if entry not in self.found:
            self.found.append(entry)


class Place:
    """A module being looked at: its name, file, top-level package and that package's folder."""

    def __init__(self, module: str, path: str | None, top: str, folder: str, in_project: bool):
        self.module, self.path, self.top, self.folder, self.in_project = module, path, top, folder, in_project

    def is_home(self, where: str) -> bool:
        if where is self.path or where == self.path:
            return True
        return self.in_project and self.path is not None and os.path.abspath(where) == os.path.abspath(self.path)

    def is_surprising_class(self, cls: type) -> bool:
        where = _file_of_class(cls)
        if where is None or cls.__module__ == self.module or self.is_home(where):
            return False
        if self.in_project:
            return _source(self.path).bindings(None).get(cls.__name__) == "def" if self.path else False
        return _is_user_code(where)


def _is_explained(place: Place, cls: type | None, attribute: str, where: str) -> bool:
    """Whether a package's text alone, which is quick to look at, gives the reason why it has another library's code."""
    if place.in_project or not place.path or not place.path.endswith(".py"):
        return False
    source = _source(place.path)
    if source.may_define(attribute):
        return False
    if cls is not None:
        return not _hides_native(cls, attribute)
    package = _installed_package(where)
    return package is not None and source.imports(package)


def _installed_package(path: str) -> str | None:
    """The top-level package that an installed file belongs to."""
    for mark in _SITE_MARKS:
        if mark in path:
            return path.rpartition(mark)[2].partition(os.sep)[0].removesuffix(".py")
    return None


@lru_cache(maxsize=1024)
def _imports_package(path: str | None, where: str) -> bool:
    """Whether the module's source mentions, in an import, a package that `where` lies in."""
    tree = _source(path).tree if path and path.endswith(".py") else None
    if tree is None:
        return True  # a compiled module, or one without source: nothing can be said
    parts = set(Path(where).parts)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import) and any(alias.name.partition(".")[0] in parts for alias in node.names):
            return True
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in parts:
            return True
    return False


def same_code(a: types.CodeType, b: types.CodeType) -> bool:
    if a.co_code != b.co_code or a.co_names != b.co_names or a.co_varnames != b.co_varnames:
        return False
    if len(a.co_consts) != len(b.co_consts):
        return False
    for x, y in zip(a.co_consts, b.co_consts, strict=True):
        if isinstance(x, types.CodeType) and isinstance(y, types.CodeType):
            if not same_code(x, y):
                return False
        elif type(x) is not type(y) or repr(x) != repr(y):
            return False
    return True


CLOCK_SLACK_S = 0.1  # the kernel tells a process' start in ticks


@lru_cache(maxsize=1)
def process_start() -> float:
    try:
        ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        uptime = float(Path("/proc/uptime").read_text().split()[0])
        return time.time() - uptime + ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return float("inf")


def _changed_after_import(module: types.ModuleType, path: str) -> bool:
    """By the time and size that the module's .pyc carries; without one, by the process' start."""
    try:
        status = os.stat(path)
    except OSError:
        return False
    if status.st_mtime <= process_start() + CLOCK_SLACK_S:
        return False
    cached = getattr(module, "__cached__", None)
    try:
        with open(cached, "rb") as file:
            header = file.read(16)
        stamp, size = int.from_bytes(header[8:12], "little"), int.from_bytes(header[12:16], "little")
        return (stamp, size) != (int(status.st_mtime) & 0xFFFFFFFF, status.st_size & 0xFFFFFFFF)
    except (OSError, TypeError):
        return True


def collect(packages: Iterable[str], project_root: str | os.PathLike | None) -> dict[str, dict]:
    """By package: its modifications, each with module, name, kind and where the replacement is defined."""
    return by_package(Scanner(packages, project_root).scan())


def by_package(found: Iterable[dict]) -> dict[str, dict]:
    by_package: dict[str, dict] = {}
    for entry in found:
        package = by_package.setdefault(
            entry["package"],
            {"package": entry["package"], "has_runtime_modifications": True, "modifications": []},
        )
        package["modifications"].append({key: entry[key] for key in ("module", "name", "kind", "defined_at", "reason")})
    return by_package
