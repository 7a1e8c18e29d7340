"""Which Python `tenscope run` starts: that of the environment that the program lies in, wherever it is called from."""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import numpy
import pytest
import tenscope
from tenscope import _core

PROGRAM = Path(sysconfig.get_path("scripts")) / "tenscope"
SITE = f"lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"


def make_environment(folder, name, has_package):
    """A real virtual environment, with the package in it as a wheel puts it, and the NumPy of this one."""
    environment = folder / name
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    (environment / SITE / "numpy.pth").write_text(str(Path(numpy.__file__).parent.parent) + "\n")
    if has_package:
        package = environment / SITE / "tenscope"
        shutil.copytree(Path(tenscope.__file__).parent, package)
        shutil.copy(_core.__file__, package)
    return environment


@pytest.fixture(scope="module")
def environments(tmp_path_factory):
    folder = tmp_path_factory.mktemp("environments")
    return {name: make_environment(folder, name, name != "bare") for name in ("wheel", "active", "bare")}


def started(program, folder, *words, virtual_env=None, path="/nowhere"):
    env = {key: value for key, value in os.environ.items() if key not in ("VIRTUAL_ENV", "PYTHONPATH")}
    env |= {"PATH": path} | ({"VIRTUAL_ENV": str(virtual_env)} if virtual_env else {})
    return subprocess.run([program, "run", *words], cwd=folder, env=env, capture_output=True, text=True)


def which(program, folder, *words, **where):
    """The environment of the Python that ran the script."""
    script = folder / "script.py"
    script.write_text("import sys, os\nprint(os.path.basename(sys.prefix))\n")
    done = started(program, folder, *words, script, **where)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture
def placed(environments):
    """The program in bin/ of an environment, as pip puts it there."""
    target = environments["wheel"] / "bin" / "tenscope"
    shutil.copy(PROGRAM, target)
    return target


def test_beside_it(environments, placed, tmp_path):
    assert which(placed, tmp_path) == "wheel"
    assert which(placed, tmp_path, virtual_env=environments["active"]) == "wheel"
    assert which(placed, tmp_path, path=f"{environments['active']}/bin") == "wheel"


def test_through_a_link(environments, placed, tmp_path):
    link = tmp_path / "tenscope"
    link.symlink_to(placed)
    assert which(link, tmp_path, virtual_env=environments["active"]) == "wheel"


def test_where_a_bundled_wheel_keeps_it(environments, tmp_path):
    """auditwheel puts the program below site-packages and a script that starts it into bin/."""
    scripts = environments["wheel"] / SITE / "tenscope.scripts"
    scripts.mkdir()
    shutil.copy(PROGRAM, scripts / "tenscope")
    assert which(scripts / "tenscope", tmp_path, virtual_env=environments["active"]) == "wheel"


def test_elsewhere_the_active_environment_and_then_path(environments, tmp_path):
    alone = tmp_path / "bin"
    alone.mkdir()
    shutil.copy(PROGRAM, alone / "tenscope")
    path = f"{environments['wheel']}/bin"
    assert which(alone / "tenscope", tmp_path, virtual_env=environments["active"], path=path) == "active"
    assert which(alone / "tenscope", tmp_path, path=path) == "wheel"
    assert which(alone / "tenscope", tmp_path, virtual_env=environments["bare"], path=path) == "wheel"


def test_python_beside_it_without_the_package_does_not_count(environments, tmp_path):
    target = environments["bare"] / "bin" / "tenscope"
    shutil.copy(PROGRAM, target)
    assert which(target, tmp_path, virtual_env=environments["active"]) == "active"


@pytest.mark.parametrize("place", ["first", "later", "joined"])
def test_the_option_overrules(environments, placed, tmp_path, place):
    python = f"{environments['active']}/bin/python"
    words = {"first": [], "later": ["--name", "x"], "joined": []}[place]
    words += [f"--python={python}"] if place == "joined" else ["--python", python]
    assert which(placed, tmp_path, *words) == "active"


def test_an_interpreter_that_is_not_there(placed, tmp_path):
    for words in (["--python", "/no/python"], ["--name", "x", "--python", "/no/python"]):
        done = started(placed, tmp_path, *words, "x.py")
        assert done.returncode == 2 and "/no/python" in done.stderr and "Traceback" not in done.stderr, done.stderr
        assert not (tmp_path / "runs").exists()
