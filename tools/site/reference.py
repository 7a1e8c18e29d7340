"""Writes the pages of the reference: every public Python name, every verb of the command line, the C++ headers.

    python tools/site/reference.py build/reference

Nothing is written twice: Python's pages come from the docstrings of the objects themselves, the command line's from
`tenscope help`, the C++ page from the comments of include/tenscope.
"""

import importlib
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
HEADERS = ROOT / "include" / "tenscope"
FIRST_HEADERS = ["run.hpp", "tensor_view.hpp", "event.hpp", "shard.hpp", "reader.hpp", "diff.hpp"]
DROP_INS = ("tensor_dumper", "tensortrace", "torchspy", "ttracker", "ztrace")
PAGES = {
    "tenscope": ["tenscope"],
    "testing": ["tenscope.testing"],
    "integrations": ["tenscope.integrations", "tenscope.integrations.transformers", "tenscope.integrations.lightning"],
    "onnx": ["tenscope.onnx"],
    "jax": ["tenscope.jax"],
    "compat": [f"tenscope.compat.{name}" for name in DROP_INS],
}
# The names of `tenscope`, by what one wants to do; a public name that is not here comes under "More".
GROUPS = {
    "Record": "init Run record step close current enable disable shard register RecordingWarning",
    "Watch": "trace watch watching tree spy context gather Hdf5Saver check_sync",
    "Read": "open Recording Event Tensor Stats load save",
    "Compare": "diff Diff compare ValueDiff CheckpointDiff explain Explanation against Divergence",
    "Errors": "Error CorruptError IoError NotFoundError UnsupportedError UsageError VersionError",
}
# What a program is given and does not make itself; what is there for tenscope's own modules.
RECEIVED = {"Recording", "Event", "Stats", "Tensor", "Diff", "ValueDiff", "CheckpointDiff", "Explanation"}
INTERNAL = {"set_against", "on_code", "announce"}

ROW = re.compile(r"(\S.*?)\s{2,}(\S.*)")
PAGE = re.compile(r"docs/([\w-]+)\.md")


# --- Docstrings ------------------------------------------------------------------------------------------------------


def as_markdown(docstring):
    """A docstring as Markdown: paragraphs; indented lines are code; lines of `name   meaning` are a table."""
    out = []
    for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(docstring or "")):
        lines = paragraph.splitlines()
        if lines and all(line.startswith("    ") for line in lines):
            out.append("```python\n" + inspect.cleandoc(paragraph) + "\n```")
            continue
        rows, text = [], []
        for line in lines:
            row = ROW.fullmatch(line)
            if row and not line.startswith(" ") and (rows or not text or text[-1].endswith((".", ":"))):
                rows.append([row[1], row[2]])
            elif rows and line.startswith(" "):
                rows[-1][1] += " " + line.strip()
            elif rows:
                out.append(_with_table(text, rows))
                rows, text = [], [line]
            else:
                text.append(line.strip())
        out.append(_with_table(text, rows))
    return "\n\n".join(out)


def _with_table(text, rows):
    parts = [_prose(" ".join(text))] if text else []
    if rows:
        cells = [f"| {_name(name)} | {_prose(meaning)} |".replace("\n", " ") for name, meaning in rows]
        parts.append("\n".join(["| | |", "|---|---|", *cells]))
    return "\n\n".join(parts)


def _name(text):
    return f"`{text}`"


def _prose(text):
    """Text in which only `code` is marked, as Markdown; a page of docs/ becomes a link to it."""
    text = text.replace("``", "`")
    parts = text.split("`")
    for place in range(0, len(parts), 2):
        part = re.sub(r"([\\*_<>\[\]|])", r"\\\1", parts[place])
        parts[place] = re.sub(r"docs/([\w\\-]+)\.md", lambda m: f"[{m[1]}](../{m[1]}.md)".replace("\\", ""), part)
    return "`".join(parts)


# --- Python ----------------------------------------------------------------------------------------------------------


def public_names(module):
    if hasattr(module, "__all__"):
        return [name for name in module.__all__ if not name.startswith("__")]
    own = [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", "").startswith(module.__name__)
    ]
    return sorted(own)


