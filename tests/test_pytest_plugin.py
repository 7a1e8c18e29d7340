"""The pytest plugin, in tests that pytester runs: references are recorded, held, renewed, and small."""

import contextlib
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tenscope

with contextlib.suppress(ImportError):
    import torch  # noqa: F401  (pytester forgets what is first imported in a test of its own; torch cannot come twice)

pytest_plugins = "pytester"

TESTS = """
import json
import numpy as np
import pytest
import tenscope

SETTINGS = json.load(open("settings.json"))

def layer(x):
    return x * np.float32(SETTINGS["factor"])

@pytest.mark.parametrize("width", [4, 256])
def test_layers(tenscope_reference, width):
    x = np.random.default_rng(0).standard_normal((64, width)).astype(np.float32)
    for _ in range(2):
        x = layer(x)
        tenscope.record("x", x)          # the test's run is the current one
        tenscope_reference.step()
    tenscope_reference.record("mean", float(x.mean()))

def test_without_one():
    assert True
"""


@pytest.fixture
def project(pytester):
    pytester.makepyfile(test_model=TESTS)

    def run(*options, **settings):
        settings = {"factor": 0.5, **settings}
        Path("settings.json").write_text(json.dumps(settings))
        return pytester.runpytest("-p", "no:cacheprovider", "-o", "addopts=", *options)

    return run


def files():
    return {path: path.read_bytes() for path in Path("tenscope_references").rglob("*") if path.is_file()}


def test_a_reference_is_recorded_held_and_renewed(project):
    missing = project()
    missing.assert_outcomes(passed=1, failed=2)
    place = "reference: tenscope_references/test_model/test_layers-4-*"
    missing.stdout.fnmatch_lines(["the test has no reference yet", place])
    assert not Path("tenscope_references").exists()

    first = project("--tenscope-update")
    first.assert_outcomes(passed=3)
    first.stdout.fnmatch_lines(["tenscope references: 2 recorded"])
    recorded = files()
    assert {path.name for path in recorded} == {"run.json", "journal.jsonl"}, "statistics only"
    assert sum(map(len, recorded.values())) < 20_000

    again = project()
    again.assert_outcomes(passed=3)
    assert "tenscope references" not in again.stdout.str()
    project("--tenscope-update").stdout.fnmatch_lines(["tenscope references: 2 unchanged"])
    assert files() == recorded, "what is as it was stays as it is"

    changed = project(factor=0.51)
    changed.assert_outcomes(passed=1, failed=2)
    changed.stdout.fnmatch_lines(
        [
            "the test departs from its reference",
            "first divergence: x (step 0, call 0)",
            "*by sketch: rel. L2 about 2.0e-02*",
            "reference: tenscope_references/test_model/test_layers-*",
            'if it is meant to: pytest --tenscope-update "test_model.py::test_layers?4?"',
        ]
    )
    assert "reference.py" not in changed.stdout.str(), "the report alone, no traceback of ours"
    project("--tenscope-update", factor=0.51).stdout.fnmatch_lines(["tenscope references: 2 renewed"])
    project(factor=0.51).assert_outcomes(passed=3)
    project(factor=0.51 * (1 + 1e-7)).assert_outcomes(passed=3)


def test_markers_say_how_to_record_and_compare(pytester):
    pytester.makepyfile(
        """
        import numpy as np, os, pytest, tenscope
        NOISE = 1e-7 if "NOISE" in os.environ else 0

        @pytest.mark.tenscope(values="full", bitwise=True)
        def test_bits(tenscope_reference):
            tenscope.record("x", np.linspace(0, 1, 100, dtype=np.float32) * np.float32(1 + NOISE))

        @pytest.mark.tenscope(tolerance=0.5)
        def test_rough(tenscope_reference):
            tenscope.record("x", np.linspace(0, 1, 100) * (1 + 1e6 * NOISE))

        def test_nothing(tenscope_reference):
            pass

        def test_name(tenscope_reference):
            tenscope.record("new_name" if NOISE else "name", "text")

        def test_own_failure(tenscope_reference):
            assert not NOISE
        """
    )
    options = ["-p", "no:cacheprovider", "-o", "addopts="]
    first = pytester.runpytest("--tenscope-update", *options)
    first.assert_outcomes(passed=3, failed=2)
    first.stdout.fnmatch_lines(["*but it recorded nothing"])
    (kept,) = pytester.path.rglob("test_bits")
    assert np.array_equal(tenscope.open(kept)["x", 0], np.linspace(0, 1, 100, dtype=np.float32))
    pytester._monkeypatch.setenv("NOISE", "1")
    second = pytester.runpytest(*options)
    second.assert_outcomes(passed=1, failed=4)
    second.stdout.fnmatch_lines(["*equal within tolerance: only rounding noise*", "*assert not*"])


def test_a_model_is_traced(pytester):
    pytest.importorskip("torch")
    pytester.makepyfile(
        """
        import torch

        def test_model(tenscope_reference):
            torch.manual_seed(0)
            model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 2))
            with tenscope_reference.trace(model, grads=True):
                model(torch.randn(4, 8)).sum().backward()
        """
    )
    pytester.runpytest("--tenscope-update", "-o", "addopts=").assert_outcomes(passed=1)
    names = tenscope.open(pytester.path / "tenscope_references" / "test_a_model_is_traced" / "test_model").names()
    assert {"1.output", "2.grad_output.0"} <= set(names)
    pytester.runpytest("-o", "addopts=").assert_outcomes(passed=1)


def test_whoever_does_not_use_it_does_not_import_tenscope(tmp_path):
    (tmp_path / "test_plain.py").write_text(
        "import sys\ndef test_plain():\n"
        "    assert 'tenscope_pytest' in sys.modules\n"
        "    assert not [name for name in sys.modules if name == 'tenscope' or name.startswith('tenscope.')]\n"
        "    assert 'numpy' not in sys.modules\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:hypothesispytest", "test_plain.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0 and re.search("1 passed", done.stdout), done.stdout
