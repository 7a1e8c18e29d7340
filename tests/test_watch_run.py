"""Changes as events of a run, on the terminal, and beside other tracers."""

# ruff: noqa: B007  (what is assigned is watched)

import io
import json
import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import tenscope
from tenscope import watch, watching


@pytest.fixture
def run(tmp_path):
    tenscope.init(tmp_path / "runs")
    yield lambda: (tenscope.close(), tenscope.open(tmp_path / "runs"))[1]
    tenscope.close()


def journal(tmp_path):
    (file,) = (tmp_path / "runs").glob("*/rank-0/journal.jsonl")
    return [json.loads(line) for line in file.read_text().rstrip("\0").splitlines()]


def test_events(run, tmp_path):
    @watch("loss", "w")
    def train():
        w = np.zeros(4, np.float32)
        loss = 1.0
        for i in range(2):
            w[i] = 1
            loss = loss / 2
        return loss

    train()
    run()
    events = [e for e in journal(tmp_path) if e["kind"] == "change"]
    first = train.__code__.co_firstlineno
    losses = [(e["value"], e["meta"]["line"] - first, e["meta"].get("old")) for e in events if e["name"] == "loss"]
    assert losses == [(1.0, 3, None), (0.5, 6, 1.0), (0.25, 6, 0.5)]
    tensors = [e for e in events if e["name"] == "w"]
    assert [e["tensor"]["stats"]["mean"] for e in tensors] == [0, 0.25, 0.5]
    assert all(e["scope"].endswith("train") and e["io"] == "local" for e in events)
    assert events[0]["site"].endswith(f"test_watch_run.py:{first + 2}")
    assert len(train.changes) == len(events)


def test_values_stats_and_left_out(run, tmp_path):
    @watch("w", "i", values="stats", max_changes=3)
    def f():
        w = np.ones(100)
        for i in range(5):
            pass
        return w, i

    f()
    run()
    events = journal(tmp_path)
    (tensor,) = [e["tensor"] for e in events if e.get("name") == "w"]
    assert "at" not in tensor and tensor["stats"]["mean"] == 1
    (dropped,) = [e for e in events if e["kind"] == "dropped"]
    assert dropped["value"] == 3 and f.changes.left_out == 3


def test_printed():
    out = io.StringIO()

    @watch("x", "t", show=out)
    def f(x):
        x = x + 1
        t = np.zeros((2, 2))
        t = t.astype(np.float32)[0]
        t[0] = np.nan
        return x

    f(1)
    text = out.getvalue()
    assert "at entry  x: 1" in text and "x = x + 1" in text and "x: 1 → 2" in text
    assert "other shape, dtype" in text and "NAN 1" in text and "\033" not in text


def test_printed_in_colour(monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.delenv("NO_COLOR", raising=False)
    out = io.StringIO()

    @watch("x", "t", show=out)
    def f():
        x = 1.0
        x = float("inf")
        t = np.zeros((2, 2))
        t = t[0]
        t[0] = np.nan
        return x

    f()
    text = out.getvalue()
    assert "1.0 → \033[31minf\033[0m" in text and "\033[33m  other shape\033[0m" in text
    assert "→ \033[31mfloat64[2] NAN 1" in text


@pytest.mark.parametrize("core", ["ctrace", "pytrace", "sysmon"])
def test_beside_coverage(tmp_path, core):
    pytest.importorskip("coverage")
    if core == "sysmon" and sys.version_info < (3, 12):
        pytest.skip("sys.monitoring came with Python 3.12")
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(
            """
            import coverage, sys
            from tenscope import watch, watching

            cov = coverage.Coverage(data_file=None, include=[__file__])
            cov.start()
            tracer = sys.gettrace()

            @watch("x")
            def f(n):
                x = 0
                for i in range(n):
                    x += helper(i)
                return x

            def helper(i):
                y = i
                if y > 100:
                    y = "never"
                return y

            def block():
                z = 1
                with watching("z") as seen:
                    z = 2
                z = 3
                return seen

            f(3)
            seen = block()
            assert sys.gettrace() is tracer
            cov.stop()
            _, statements, excluded, missing, _ = cov.analysis2(__file__)
            assert [c.new for c in f.changes] == [0, 1, 3], list(f.changes)
            assert [c.new for c in seen.changes] == [1, 2], list(seen.changes)
            bodies = {line for g in (f, helper, block) for _, _, line in g.__code__.co_lines()} - {
                g.__code__.co_firstlineno for g in (f, helper, block)
            }
            assert bodies & set(missing) == {helper.__code__.co_firstlineno + 3}, missing
            print("ok", cov._collector.tracer_name())
            """
        )
    )
    done = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "COVERAGE_CORE": core},
    )
    tracer = {"ctrace": "CTracer", "pytrace": "PyTracer", "sysmon": "SysMonitor"}[core]
    assert done.stdout.strip() == f"ok {tracer}", done.stdout + done.stderr


