"""How a program ended is in its run: the exception nobody caught, or the code it exited with."""

import json
import sys

import pytest
import tenscope
from launched import notes, start, tenscope_run, write


def endings(folder):
    return [(e.name, e.value, e.meta) for e in notes(tenscope.open(folder), "exception", "exit")]


def test_a_block_that_an_exception_leaves(tmp_path):
    def deep():
        return json.loads("{")  # raised inside the standard library: the site is here

    with pytest.raises(ValueError), tenscope.Run(tmp_path, name="run"):
        deep()
    line = deep.__code__.co_firstlineno + 1
    ((name, value, meta),) = endings(tmp_path / "run")
    assert name == "exception" and value == f"JSONDecodeError: {meta['message']}"
    assert meta["class"] == "JSONDecodeError" and meta["site"].endswith(f"test_endings.py:{line}")


class Mute(Exception):
    def __str__(self):
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ValueError("äöü \ud800"), "ValueError: äöü"),
        (KeyError("x"), "KeyError: 'x'"),
        (ValueError(), "ValueError"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (Mute(), "Mute: <its message could not be made: RuntimeError>"),
    ],
)
def test_any_exception(tmp_path, error, expected):
    with pytest.raises(type(error)), tenscope.Run(tmp_path, name="run"):
        raise error
    ((name, value, meta),) = endings(tmp_path / "run")
    assert name == "exception" and value.startswith(expected) and meta["class"] == type(error).__name__


@pytest.mark.parametrize("code", [None, 0, 1, 3, "gone wrong"])
def test_exit_codes_of_a_block(tmp_path, code):
    with pytest.raises(SystemExit), tenscope.Run(tmp_path, name="run"):
        sys.exit(code)
    if code in (None, 0):
        assert endings(tmp_path / "run") == []
    else:
        ((name, value, meta),) = endings(tmp_path / "run")
        assert (name, value, meta["exit_code"]) == ("exit", *[code if isinstance(code, int) else 1] * 2)
        assert meta.get("message") == (code if isinstance(code, str) else None)


def test_a_generator_that_is_not_exhausted_has_not_failed(tmp_path):
    def steps():
        with tenscope.Run(tmp_path, name="run") as run:
            for i in range(3):
                run.record("i", i)
                yield i

    for _ in steps():
        break
    assert endings(tmp_path / "run") == [] and tenscope.open(tmp_path / "run").closed


RAISES = """
import tenscope
{hook}
tenscope.init(name="run").record("x", 1)
def work():
    raise ValueError("boom")
work()
"""

HOOK = """
import sys
sys.excepthook = lambda kind, error, trace: print("hooked", error, file=sys.stderr)
"""


@pytest.mark.parametrize("hook", ["", HOOK], ids=["plain", "hooked"])
@pytest.mark.parametrize("how", ["python", "module", "tenscope run"])
def test_an_exception_that_nobody_caught(tmp_path, how, hook):
    path = write(tmp_path, RAISES.format(hook=hook))
    plain = start(tmp_path, write(tmp_path, RAISES.format(hook=hook), "plain.py"))
    ours = ["-m", "tenscope.run", "--name", "run", path]
    words = {"python": [path], "module": ["-m", "script"], "tenscope run": ours}
    (tmp_path / "runs" / "run").rename(tmp_path / "runs" / "plain")
    done = start(tmp_path, *words[how])
    assert done.returncode == plain.returncode == 1
    shown = done.stderr.replace("script.py", "plain.py")
    assert shown == plain.stderr if how != "module" else shown.endswith(plain.stderr.splitlines()[-1] + "\n")
    line = RAISES.format(hook=hook).splitlines().index('    raise ValueError("boom")') + 1
    assert endings(tmp_path / "runs" / "run") == [
        (
            "exception",
            "ValueError: boom",
            {"class": "ValueError", "message": "boom", "site": f"script.py:{line}"},
        )
    ]
    assert tenscope.open(tmp_path / "runs" / "run").closed


