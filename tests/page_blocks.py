"""Runs the code blocks of a page of the documentation, in order and in one folder, and compares what they print.

Overview. By the word behind its fence, a block is

    python    run as one program, each block where the last one ended
    sh        typed into a shell, which must succeed
    text      what the block before it prints
    console   commands behind `$ `, typed as into a terminal of 110 columns, each followed by what it prints
    diff      with a title: changes the file of that name
    any       with a title (```python title="train.py"): written to that file

In what is printed `…` stands for what is another at each run, and a line of `…` alone for any lines; numbers with a
point may differ by 2 %, since processors round differently, and curves at all. Lines that begin with `tenscope: ` are
those of stderr. Programs that use torch are started by warm_start. Of `make` and `pip install` only the words are
looked at: what they do has tests of its own.
"""

import contextlib
import fcntl
import io
import math
import os
import re
import shlex
import struct
import subprocess
import sys
import termios
import types
from dataclasses import dataclass
from pathlib import Path

import warm_start

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^```(\w+)(?: title=\"([^\"]+)\")?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FENCE = re.compile(r"^```", re.MULTILINE)
COMMAND = re.compile(r"^\$ (.+(?:\\\n.+)*)\n?", re.MULTILINE)
NUMBER = re.compile(r"(?<![\w.])(-?\d+\.\d+(?:e[+-]\d+)?|-?\d+e[+-]\d+)(?![\w.])")
CURVE = re.compile(r"[⠀-⣿▁-█× ]*[⠀-⣿▁-█×][⠀-⣿▁-█× ]*")
ASSIGNMENT = re.compile(r"[A-Z_]+=")
WIDTH = 110


@dataclass
class Block:
    language: str
    title: str
    source: str


def blocks(page):
    text = page.read_text()
    found = [Block(*match.groups("")) for match in BLOCK.finditer(text)]
    assert len(FENCE.findall(text)) == 2 * len(found), f"{page.name} has a block of another form"
    return found


def is_printed(expected, printed):
    """Whether this is what a page says: in numbers with a point up to 2 %, not in curves and the width of gaps."""
    numbers = []

    def as_pattern(text):
        parts = NUMBER.split(text)
        numbers.extend(map(float, parts[1::2]))
        for place in range(0, len(parts), 2):
            text = CURVE.sub("¤", parts[place])
            parts[place] = re.sub(r"(\\ )+", " +", re.escape(text)).replace("¤", "[⠀-⣿▁-█× ]*")
        parts[1::2] = [NUMBER.pattern] * (len(parts) // 2)
        return "".join(parts)

    lines = expected.strip().splitlines()
    pattern = r"\s*".join(".*?".join(map(as_pattern, line.strip().split("…"))) for line in lines)
    match = re.fullmatch(pattern, printed.strip(), re.DOTALL)
    return match is not None and all(
        math.isclose(number, float(text), rel_tol=0.02) for number, text in zip(numbers, match.groups(), strict=True)
    )


def commands(source):
    """(command, what it is said to print) of a `console` block."""
    parts = COMMAND.split(source)
    assert not parts[0].strip(), f"no command in {source!r}"
    return list(zip(parts[1::2], parts[2::2], strict=True))


def _split(text):
    """What goes to stdout, and the lines that tenscope says on stderr."""
    lines = text.splitlines()
    said = [line for line in lines if line.startswith("tenscope: ")]
    return "\n".join(line for line in lines if line not in said), "\n".join(said)


class Page:
    def __init__(self, folder):
        self.folder = folder
        self.module = types.ModuleType("page")
        self.count = 0
        unwanted = ("TENSCOPE_QUIET", "COLUMNS", "LINES")  # the terminal's own width is meant
        self.env = {name: value for name, value in os.environ.items() if name not in unwanted}
        bin_folder = str(Path(sys.executable).parent)
        self.env |= {"PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}", "NO_COLOR": "1", "OMP_NUM_THREADS": "1"}

    def run(self, all_blocks):
        """Runs the blocks, and fails where one prints something else than the page says."""
        printed = ""
        for block in all_blocks:
            if block.title:
                (self.change if block.language == "diff" else self.write)(block)
            elif block.language == "console":
                for command, expected in commands(block.source):
                    self.check(command, expected, *self.type(command))
            elif block.language in ("python", "sh"):
                printed = getattr(self, block.language)(block.source)
            elif block.language == "text":
                assert is_printed(block.source, printed), f"printed:\n{printed}"

    def write(self, block):
        file = self.folder / block.title
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(block.source)

    def change(self, block):
        file = self.folder / block.title
        lines = block.source.splitlines(keepends=True)
        old, new = ("".join(line[1:] for line in lines if line[0] in kinds) for kinds in (" -", " +"))
        text = file.read_text()
        assert text.count(old) == 1, f"{block.title} has not once\n{old}"
        file.write_text(text.replace(old, new))

    def python(self, source):
        self.count += 1
        file = self.folder / f"block_{self.count}.py"
        file.write_text(source)
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile(source, str(file), "exec"), vars(self.module))
        return printed.getvalue()

    def sh(self, source):
        make = f"make() {{ command make -n -C '{ROOT}' \"$@\" > /dev/null; }}"
        pip = 'pip() { [ "$1" = install ]; }'
        done = self._start(["bash", "-ec", f"{make}\n{pip}\n{source}"])
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def check(self, command, expected, stdout, stderr, code):
        assert code == 0 or (code == 1 and expected.strip()), f"{command} ended with {code}:\n{stdout}{stderr}"
        for said, is_said in zip(_split(expected), (stdout, _split(stderr)[1]), strict=True):
            if said or is_said is stdout:
                assert is_printed(said, is_said), f"{command} printed:\n{is_said}"

    def type(self, command):
        """stdout, stderr and exit code of a command that is typed into a terminal."""
        words = shlex.split(command.replace("\\\n", " "))
        env = dict(self.env)
        while words and ASSIGNMENT.match(words[0]):
            name, _, value = words.pop(0).partition("=")
            env[name] = value
        is_program = words[0] == "python" and words[1].endswith(".py")
        if is_program or words[:2] == ["tenscope", "run"]:
            done = warm_start.run(words[1:] if is_program else ["-m", "tenscope.run", *words[2:]], self.folder, env)
        elif words[0] == "tenscope" and not set("|>;&") & set(command):
            done = self._in_terminal(words, env)
        else:
            done = self._start(["bash", "-ec", command])
        return done.stdout, done.stderr, done.returncode

    def _start(self, words):
        return subprocess.run(words, cwd=self.folder, env=self.env, capture_output=True, text=True)

    def _in_terminal(self, words, env):
        master, slave = os.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, WIDTH, 0, 0))
        with subprocess.Popen(
            words, cwd=self.folder, env=env, stdin=subprocess.DEVNULL, stdout=slave, stderr=subprocess.PIPE, text=True
        ) as process:
            os.close(slave)
            output = bytearray()
            with contextlib.suppress(OSError):  # the other end is closed
                while part := os.read(master, 1 << 16):
                    output += part
            os.close(master)
            errors = process.stderr.read()
        text = output.decode().replace("\r\n", "\n")
        return subprocess.CompletedProcess(words, process.returncode, text, errors)
