"""`tenscope noise`: how much does rounding move each place of a program? It is run again with harmless changes.

Overview. A recorded program is run again unchanged, which tells whether it is deterministic, and then some times with
changes that no correct program should mind: parameters and inputs moved by half a unit at random, another number of
threads, other kernels for the same sums. How far each recorded value moves is written beside the run, and `tenscope
diff` judges differences by it. docs/noise.md is the contract.
"""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import shlex
import shutil
import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tenscope import _core, command_line
from tenscope.errors import Error
from tenscope.launch.again import Program
from tenscope.metadata.repro import Trouble
from tenscope.recording.say import shown_path

FILE_NAME = "noise.json"
# Initial parameters that moved by more are other random numbers: kernels may draw them in another way.
_MOST_INITIAL_UNITS = 100
_PHASES = ("forward", "backward", "optimizer")


@dataclasses.dataclass(frozen=True)
class Change:
    """How one run of the program is made to round otherwise."""

    words: tuple[str, ...]  # of tenscope run
    environment: dict[str, str]
    text: tuple[str, ...]


def changes(runs: int, environment: dict[str, str]) -> Iterator[Change]:
    """`environment` is what the recorded program had."""
    cores = environment.get("OMP_NUM_THREADS") or str(os.cpu_count() or 1)
    threads = "2" if cores == "1" else "1"
    # Sums in another order, by instructions that every such machine has.
    isa = {"ATEN_CPU_CAPABILITY": "default", "MKL_CBWR": "COMPATIBLE"}
    if platform.machine() == "x86_64":
        isa = {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_CBWR": "AVX2"}
    for seed in range(1, runs + 1):
        words: tuple[str, ...] = ("--move", str(seed))
        variables: dict[str, str] = {}
        text = [f"parameters and inputs moved by half a unit (seed {seed})"]
        if seed % 3 == 2:
            variables = {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads}
            text.append("1 thread" if threads == "1" else f"{threads} threads")
        elif seed % 3 == 0:
            words += ("--other-kernels",)
            variables = isa
            text.append("other kernels")
        yield Change(words, variables, tuple(text))


class Measuring:
    """Runs a recorded program again, and keeps what was measured of it."""

    def __init__(self, run: str, shows_output: bool):
        self._program = Program("the program", run)
        self.folder = self._program.folder
        self._shows_output = shows_output
        self.profile = _core.NoiseProfile()
        self.left_out: list[tuple[str, ...]] = []  # changes by which the program draws other random numbers
        reader = _core.Reader(self.folder)
        tensors = [id for id in range(len(reader)) if reader.is_tensor(id)]
        if not tensors:
            raise Trouble(f"there is no tensor in this run: {self.folder}")
        self._has_values = any(reader.event(id).tensor.has_bytes for id in tensors)
        steps = reader.steps()
        # As far as the recording goes, which may be some steps of a long training only.
        self._words = ["--steps", f"{steps[0]}:{steps[-1] + 1}", "--end-after", str(steps[-1])]

    def check_is_deterministic(self, out: Path) -> bool:
        """Run again unchanged it gives the same bits (True), or but for rounding; else there is no noise to measure."""
        say(f"running it again, unchanged: {shlex.join(self._program.words[1])}")
        again = self._record(out, "unchanged", ["--stats"], {})
        _, document, _ = _core.diff_runs(
            str(self.folder), str(again), map=[], tolerance=None, top=1, strict=False, prefix=True, rows=[], ranks=[],
            progress=None, noise=None,
        )  # fmt: skip
        found = json.loads(document)
        if found["first_divergence"] is not None:
            raise self._program.has_changed_since(found["first_divergence"])
        if found["verdict"] == "nothing":
            raise Trouble(f"running the program again recorded nothing that the run has: {self.folder}")
        self.profile.add(_core.measure_noise(str(self.folder), str(again), ["unchanged"]))
        shutil.rmtree(again)
        return found["verdict"] == "equal"

    def measure(self, out: Path, number: int, change: Change) -> None:
        say(f"running it again: {', '.join(change.text)}")
        words = [*change.words, *([] if self._has_values else ["--stats"])]
        again = self._record(out, f"changed-{number}", words, change.environment)
        measured = _core.measure_noise(str(self.folder), str(again), list(change.text))
        shutil.rmtree(again)
        if measured.runs[0].initial_units > _MOST_INITIAL_UNITS:
            self.left_out.append(change.text)
        else:
            self.profile.add(measured)

    def _record(self, out: Path, name: str, words: list[str], environment: dict[str, str]) -> Path:
        options = [*self._words, "--no-sources", *words]
        return self._program.record(
            out / name, options, say=say, environment=environment, shows_output=self._shows_output
        )

    @property
    def environment(self) -> dict[str, str]:
        return self._program.recorded.relevant_environment


def measure(run: str, runs: int, shows_output: bool) -> dict:
    """Measures the noise of a run, writes it beside it, and says what it is."""
    measuring = Measuring(run, shows_output)
    out = Path(tempfile.mkdtemp(prefix=".noise-", dir=measuring.folder.parent))
    try:
        is_deterministic = measuring.check_is_deterministic(out)
        for number, change in enumerate(changes(runs, measuring.environment), 1):
            measuring.measure(out, number, change)
    finally:
        shutil.rmtree(out, ignore_errors=True)
    profile = measuring.profile
    if len(profile.runs) == 1:
        raise Trouble(f"no change is harmless: the program draws other random numbers with each: {measuring.folder}")
    path = measuring.folder / FILE_NAME
    profile.write(path)
    places = profile.places()
    moved = [place for place in places if place["rel_l2"] > 0]
    typical = {
        phase: statistics.median(place["rel_l2"] for place in moved if place["phase"] == phase)
        for phase in _PHASES
        if any(place["phase"] == phase for place in moved)
    }
    return {
        "run": str(measuring.folder),
        "profile": str(path),
        "is_deterministic": is_deterministic,
        "runs": [
            {"changes": one.changes, "compared": one.compared, "moved": one.moved, "missing": one.missing}
            for one in profile.runs
        ],
        "left_out": [list(text) for text in measuring.left_out],
        "places": len(places),
        "typical": typical,
        "largest": sorted(moved, key=lambda place: -place["rel_l2"])[:5],
    }


def in_words(told: dict) -> str:
    lines = [f"noise of {shown_path(told['run'])}: run again {len(told['runs'])} times, {told['places']} values"]
    for one in told["runs"]:
        moved = "the same bits" if not one["moved"] else f"{one['moved']} of {one['compared']} values moved"
        missing = f", {one['missing']} missing" if one["missing"] else ""
        lines.append(f"  {', '.join(one['changes'])}: {moved}{missing}")
    lines += [f"  left out, since it draws other random numbers: {', '.join(text)}" for text in told["left_out"]]
    if told["typical"]:
        typical = ", ".join(f"{phase} {value:.1e}" for phase, value in told["typical"].items())
        lines.append(f"  typical: {typical} (median of |b-a| / |a|)")
    for i, place in enumerate(told["largest"]):
        rank = f" of rank {place['rank']}" if place["rank"] else ""
        where = f"{place['name']}{rank} (step {place['step']}, call {place['call']}, {place['phase'] or 'value'})"
        lines.append(f"  {'most:' if i == 0 else '     '}    {place['rel_l2']:.1e} {where}")
    lines.append(f"written to {shown_path(told['profile'])}, where tenscope diff finds it")
    return "\n".join(lines)


def say(text: str) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"tenscope noise: {text}\n")