def signature_of(value):
    """Its parameters as text, and its docstring without them (nanobind writes them into the docstring)."""
    docstring = inspect.cleandoc(value.__doc__ or "")
    first = docstring.partition("\n")[0]
    if re.fullmatch(r"\w+\(.*\)( -> .*)?", first):
        return first[first.index("(") :], docstring.partition("\n")[2].strip()
    try:
        text = str(inspect.signature(value))
    except (TypeError, ValueError):
        return "", docstring
    text = re.sub(r"(: |-> )'([^']*)'", r"\1\2", text)  # annotations that are kept as text
    return re.sub(r"<class '(?:\w+\.)*(\w+)'>", r"\1", text), docstring


def in_lines(name, signature):
    """A signature, broken after each parameter where it is long."""
    if len(name + signature) <= 100 or not signature.startswith("("):
        return name + signature
    inside, _, after = signature[1:].rpartition(")")
    parts, depth, last = [], 0, 0
    for place, letter in enumerate(inside):
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth == 0:
            parts.append(inside[last:place].strip())
            last = place + 1
    parts.append(inside[last:].strip())
    return name + "(\n" + "".join(f"    {part},\n" for part in parts) + ")" + after


def members(cls):
    """(name, value) of what a class of ours has to offer, in the order of its source."""
    seen = {}
    for base in reversed(cls.__mro__):
        if base.__module__.startswith("tenscope"):
            for name, value in vars(base).items():
                if not name.startswith("_"):
                    seen[name] = value
    return seen.items()


def member_text(what):
    """The docstring of a class's member, and its parameters where it is called."""
    if isinstance(what, str | int | float | tuple | frozenset):
        return "", ""
    what = getattr(what, "__func__", what)
    if not callable(what):
        return re.sub(r"^\(self\).*\n*", "", inspect.cleandoc(getattr(what, "__doc__", None) or "")), ""
    signature, text = signature_of(what)
    return text, re.sub(r"^\(self(, )?", "(", signature) or "()"


def described(module_name, name, level="###"):
    module = importlib.import_module(module_name)
    value = getattr(module, name)
    is_error = inspect.isclass(value) and issubclass(value, BaseException)
    signature, docstring = ("", inspect.cleandoc(value.__doc__)) if is_error else signature_of(value)
    full = f"{module_name}.{name}"
    lines = [f"{level} {name.replace('_', chr(92) + '_')} {{#{full}}}", ""]
    if callable(value) and not is_error and name not in RECEIVED:
        call = signature.replace("(self, ", "(").replace(" -> None", "") if inspect.isclass(value) else signature
        lines += ["```python", in_lines(full, call), "```", ""]
    builtin = [base for base in value.__mro__[1:] if base.__module__ == "builtins"] if is_error else []
    if builtin and builtin[0] is not Exception:
        lines += [f"Also Python's `{builtin[0].__name__}`.", ""]
    lines += [as_markdown(docstring) or "As the original's.", ""]
    if inspect.isclass(value) and not is_error:
        rows = []
        for member, what in members(value):
            text, call = member_text(what)
            if text and member not in INTERNAL:
                rows.append(f"| {_name(member + call)} | {_prose(' '.join(text.split()))} |")
        if rows:
            lines += ["| member | |", "|---|---|", *rows, ""]
    return "\n".join(lines)


def python_page(modules):
    out = []
    for number, module_name in enumerate(modules):
        module = importlib.import_module(module_name)
        out += [f"{'#' if number == 0 else '##'} {module_name}", "", as_markdown(module.__doc__), ""]
        names = public_names(module)
        if module_name == "tenscope":
            grouped = {group: words.split() for group, words in GROUPS.items()}
            known = {name for words in grouped.values() for name in words}
            grouped["More"] = [name for name in names if name not in known]
            for group, words in grouped.items():
                if words:
                    out += [f"## {group}", "", *(described(module_name, name) for name in words)]
        else:
            out += [described(module_name, name) for name in names]
    return "\n".join(out)


# --- The command line ------------------------------------------------------------------------------------------------


def tenscope(*words):
    program = Path(sys.executable).with_name("tenscope")
    env = {**os.environ, "NO_COLOR": "1", "COLUMNS": "96"}
    return subprocess.run([program, *words], env=env, check=True, capture_output=True, text=True).stdout


