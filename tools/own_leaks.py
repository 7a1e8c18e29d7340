"""Picks out of LeakSanitizer's reports the leaks that our own code made; exits 1 where there are some.

    own_leaks.py FOLDER SUPPRESSIONS

A leak is ours where a frame of the extension (_core) stands on its stack nearer to the allocation than the first frame
of the interpreter's loop: the block was made by our code, or by what our code called, and not by Python code that runs
above or below it. A line of SUPPRESSIONS names a part of a frame that acquits a leak.
"""

import collections
import pathlib
import re
import sys

_INTERPRETER = re.compile(
    r"_PyEval_|PyEval_EvalCode|_PyFunction_Vectorcall|PyImport_Import|PyImport_Exec|PyModule_Exec"
)
_OURS = re.compile(r"_core\.[\w.-]*\.so|/python/(bindings|tracer)/|/src/(core|kernels|format|store|compare|report)/")
_LEAK = re.compile(r"^(Direct|Indirect) leak of (\d+) byte\(s\) in (\d+) object\(s\)")


def leaks(text):
    """(direct, bytes, objects, frames) of each leak of a report."""
    for block in re.split(r"\n\s*\n", text):
        lines = block.strip().splitlines()
        for start, line in enumerate(lines):
            if found := _LEAK.match(line):
                frames = [frame.strip() for frame in lines[start + 1 :] if frame.strip().startswith("#")]
                yield found[1] == "Direct", int(found[2]), int(found[3]), frames
                break


def is_ours(frames):
    for frame in frames:
        if _OURS.search(frame):
            return True
        if _INTERPRETER.search(frame):
            return False
    return False


def main():
    folder, suppressions = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    acquitting = [line for line in suppressions.read_text().splitlines() if line and not line.startswith("#")]
    reports = sorted(folder.iterdir())
    found, others = collections.Counter(), 0
    for report in reports:
        for direct, size, count, frames in leaks(report.read_text(errors="replace")):
            ours = direct and is_ours(frames) and not any(part in frame for part in acquitting for frame in frames)
            others += 0 if ours else size
            if ours:
                stack = "\n".join(re.sub(r"^(#\d+) 0x[0-9a-f]+ ", r"\1 ", frame) for frame in frames[:15])
                found[stack] += count
    print(f"{len(reports)} processes left leaks behind; {others / 2**20:.1f} MB are not ours")
    for stack, count in found.most_common():
        print(f"\nour code leaked {count} objects, made at\n{stack}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
