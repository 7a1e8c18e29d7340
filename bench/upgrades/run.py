"""Upgrades with a bug, and harmless ones: does the diff name the right place, and is it silent where nothing is wrong?

    python bench/upgrades/run.py [CASE]... [--local] [--again] [--keep FOLDER] [-v]

cases.json says of each case what is run twice (a script with other arguments, two scripts, or one under two released
versions of a library) and what the answer must be; it was written down before the first diff. Both sides are recorded
with the tenscope of this Python and compared both ways round, which must name the same place. NumPy judges the case
itself by the final numbers that the scripts write: equal but for rounding where it is harmless, else not.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import envs
import numpy as np

HERE = Path(__file__).parent
TENSCOPE = Path(sys.executable).parent / "tenscope"
SIDES = ("a", "b")
ROUNDING = 1e-5  # as a part of the largest value


@cache
def package() -> Path:
    """A folder with this tree's package in it, as other environments can import it."""
    source = Path(importlib.util.find_spec("tenscope").origin).parent
    core = importlib.util.find_spec("tenscope._core").origin
    folder = Path(tempfile.mkdtemp(prefix="tenscope-package-"))
    shutil.copytree(source, folder / "tenscope", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(core, folder / "tenscope")
    return folder


def of_side(value: object, side: str) -> object:
    """A pair has one for each side."""
    return value[SIDES.index(side)] if isinstance(value, list) else value


def recipe(case: dict, side: str) -> tuple[Path, list[str], str | None]:
    """Script, arguments, and the environment, if it needs one."""
    script = HERE / "cases" / f"{of_side(case['script'], side)}.py"
    return script, of_side(case.get("args", [[], []]), side), of_side(case.get("env"), side)


def stamp(case: dict, side: str) -> str:
    """What a recording depends on, but for the compiled part of tenscope."""
    script, arguments, name = recipe(case, side)
    digest = hashlib.sha256(json.dumps([arguments, name, envs.requirements(name) if name else []]).encode())
    sources = sorted((Path(importlib.util.find_spec("tenscope").origin).parent).rglob("*.py"))
    for path in (script, HERE / "cases" / "common.py", *sources):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def record(case: dict, side: str, folder: Path) -> None:
    script, arguments, name = recipe(case, side)
    for old in (folder / side, folder / f"{side}.numbers"):
        shutil.rmtree(old, ignore_errors=True)
    (folder / f"{side}.numbers").mkdir(parents=True)
    environment = os.environ | {"OMP_NUM_THREADS": "1", "UPGRADES_NUMBERS": str(folder / f"{side}.numbers")}
    command = [TENSCOPE, "run", "--out", folder, "--name", side]
    if name:
        command += ["--python", envs.python(name)]
        environment["PYTHONPATH"] = str(package())
    done = subprocess.run([*command, script, *arguments], capture_output=True, text=True, env=environment)
    (folder / f"{side}.log").write_text(done.stdout + done.stderr)
    if done.returncode != 0:
        last = "\n".join((done.stdout + done.stderr).strip().splitlines()[-4:])
        raise RuntimeError(f"cannot record {case['id']} {side}:\n{last}")
    (folder / f"{side}.stamp").write_text(stamp(case, side))


def compare(folder: Path, first: str, second: str) -> tuple[int, dict]:
    command = [TENSCOPE, "diff", folder / first, folder / second]
    text = subprocess.run(command, capture_output=True, text=True)
    (folder / f"{first}{second}.txt").write_text(text.stdout + text.stderr)
    done = subprocess.run([*command, "--json"], capture_output=True, text=True)
    (folder / f"{first}{second}.json").write_text(done.stdout)
    if done.returncode not in (0, 1):
        raise RuntimeError(f"cannot compare {first} with {second}: {done.stdout}{done.stderr}")
    return done.returncode, json.loads(done.stdout)


def distance(folder: Path) -> float:
    """How far the final numbers are apart, as a part of the largest; infinite where one side has others, or none."""
    names = [sorted(path.name for path in (folder / f"{side}.numbers").iterdir()) for side in SIDES]
    if not names[0] or names[0] != names[1]:
        return np.inf
    largest = 0.0
    for name in names[0]:
        one, other = (np.load(folder / f"{side}.numbers" / name) for side in SIDES)
        if one.shape != other.shape or not np.array_equal(np.isfinite(one), np.isfinite(other)):
            return np.inf
        finite = np.isfinite(one)
        if finite.any():
            difference = np.abs(one[finite] - other[finite]).max()
            largest = max(largest, difference / max(np.abs(one[finite]).max(), 1e-30))
    return float(largest)


def judge(case: dict, code: int, diff: dict) -> dict[str, bool]:
    """What is right about an answer."""
    found = diff["first_divergence"]
    if case["expect"] == "harmless":
        return {"harmless": code == 0 and found is None}
    if code != 1 or found is None:
        return {"found": False}
    right = {"module": case["modules"] == ["*"] or found["module"] in case["modules"]}
    return right | {key: found[key] in values for key, values in case.get("want", {}).items()}


def is_same_place(one: dict, other: dict) -> bool:
    """Whether two diffs, the second the other way round, name one place, by the names of either run."""
    first, second = one["first_divergence"], other["first_divergence"]
    if first is None or second is None:
        return first is second
    renamed = one["renamed"]
    path, below = first["module"], []
    while path and path not in renamed:
        path, _, last = path.rpartition(".")
        below.insert(0, last)
    translated = ".".join(filter(None, [renamed.get(path, path), *below]))
    same = second["module"] in (first["module"], translated)
    return same and all(first[key] == second[key] for key in ("io", "step", "phase"))


def said(diff: dict) -> str:
    found = diff["first_divergence"]
    if found is None:
        return diff["verdict"]
    place = f"{found['root']} {found['module'] or '(model)'}"
    return f"{place}: {found['io']} {found['name']}, step {found['step']}, {found['phase']}, {found['cause']}"


def wanted(case: dict) -> str:
    if case["expect"] == "harmless":
        return "harmless"
    modules = " or ".join(module or "(model)" for module in case["modules"])
    return f"{modules}; " + ", ".join(f"{key} {values}" for key, values in case.get("want", {}).items())


def examine(case: dict, out: Path, again: bool) -> tuple[dict[str, bool], list[str]]:
    folder = out / case["id"]
    try:
        for side in SIDES:
            mark = folder / f"{side}.stamp"
            if again or not mark.exists() or mark.read_text() != stamp(case, side):
                record(case, side, folder)
        apart = distance(folder)
        code, diff = compare(folder, "a", "b")
        swapped_code, swapped = compare(folder, "b", "a")
    except RuntimeError as error:
        return {"ran": False}, [str(error)]
    answers = {"case": apart <= ROUNDING if case["expect"] == "harmless" else apart > 2 * ROUNDING}
    answers |= judge(case, code, diff)
    answers |= {f"{name} swapped": value for name, value in judge(case, swapped_code, swapped).items()}
    answers["same place"] = is_same_place(diff, swapped)
    words = [f"numbers {apart:.1e} apart", f"wanted  {wanted(case)}", f"said    {said(diff)}"]
    if said(swapped) != said(diff):
        words.append(f"swapped {said(swapped)}")
    return answers, words


def examine_all(cases: list[dict], arguments: argparse.Namespace) -> tuple[int, int]:
    """Prints a line for each case; how many were right, and how many harmless ones were said to differ."""
    right = false_alarms = 0
    environments = {of_side(case["env"], side) for case in cases if case.get("env") for side in SIDES}
    if environments:
        envs.base()
        package()  # before there are threads
    with ThreadPoolExecutor(arguments.jobs) as pool:
        list(pool.map(envs.python, sorted(environments)))
        results = pool.map(lambda case: examine(case, arguments.keep, arguments.again), cases)
        for case, (answers, words) in zip(cases, results, strict=True):
            is_right = all(answers.values())
            right += is_right
            false_alarms += not (answers.get("harmless", True) and answers.get("harmless swapped", True))
            wrong = ", ".join(name for name, answer in answers.items() if not answer)
            verdict = f"{'right' if is_right else 'WRONG'}  {case['id']:24} {case['expect']:8}"
            print(f"{verdict} {wrong and 'not ' + wrong}".rstrip())
            for line in words if arguments.verbose or not is_right else []:
                print(f"       {line}")
            sys.stdout.flush()
    return right, false_alarms


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", nargs="*", help="only these cases")
    parser.add_argument("--local", action="store_true", help="only cases that need no packages from an index")
    parser.add_argument("--again", action="store_true", help="record again what is there already")
    parser.add_argument("--keep", type=Path, default=envs.CACHE / "out", help="where the recordings are kept")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("-v", "--verbose", action="store_true", help="the answer of every case")
    arguments = parser.parse_args()
    cases = json.loads((HERE / "cases.json").read_text())
    known = [case["id"] for case in cases]
    for name in arguments.case:
        if name not in known:
            parser.error(f"there is no case {name}; there are {' '.join(known)}")
    cases = [case for case in cases if not arguments.case or case["id"] in arguments.case]
    if arguments.local:
        cases = [case for case in cases if not case.get("env")]

    try:
        right, false_alarms = examine_all(cases, arguments)
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return 2
    finally:
        if package.cache_info().currsize:
            shutil.rmtree(package())
    print(f"{right}/{len(cases)} right, {false_alarms} false alarms")
    return 0 if right == len(cases) else 1


if __name__ == "__main__":
    sys.exit(main())