def verbs():
    """The verbs by their groups, as `tenscope help` lists them."""
    groups, group = {}, ""
    for line in tenscope("help").splitlines():
        if re.fullmatch(r"[A-Z][a-z ]+:", line):
            group = line[:-1]
        elif (verb := re.match(r"  ([a-z]+)  +[A-Z]", line)) and group not in ("Examples", "Options"):
            groups.setdefault(group, []).append(verb[1])
    return groups


def commands_page():
    told = "What `tenscope help VERB` prints. [The command line](../cli.md) says what all verbs have in common."
    out = ["# Every verb", "", told, ""]
    for group, words in verbs().items():
        out += [f"## {group}", ""]
        for verb in words:
            out += [f"### {verb} {{#{verb}}}", "", "```text", tenscope("help", verb).rstrip(), "```", ""]
    return "\n".join(out)


# --- C++ -------------------------------------------------------------------------------------------------------------


def declarations(text):
    """(comment, code) of each declaration of a header that has a comment, or a name of its own."""
    lines = re.search(r"^namespace [\w:]+ \{\n(.*)\}  // namespace", text, re.DOTALL | re.MULTILINE)[1].splitlines()
    chunks, chunk, depth = [], [], 0
    for line in lines:
        code = line.partition("//")[0]
        if not line.strip() and depth == 0:
            chunks.append(chunk)
            chunk = []
            continue
        chunk.append(line)
        depth += code.count("{") - code.count("}")
    for chunk in [*chunks, chunk]:  # noqa: B020
        comment = []
        while chunk and chunk[0].startswith("//"):
            comment.append(chunk.pop(0).removeprefix("//"))
        if comment or chunk:
            yield "\n".join(comment), "\n".join(chunk).strip("\n")


def cpp_prose(comment):
    """Comments are wrapped text; lines that are indented further are code."""
    parts = []
    for line in comment.splitlines():
        is_code = line.startswith("   ")
        if parts and parts[-1][0] == is_code:
            parts[-1][1].append(line.strip())
        else:
            parts.append((is_code, [line.strip()]))
    return "\n\n".join(
        "```cpp\n" + "\n".join(lines) + "\n```" if is_code else _prose(" ".join(lines)) for is_code, lines in parts
    )


def without_private(code):
    """A class without what only its implementation needs."""
    code = re.sub(r"\n private:\n.*?(?=\n\};)", "", code, flags=re.DOTALL)
    return re.sub(r"\n *struct \[\[gnu::visibility[^\n]*\n?", "\n", code)


def cpp_page():
    headers = sorted(HEADERS.glob("*.hpp"), key=lambda path: ([*FIRST_HEADERS, path.name].index(path.name), path.name))
    out = ["# C++ and C", ""]
    told = "What the headers in `include/tenscope` declare, in their own words. [Recording from C++](../cpp.md) is the"
    out += [told + " guide; `#include <tenscope/tenscope.hpp>` has all of it but `ggml.hpp`.", ""]
    for header in headers:
        text = header.read_text()
        if header.name == "tenscope.hpp":
            continue
        overview = re.match(r"(?://.*\n)*", text)[0].replace("//", "")
        out += [f"## {header.name}", "", f"`#include <tenscope/{header.name}>`", "", cpp_prose(overview), ""]
        for comment, code in declarations(text):
            name = re.search(r"\b(?:class|struct|enum class) (?:\[\[.*?\]\] )?(\w+)", code)
            if name and not code.startswith("template") and code.rstrip().endswith("};"):
                out += [f"### {name[1]}", ""]
            if comment:
                out += [cpp_prose(comment), ""]
            if code:
                out += ["```cpp", without_private(code), "```", ""]
    c_header = (HEADERS / "tenscope.h").read_text()
    overview = re.match(r"/\*(.*?)\*/", c_header, re.DOTALL)[1]
    out += ["## From C: tenscope.h", "", _prose(" ".join(overview.replace("\n *", " ").split())), ""]
    code = c_header.partition("#pragma GCC visibility push(default)\n")[2].partition("#pragma GCC visibility pop")[0]
    out += ["```c", code.strip(), "```", ""]
    return "\n".join(out)


def main():
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    pages = {name: python_page(modules) for name, modules in PAGES.items()}
    pages |= {"commands": commands_page(), "cpp": cpp_page()}
    for old in folder.glob("*.md"):
        old.unlink()
    for name, text in pages.items():
        (folder / f"{name}.md").write_text(text)


if __name__ == "__main__":
    main()
