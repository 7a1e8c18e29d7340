"""`tenscope repro RUN --call MODULE -o case/`: one recorded call as a folder that makes it again. docs/repro.md.

Overview. The folder has the recorded tensors of the call (safetensors files), repro.py, which builds the module from
its recorded description, calls it and compares, and from_recording.py, which repro.py uses. Neither needs tenscope. A
class that the script of the program itself defines cannot be imported without running the program: what of the script
it needs is put beside them.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import textwrap
from dataclasses import dataclass, field
from pathlib import Path

from tenscope import command_line
from tenscope.errors import Error
from tenscope.metadata.case_script import CannotWrite, Expressions, literal, names
from tenscope.metadata.main_code import needed_code
from tenscope.metadata.recorded_call import RecordedCall, find_call
from tenscope.metadata.repro import Recorded, Trouble, newest_run
from tenscope.reading.recording import Event

_CODES = {
    "float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "int64": "I64", "int32": "I32",
    "int16": "I16", "int8": "I8", "uint64": "U64", "uint32": "U32", "uint16": "U16", "uint8": "U8", "bool": "BOOL",
    "complex64": "C64", "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2",
}  # fmt: skip
_RANDOM_CLASSES = re.compile(r":(?:Dropout\w*|AlphaDropout|FeatureAlphaDropout|RReLU)$")


@dataclass
class Case:
    """What was written, and what is known not to work."""

    folder: Path
    call: RecordedCall
    files: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)  # without which the script cannot work
    remarks: list[str] = field(default_factory=list)


def make_case(
    run: Path, path: str, target: Path, *, step: int | None = None, index: int | None = None, rank: int | None = None
) -> Case:
    call = find_call(run, path, step, index, rank)
    if not call.builds.get(call.path):
        raise Trouble(
            f"the run does not say what {call.path or call.root} is built of: it is one of an earlier version, or "
            f"the module's first call was not recorded: {call.run}"
        )
    if not call.outputs and not call.raised:
        raise Trouble(f"nothing that this call of {call.path or call.root} returned was recorded: {call.run}")
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise Trouble(f"the folder is not empty: {target}")
    case = Case(target, call)
    writer = _ScriptWriter(case)
    text = writer.text()
    _check_values(call, [*call.inputs.values(), *call.outputs.values(), *writer.state.values()])
    target.mkdir(parents=True, exist_ok=True)
    tables = {"inputs": call.inputs, "state": writer.state, "outputs": call.outputs}
    for name, events in tables.items():
        tensors = {key: event for key, event in events.items() if event.is_tensor}
        write_safetensors(target / f"{name}.safetensors", tensors)
    (target / "repro.py").write_text(text, encoding="utf-8")
    shutil.copyfile(Path(__file__).with_name("from_recording.py"), target / "from_recording.py")
    case.files = ["repro.py", "from_recording.py", *(f"{name}.safetensors" for name in tables)]
    if writer.main_code:
        (target / f"{writer.code_module}.py").write_text(writer.main_code, encoding="utf-8")
        case.files.append(f"{writer.code_module}.py")
    return case


def _check_values(call: RecordedCall, events: list[Event]) -> None:
    tensors = [event for event in events if event.is_tensor]
    lost = [event for event in tensors if not event.stored]
    if lost:
        again = f"tenscope run --steps {call.enter.step}:{call.enter.step + 1} and without --stats"
        raise Trouble(
            f"the values of {lost[0].name} were not kept, statistics only: record the program again, with {again}: "
            f"{call.run}"
        )
    for event in tensors:
        if "shard" in event.meta:
            raise Trouble(
                f"{event.name} is one rank's part of a larger tensor, and a call of such modules needs the other "
                f"ranks: {call.run}"
            )


def write_safetensors(path: Path, tensors: dict[str, Event]) -> None:
    """The dtypes as torch calls them stand in the file's metadata: the format lacks some of them."""
    header: dict[str, dict] = {"__metadata__": {key: event.dtype for key, event in tensors.items()}}
    parts, offset = [], 0
    for key, event in tensors.items():
        raw = event._reader.bytes(event.id)
        shape = [*event.shape, 2] if event.dtype == "complex128" else list(event.shape)
        code = "F64" if event.dtype == "complex128" else _CODES.get(event.dtype, "U8")
        header[key] = {"dtype": code, "shape": shape, "data_offsets": [offset, offset + raw.nbytes]}
        offset += raw.nbytes
        parts.append(raw)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for raw in parts:
            file.write(raw.tobytes())


