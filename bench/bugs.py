"""Programs with known bugs: does the first line of the diff name the right place?

    python bench/bugs.py [FOLDER] [--case ID]... [--keep DIR] [-v]

FOLDER holds run.py, which runs `CASE ref|bug`, and cases.json, which says what is wrong where. Both variants of each
case are recorded with `tenscope run` and compared with `tenscope diff --json`. A case is right when the module
to blame, step and phase are those of cases.json and the tensor is its first event, or what others see first.
Then `tenscope zoom` is asked for the line: right is one of the case's `lines`, of the bug's program or, where
zoom names none there, of the reference's.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HARMLESS = ("equal-within-tolerance", "renamed", "inserted")
TENSCOPE = Path(sys.executable).parent / "tenscope"


def record(folder: Path, case: str, variant: str, out: Path) -> None:
    command = [TENSCOPE, "run", "--out", out / case, "--name", variant, folder / "run.py", case, variant]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    if done.returncode != 0:
        raise RuntimeError(f"cannot record {case} {variant}:\n{done.stdout}{done.stderr}")


def compare(case: str, out: Path) -> tuple[int, dict]:
    command = [TENSCOPE, "diff", "--json", out / case / "ref", out / case / "bug"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode not in (0, 1):
        raise RuntimeError(f"cannot compare {case}:\n{done.stdout}{done.stderr}")
    return done.returncode, json.loads(done.stdout)


def find_line(case: dict, out: Path) -> tuple[bool, str]:
    """Whether zoom names an accepted line, and what it names."""
    command = [TENSCOPE, "zoom", "--json", out / case["id"] / "ref", out / case["id"] / "bug"]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    found = json.loads(done.stdout) if done.stdout else {}
    line = found.get("line")
    if line is None:
        return False, found.get("error") or done.stderr or "no line"
    variant, place = ("bug", line["b"]) if line["b"] else ("ref", line["a"])
    accepted = case["lines"].get(variant) or case["lines"].get("ref", [])
    is_right = any(
        Path(place["file"]).name == file and first <= (place["line"] or 0) <= last for file, first, last in accepted
    )
    return is_right, f"{found['operations']['verdict']}: {place['op']} at {place['file']}:{place['line']} ({variant})"


def events(case: dict) -> list[dict]:
    """What may be seen first: in order of preference."""
    first = case.get("first_real_event") or case["first_event"]
    return [first] + [alternative["event"] for alternative in case.get("alt_events", [])]


def is_tensor(found: dict, event: dict, case: dict) -> bool:
    if found["io"] != event["io"] or found["step"] != event["step"]:
        return False
    if event["io"] in ("grad", "param", "buffer"):
        names = {".".join(filter(None, (event["module"], event["name"])))}
        if "backward_first" in case:
            names.add(case["backward_first"])
        return found["name"] in names
    if event["io"] == "loss":
        return True
    if found["seen_in"] != event["module"] or found["call"] != event["call"]:
        return False
    if event["index"] is None or event["io"] == "loss":
        return True
    index = event["index"] if isinstance(event["index"], list) else [event["index"]]
    return found["name"].endswith("." + ".".join(map(str, index)))


def is_phase(found: dict, case: dict) -> bool:
    expected = {
        "data": {"forward"},
        "distributed": {"forward", "backward", "optimizer"},
        "forward": {"forward", "init"} if case["scope"] in ("weights", "ema") else {"forward"},
    }.get(case["phase"], {case["phase"]})
    return found["phase"] in expected


def judge(case: dict, code: int, diff: dict) -> dict[str, bool]:
    """What is right about an answer."""
    if case["expect"] in HARMLESS:
        right = {"harmless": code == 0 and diff["first_divergence"] is None and diff["within_tolerance"]}
        if case["expect"] == "renamed":
            right["names"] = diff["renamed"] == case["rename"]
        if case["expect"] == "inserted":
            inserted = {one["module"] for one in diff["unmatched"] if one["side"] == "b" and one["name"] is None}
            right["names"] = inserted == set(case["inserted"])
        return right
    found = diff["first_divergence"]
    if code != 1 or found is None:
        return {"found": False}
    candidates = events(case)
    return {
        "module": found["module"] in case["culprit"],
        "tensor": any(is_tensor(found, event, case) for event in candidates),
        "step": found["step"] in {event["step"] for event in candidates},
        "phase": is_phase(found, case),
        "rank": found["rank"] == candidates[0].get("rank", 0),
    }


def said(case: dict, diff: dict) -> str:
    found = diff["first_divergence"]
    if found is None:
        return "no divergence"
    when = f"step {found['step']}, call {found['call']}, {found['phase']}"
    return f"{found['module'] or '(model)'}: {found['io']} {found['name']}, {when}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=Path("../shared/bugs"))
    parser.add_argument("--case", action="append", help="only these cases")
    parser.add_argument("--keep", type=Path, help="keep the recordings here; those that are there are not made again")
    parser.add_argument("--no-lines", action="store_true", help="do not ask zoom for lines")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("-v", "--verbose", action="store_true", help="the answer of every case")
    arguments = parser.parse_args()
    if not (arguments.folder / "cases.json").exists():
        parser.error(f"there is no cases.json in {arguments.folder}")
    cases = json.loads((arguments.folder / "cases.json").read_text())
    if arguments.case:
        cases = [case for case in cases if case["id"] in arguments.case]
    out = arguments.keep or Path(tempfile.mkdtemp(prefix="tenscope-bugs-"))

    def examine(case: dict) -> tuple[dict, dict[str, bool], str]:
        try:
            for variant in ("ref", "bug"):
                if not (out / case["id"] / variant / "run.json").exists():
                    record(arguments.folder, case["id"], variant, out)
            code, diff = compare(case["id"], out)
            answers, words = judge(case, code, diff), said(case, diff)
            if not arguments.no_lines and "lines" in case:
                is_line, place = find_line(case, out)
                lines.setdefault(case["line_scope"], []).append(is_line)
                words += f"\n       line {'right' if is_line else 'WRONG'}: {place}"
            return case, answers, words
        except RuntimeError as error:
            return case, {"ran": False}, str(error)

    lines: dict[str, list[bool]] = {}
    right = false_alarms = 0
    with ThreadPoolExecutor(arguments.jobs) as pool:
        for case, answers, words in pool.map(examine, cases):
            is_right = all(answers.values())
            right += is_right
            false_alarms += case["expect"] in HARMLESS and not answers.get("harmless", False)
            wrong = ", ".join(name for name, answer in answers.items() if not answer)
            print(
                f"{'right' if is_right else 'WRONG'}  {case['id']:28} {wrong and 'not ' + wrong}".rstrip(), flush=True
            )
            if arguments.verbose or not is_right or "line WRONG" in words:
                print(f"       {words}")
    print(f"{right} of {len(cases)} right ({100 * right / max(1, len(cases)):.0f} %), {false_alarms} false alarms")
    if lines:
        every = [each for found in lines.values() for each in found]
        by_scope = ", ".join(f"{scope} {sum(found)} of {len(found)}" for scope, found in sorted(lines.items()))
        print(f"lines: {sum(every)} of {len(every)} right ({by_scope})")
    if arguments.keep is None:
        shutil.rmtree(out)
    return 0 if right >= 0.95 * len(cases) and false_alarms == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
