"""`tenscope zoom A B`: which source line, which operation? Both programs are run again, with operations recorded.

Overview. `diff` names the module call (or the data, the loss, the optimizer) where two recordings part. Both recorded
commands are run again up to that step, in their folders and with the variables that numbers depend on, recording the
operations of the blamed call alone, or of all of the blamed step where it lies outside of the modules. What they
record besides must equal the old recordings: else the code, the inputs or the seeds are no longer the same, and that
is said instead. docs/zoom.md is the contract.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import shlex
import shutil
import sys
import tempfile
from pathlib import Path

from tenscope import _core, command_line
from tenscope.errors import Error
from tenscope.launch.again import Program
from tenscope.launch.blamed_call import IN_MODULE, blamed_call, judge, offer
from tenscope.metadata.repro import Trouble
from tenscope.reading.recording import open as open_run

_GIVEN = {"model_input", "submodule_input", "extra_input"}  # a module is called with something else
_STEPS_BACK = (1, 8)  # where a value that no operation has made differs: it was made in a step before


@dataclasses.dataclass
class Options:
    map: list[str] = dataclasses.field(default_factory=list)
    tolerance: float | None = None
    noise: str | None = ""  # as tenscope.diff's: a profile, "" for those of the runs, None for none
    prefix: bool = False
    strict: bool = False
    top: int = 1
    eager: bool = False
    oracle: bool = False
    keep: Path | None = None
    output: bool = False
    color: bool = False
    width: int = 0  # columns of a terminal; 0: any


def diff(a: Path, b: Path, options: Options) -> tuple[str, dict]:
    """Text and document of the comparison of modules."""
    text, document, _ = _core.diff_runs(
        str(a), str(b), map=options.map, tolerance=options.tolerance, top=options.top, strict=options.strict,
        prefix=options.prefix, rows=[], ranks=[], progress=None, noise=options.noise, color=options.color,
        width=options.width or 80,
    )  # fmt: skip
    return text, json.loads(document)


@dataclasses.dataclass
class Place:
    """The blamed place, as each of the two runs has it."""

    origin: dict
    renamed: dict[str, str]

    @property
    def is_call(self) -> bool:
        """A module's own code in its forward."""
        origin = self.origin
        return origin["phase"] == "forward" and origin["cause"] in IN_MODULE and bool(origin["module"])

    def module(self, side: str) -> str:
        return self._as_named(self.origin["module"], side)

    def _as_named(self, path: str, side: str) -> str:
        if side == "A":
            return path
        before = [a for a in self.renamed if path == a or path.startswith(f"{a}.")]
        longest = max(before, key=len, default=None)
        return path if longest is None else self.renamed[longest] + path[len(longest) :]

    def step(self, side: str) -> int:
        event = self.origin[f"event_{side.lower()}"]
        return self.origin["step"] if event is None else event["step"]

    def called(self, side: str) -> str | None:
        """The module that is called with another input, where its caller is to blame."""
        is_given = self.origin["phase"] == "forward" and self.origin["cause"] in _GIVEN
        return self._as_named(self.origin["seen_in"], side) if is_given else None

    def words(self, side: str, back: int) -> list[str]:
        """The words of `tenscope run` that record the operations of the place, and of so many steps before it."""
        step = self.step(side)
        first = max(0, step - back)
        words = ["--steps", f"0:{step + 1}", "--end-after", str(step), "--ops-steps", f"{first}:{step + 1}"]
        if back or not self.is_call:
            return [*words, "--ops", ":all"]
        words += ["--ops", self.module(side), "--ops-values"]
        # `call` counts the calls of the module that it was seen in, which may be one inside the blamed one.
        event = self.origin[f"event_{side.lower()}"] or self.origin
        return words if self.origin["seen_in"] != self.origin["module"] else [*words, "--ops-call", str(event["call"])]


def record_again(sides, place: Place, out: Path, options: Options, more_words=([], []), back: int = 0) -> list[Path]:
    """Both programs run again up to the blamed step, with the operations of the place."""
    again = []
    for side, more in zip(sides, more_words, strict=True):
        say(f"running {side.label} again: {shlex.join(side.words[1])}")
        words = [*place.words(side.label, back), *(["--eager"] if options.eager else []), *more]
        run = out / f"zoom-{side.label.lower()}"
        if back:  # in the place of what was recorded of the blamed step alone
            shutil.rmtree(run)
        again.append(side.record(run, ["--stats", *words], say=say, shows_output=options.output))
    for side, folder in zip(sides, again, strict=True):
        check_is_same(side, folder, place, options)
    return again