def test_beside_pdb(tmp_path):
    debugged = tmp_path / "debugged.py"
    debugged.write_text(
        textwrap.dedent(
            """
            from tenscope import watch

            @watch("x")
            def f():
                x = 1
                x = 2
                breakpoint()
                x = 3
                x = 4
                return x

            f()
            print("seen", [c.new for c in f.changes])
            """
        )
    )
    done = subprocess.run(
        [sys.executable, str(debugged)], input="n\nn\np x\nc\n", capture_output=True, text=True, timeout=120
    )
    assert "seen [1, 2, 3, 4]" in done.stdout, done.stdout + done.stderr
    assert "(Pdb) 4" in done.stdout or "(Pdb) 3" in done.stdout

    done = subprocess.run(  # the whole program under the debugger, stopping inside
        [sys.executable, "-m", "pdb", "-c", "b 8", "-c", "c", "-c", "p x", "-c", "c", "-c", "q", str(debugged)],
        input="c\nc\nq\n",
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "seen [1, 2, 3, 4]" in done.stdout, done.stdout + done.stderr


def test_results_are_the_same_with_and_without():
    def f(n):
        rng = np.random.default_rng(0)
        w = rng.normal(size=(50, 50))
        for _ in range(n):
            w = np.tanh(w @ w.T / 50)
            w += 0.01
        return w

    plain = f(5)
    watch("w", "w[3]", "n")(f)
    assert f(5).tobytes() == plain.tobytes()


def test_torch_ladder():
    torch = pytest.importorskip("torch")

    @watch("t", "p", trust_version=False)
    def f():
        t = torch.zeros(1000)
        t.data[500] = 1
        view = t.numpy()
        view[3] = 2
        t += 1
        t = t.clone()
        t = t.double()
        p = torch.nn.Parameter(torch.ones(2))
        with torch.no_grad():
            p.mul_(2)
        return t

    f()
    first = f.__code__.co_firstlineno
    assert [(c.name, c.line - first) for c in f.changes] == [
        ("t", 2),
        ("t", 3),
        ("t", 5),
        ("t", 6),
        ("t", 8),
        ("p", 9),
        ("p", 11),
    ]

    @watch("t", trust_version=True)
    def g():
        t = torch.zeros(4)
        t.add_(1)
        t.data[0] = 9
        t = None
        t = torch.zeros(4)
        return t

    g()
    assert [c.line - g.__code__.co_firstlineno for c in g.changes] == [2, 3, 5, 6]

    bn = torch.nn.BatchNorm1d(3)

    @watch("self.*", "out")
    def forward(self, x):
        out = self(x)
        return out

    forward(bn, torch.randn(8, 3))
    names = [c.name for c in forward.changes]
    assert names.count("self.running_mean") == 2 and names.count("self.weight") == 1
    assert {"self.bias", "self.running_var", "out"} <= set(names)


def test_module_level_block(tmp_path):
    script = tmp_path / "top.py"
    script.write_text(
        "from tenscope import watching\nx = 1\n"
        "with watching('x') as w:\n    x = 2\n    x = 3\nprint([c.new for c in w.changes])\n"
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "[1, 2, 3]", done.stderr
    assert watching is not None