class _ScriptWriter:
    def __init__(self, case: Case):
        self._case = case
        self._call = case.call
        self._later: list[str] = []
        self._modules: list[str] = []
        self._emitted: set[str] = set()
        self._random: list[str] = []
        self.state: dict[str, Event] = {}
        self.main_code = ""
        self._recorded = _recorded(case.call.run)
        script = self._main_script()
        self.code_module = f"{re.sub(r'[^0-9A-Za-z_]', '_', script.stem) if script else 'main'}_code"
        self._write = Expressions(self._call.objects, self.code_module)

    def text(self) -> str:
        call = self._call
        self._emit(call.path)
        words = self._arguments()
        if self._write.main_names:
            self._take_main_code()
        self._tell_changed()
        head = self._head()
        device = next((e.device for e in (*call.inputs.values(), *self.state.values()) if e.is_tensor), "cpu")
        values = [(repr(name), _plain(event.value)) for name, event in call.outputs.items() if not event.is_tensor]
        imports = [f"import {name}" for name in ("sys", "torch")]
        imports += [each for each in dict.fromkeys(self._write.imports.values()) if each not in imports]
        helpers = "built, compare, device, held, inputs, load, module, new"
        lines = ["#!/usr/bin/env python3", f'"""{head}"""', "", imports[0], f"from from_recording import {helpers}", ""]
        paths = self._paths()
        if paths:
            lines += [f"sys.path[:0] = {paths!r}  # the program's code"]
        argv = self._program()[2 if self._program()[:1] == ["-m"] else 1 :] if self._write.main_names else []
        lines += [f"arguments, sys.argv[1:] = sys.argv[1:], {argv!r}"] if argv else []
        lines += imports[1:]
        if argv:
            lines += ["", "sys.argv[1:] = arguments"]
        lines += ["", f"load(device({device!r}))", *self._write.things, *self._modules, *self._later, ""]
        lines += self._settings()
        lines += [f"with {', '.join(self._contexts())}:", f"    code = compare(lambda: built[{call.path!r}]({words})"]
        if values:
            lines[-1] = _with(lines[-1], "values", literal, values)
        lines[-1] += f", raised={call.raised!r})" if call.raised else ")"
        return "\n".join([*lines, "sys.exit(code)", ""])

    # Modules.

    def _emit(self, path: str) -> None:
        """The statements that build a module and what is below it, those above first."""
        call, write = self._call, self._write
        self._emitted.add(path)
        shown = path or call.root
        build = call.builds.get(path)
        if build is None or "class" not in build:
            self._case.missing.append(f"{shown}: the run does not say what it is built of")
            return
        self._case.missing += [f"{shown}: {reason}" for name, reason in build.get("missing", {}).items() if not name]
        for name, reason in build.get("missing", {}).items():
            if name:
                self._case.remarks.append(f"{shown}.{name}: {reason}")
        attributes, later = [], []
        for name, value in build.get("state", {}).items():
            write.needs_later = False
            try:
                text = write.value(value)
            except CannotWrite as error:
                self._case.remarks.append(f"{shown}.{name}: {error}")
                continue
            (later if write.needs_later else attributes).append((repr(name), text))
        training = call.training.get(path, call.training.get(call.path, False))
        line = f"module({path!r}, {write.name(build['class'])}, training={training}"
        if attributes:
            line = _with(line, "attributes", literal, attributes)
        for table in ("parameters", "buffers"):
            if held := {name: self._held(key, shown) for name, key in build.get(table, {}).items()}:
                if all(key == (f"{path}.{name}" if path else name) for name, key in held.items()):
                    line = _with(line, table, names, list(held))
                else:
                    line = _with(line, table, literal, [(repr(name), repr(key)) for name, key in held.items()])
        for word in ("frozen", "not_persistent"):
            if build.get(word):
                line = _with(line, word, names, build[word])
        self._modules.append(f"{line})")
        self._later += [f"vars(built[{path!r}])[{name}] = {text}" for name, text in later]
        if training and _RANDOM_CLASSES.search(build["class"]) and build.get("state", {}).get("p") != 0:
            self._random.append(shown)
        for name, child in build.get("children", {}).items():
            own = f"{path}.{name}" if path else name
            if child is not None and child not in self._emitted:
                self._emit(child)
            if child != own or own not in self._emitted:
                target = "None" if child is None else f"built[{child!r}]"
                self._modules.append(f"built[{path!r}]._modules[{name!r}] = {target}")

    def _held(self, name: str | None, shown: str) -> str | None:
        if name is None:
            return None
        event = self._call.state.get(name)
        if event is None:
            self._case.missing.append(f"{shown}: its parameter or buffer {name} was not recorded before the call")
        else:
            self.state[name] = event
        return name

    # The call.

    def _arguments(self) -> str:
        call = self._call

        def leaf(name: str) -> str:
            event = call.inputs.get(f"input.{name}")
            if event is None:
                raise CannotWrite("it was not recorded")
            return f"inputs['input.{name}']" if event.is_tensor else _plain(event.value)

        form = {"args": ["."] * call.given} if isinstance(call.given, int) else call.given or {"args": []}
        words = []
        for name, each in [*enumerate(form["args"]), *form.get("kwargs", {}).items()]:
            try:
                text = self._write.given(each, str(name), leaf)
            except CannotWrite as error:
                self._case.missing.append(f"argument {name}: {error}")
                text = "..."
            if isinstance(name, str):
                text = f"{name}={text}" if name.isidentifier() else f"**{{{name!r}: {text}}}"
            words.append(text)
        return ", ".join(words)

    def _contexts(self) -> list[str]:
        meta = self._call.enter.meta
        found = [f"torch.set_grad_enabled({meta.get('grad', True)})"]
        for each in filter(None, meta.get("autocast", "").split(", ")):
            device, dtype = each.split()
            found.append(f"torch.autocast({device!r}, dtype=torch.{dtype})")
        return found

    def _settings(self) -> list[str]:
        """The settings of the run that numbers depend on, where they are not torch's defaults."""
        settings, lines = self._call.settings, []
        if threads := settings.get("threads", {}).get("num_threads"):
            lines.append(f"torch.set_num_threads({threads})")
        precision = settings.get("precision", {})
        if (dtype := precision.get("default_dtype", "torch.float32")) != "torch.float32":
            lines.append(f"torch.set_default_dtype({dtype})")
        if (kind := precision.get("float32_matmul_precision", "highest")) != "highest":
            lines.append(f"torch.set_float32_matmul_precision({kind!r})")
        if settings.get("determinism", {}).get("deterministic_algorithms"):
            lines.append("torch.use_deterministic_algorithms(True, warn_only=True)")
        backends = settings.get("backends", {})
        if backends.get("mkldnn") is False:
            lines.append("torch.backends.mkldnn.enabled = False")
        for word in ("flash_sdp", "mem_efficient_sdp", "math_sdp"):
            if backends.get(word) is False:
                lines.append(f"torch.backends.cuda.enable_{word}(False)")
        return lines

    # The program's code.

    def _program(self) -> list[str]:
        """The program and its arguments; empty where the run does not say how it was made."""
        return self._recorded.script_words if self._recorded is not None else []

    def _main_script(self) -> Path | None:
        """The file of `__main__`: where a class of it begins, else the script of the command."""
        folder = Path(self._recorded.runtime["working_directory"]) if self._recorded is not None else Path()
        for path, site in self._call.sites.items():
            if self._call.builds[path].get("class", "").startswith("__main__:") and site:
                return folder / site.rpartition(":")[0]
        program = self._program()
        return folder / program[0] if program and program[0] != "-m" else None

    def _take_main_code(self) -> None:
        script = self._main_script()
        try:
            if script is None:
                raise OSError("the run does not say which script it was")
            code = needed_code(self._source(script), self._write.main_names)
        except (OSError, SyntaxError, UnicodeDecodeError) as error:
            self._case.missing.append(f"the code of {', '.join(sorted(self._write.main_names))}: {error}")
            return
        program = self._program()
        if program[:1] == ["-m"] and "." in program[1]:  # imports may be relative to its package
            future, code = re.match(r"((?:from __future__ [^\n]*\n+)*)(.*)", code, re.DOTALL).groups()
            code = f"{future}__package__ = {program[1].rpartition('.')[0]!r}\n\n{code}"
        self.main_code = f'"""What {script} has of the classes that repro.py builds, and what they need."""\n\n{code}'

    def _source(self, script: Path) -> str:
        """The text of the script as the run kept it, else as it is now."""
        working = self._recorded.runtime["working_directory"] if self._recorded is not None else ""
        for name in (os.path.relpath(script, working) if working else "", str(script)):
            text = self._call.sources.get(name)
            if text is not None:
                return text
        return script.read_text(encoding="utf-8")

    def _tell_changed(self) -> None:
        """Code that is imported as it is now, and was another then."""
        working = self._recorded.runtime["working_directory"] if self._recorded is not None else ""
        sites = [self._call.sites.get(path, "") for path in sorted(self._emitted)]
        for name in dict.fromkeys(site.rpartition(":")[0] for site in sites):
            kept = self._call.sources.get(name)
            if kept is None or self._main_script() == Path(working, name):
                continue
            try:
                is_same = Path(working, name).read_text(encoding="utf-8", errors="replace") == kept
            except OSError:
                is_same = False
            if not is_same:
                self._case.remarks.append(f"{name} is not what it was when the run was recorded, and is imported so")

    def _paths(self) -> list[str]:
        """The folders that the program's own modules are imported from."""
        found: dict[str, None] = {}
        if self._recorded is None:
            return []
        working = self._recorded.runtime["working_directory"]
        for path, site in self._call.sites.items():
            module = self._call.builds[path].get("class", "").partition(":")[0]
            file = os.path.normpath(os.path.join(working, site.rpartition(":")[0])) if site else ""
            for tail in (f"{module.replace('.', os.sep)}.py", f"{module.replace('.', os.sep)}{os.sep}__init__.py"):
                if file.endswith(os.sep + tail) and "site-packages" not in file:
                    found[file.removesuffix(os.sep + tail)] = None
        script = self._main_script()
        if self._write.main_names and self._program()[:1] == ["-m"]:
            found[working] = None
        elif self._write.main_names and script is not None:
            found[os.path.normpath(script.parent)] = None
        variables = self._recorded.runtime["environment_variables"]
        for folder in variables.get("PYTHONPATH", "").split(os.pathsep):
            if folder and not folder.endswith(os.path.join("tenscope", "launch", "site")):
                found[os.path.normpath(os.path.join(working, folder))] = None
        return list(found)

    # The words at its head.

    def _head(self) -> str:
        call, case = self._call, self._case
        if self._random:
            shown = ", ".join(self._random[:3]) + (", ..." if len(self._random) > 3 else "")
            case.remarks.append(
                f"the call was made in training mode and draws random numbers ({shown}), which were not recorded"
            )
        lines = [
            f"{call.path or call.root} ({call.enter.cls}): step {call.enter.step}, call {call.enter.call} of "
            f"{call.run.name}, once more.",
            "",
            "Builds the module from what was recorded of it, without its constructor, calls it, and compares what it",
            "returns with what was recorded. Exit code 0: the same, in bits or but for rounding; 1: not; 2: trouble.",
            "Needs torch and the program's own code, not tenscope. python repro.py [DEVICE]",
        ]
        for title, entries in (("It cannot work as it stands", case.missing), ("Not described", case.remarks)):
            if entries:
                lines += ["", f"{title}:"]
                for entry in entries[:20]:
                    lines += textwrap.wrap(entry, 110, initial_indent="- ", subsequent_indent="  ")
                if len(entries) > 20:
                    lines.append(f"- and {len(entries) - 20} more")
        return "\n".join(lines).replace("\\", "\\\\").replace('"""', "'''") + "\n"


