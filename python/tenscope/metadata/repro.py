"""`tenscope repro RUN`: how to run it again, what differs from here and now, and a checkout made for it.

It runs nothing by itself.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import platform
import re
import shlex
import stat
import sys
from pathlib import Path

from tenscope import command_line
from tenscope.metadata import git, packages, runtime
from tenscope.metadata.store import NEW_FILES_PATCH, PATCH, excluded_folders

# Variables that change numbers or what is loaded; the rest of the environment is told but not set again.
_RELEVANT = re.compile(
    r"^(CUDA|CUBLAS|CUDNN|NCCL|GLOO|TORCH|PYTORCH|OMP_|MKL_|OPENBLAS_|KMP_|BLIS_|NUMEXPR_|PYTHON(?!STARTUP)|HF_|TRANSFORMERS_|TOKENIZERS_"
    r"|JAX_|XLA_|TF_|TENSCOPE_ENV|ROCM|HIP_|HSA_|SLURM_|OMPI_|WORLD_SIZE$|RANK$|LOCAL_RANK$|MASTER_|LD_PRELOAD$|LD_LIBRARY_PATH$)"
)
_EVERY_SHELL_DIFFERS = {
    "_",
    "SHLVL",
    "PWD",
    "OLDPWD",
    "TERM",
    "COLUMNS",
    "LINES",
    "PYTEST_CURRENT_TEST",
    "PYTHONUNBUFFERED",
}


class Trouble(Exception):
    pass


class Recorded:
    """The metadata files of a run folder: each is read when it is asked for, since git may have failed, and to run the
    program again takes the command alone."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.runtime = self._read("runtime_info.json")
        patches = (folder / PATCH, folder / NEW_FILES_PATCH)
        self.patches = {path: path.read_bytes() for path in patches if path.exists()}
        self.patch = b"".join(self.patches.values())

    @functools.cached_property
    def packages(self) -> dict:
        return self._read("packages.json")

    @functools.cached_property
    def git(self) -> dict:
        return self._read("git_info.json")

    @functools.cached_property
    def project(self) -> dict:
        return self.git.get("project_git_info") or {}

    def _read(self, name: str) -> dict:
        path = self.folder / name
        try:
            return json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            why = "; metadata_error.txt there says why" if (self.folder / "metadata_error.txt").exists() else ""
            raise Trouble(f"this run does not say how it was made: no {name} in {self.folder}{why}") from None
        except ValueError as error:
            raise Trouble(f"cannot read metadata: {error}: {path}") from None

    @property
    def arguments(self) -> list[str]:
        """What followed the interpreter on the command line."""
        command = self.runtime["command"]
        words = shlex.split(command["full_command"])
        return words[1:] if words and words[0] == command["executable"] else command["argv"]

    @property
    def program(self) -> dict:
        """What was run: `executable`, `arguments`, `working_directory`; `world_size` where it was one of a launcher's
        ranks. Of a run that does not tell, what the process was that opened it."""
        return self.runtime.get("program") or {
            "executable": self.runtime["command"]["executable"],
            "arguments": self.arguments,
            "working_directory": self.runtime["working_directory"],
        }

    @property
    def script_words(self) -> list[str]:
        """The program and its arguments, without the interpreter and the words of `tenscope run`."""
        return split_command([self.program["executable"], *self.program["arguments"]])[1]

    @property
    def relevant_environment(self) -> dict[str, str]:
        variables = self.runtime["environment_variables"]
        return {n: v for n, v in variables.items() if _RELEVANT.match(n) and v != runtime.REDACTED}

    @property
    def requirements(self) -> str:
        return "".join(f"{name}=={version}\n" for name, version in self.packages["all_packages"].items() if version)

    def relative_folder(self) -> str:
        """The working folder, seen from the repository's root."""
        root = self.project.get("root")
        folder = self.runtime["working_directory"]
        if not root or not Path(folder).is_relative_to(root):
            return "."
        return str(Path(folder).relative_to(root))


def split_command(words: list[str]) -> tuple[list[str], list[str]]:
    """The interpreter with its options, and the program with its arguments, without the words of `tenscope run`."""
    at = 1
    while at < len(words) and words[at].startswith("-") and words[at] not in ("-m", "-c", "-"):
        at += 2 if words[at] in ("-W", "-X") else 1
    python, program = words[:at], words[at:]
    if program[:2] == ["-m", "tenscope.run"]:
        from tenscope.launch.command import split

        program = split(program[2:])[1]
    return python, program


