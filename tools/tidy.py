"""clang-tidy over the sources of a build folder, as many at a time as there are cores.

    tools/tidy.py [--quick] build/debug FILE...

With --quick the static analyser, which takes three quarters of the time, is left out.

A file that was found clean is not looked at again until it, something that it includes, its flags, the checks or
clang-tidy are others: what the preprocessor makes of it is the key of a mark in the user's cache.
"""

import hashlib
import json
import os
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

TIDY = "clang-tidy-19"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tenscope-tidy"


def output_of(*words: str) -> bytes:
    return subprocess.run(words, stdout=subprocess.PIPE, check=True).stdout


def commands_of(build: Path) -> dict[Path, dict]:
    entries = json.loads((build / "compile_commands.json").read_text())
    return {(Path(entry["directory"]) / entry["file"]).resolve(): entry for entry in entries}


def key_of(entry: dict, settings: bytes) -> str:
    words = shlex.split(entry["command"])
    if Path(words[0]).name == "ccache":
        words = words[1:]
    without = {words.index("-o"), words.index("-o") + 1, words.index("-c")}
    words = [word for i, word in enumerate(words) if i not in without]
    text = subprocess.run(
        [*words, "-E", "-P", "-C"], cwd=entry["directory"], stdout=subprocess.PIPE, check=True
    ).stdout
    flags = " ".join(words).replace(os.getcwd(), ".").encode()
    return hashlib.sha256(b"\0".join((settings, flags, text))).hexdigest()


def main() -> int:
    words = sys.argv[1:]
    is_quick = words[:1] == ["--quick"]
    build, *files = words[is_quick:]
    checks = ["--checks=-clang-analyzer-*"] if is_quick else []
    commands = commands_of(Path(build))
    settings = output_of(TIDY, "--version") + Path(".clang-tidy").read_bytes() + " ".join(checks).encode()
    CACHE.mkdir(parents=True, exist_ok=True)

    def look_at(file: str) -> tuple[bool, str]:
        """Whether it was known to be clean, and what is wrong with it."""
        mark = CACHE / key_of(commands[Path(file).resolve()], settings)
        if mark.exists():
            return True, ""
        words = [TIDY, *checks, "-p", build, "--quiet", "--warnings-as-errors=*", file]
        done = subprocess.run(words, capture_output=True, text=True)
        if done.returncode == 0:
            mark.touch()
            return False, ""
        return False, done.stdout + done.stderr

    known = failed = 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for was_known, trouble in pool.map(look_at, files):
            known += was_known
            failed += trouble != ""
            if trouble:
                print(trouble, flush=True)
    print(f"{len(files) - failed} of {len(files)} files are clean, {known} of them since an earlier run")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
