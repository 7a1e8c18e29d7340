"""A GPT of 10.9M parameters is trained under `tenscope run`, and under `tenscope run --against` a recording of itself:
what a step costs beside the same step alone, in turn with it, and how many bytes are written. The best step of each
run."""

import os
import tempfile
from pathlib import Path

from bench_stats import PROGRAM, ROUNDS, train


def size_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "train.py").write_text(PROGRAM)
        print(f"{'':34} {'clock':>8} {'CPU':>8} {'written':>12}   against the step alone")
        for threads in dict.fromkeys((1, os.cpu_count() or 1)):
            train(folder, threads, [])
            (folder / "run").rename(folder / f"reference-{threads}")
            against = ["--against", str(folder / f"reference-{threads}")]
            best: dict[str, list[float]] = {}
            written: dict[str, int] = {}
            for _ in range(ROUNDS):
                for what, options in (
                    ("alone", None),
                    ("tenscope run", []),
                    ("--stats", ["--stats"]),
                    ("--against", against),
                ):
                    took = train(folder, threads, options)
                    best[what] = [min(pair) for pair in zip(best.get(what, took), took, strict=True)]
                    written[what] = 0 if options is None else size_bytes(folder / "run")
            for what, (clock, cpu) in best.items():
                alone = best["alone"]
                where = f"{what}, {threads} thread{'s' if threads > 1 else ''}"
                ratios = f"{clock / alone[0]:>8.2f} {cpu / alone[1]:>8.2f}"
                print(f"{where:34} {ratios} {written[what] / 1e6:>9.1f} MB   {clock * 1e3:.0f} ms")


if __name__ == "__main__":
    main()