def newest_run(path: str) -> Path:
    folder = Path(path)
    if not folder.exists():
        raise Trouble(f"no such run: {folder}")
    if (folder / "runtime_info.json").exists() or (folder / "run.json").exists():
        return folder
    runs = sorted(p.parent for p in folder.glob("*/runtime_info.json"))
    if not runs:
        raise Trouble(f"no run that says how it was made in {folder}")
    return runs[-1]


def steps(recorded: Recorded) -> list[tuple[str, str]]:
    """(what, the line to type)"""
    project, found = recorded.project, []
    if project.get("commit_id"):
        found.append((f"the code: commit of branch {project['branch']}", f"git checkout {project['commit_id']}"))
    if recorded.patches:
        names = shlex.join(map(str, recorded.patches))
        found.append(("the uncommitted changes", f"git apply {names}"))
    versions = """jq -r '.all_packages | to_entries[] | "\\(.key)==\\(.value)"' """
    versions += shlex.quote(str(recorded.folder / "packages.json"))
    python = f"Python {recorded.packages['python_version']} and its packages"
    found.append((python, f"{versions} > requirements.txt && pip install -r requirements.txt"))
    for name, value in recorded.relevant_environment.items():
        found.append(("the environment", f"export {name}={shlex.quote(value)}"))
    found.append(("the folder", f"cd {shlex.quote(recorded.runtime['working_directory'])}"))
    found.append(("the command", shlex.join([recorded.runtime["command"]["executable"], *recorded.arguments])))
    return found


def differences(recorded: Recorded) -> dict[str, list]:
    """What differs between the run and here and now, by kind; empty lists where nothing does."""
    here_git, here_patch = git.collect(os.getcwd(), excluded=excluded_folders(recorded.folder.resolve(), os.getcwd()))
    here_git = here_git or {}
    found: dict[str, list] = {
        "commit": [],
        "changes": [],
        "python": [],
        "packages": [],
        "environment": [],
        "modifications": [],
    }
    if here_git.get("commit_id") != recorded.project.get("commit_id"):
        found["commit"].append([recorded.project.get("commit_id"), here_git.get("commit_id")])
    if here_patch != recorded.patch:
        before, now = _files_of(recorded.patch), _files_of(here_patch)
        found["changes"] = sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))
    python = [recorded.packages["python_version"], platform.python_version()]
    if python[0] != python[1]:
        found["python"].append(python)
    then, now = recorded.packages["all_packages"], packages.all_packages()
    found["packages"] = [[n, then.get(n), now.get(n)] for n in sorted({*then, *now}) if then.get(n) != now.get(n)]
    then, now = recorded.runtime["environment_variables"], runtime.environment()
    for name in sorted({*then, *now} - _EVERY_SHELL_DIFFERS - {*recorded.runtime.get("set_by_the_program", ())}):
        if name.startswith("TENSCOPE_"):
            continue  # how it was recorded, not how it ran
        if then.get(name) != now.get(name) and runtime.REDACTED not in (then.get(name), now.get(name)):
            found["environment"].append([name, then.get(name), now.get(name)])
    for package in (recorded.git.get("runtime_modifications") or {}).values():
        found["modifications"] += [
            f"{m['module']}.{m['name']} ({m['defined_at']})" for m in package.get("modifications", [])
        ]
    return found


def _files_of(patch: bytes) -> dict[str, bytes]:
    """The parts of a patch by file name."""
    parts = re.split(rb"(?m)^diff --git ", patch)[1:]
    return {part.split(b"\n", 1)[0].split(b" b/", 1)[-1].decode("utf-8", "replace"): part for part in parts}


