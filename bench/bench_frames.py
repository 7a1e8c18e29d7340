"""A run of 1,000,000 events (a transformer's: eight of ten are tensors) as a table: to Arrow, to pandas, to Parquet.

Against the same from Python objects, which pandas or pyarrow make into columns, over a tenth of the events, and against
pyarrow that writes the table from memory. Opening the run is part of each time. The best of three rounds, in turn.
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import tenscope

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from hand_written_run import sealed

EVENTS, PART, ROUNDS = 1_000_000, 10, 3


def write_run(folder, count):
    (folder / "rank-0").mkdir(parents=True)
    run = {"tenscope_format": 1, "started_ns": 1_700_000_000 * 10**9, "command": ["train.py"]}
    (folder / "run.json").write_bytes(sealed(json.dumps(run, separators=(",", ":"))))
    with open(folder / "rank-0" / "journal.jsonl", "wb") as journal:
        for i in range(count):
            event = {"seq": i, "t": 1_700_000_000 * 10**9 + i * 1000, "th": 4312, "kind": "value"}
            if i % 10 == 9:
                event |= {"kind": "step", "step": i // 100 + 1}
            elif i % 10 == 8:
                event |= {"name": "loss", "step": i // 100, "call": 0, "site": "train.py:41", "value": 1 / (i + 3)}
            else:
                stats = {
                    "min": -3 - 1 / (i + 7),
                    "max": 3 + 1 / (i + 9),
                    "mean": 1e-3 / (i + 1),
                    "std": 1 + 1 / (i + 11),
                }
                stats |= {"l2": 256 + 1 / (i + 5), "absmax": 3 + 1 / (i + 9), "zero": i % 17 + 1}
                block = f"blocks.{i // 10 % 12}.attn"
                event |= {
                    "name": f"{block}.{'qkvo'[i % 4]}", "step": i // 100, "call": 0, "site": f"model.py:{i % 10 + 20}",
                    "scope": block, "io": "output", "phase": "forward", "root": "GPT#0", "class": "Attention",
                    "tensor": {"dtype": "bfloat16", "shape": [8, 128, 64], "stats": stats,
                        "fp": f"{hash((i, 1)) % 2**128:032x}",
                    },
                }  # fmt: skip
            journal.write(sealed(json.dumps(event, separators=(",", ":"))))


def objects(run):
    """A dict for each event."""
    names = ("rank", "writer", "seq", "time_ns", "step", "call", "kind", "name", "dtype", "shape", "device", "stored")
    words = ("fingerprint", "io", "scope", "phase", "root", "cls", "site", "thread", "task")
    for event in tenscope.open(run):
        row = {name: getattr(event, name) for name in (*names, *words)}
        stats = event.stats
        row["value"] = None if event.is_tensor else event.value
        yield row | (vars(stats) if stats is not None else {})


def export(run, out):
    subprocess.run([sys.executable, "-m", "tenscope", "export", run, out], check=True, stdout=subprocess.DEVNULL)


def to_pandas(run):
    import pandas

    return pandas.DataFrame(list(objects(run)))


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_run(folder / "run", EVENTS)
        write_run(folder / "part", EVENTS // PART)
        table = pa.table(tenscope.open(folder / "run"))
        assert len(table) == EVENTS
        works = {
            "open": (lambda: tenscope.open(folder / "run"), 1),
            "pyarrow.table(run)": (lambda: pa.table(tenscope.open(folder / "run")), 1),
            "run.frame()": (lambda: tenscope.open(folder / "run").frame(), 1),
            "export events.parquet": (lambda: export(folder / "run", folder / "a.parquet"), 1),
            "export events.csv": (lambda: export(folder / "run", folder / "a.csv"), 1),
            "pyarrow writes Parquet from memory": (lambda: pa.parquet.write_table(table, folder / "b.parquet"), 1),
            "objects to pyarrow": (lambda: pa.Table.from_pylist(list(objects(folder / "part"))), PART),
            "objects to pandas": (lambda: to_pandas(folder / "part"), PART),
        }
        best = dict.fromkeys(works, float("inf"))
        for _ in range(ROUNDS):
            for what, (work, times) in works.items():
                begin = time.perf_counter()
                work()
                best[what] = min(best[what], (time.perf_counter() - begin) * times)
        for what, seconds in best.items():
            print(f"{what:40}{seconds:8.2f} s for {EVENTS} events")
        for ours, peer in [
            ("pyarrow.table(run)", "objects to pyarrow"),
            ("run.frame()", "objects to pandas"),
            ("export events.parquet", "pyarrow writes Parquet from memory"),
        ]:
            print(f"{ours}: {best[ours] / best[peer]:.3f} x {peer}")


if __name__ == "__main__":
    main()
