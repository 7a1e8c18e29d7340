"""One GPT in many parallel layouts: is the diff silent where they are right, and does it name what is wrong?

    python bench/layouts/run.py [--only PATTERN]... [--out FOLDER] [--again] [--jobs N] [--all] [--stats] [-v]

Every layout of cases.py is recorded twice with `tenscope run`, every mistake once, and compared with `tenscope diff`,
both ways round: a layout with its second recording, with one process and with another layout of the same model (--all:
with every other); a mistake with one process, its own layout and another one. check.py sees that the programs do what
cases.py says of them. With --stats only statistics and sketches are recorded: then nothing may be found where
nothing is wrong, but it need not be known to be equal.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from cases import BY_NAME, LAYOUTS, MISTAKES, Layout, Mistake, group_of, neighbour

HERE = Path(__file__).resolve().parent
TENSCOPE = Path(sys.executable).parent / "tenscope"
TIMEOUT_S = 300
GOAL = 0.95
WRAPPERS = ("module.", "_orig_mod.")


@dataclass(frozen=True)
class Recording:
    name: str
    layout: Layout
    bug: str | None = None


@dataclass(frozen=True)
class Pair:
    first: Recording
    second: Recording
    subject: Recording  # the one of the two that is examined
    mistake: Mistake | None = None

    @property
    def name(self) -> str:
        return f"{self.first.name} {self.second.name}"


@dataclass
class Answer:
    pair: Pair
    found: bool = False  # a difference, with a place
    module: bool = False
    phase: bool = False
    silent: bool = False
    words: str = ""

    @property
    def right(self) -> bool:
        return self.module if self.pair.mistake else self.silent


def start(command: list, environment: dict[str, str]) -> subprocess.Popen:
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)


def run_ranks(recording: Recording, launcher: list) -> list[subprocess.CompletedProcess]:
    """Starts the program once for each rank."""
    layout, bug = recording.layout, recording.bug
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, *launcher, HERE / layout.program, *layout.arguments, *(["--bug", bug] if bug else [])]
    started = []
    for rank in range(layout.ranks):
        environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        if layout.ranks > 1:
            environment |= {"RANK": str(rank), "WORLD_SIZE": str(layout.ranks)}
            environment |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        started.append(start(command, environment))
    done = []
    for process in started:
        try:
            output = process.communicate(timeout=TIMEOUT_S)[0]
        except subprocess.TimeoutExpired:
            process.kill()
            output = process.communicate()[0] + f"not done within {TIMEOUT_S} s"
        done.append(subprocess.CompletedProcess(command, process.returncode, output))
    return done


def record(recording: Recording, out: Path, again: bool, options: list[str]) -> str | None:
    """Why it could not be recorded, if so."""
    mark = out / f"{recording.name}.done"
    if mark.exists() and not again:
        return None
    mark.unlink(missing_ok=True)
    shutil.rmtree(out / recording.name, ignore_errors=True)
    launcher = ["-m", "tenscope.run", "--out", out, "--name", recording.name, *options]
    done = run_ranks(recording, launcher)
    (out / f"{recording.name}.log").write_text("".join(one.stdout for one in done))
    failed = [f"rank {rank}: {one.stdout.strip()[-500:]}" for rank, one in enumerate(done) if one.returncode]
    if failed:
        return f"cannot record {recording.name}: {failed[0]}"
    mark.touch()
    return None


def pairs(patterns: list[str], is_all: bool) -> Iterator[Pair]:
    """One way round only."""

    def is_wanted(name: str) -> bool:
        return not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)

    clean = {layout.name: Recording(layout.name, layout) for layout in LAYOUTS}
    seen = set()
    for layout in LAYOUTS:
        if not is_wanted(layout.name):
            continue
        own = clean[layout.name]
        yield Pair(Recording(f"{layout.name}.2", layout), own, own)
        for other in group_of(layout) if is_all else (group_of(layout)[0], neighbour(layout)):
            if other != layout and frozenset((layout, other)) not in seen:
                seen.add(frozenset((layout, other)))
                yield Pair(clean[other.name], own, own)
    for mistake in MISTAKES:
        if is_wanted(mistake.name):
            layout = BY_NAME[mistake.layout]
            wrong = Recording(mistake.name, layout, mistake.bug)
            for other in dict.fromkeys((group_of(layout)[0], layout, neighbour(layout))):
                yield Pair(clean[other.name], wrong, wrong, mistake)


def both_ways(pair: Pair) -> list[Pair]:
    return [pair, Pair(pair.second, pair.first, pair.subject, pair.mistake)]


def spellings(found: dict, layouts: tuple[Layout, Layout]) -> Iterator[str]:
    """The module that was named, without wrappers, and under the names of one process."""
    path = found["module"]
    while path.startswith(WRAPPERS):
        path = path.partition(".")[2]
    yield "" if f"{path}." in WRAPPERS else path
    for layout in layouts:
        for rank, names in layout.names.items():
            if found.get("rank") not in (None, rank):
                continue
            for own in sorted(names, key=len, reverse=True):
                if path == own or path.startswith(f"{own}."):
                    yield f"{names[own]}{path[len(own) :]}".strip(".")
                    break


def judge(pair: Pair, code: int, diff: dict, is_stats: bool) -> Answer:
    found = diff["first_divergence"]
    answer = Answer(pair, words=diff["verdict"])
    is_clean = diff["verdict"] == "unknown" if is_stats and code == 1 else code == 0
    answer.silent = is_clean and diff["verdict"] != "differs" and not diff["origins"]
    if found is not None:
        place = f"{found['module'] or '(model)'}: {found['io']} {found['name']}"
        answer.words = f"{diff['verdict']}, {place}, step {found['step']}, {found['phase']}, rank {found['rank']}"
    if pair.mistake and found is not None:
        answer.found = code == 1 and diff["verdict"] == "differs"
        named = list(spellings(found, (pair.first.layout, pair.second.layout)))
        is_named = any(fnmatchcase(name, pattern) for name in named for pattern in pair.mistake.modules)
        answer.module = answer.found and is_named
        answer.phase = answer.module and found["phase"] in pair.mistake.phases
    return answer


def compare(pair: Pair, out: Path, is_stats: bool) -> Answer:
    command = [TENSCOPE, "diff", out / pair.first.name, out / pair.second.name, "--json"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return Answer(pair, words=f"not done within {TIMEOUT_S} s")
    (out / "diffs").mkdir(exist_ok=True)
    (out / "diffs" / f"{pair.first.name}--{pair.second.name}.json").write_text(done.stdout)
    try:
        return judge(pair, done.returncode, json.loads(done.stdout), is_stats)
    except json.JSONDecodeError:
        return Answer(pair, words=(done.stdout + done.stderr).strip()[-200:])


def show(answer: Answer, verbose: bool) -> None:
    if answer.right and not verbose:
        return
    wanted = "silence"
    if answer.pair.mistake:
        wanted = " or ".join(module or "(model)" for module in answer.pair.mistake.modules)
    print(f"{'right' if answer.right else 'WRONG'}  {answer.pair.name}")
    print(f"       wanted {wanted}; said {answer.words}", flush=True)


def share(part: list, whole: list) -> str:
    return f"{len(part)} of {len(whole)} ({100 * len(part) / max(1, len(whole)):.0f} %)"


def table(answers: list[Answer]) -> None:
    """A line for each layout and mistake: its answers, with the other run first (>) and second (<)."""
    rows: dict[str, list[str]] = {}
    for answer in answers:
        pair = answer.pair
        is_second = pair.subject == pair.second
        other = pair.first if is_second else pair.second
        said = "ok" if answer.right else ("elsewhere" if answer.found else "wrong")
        rows.setdefault(pair.subject.name, []).append(f"{other.name} {'>' if is_second else '<'} {said}")
    for name, said in rows.items():
        print(f"{name:28} {'; '.join(said)}")


def by_layout(answers: list[Answer]) -> None:
    for words, is_own in (("own layout", True), ("other layouts", False)):
        some = [one for one in answers if (one.pair.first.layout == one.pair.second.layout) == is_own]
        print(f"  {words:17} {share([one for one in some if one.right], some)}")


def totals(answers: list[Answer]) -> bool:
    clean = [answer for answer in answers if answer.pair.mistake is None]
    wrong = [answer for answer in answers if answer.pair.mistake]
    silent = [answer for answer in clean if answer.silent]
    found = [answer for answer in wrong if answer.found]
    right = [answer for answer in wrong if answer.module]
    print(f"clean silent        {share(silent, clean)}")
    by_layout(clean)
    print(f"mistakes found      {share(found, wrong)}")
    print(f"in the right module {share(right, wrong)}")
    by_layout(wrong)
    print(f"and phase           {share([answer for answer in wrong if answer.phase], wrong)}")
    counted = ((silent, clean), (found, wrong), (right, wrong))
    return all(len(part) >= GOAL * len(whole) for part, whole in counted)


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", default=[], metavar="PATTERN", help="layouts and mistakes")
    parser.add_argument("--out", type=Path, default=None, help="where the recordings are kept")
    parser.add_argument("--again", action="store_true", help="record again what is there already")
    parser.add_argument("--record", action="store_true", help="only record, compare nothing")
    parser.add_argument("--all", action="store_true", help="every layout against every other of its group")
    parser.add_argument("--jobs", type=int, default=1, help="diffs at a time; recordings are made one by one")
    parser.add_argument("--stats", action="store_true", help="record statistics and sketches only, no values")
    parser.add_argument("-v", "--verbose", action="store_true", help="every answer, not only the wrong ones")
    arguments = parser.parse_args(words)
    wanted = list(pairs(arguments.only, arguments.all))
    if not wanted:
        parser.error("no layout and no mistake has such a name")
    out = arguments.out or Path("build/layouts_stats" if arguments.stats else "build/layouts")
    out = out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    failed = {}
    needed = dict.fromkeys(one for pair in wanted for one in (pair.first, pair.second))
    for recording in sorted(needed, key=lambda one: one.name.endswith(".2")):
        reason = record(recording, out, arguments.again, ["--stats"] if arguments.stats else [])
        if reason:
            failed[recording] = reason
            print(reason, flush=True)
    if arguments.record:
        return 1 if failed else 0

    def examine(pair: Pair) -> Answer:
        reason = failed.get(pair.first) or failed.get(pair.second)
        return Answer(pair, words=reason) if reason else compare(pair, out, arguments.stats)

    answers = []
    with ThreadPoolExecutor(arguments.jobs) as pool:
        for answer in pool.map(examine, [one for pair in wanted for one in both_ways(pair)]):
            answers.append(answer)
            show(answer, arguments.verbose)
    table(answers)
    return 0 if totals(answers) else 1


if __name__ == "__main__":
    sys.exit(main())
