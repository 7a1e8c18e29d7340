"""What a wheel holds: everything that it should, nothing of a build. Prints what is large.

python tools/wheel_contents.py [--same-files-as WHEEL] WHEEL
"""

import argparse
import re
import sys
import zipfile
from pathlib import Path

TREE = Path(__file__).resolve().parents[1]
NEEDED = [
    r"tenscope/__init__\.py",
    r"tenscope/py\.typed",
    r"tenscope/_core\.pyi",
    r"tenscope/_core\.cpython-\d+-.*\.so",
    r"tenscope/lib/libtenscope\.so\.[\d.]+",
    r"tenscope/lib/cmake/tenscope/tenscopeConfig\.cmake",
    r"tenscope/lib/pkgconfig/tenscope\.pc",
    r"tenscope_pytest/__init__\.py",
    r"tenscope-[^/]+\.data/scripts/tenscope",
    r"tenscope-[^/]+\.dist-info/(METADATA|RECORD|WHEEL|entry_points\.txt)",
    r"tenscope-[^/]+\.dist-info/licenses/(LICENSE|THIRD-PARTY-LICENSES\.txt)",
]
ALLOWED = [
    *NEEDED,
    r"tenscope(_pytest)?/.*\.py",
    r"tenscope/include/tenscope/\w+\.(h|hpp)",
    r"tenscope/lib/cmake/tenscope/tenscopeConfigVersion\.cmake",
    r"tenscope-[^/]+\.dist-info/sboms/.*",
    r"tenscope\.libs/lib(fmt|hwy|simdjson)-[^/]+",  # by auditwheel: Debian has no static ones
    r"tenscope\.scripts/tenscope",  # the program, where auditwheel has put a script that starts it into scripts/
]
LARGE_BYTES = 300_000


def faults(wheel: zipfile.ZipFile) -> list[str]:
    names = [info.filename for info in wheel.infolist() if not info.is_dir()]
    found = [f"has no {needed}" for needed in NEEDED if not any(re.fullmatch(needed, name) for name in names)]
    found += [f"holds {name}" for name in names if not any(re.fullmatch(allowed, name) for allowed in ALLOWED)]
    headers = {path.name for path in (TREE / "include/tenscope").iterdir()}
    found += [f"lacks the header {name}" for name in headers if f"tenscope/include/tenscope/{name}" not in names]
    sources = {path.relative_to(TREE / "python").as_posix() for path in (TREE / "python").glob("tenscope*/**/*.py")}
    found += [f"lacks {name}" for name in sorted(sources - set(names))]
    for name in names:
        content = wheel.read(name)
        if str(TREE).encode() in content:
            found.append(f"names this tree in {name}")
        if content[:4] == b"\x7fELF" and b".symtab\0" in content:
            found.append(f"is not stripped: {name}")
    return found


def names_in(path: Path) -> set[str]:
    return set(zipfile.ZipFile(path).namelist())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--same-files-as", type=Path)
    arguments = parser.parse_args()
    wheel = zipfile.ZipFile(arguments.wheel)
    found = faults(wheel)
    if arguments.same_files_as:
        found += [
            f"differs in {name}" for name in sorted(names_in(arguments.wheel) ^ names_in(arguments.same_files_as))
        ]
    packed = sum(info.compress_size for info in wheel.infolist())
    print(f"{arguments.wheel.name}: {packed / 1e6:.1f} MB, {len(wheel.infolist())} files")
    for info in sorted(wheel.infolist(), key=lambda info: -info.compress_size):
        if info.file_size > LARGE_BYTES:
            print(f"  {info.compress_size / 1e6:5.1f} MB packed {info.file_size / 1e6:5.1f} MB  {info.filename}")
    if found:
        sys.exit("\n".join(f"{arguments.wheel.name} {fault}" for fault in found))


if __name__ == "__main__":
    main()
