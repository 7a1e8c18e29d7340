"""The debugger of `run --against --pdb` by itself, without torch: pdb is another in each Python."""

import subprocess
import sys

import pytest

PROGRAM = """
import sys
from tenscope.launch.debugger import debug

def inner(x):
    y = x + 1
    debug([1, 2], [1, 3], lambda: sys.exit(7))
    z = y * 2
    return z

def outer():
    a = 5
    r = inner(a)
    print("result", r)
    return r

outer()
print("end")
"""


@pytest.fixture
def debugged(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)

    def run(*lines):
        text = "\n".join([*lines, ""])
        command = [sys.executable, tmp_path / "program.py"]
        done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=60)
        return done.returncode, done.stdout.split("(tenscope) ")[1:], done.stderr

    return run


def test_both_values_are_at_hand_beside_the_frame(debugged):
    code, said, _ = debugged("a", "b", "a[0] + x", "p b", "b == a", "n", "n", "p z", "c")
    assert [each.strip() for each in said[:5]] == ["[1, 2]", "[1, 3]", "6", "[1, 3]", "False"]
    assert "-> z = y * 2" in said[5] and "-> return z" in said[6] and said[7] == "12\n"
    assert said[8] == "result 12\nend\n" and code == 0


def test_frames_above_and_breakpoints(debugged):
    code, said, _ = debugged("u", "a", "p frame", "b 15", "c", "p r", "q")
    assert "-> r = inner(a)" in said[0] and said[1] == "[1, 2]\n"  # a is the reference's also where the program has one
    assert "NameError" in said[2] and "Breakpoint 1" in said[3]
    assert "result 12" in said[4] and "-> return r" in said[4] and said[5] == "12\n"
    assert code == 7


def test_a_mistake_in_what_is_typed(debugged):
    code, said, _ = debugged("a[7]", "p nothing", "for i in a:", "c")
    assert "IndexError" in said[0] and "NameError" in said[1] and "one line only" in said[2]
    assert said[3] == "result 12\nend\n" and code == 0


def test_quitting_and_the_end_of_the_input_end_the_program(debugged):
    assert debugged("q")[0] == 7 and debugged("n")[0] == 7
