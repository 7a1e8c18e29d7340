"""What holds for the whole tree: one version, a public face, and drop-ins whose words nobody else knows."""

import re
import subprocess
import sysconfig
from importlib import metadata
from pathlib import Path

import pytest
import tenscope

ROOT = Path(__file__).parent.parent
DROP_INS = re.compile(r"ztrace|ttracker|tensortrace|torchspy|tensor_dumper")


def test_the_version_stands_in_one_place():
    (version,) = re.findall(r"project\(tenscope VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text())
    program = Path(sysconfig.get_path("scripts")) / "tenscope"
    told = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    assert tenscope.__version__ == told == metadata.version("tenscope") == version
    sources = [ROOT / "pyproject.toml", *(ROOT / "src").rglob("*.[ch]pp"), *(ROOT / "python").rglob("*.[chp]*")]
    assert [path for path in sources if path.suffix != ".pyc" and f'"{version}"' in path.read_text("utf-8")] == []


def test_the_run_tells_the_version(tmp_path):
    with tenscope.Run(tmp_path, name="run"):
        pass
    assert f'"tenscope_version":"{tenscope.__version__}"' in (tmp_path / "run" / "run.json").read_text()


@pytest.mark.parametrize("folder", ["include", "src", "python/bindings", "python/tracer", "python/tenscope"])
def test_a_drop_ins_words_are_its_own(folder):
    known = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (".py", ".pyi", ".c", ".h", ".cpp", ".hpp") and "compat" not in path.parts
        for line in path.read_text("utf-8").splitlines()
        if DROP_INS.search(line)
    ]
    assert known == []


def test_the_public_names_are_there_and_no_others_are_listed():
    pytest.importorskip("torch")
    listed = {name for name in dir(tenscope) if not name.startswith("__")}
    assert listed == {*tenscope.__all__, "compat", "integrations", "jax", "onnx", "testing"} - {"__version__"}
    assert all(getattr(tenscope, name) is not None for name in tenscope.__all__)
