"""python -m tenscope VERB …: the command line, also where its program is not on PATH."""

import os
import shutil
import sys
import sysconfig


def main() -> None:
    if sys.argv[1:2] == ["run"]:
        os.execv(sys.executable, [sys.executable, "-m", "tenscope.run", *sys.argv[2:]])
    beside = os.path.join(sysconfig.get_path("scripts"), "tenscope")
    program = beside if os.access(beside, os.X_OK) else shutil.which("tenscope")
    if program is None:
        sys.exit(f"tenscope: the command line program is not installed: {beside}")
    os.execv(program, [program, *sys.argv[1:]])


if __name__ == "__main__":
    main()