@pytest.mark.parametrize(
    ("text", "ending"),
    [
        ("import sys\nsys.exit(3)", ("exit", 3)),
        ("raise SystemExit('sorry')", ("exit", 1)),
        ("import sys\nsys.exit()", None),
        ("def broken(:", ("exception", "SyntaxError: ")),
        ("raise KeyboardInterrupt", ("exception", "KeyboardInterrupt")),
        ("1 / 0", ("exception", "ZeroDivisionError: division by zero")),
    ],
)
def test_tenscope_run_of_programs_without_torch(tmp_path, text, ending):
    path = write(tmp_path, text)
    done = tenscope_run(tmp_path, "--name", "run", path)
    plain = start(tmp_path, path)
    assert (done.returncode, done.stderr) == (plain.returncode, plain.stderr)
    found = endings(tmp_path / "runs" / "run")
    if ending is None:
        assert found == []
    else:
        ((name, value, meta),) = found
        assert name == ending[0] and (value == ending[1] or str(value).startswith(str(ending[1])))
        assert meta["site"] == f"script.py:{len(text.splitlines())}"


def test_an_exit_code_after_an_exception_names_it(tmp_path):
    text = "import sys\ntry:\n    1 / 0\nexcept ArithmeticError:\n    sys.exit(4)"
    tenscope_run(tmp_path, "--name", "run", write(tmp_path, text))
    ((name, value, meta),) = endings(tmp_path / "runs" / "run")
    assert (name, value, meta["after"]) == ("exit", 4, "ZeroDivisionError: division by zero")


def test_a_thread_that_an_exception_ends(tmp_path):
    text = """
import threading, tenscope
threading.excepthook = lambda args: print("seen", args.exc_value)
tenscope.init(name="run").record("x", 1)
def work():
    raise ValueError("in a thread")
thread = threading.Thread(target=work, name="worker")
thread.start()
thread.join()
"""
    done = start(tmp_path, write(tmp_path, text))
    assert done.returncode == 0 and done.stdout == "seen in a thread\n" and done.stderr == ""
    ((name, value, meta),) = endings(tmp_path / "runs" / "run")
    assert (name, value, meta["thread"]) == ("exception", "ValueError: in a thread", "worker")


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.parametrize("opens", ["before", "inside"])
def test_a_process_that_an_exception_ends(tmp_path, method, opens):
    text = f"""
import multiprocessing, os, tenscope
def work():
    if {opens == "inside"}:
        tenscope.init(name="run", rank=1, world_size=2)
    tenscope.record("x", 2)
    raise ValueError("in a process")
if __name__ == "__main__":
    os.environ["TENSCOPE_RUN"] = "runs/run"
    tenscope.init(name="run", rank=0, world_size=2).record("x", 1)
    process = multiprocessing.get_context({method!r}).Process(target=work)
    process.start()
    process.join()
    assert process.exitcode == 1
"""
    if opens == "inside" and sys.version_info >= (3, 13):
        pytest.skip("multiprocessing handles the exception before anything that runs at exit can see it")
    if (method, opens) == ("spawn", "before"):
        pytest.skip("a spawned process has no run before it opens one")
    done = start(tmp_path, write(tmp_path, text))
    assert done.returncode == 0, done.stderr
    ((name, value, meta),) = endings(tmp_path / "runs" / "run")
    assert (name, value) == ("exception", "ValueError: in a process") and meta["site"] == "script.py:7"


def test_a_test_runner_that_caught_the_exception_has_not_failed(tmp_path):
    """pytest leaves sys.last_value behind for what it caught."""
    text = """
import tenscope
tenscope.init(name="run").record("x", 1)
def test_it():
    assert 1 == 2
"""
    done = start(tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider", write(tmp_path, text, "test_it.py"))
    assert done.returncode == 1 and "assert 1 == 2" in done.stdout
    assert endings(tmp_path / "runs" / "run") == []


def test_what_the_interpreter_has_of_a_caught_one_does_not_count(tmp_path):
    text = """
import code, tenscope
tenscope.init(name="run").record("x", 1)
console = code.InteractiveConsole()
console.push("1 / 0")  # a shell shows it, sets sys.last_value and goes on
"""
    done = start(tmp_path, write(tmp_path, text))
    assert done.returncode == 0 and "ZeroDivisionError" in done.stderr
    assert endings(tmp_path / "runs" / "run") == []


def test_the_run_keeps_no_reference_to_the_exception(tmp_path):
    import gc
    import weakref

    class Big:
        pass

    with pytest.raises(ValueError), tenscope.Run(tmp_path, name="run") as run:
        big = Big()
        watched = weakref.ref(big)
        raise ValueError("with something in its frame")
    del big
    gc.collect()
    assert run.closed and watched() is None
