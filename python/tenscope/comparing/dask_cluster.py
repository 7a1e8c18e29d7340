"""tenscope diff --dask: compares two runs on a Dask cluster. The program that asked for it gets what was found as
bytes, or, with exit code 2, what went wrong as text.
"""

from __future__ import annotations

import argparse
import os
import sys

from tenscope import _core, remote
from tenscope.comparing import parts
from tenscope.errors import Error


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tenscope diff --dask", description=__doc__)
    parser.add_argument("address")
    parser.add_argument("a")
    parser.add_argument("b")
    parser.add_argument("--map", action="append", default=[])
    parser.add_argument("--tolerance", type=float)
    parser.add_argument("--noise", default="")
    parser.add_argument("--no-noise", dest="noise", action="store_const", const=None)
    parser.add_argument("--prefix", action="store_true")
    parser.add_argument("--progress", action="store_true")
    options = parser.parse_args(argv)
    try:
        sys.stdout.buffer.write(_compare(options).__getstate__())
        return 0
    except (Error, OSError, ValueError) as error:
        sys.stdout.write(str(error))
        return 2


def _compare(options: argparse.Namespace) -> _core.PartialDiff:
    try:
        from distributed import Client
    except ImportError as error:
        raise Error(f"--dask needs the Python package distributed: {error} ({sys.executable})") from error
    with Client(options.address) as client:
        return parts.compare(
            client.get_executor(),
            remote.place_of(options.a),
            remote.place_of(options.b),
            ranks=None,
            map=options.map,
            tolerance=options.tolerance,
            noise=options.noise and os.path.abspath(options.noise),
            prefix=options.prefix,
            progress=_show if options.progress else None,
        )


def _show(done: float) -> None:
    end = "\r" + " " * 40 + "\r" if done >= 1 else ""
    print(f"\r[{'=' * int(30 * done):<30}] {100 * done:3.0f} %", end=end, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
