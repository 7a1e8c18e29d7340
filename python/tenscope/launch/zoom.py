"""`tenscope zoom A B`: which source line, which operation? Both programs are run again, with operations recorded.

Overview. `diff` names the module call (or the data, the loss, the optimizer) where two recordings part. Both recorded
commands are run again up to that step, in their folders and with the variables that numbers depend on, recording the
operations of the blamed call alone, or of all of the blamed step where it lies outside of the modules. What they
record besides must equal the old recordings: else the code, the inputs or the seeds are no longer the same, and that
is said instead. docs/zoom.md is the contract.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tenscope import _core
from tenscope.errors import Error
from tenscope.metadata.repro import Recorded, Trouble, newest_run

# Places inside a module's call; all others are looked for in the whole step.
_IN_MODULE = {"output", "submodule_input", "changed_input", "buffer", "extra_input"}


class Side:
    """One of the two recordings, and how to make it again."""

    def __init__(self, label: str, folder: str, command: str | None):
        self.label = label
        self.folder = newest_run(folder)
        self.command = shlex.split(command) if command else None

    @functools.cached_property
    def recorded(self) -> Recorded:
        return Recorded(self.folder)

    def words(self) -> tuple[str, list[str]]:
        """The interpreter, and the program with its arguments."""
        words = self.command or [self.recorded.runtime["command"]["executable"], *self.recorded.arguments]
        python, rest = words[0], words[1:]
        if rest[:2] == ["-m", "tenscope.run"]:
            from tenscope.launch.command import split

            return python, split(rest[2:])[1]
        return python, rest

    def run_again(self, out: Path, ops: list[str], show_output: bool) -> Path:
        python, program = self.words()
        name = f"zoom-{self.label.lower()}"
        command = [python, "-m", "tenscope.run", "--out", str(out), "--name", name, "--stats", *ops, *program]
        environment = os.environ | self.recorded.relevant_environment
        environment["PYTHONPATH"] = without_our_site(environment.get("PYTHONPATH", ""))
        for word in ("TENSCOPE_RUN", "TENSCOPE_RUN_OPTIONS"):
            environment.pop(word, None)
        folder = self.recorded.runtime["working_directory"]
        if not Path(folder).is_dir():
            raise Trouble(f"the folder that {self.label} was run in is gone: {folder}")
        try:
            done = subprocess.run(
                command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, text=True, errors="replace",
            )  # fmt: skip
        except OSError as error:
            raise Trouble(f"cannot start Python for {self.label}: {error.strerror}: {python}") from None
        if show_output:
            sys.stderr.write(done.stdout)
        if not (out / name / "run.json").exists():
            raise Trouble(f"running {self.label} again recorded nothing: {shlex.join(command)}\n{done.stdout[-2000:]}")
        return out / name


def without_our_site(path: str) -> str:
    """PYTHONPATH as the program had it: `tenscope run` puts a folder of its own in front of it."""
    site = str(Path(__file__).parent / "site")
    return os.pathsep.join(word for word in path.split(os.pathsep) if word and word != site)


def operations_wanted(origin: dict) -> list[str]:
    """The words of `tenscope run` that record the operations of the blamed place."""
    step = origin["step"]
    words = ["--steps", f"0:{step + 1}", "--end-after", str(step), "--ops-steps", f"{step}:{step + 1}"]
    if origin["phase"] == "forward" and origin["cause"] in _IN_MODULE and origin["module"]:
        # `call` counts the calls of the module that it was seen in, which may be one inside the blamed one.
        is_own = origin["seen_in"] == origin["module"]
        return [*words, "--ops", origin["module"], *(["--ops-call", str(origin["call"])] if is_own else [])]
    return [*words, "--ops", ":all", "--ops-stats"]


def check_is_same(side: Side, again: Path, step: int) -> None:
    """What was recorded anew is what was recorded before, up to the blamed step."""
    _, document = _core.diff_runs(
        str(side.folder), str(again), map=[], tolerance=None, top=1, strict=False, prefix=True, rows=[], ranks=[],
        progress=None,
    )  # fmt: skip
    first = json.loads(document)["first_divergence"]
    if first is not None and first["step"] <= step:
        place = f"{first['name']} in step {first['step']}"
        raise Trouble(
            f"running {side.label} again gives other numbers, first in {place}: its code, inputs or seeds are no "
            f"longer those of the recording, or it is not deterministic. {side.label}: {side.folder}"
        )


def zoom(a: Side, b: Side, *, keep: Path | None, show_output: bool) -> tuple[int, str, dict]:
    """Exit code, text and document."""
    text, document = _core.diff_runs(
        str(a.folder), str(b.folder), map=[], tolerance=None, top=1, strict=False, prefix=False, rows=[], ranks=[],
        progress=None,
    )  # fmt: skip
    found = json.loads(document)
    origin = found["first_divergence"]
    if origin is None:
        code = 2 if found["verdict"] == "nothing" else 0 if found["within_tolerance"] else 1
        return code, text, {**found, "line": None}
    words = operations_wanted(origin)
    out = keep or Path(tempfile.mkdtemp(prefix="tenscope-zoom-"))
    try:
        again = []
        for side in (a, b):
            say(f"running {side.label} again: {shlex.join(side.words()[1])}")
            again.append(side.run_again(out, words, show_output))
        for side, folder in zip((a, b), again, strict=True):
            check_is_same(side, folder, origin["step"])
        rank = origin["rank"] if origin["rank"] >= 0 else None
        lines, told = _core.diff_operations(str(again[0]), str(again[1]), None, rank)
    finally:
        if keep is None:
            shutil.rmtree(out, ignore_errors=True)
    operations = json.loads(told)
    return 1, f"{text.rstrip()}\n\n{lines}", {**found, "line": operations.pop("line"), "operations": operations}


def say(text: str) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"tenscope zoom: {text}\n")


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="tenscope zoom",
        description="Runs two recorded programs again and names the operation and source line where they part.",
        epilog="example: tenscope zoom runs/good runs/bad",
        allow_abbrev=False,
    )
    parser.add_argument("a", help="a run's folder: the reference")
    parser.add_argument("b", help="a run's folder: what became of it")
    parser.add_argument("--a-command", metavar="COMMAND", help="how to run A, where it is not as recorded")
    parser.add_argument("--b-command", metavar="COMMAND", help="the same for B")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the recordings of operations there")
    parser.add_argument("--output", action="store_true", help="show what the programs print, on stderr")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    options = parser.parse_args(words)
    try:
        a, b = Side("A", options.a, options.a_command), Side("B", options.b, options.b_command)
        code, text, document = zoom(a, b, keep=options.keep and options.keep.absolute(), show_output=options.output)
    except (Trouble, Error, OSError) as error:
        if options.json:
            print(json.dumps({"error": str(error)}))
        sys.stderr.write(f"tenscope zoom: {error}\n")
        return 2
    print(json.dumps(document) if options.json else text.rstrip())
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
