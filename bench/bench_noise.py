"""How small a mistake is found, with measured noise and without it? And is anything harmless taken for a mistake?

    python bench/bench_noise.py [--quick] [-v]

One small GPT (tests/noise_family.py) is recorded, its noise measured, and compared with rewrites of itself that are all
correct, and with mistakes of which each is made four times smaller until it is no longer found.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

import noise_family
import tenscope
import torch
from forked import record, write_profile

SMALLEST = 4.0**-14


def is_found(base: Path, other: Path, noise: bool) -> bool:
    return bool(tenscope.diff(base, other, noise=noise))


def false_alarms(base: Path, settings: noise_family.Settings, folder: Path) -> tuple[int, int, int]:
    """Rewrites, and how many of them are taken for mistakes: without measured noise, with it."""
    ways = noise_family.harmless(settings.dtype)
    alarms = [0, 0]
    for way in ways:
        other = record(folder / "other", noise_family.train, dataclasses.replace(settings, **way))
        for noise in (False, True):
            alarms[noise] += is_found(base, other, noise)
    return len(ways), *alarms


def smallest_found(base: Path, settings: noise_family.Settings, folder: Path, mistake: str) -> list[float | None]:
    """Without measured noise, with it."""
    smallest: list[float | None] = [None, None]
    delta, still = 0.25, {False, True}
    while still and delta > SMALLEST:
        wrong = dataclasses.replace(settings, mistake=mistake, delta=delta)
        other = record(folder / "other", noise_family.train, wrong)
        for noise in sorted(still):
            if is_found(base, other, noise):
                smallest[noise] = delta
            else:
                still = still - {noise}
        delta /= 4
    return smallest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="float32 and three mistakes only")
    quick = parser.parse_args().quick
    for dtype in (torch.float32,) if quick else (torch.float32, torch.bfloat16):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            settings = noise_family.Settings(dtype=dtype)
            base = record(folder / "base", noise_family.train, settings)
            write_profile(base, noise_family.train, settings)
            rewrites, without, with_noise = false_alarms(base, settings, folder)
            print(f"{dtype}: {rewrites} correct rewrites, false alarms: {without} without, {with_noise} with noise")
            print(f"  {'mistake':12} {'without':>9} {'with':>9} {'ratio':>7}")
            for mistake in list(noise_family.MISTAKES)[: 3 if quick else None]:
                without, found = smallest_found(base, settings, folder, mistake)
                shown = ["-" if x is None else f"{x:.1e}" for x in (without, found)]
                ratio = f"{without / found:.0f}" if without and found else ""
                print(f"  {mistake:12} {shown[0]:>9} {shown[1]:>9} {ratio:>7}", flush=True)


if __name__ == "__main__":
    main()
