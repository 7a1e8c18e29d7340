"""A few programs of bench/layouts, recorded and compared: `make layouts` does all of them."""

import importlib
from pathlib import Path

import pytest
import warm_start

pytest.importorskip("torch")
BENCH = Path(__file__).parent.parent / "bench" / "layouts"


@pytest.fixture
def bench(monkeypatch):
    """Imports a module of the benchmark."""
    monkeypatch.syspath_prepend(BENCH)
    return importlib.import_module


class Merged(warm_start.Program):
    """Errors go where the output goes."""

    def communicate(self, timeout=None):
        return "".join(super().communicate(timeout)), None


@pytest.mark.timeout(900)
def test_layouts_are_silent_and_mistakes_are_named(tmp_path, bench, monkeypatch, capsys):
    run = bench("run")
    monkeypatch.setattr(run, "start", lambda command, env: warm_start.start(command[1:], env=env, kind=Merged))
    layouts = ("accum2", "ddp2", "fsdp2", "mega2", "pp2", "cp_zigzag2")
    mistakes = ("ddp2.same_batch", "mega2.no_reduce", "pp2.stale")
    only = [word for name in (*layouts, *mistakes) for word in ("--only", name)]
    assert run.main(["--out", str(tmp_path), "--jobs", "2", *only]) == 0, capsys.readouterr().out


def test_each_mistake_is_one_of_a_layout(bench):
    cases = bench("cases")
    assert len({layout.name for layout in cases.LAYOUTS}) == len(cases.LAYOUTS) >= 8
    assert len({mistake.name for mistake in cases.MISTAKES}) == len(cases.MISTAKES) >= 20
    assert all(mistake.layout in cases.BY_NAME and mistake.modules for mistake in cases.MISTAKES)
    assert all((BENCH / layout.program).exists() for layout in cases.LAYOUTS)