def _is_run(path: str) -> bool:
    return Path(path, "run.json").exists() or (Path(path).is_dir() and not Path(path, "__main__.py").exists())


def main(words: list[str]) -> int:
    parser = command_line.Parser(
        "noise",
        "Run a recorded program again with harmless changes and measure how much rounding moves each of its values; "
        "given a script, record it first",
        examples=["tenscope noise runs/good && tenscope diff runs/good runs/new", "tenscope noise --runs 5 train.py"],
        usage=[
            "tenscope noise [--runs N] RUN",
            "tenscope noise [--runs N] [options of tenscope run] script.py [args...]",
        ],
    )
    parser.add_argument("--runs", type=int, default=3, metavar="N", help="How many times, with changes (default: 3)")
    parser.add_argument("--output", action="store_true", help="Show what the program prints, on stderr")
    parser.add_argument("--json", action="store_true", help="Answer with one JSON document")
    given, rest = parser.parse_known_args(words)
    if given.runs < 1:
        parser.error("--runs needs a number from 1 on")
    if not rest:
        parser.error("which run, or which script?")
    rest[0] = command_line.place_of(rest[0])
    if not _is_run(rest[0]):
        if not os.path.exists(rest[0]) and not rest[0].startswith("-"):
            parser.error(f"there is no run or script {rest[0]!r}")
        if given.json or given.output:
            parser.error(f"--json and --output are for a run that is there already: {rest[0]}")
        # The command that the run keeps is that of the program.
        os.execv(sys.executable, [sys.executable, "-m", "tenscope.run", "--noise", str(given.runs), *rest])
    if len(rest) > 1:
        parser.error(f"one run at a time: what is {rest[1]!r}?")
    try:
        told = measure(rest[0], given.runs, given.output)
    except (Trouble, Error, OSError) as error:
        return command_line.trouble(error, given.json)
    print(json.dumps(told) if given.json else in_words(told))
    return 0


if __name__ == "__main__":
    sys.exit(command_line.run(main))