def make_checkout(recorded: Recorded, target: Path, source: str | None) -> list[str]:
    """The tree of the run in `target`, with requirements.txt and run.sh beside it; returns what was made."""
    if target.exists() and any(target.iterdir()):
        raise Trouble(f"the folder is not empty: {target}")
    target.mkdir(parents=True, exist_ok=True)
    made = []
    commit = recorded.project.get("commit_id")
    if commit:
        origin = source or recorded.project.get("root")
        if origin is None or (source is None and not Path(origin).exists()):
            raise Trouble(f"the repository is not there any more; name a clone with --repo: {origin}")
        repository = git.Repository(target)
        repository.run("clone", "-q", "--no-checkout", origin, ".")
        repository.run("checkout", "-q", "--detach", commit)
        made.append(f"checkout of {commit[:12]}")
        if recorded.patch:
            repository.run("apply", "--whitespace=nowarn", "-", stdin=recorded.patch)
            made.append(f"{' and '.join(path.name for path in recorded.patches)} applied")
    requirements = _free_name(target, "requirements.txt")
    requirements.write_text(recorded.requirements)
    script = _free_name(target, "run.sh")
    script.write_text(_run_script(recorded, requirements.name))
    script.chmod(script.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    return [*made, requirements.name, script.name]


def _free_name(folder: Path, name: str) -> Path:
    """The project's own file of that name stays: ours is then requirements.repro.txt or run.repro.sh."""
    path = folder / name
    return path.with_suffix(f".repro{path.suffix}") if path.exists() else path


def _run_script(recorded: Recorded, requirements: str) -> str:
    root = recorded.project.get("root") or ""
    words = [os.path.relpath(w, recorded.runtime["working_directory"]) if root and w.startswith(root + os.sep) else w
             for w in recorded.arguments]  # fmt: skip
    exports = "".join(f"export {n}={shlex.quote(v)}\n" for n, v in recorded.relevant_environment.items())
    return (
        "#!/bin/sh\n"
        f"# Runs again what was recorded on {recorded.runtime['timestamp']} "
        f"with Python {recorded.packages['python_version']}.\n"
        f"# PYTHON names another interpreter; the packages are in {requirements}.\n"
        f'set -e\ncd "$(dirname "$0")"/{shlex.quote(recorded.relative_folder())}\n'
        f'{exports}exec "${{PYTHON:-python3}}" {shlex.join(words)} "$@"\n'
    )


def _print_check(found: dict[str, list]) -> None:
    say = {
        "commit": lambda e: f"commit      {e[0]} then, {e[1]} now",
        "changes": lambda e: f"changes     {e}",
        "python": lambda e: f"Python      {e[0]} then, {e[1]} now",
        "packages": lambda e: f"package     {e[0]}: {e[1] or 'not installed'} then, {e[2] or 'not installed'} now",
        "environment": lambda e: (
            f"environment {e[0]}: {e[1] if e[1] is not None else 'unset'} then, "
            f"{e[2] if e[2] is not None else 'unset'} now"
        ),
        "modifications": lambda e: f"patched at run time: {e}",
    }
    total = sum(map(len, found.values()))
    print(
        "nothing differs from the run"
        if not total
        else f"{total} thing{'s differ' if total > 1 else ' differs'} from the run:"
    )
    for kind, entries in found.items():
        for entry in entries:
            print("  " + say[kind](entry))


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="tenscope repro", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="examples:\n  tenscope repro runs/20261115_201530\n  tenscope repro runs --check\n"
        "  tenscope repro runs --into again && again/run.sh\n"
        "  tenscope repro runs --call blocks.3.attn -o case && python case/repro.py",
    )  # fmt: skip
    parser.add_argument("run", help="a run's folder, or a folder of runs: the newest in it")
    parser.add_argument(
        "--check", action="store_true", help="say what differs from here and now; exit 1 where something does"
    )
    parser.add_argument(
        "--into", metavar="DIR", help="make the checkout with the patch applied, requirements.txt and run.sh"
    )
    parser.add_argument(
        "--repo", metavar="PATH|URL", help="with --into: clone from there instead of the recorded folder"
    )
    parser.add_argument("--call", metavar="MODULE", help="make a folder that makes one call of this module again")
    parser.add_argument("--step", type=int, metavar="N", help="with --call: a call of this step (default: the first)")
    parser.add_argument("--call-index", type=int, metavar="K", help="with --call: the call of this number")
    parser.add_argument("--rank", type=int, metavar="R", help="with --call: as this rank recorded it")
    parser.add_argument("-o", "--output", metavar="DIR", help="with --call: the folder to make")
    parser.add_argument("--json", action="store_true", help="answer with one JSON document")
    options = parser.parse_args(argv)
    if options.call is None and (options.step, options.call_index, options.rank, options.output) != (None,) * 4:
        parser.error("--step, --call-index, --rank and -o go with --call")
    if options.call is not None and (options.check or options.into or options.repo):
        parser.error("--check, --into and --repo are about the whole run: not with --call")
    try:
        if options.call is not None:
            from tenscope.metadata import reproducer

            return reproducer.main(options)
        recorded = Recorded(newest_run(options.run))
        if options.into:
            made = make_checkout(recorded, Path(options.into), options.repo)
            print(
                json.dumps({"into": options.into, "made": made})
                if options.json
                else f"{options.into}: {', '.join(made)}"
            )
            return 0
        if options.check:
            found = differences(recorded)
            print(json.dumps(found)) if options.json else _print_check(found)
            return int(any(found.values()))
        if options.json:
            print(json.dumps([{"what": what, "type": line} for what, line in steps(recorded)], indent=2))
            return 0
        last = None
        for what, line in steps(recorded):
            print(*(() if what == last else (f"# {what}\n",)), line, sep="")
            last = what
        return 0
    except (Trouble, git.GitError) as error:
        return command_line.trouble(error, options.json)


if __name__ == "__main__":
    sys.exit(command_line.run(main))
