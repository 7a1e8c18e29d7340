"""A few programs of bench/layouts, recorded and compared: `make layouts` does all of them."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
BENCH = Path(__file__).parent.parent / "bench" / "layouts"


@pytest.mark.timeout(900)
def test_layouts_are_silent_and_mistakes_are_named(tmp_path):
    layouts = ("accum2", "ddp2", "fsdp2", "mega2", "pp2", "cp_zigzag2")
    mistakes = ("ddp2.same_batch", "mega2.no_reduce", "pp2.stale")
    only = [word for name in (*layouts, *mistakes) for word in ("--only", name)]
    command = [sys.executable, BENCH / "run.py", "--out", tmp_path, "--jobs", "2", *only]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_mistake_is_one_of_a_layout():
    sys.path.insert(0, str(BENCH))
    try:
        import cases
    finally:
        sys.path.remove(str(BENCH))
    assert len({layout.name for layout in cases.LAYOUTS}) == len(cases.LAYOUTS) >= 8
    assert len({mistake.name for mistake in cases.MISTAKES}) == len(cases.MISTAKES) >= 20
    assert all(mistake.layout in cases.BY_NAME and mistake.modules for mistake in cases.MISTAKES)
    assert all((BENCH / layout.program).exists() for layout in cases.LAYOUTS)
