"""SIGTERM ends a recorded program as it always would, and its runs are closed in order first."""

import os
import signal
import subprocess
import sys
import time

import pytest
import tenscope

STUCK = {
    "a loop in C that holds the GIL": "sum(range(10**13))",
    "a read in C that holds the GIL": "ctypes.PyDLL(None).read(os.pipe()[0], ctypes.create_string_buffer(1), 1)",
    "a read in C": "os.read(os.pipe()[0], 1)",
    "a loop in Python": "\nwhile True: pass",
    "a thread that is joined": "t = threading.Thread(target=time.sleep, args=(1000,)); t.start(); t.join()",
}

START = """
import ctypes, os, signal, sys, threading, time
import tenscope
"""


class Program:
    """A program that says when it is ready, in a process of its own."""

    def __init__(self, code, *args, **env):
        self.process = subprocess.Popen(
            [sys.executable, "-c", START + code, *map(str, args)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"OPENBLAS_NUM_THREADS": "1"} | env,
        )

    def __enter__(self):
        assert self.process.stdout.readline() == "ready\n", self.process.stderr.read()
        time.sleep(0.3)  # until it is in what follows
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()

    def end(self, timeout=30):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout)


def check_closed(path):
    back = tenscope.open(path)
    assert back["x"] == 1
    assert back.closed and back.state == "failed (SIGTERM)"
    assert tenscope._core.verify(path) == []


@pytest.mark.parametrize("stuck", STUCK)
def test_sigterm_ends_a_program_that_is_stuck(tmp_path, stuck):
    code = f"""
run = tenscope.init(sys.argv[1], name="r")
tenscope.record("x", 1)
print("ready", flush=True)
{STUCK[stuck]}
"""
    with Program(code, tmp_path) as program:
        assert program.end() == -signal.SIGTERM
    check_closed(tmp_path / "r")


def test_the_program_does_not_go_on(tmp_path):
    code = """
tenscope.init(sys.argv[1], name="r")
tenscope.record("x", 1)
print("ready", flush=True)
os.kill(os.getpid(), signal.SIGTERM)
tenscope.record("too late", 1)
print("went on", flush=True)
"""
    with Program(code, tmp_path) as program:
        assert program.process.wait(30) == -signal.SIGTERM
        assert program.process.stdout.read() == ""
    check_closed(tmp_path / "r")
    assert "too late" not in tenscope.open(tmp_path / "r")


@pytest.mark.parametrize("order", ["before", "after"])
@pytest.mark.parametrize("how", ["handler", "ignored"])
def test_the_program_s_own_handler_wins(tmp_path, order, how):
    handler = "lambda *_: (print('mine', flush=True), sys.exit(7))" if how == "handler" else "signal.SIG_IGN"
    set_it = f"signal.signal(signal.SIGTERM, {handler})"
    code = f"""
{set_it if order == "before" else ""}
tenscope.init(sys.argv[1], name="r")
{set_it if order == "after" else ""}
tenscope.record("x", 1)
print("ready", flush=True)
end = time.time() + 1.5
while time.time() < end:
    time.sleep(0.1)
"""
    with Program(code, tmp_path) as program:
        assert program.end() == (7 if how == "handler" else 0)
        assert program.process.stdout.read() == ("mine\n" if how == "handler" else "")
    assert tenscope.open(tmp_path / "r").closed


def test_a_forked_child_closes_its_own_part(tmp_path):
    code = """
tenscope.init(sys.argv[1], name="r")
tenscope.record("x", 1)
child = os.fork()
if child == 0:
    tenscope.record("x", 1)
    print("ready", flush=True)
    sum(range(10**13))
while not any(name.startswith("rank-0.pid") for name in os.listdir(sys.argv[1] + "/r")):
    time.sleep(0.05)
time.sleep(0.5)
os.kill(child, signal.SIGTERM)
_, status = os.waitpid(child, 0)
assert os.WTERMSIG(status) == signal.SIGTERM
tenscope.record("x", 1)
print("ended", flush=True)
sum(range(10**13))
"""
    with Program(code, tmp_path) as program:
        assert program.process.stdout.readline() == "ended\n"
        time.sleep(0.3)
        assert program.end() == -signal.SIGTERM
    check_closed(tmp_path / "r")
    assert [writer.exception for writer in tenscope.open(tmp_path / "r").writers] == ["SIGTERM", "SIGTERM"]


def test_a_fork_finds_no_thread_of_ours(tmp_path):
    code = """
def threads():
    return len(os.listdir("/proc/self/task"))
before = threads()
tenscope.init(sys.argv[1], name="r")
tenscope.record("x", 1)
assert threads() == before + 1
child = os.fork()
if child == 0:
    os._exit(threads() - 1)
at_fork = threads()
assert os.waitpid(child, 0)[1] == 0
assert at_fork == before, (at_fork, before)
tenscope.record("x", 1)
assert threads() == before + 1
print("ready", flush=True)
time.sleep(100)
"""
    with Program(code, tmp_path) as program:
        assert program.end() == -signal.SIGTERM
    check_closed(tmp_path / "r")


def test_without_a_thread_the_signals_stay_as_they_were(tmp_path):
    code = """
import resource
from tenscope import _core
pages = int(open("/proc/self/statm").read().split()[0])
_, most = resource.getrlimit(resource.RLIMIT_AS)
resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + 2_000_000, most))
assert not _core.close_runs_on_sigterm()
assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == set()
assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
if sys.argv[2] == "again":
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    tenscope.init(sys.argv[1], name="r")
    tenscope.record("x", 1)
print("ready", flush=True)
time.sleep(100)
"""
    with Program(code, tmp_path, "again") as program:
        assert program.end() == -signal.SIGTERM
    check_closed(tmp_path / "r")
    with Program(code, tmp_path, "never") as program:
        assert program.end(5) == -signal.SIGTERM