def _recorded(run: Path) -> Recorded | None:
    try:
        return Recorded(run)
    except Trouble:
        return None


def _with(line: str, word: str, write, members: list) -> str:
    """The line with one more argument, over several lines where it is too long."""
    taken = len(line) - line.rfind("\n") + len(word) + 4
    return f"{line}, {word}={write(members, taken)}"


def _plain(value) -> str:
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return f"float('{value}')"
    return repr(value)


def main(options) -> int:
    """The options of `tenscope repro` with --call."""
    target = Path(options.output or f"case-{re.sub(r'[^0-9A-Za-z_.-]', '_', options.call).strip('.') or 'root'}")
    which = {"step": options.step, "index": options.call_index, "rank": options.rank}
    try:
        case = make_case(newest_run(options.run), options.call, target, **which)
    except (Trouble, Error, OSError) as error:
        return command_line.trouble(error, options.json)
    call = case.call
    told = {
        "into": str(target), "files": case.files, "module": call.path, "class": call.enter.cls, "step": call.enter.step,
        "call": call.enter.call, "rank": call.enter.rank, "missing": case.missing, "remarks": case.remarks,
    }  # fmt: skip
    if options.json:
        print(json.dumps(told))
    else:
        print(f"{call.path or call.root} ({call.enter.cls}), step {call.enter.step}, call {call.enter.call}: {target}")
        for word, entries in (("missing", case.missing), ("not described", case.remarks)):
            for entry in entries:
                print(f"  {word}: {entry}")
        print(f"  to make the call again: python {target / 'repro.py'}")
        if case.missing:
            print("  it cannot work as it stands: what is missing has to be filled in by hand")
    return 2 if case.missing else 0
