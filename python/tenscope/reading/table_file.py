"""The command line's hand for Parquet and Arrow files, which pyarrow writes.

`python -m tenscope.reading.table_file RUN OUT [--name=P] [--begin=N] [--end=N] [--call=N] [--rank=N]` warns of the
run's problems, writes a row for each event (nothing where the run has events and none matches) and prints how many
these were. In trouble it prints why, and its exit code is 2.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from typing import Any

from tenscope import _core
from tenscope.errors import Error

_ROW_GROUP = 1 << 17  # while one is written, the next events are read by other threads
_HARDLY_REPEATED = {"seq", "time", "value", "min", "max", "mean", "std", "l2", "abs_max", "fingerprint"}


class _Events:
    """What pyarrow takes for a stream."""

    def __init__(self, reader: _core.Reader, **chosen: Any) -> None:
        self._reader = reader
        self._chosen = chosen

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return _core.arrow_stream(self._reader, requested=requested_schema, **self._chosen)


def write(run: str, out: str, **chosen: Any) -> int:
    try:
        import pyarrow
    except ImportError as error:
        ending = os.path.splitext(out)[1]
        raise ModuleNotFoundError(
            f"a {ending} file is written by pyarrow, which {sys.executable} has not: pip install 'tenscope[arrow]' "
            "(or export to .csv, which needs nothing)"
        ) from error
    reader = _core.Reader(run)
    for warning in _core.run_warnings(reader):
        print(f"tenscope: {warning}", file=sys.stderr)
    events = pyarrow.RecordBatchReader.from_stream(_Events(reader, **chosen))
    draft = f"{out}.{os.getpid()}.partial"
    try:
        rows = (_write_parquet if out.endswith(".parquet") else _write_ipc)(events, draft)
        if rows > 0 or len(reader) == 0:
            os.replace(draft, out)
    finally:
        if os.path.exists(draft):
            os.remove(draft)
    return rows


def _write_parquet(events: Any, path: str) -> int:
    import pyarrow
    from pyarrow import parquet

    rows = 0
    coded = [name for name in events.schema.names if name not in _HARDLY_REPEATED]
    with parquet.ParquetWriter(path, events.schema, compression="snappy", use_dictionary=coded) as writer:
        waiting: list[Any] = []
        for batch in events:
            waiting.append(batch)
            rows += len(batch)
            if sum(map(len, waiting)) >= _ROW_GROUP:
                writer.write_table(pyarrow.Table.from_batches(waiting), row_group_size=_ROW_GROUP)
                waiting = []
        if waiting:
            writer.write_table(pyarrow.Table.from_batches(waiting))
    return rows


def _write_ipc(events: Any, path: str) -> int:
    import pyarrow

    rows = 0
    with pyarrow.OSFile(path, "wb") as file, pyarrow.ipc.new_file(file, events.schema) as writer:
        for batch in events:
            writer.write_batch(batch)
            rows += len(batch)
    return rows


def main(arguments: list[str]) -> int:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # the program has been told as well
    parser = argparse.ArgumentParser()
    parser.add_argument("run")
    parser.add_argument("out")
    parser.add_argument("--name", default="")
    for option in ("--begin", "--end", "--call", "--rank"):
        parser.add_argument(option, type=int)
    try:
        print(write(**vars(parser.parse_args(arguments))), end="")
    except (Error, ImportError, OSError) as error:
        print(error, end="")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