def diff_operations(again: list[Path], place: Place, options: Options) -> tuple[str, dict]:
    """Text and document of the comparison of operations."""
    rank = place.origin["rank"] if place.origin["rank"] >= 0 else None
    text, document = _core.diff_operations(
        str(again[0]), str(again[1]), None, rank, place.called("A"), place.called("B"), options.color
    )
    return text, json.loads(document)


def check_is_same(side: Program, again: Path, place: Place, options: Options) -> None:
    """What was recorded anew is what was recorded before, up to the blamed step."""
    _, found = diff(side.folder, again, dataclasses.replace(options, map=[], prefix=True, strict=False))
    first = found["first_divergence"]
    if first is not None and first["step"] <= place.step(side.label):
        raise side.has_changed_since(first)
    event = place.origin[f"event_{side.label.lower()}"]
    recorded = open_run(again)
    is_there = event is None or bool(recorded._reader.find(event["name"], event["step"], event["call"]))
    if recorded.state.startswith("failed") and not is_there:
        raise side.has_failed(recorded.state)


def zoom(a: Program, b: Program, options: Options) -> tuple[int, str, dict]:
    """Exit code, text and document."""
    text, found = diff(a.folder, b.folder, options)
    origin = found["first_divergence"]
    if origin is None:
        code = 2 if found["verdict"] == "nothing" else 0 if found["within_tolerance"] else 1
        return code, text, {**found, "line": None}
    place = Place(origin, found["renamed"])
    calls = [blamed_call(side.folder, place.module(side.label), origin, side.label.lower()) for side in (a, b)]
    asks_oracle = options.oracle and None not in calls
    oracle_words = [call.oracle_words if asks_oracle else [] for call in calls]
    out = options.keep or Path(tempfile.mkdtemp(prefix="tenscope-zoom-"))
    try:
        again = record_again((a, b), place, out, options, oracle_words)
        judgement = judge(again, calls, origin, options.color) if options.oracle else ("", None)
        lines, told = diff_operations(again, place, options)
        seen = 0  # steps before the blamed one
        for back in _STEPS_BACK:
            if told["verdict"] != "other_input" or seen >= max(place.step("A"), place.step("B")):
                break
            seen = back
            again = record_again((a, b), place, out, options, back=back)
            lines, told = diff_operations(again, place, options)
    finally:
        if options.keep is None:
            shutil.rmtree(out, ignore_errors=True)
    offered, commands = offer(calls)
    document = {**found, "line": told.pop("line"), "operations": told, "reproduce": commands}
    if options.oracle:
        document["oracle"] = judgement[1]
        lines += f"\n{judgement[0]}"
    return 1, f"{text.rstrip()}\n\n{lines}" + (f"\n{offered}" if offered else ""), document


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
    parser.add_argument("--map", action="append", default=[], metavar="A=B", help="as diff")
    parser.add_argument("--tolerance", type=float, metavar="X", help="as diff")
    parser.add_argument("--noise", default="", metavar="PROFILE", help="as diff")
    parser.add_argument("--no-noise", dest="noise", action="store_const", const=None, help="as diff")
    parser.add_argument("--prefix", action="store_true", help="as diff")
    parser.add_argument("--strict", action="store_true", help="as diff")
    parser.add_argument("--top", type=int, default=1, metavar="N", help="as diff")
    parser.add_argument("--eager", action="store_true", help="run what torch.compile compiles as plain Python")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the recordings of operations there")
    parser.add_argument("--output", action="store_true", help="show what the programs print, on stderr")
    parser.add_argument("--oracle", action="store_true", help="who is right: the blamed call once more in a wider type")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--color", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--width", type=int, default=0, help=argparse.SUPPRESS)
    given = parser.parse_args(words)
    options = Options(**{field.name: getattr(given, field.name) for field in dataclasses.fields(Options)})
    options.keep = options.keep and options.keep.absolute()
    try:
        a, b = Program("A", given.a, given.a_command), Program("B", given.b, given.b_command)
        code, text, document = zoom(a, b, options)
    except (Trouble, Error, OSError) as error:
        return command_line.trouble(error, given.json)
    print(json.dumps(document) if given.json else _core.fitted(text, options.width).rstrip())
    return code


if __name__ == "__main__":
    sys.exit(command_line.run(main))
