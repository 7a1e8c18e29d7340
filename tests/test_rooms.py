"""Who may use whom: each #include, the build's include directories and the docs' table against cmake/rooms.txt."""

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
INCLUDE = re.compile(r'^\s*#\s*(?:include|define\s+HWY_TARGET_INCLUDE)\s*["<]([^">]+)[">]', re.MULTILINE)


class House:
    """A source tree and the rooms that its cmake/rooms.txt lists."""

    def __init__(self, root):
        self.root = root
        self.folders, self.uses, self.owners = {}, {}, {}
        for line in (root / "cmake" / "rooms.txt").read_text().splitlines():
            words = line.partition("#")[0].split()
            if words and words[0].startswith("tenscope/"):
                self.owners[words[0]] = words[1]
            elif words:
                self.folders[words[0]] = words[1]
                self.uses[words[0]] = words[2:]

    def sources(self, folder):
        return sorted(path for path in (self.root / folder).rglob("*") if path.suffix in (".cpp", ".hpp", ".c", ".h"))

    def room_of_file(self, path):
        """The room of the innermost folder that has the file, or None."""
        name = path.relative_to(self.root).as_posix()
        inside = [room for room, folder in self.folders.items() if name.startswith(folder + "/")]
        return max(inside, key=lambda room: len(self.folders[room]), default=None)

    def room_of_include(self, name):
        """The room of a header as it is named in an #include; None where it is none of ours."""
        if name.startswith("tenscope/"):
            return self.owners.get(name, f"nobody: {name} has no line in cmake/rooms.txt")
        for top in ("src", "python"):
            if (self.root / top / name).exists():
                return self.room_of_file(self.root / top / name)
        return None

    def wrong_includes(self):
        wrong = []
        for path in self.sources("src") + self.sources("python") + self.sources("include"):
            room = self.room_of_file(path)
            where = path.relative_to(self.root).as_posix()
            for name in INCLUDE.findall(path.read_text()):
                used = self.room_of_include(name)
                if where.startswith("include/"):
                    is_allowed = used is None or name.startswith("tenscope/")
                elif room is None:
                    is_allowed = False
                else:
                    is_allowed = used is None or used == room or used in self.uses[room]
                if name in ("Python.h", "frameobject.h") or name.startswith("nanobind/"):
                    is_allowed = where.startswith("python/")
                if not is_allowed:
                    wrong.append(f"{where} includes {name}: {room or 'no room'} may not use {used or 'Python'}")
        return wrong


@pytest.fixture(scope="module")
def house():
    return House(ROOT)


def test_every_include_is_one_that_the_table_allows(house):
    assert house.wrong_includes() == []


def test_the_table_itself(house):
    assert len(house.folders) > 8 and len(house.sources("src")) > 100
    order = list(house.folders)
    for room, folder in house.folders.items():
        assert (ROOT / folder).is_dir()
        earlier = order[: order.index(room)]
        assert set(house.uses[room]) <= set(earlier), f"{room} uses a room that comes after it: a circle"
    public = {f"tenscope/{path.name}" for path in (ROOT / "include" / "tenscope").glob("*.h*")}
    assert set(house.owners) == public
    assert set(house.owners.values()) <= set(order)


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("src/core/glob.cpp", "store/journal_reader.hpp"),
        ("src/core/glob.cpp", "tenscope/run.hpp"),
        ("src/kernels/summarize.cpp", "format/value.hpp"),
        ("src/format/npy.cpp", "format/hdf5/hdf5_writer.hpp"),
        ("src/store/reader.cpp", "tenscope/diff.hpp"),
        ("src/report/graph.cpp", "cli/commands.hpp"),
        ("src/core/glob.cpp", "Python.h"),
        ("python/bindings/module.cpp", "tracer/watcher.hpp"),
        ("python/bindings/module.cpp", "cli/commands.hpp"),
        ("python/tracer/known.cpp", "format/value.hpp"),
        ("include/tenscope/run.hpp", "core/suggest.hpp"),
        ("src/new_room/x.cpp", "core/suggest.hpp"),
        ("src/core/glob.cpp", "tenscope/new.hpp"),
    ],
)
def test_a_wrong_include_is_found(tmp_path, file, name):
    for folder in ("cmake", "include", "src", "python/bindings", "python/tracer"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    (tmp_path / file).parent.mkdir(exist_ok=True)
    with (tmp_path / file).open("a") as source:
        source.write(f'\n#include "{name}"\n')
    found = House(tmp_path).wrong_includes()
    assert len(found) == 1 and found[0].startswith(f"{file} includes {name}: ")


def test_the_compiler_does_not_find_the_headers_of_other_rooms(house):
    """With the options that a room's sources are compiled with, its own rooms' headers are there and others are not."""
    database = ROOT / "build" / "release" / "compile_commands.json"
    if not database.exists():
        pytest.skip("build/release is not there: make build")
    headers = {}
    for room, folder in house.folders.items():
        top = folder.partition("/")[0]
        own = [path.relative_to(ROOT / top).as_posix() for path in (ROOT / folder).glob("*.hpp")]
        headers |= {room: min(own)} if own else {}
    commands = {}
    for entry in json.loads(database.read_text()):
        path = Path(entry["file"])
        room = house.room_of_file(path) if path.is_relative_to(ROOT) else None
        if room and path.suffix == ".cpp":
            commands.setdefault(room, entry)
    assert set(commands) == set(house.folders)
    for room, entry in commands.items():
        words = shlex.split(entry["command"])
        compiler = next(word for word in words if "ccache" not in word)
        options = [word for word in words if word.startswith(("-I", "-D", "-std"))]
        reached = set()
        for other, header in headers.items():
            done = subprocess.run(
                [compiler, *options, "-E", "-x", "c++", "-", "-o", "/dev/null"],
                input=f'#if !__has_include("{header}")\n#error hidden\n#endif\n',
                cwd=entry["directory"],
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0 or "hidden" in done.stderr
            if done.returncode == 0:
                reached.add(other)
        # hdf5 lies in format's folder: what reaches the one reaches the other, and the scan above tells them apart.
        assert reached - {"hdf5"} == {room, *house.uses[room]} & set(headers) - {"hdf5"}, f"what {room} can include"


def test_the_docs_have_the_same_table(house):
    said = {}
    for line in (ROOT / "docs" / "architecture.md").read_text().splitlines():
        row = re.match(r"\| `((?:src|python)/[a-z0-9/]+)/` \|.*\| ([^|]*) \|$", line)
        if row:
            said[row[1]] = set(re.findall(r"[a-z0-9_]+", row[2])) - {"fmt"}
    for room, folder in house.folders.items():
        assert said.get(folder) == set(house.uses[room]), f"docs/architecture.md on {folder}"
