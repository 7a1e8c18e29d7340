"""`cmake --install`: what it installs from a build tree, whatever else was built there, and pkg-config's way to it."""

import os
import platform
import re
import shutil
import subprocess

import pytest
import tenscope
from installed import CMAKE, ROOT, install, newest_build, run

PKG_CONFIG = shutil.which("pkg-config")
needs_pkg_config = pytest.mark.skipif(not PKG_CONFIG, reason="pkg-config is not installed")


def files(folder):
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir()}


def headers():
    return {f"include/{path.relative_to(ROOT / 'include')}" for path in (ROOT / "include/tenscope").glob("*.h*")}


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
    return install(tmp_path_factory.mktemp("installed"))


@pytest.fixture(scope="module")
def lib(prefix):
    (library,) = prefix.rglob("libtenscope.so")
    return library.parent


def said_by_pkg_config(folder, *words):
    """What pkg-config says of tenscope, in an environment where it knows no other place."""
    return run(PKG_CONFIG, *words, "tenscope", env=os.environ | {"PKG_CONFIG_LIBDIR": str(folder)}).strip()


def test_library_headers_descriptions_and_program_are_installed(prefix, lib):
    where = lib.relative_to(prefix).as_posix()
    soname = ".".join(["libtenscope.so", *tenscope.__version__.split(".")[:2]])
    assert (lib / "libtenscope.so").readlink().name == soname
    descriptions = {f"cmake/tenscope/tenscopeConfig{part}.cmake" for part in ("", "Version")} | {
        "pkgconfig/tenscope.pc"
    }
    of_lib = {f"{where}/{name}" for name in {soname, "libtenscope.so"} | descriptions}
    words = {"share/doc/tenscope/LICENSE", "share/doc/tenscope/THIRD-PARTY-LICENSES.txt"}
    assert files(prefix) == headers() | of_lib | words | {"bin/tenscope"}
    assert run(prefix / "bin" / "tenscope", "--version").strip() == tenscope.__version__


def test_the_library_alone(prefix, tmp_path):
    alone = files(install(tmp_path, "--component", "development"))
    assert alone == files(prefix) - {"bin/tenscope"}


def test_the_program_names_both_folders(prefix, lib):
    program = prefix / "bin" / "tenscope"
    assert run(program, "--cmake-dir").strip() == str(lib / "cmake" / "tenscope")
    assert run(program, "--pkgconfig-dir").strip() == str(lib / "pkgconfig")
    alone = shutil.copy(newest_build() / "src" / "cli" / "tenscope", prefix.parent)
    result = subprocess.run([alone, "--pkgconfig-dir"], capture_output=True, text=True, check=False)
    assert result.returncode == 2 and "is not installed beside this program" in result.stderr


@needs_pkg_config
def test_pkg_config_names_the_place_that_it_was_moved_to(prefix, lib):
    text = (lib / "pkgconfig" / "tenscope.pc").read_text()
    assert not [place for place in (ROOT, prefix, prefix.with_name("first"), "/usr", "/tmp") if str(place) in text]
    assert said_by_pkg_config(lib / "pkgconfig", "--modversion") == tenscope.__version__
    for name, folder in (("includedir", prefix / "include"), ("libdir", lib)):
        assert os.path.realpath(said_by_pkg_config(lib / "pkgconfig", f"--variable={name}")) == str(folder)


@pytest.mark.skipif(platform.libc_ver() != ("glibc", "2.36"), reason="wheels are built on Debian 12")
def test_they_start_on_the_oldest_system_that_wheels_are_for(prefix, lib):
    """That is RHEL 9, with glibc 2.34 and the libraries of GCC 11: see Releases in CONTRIBUTING.md."""
    if not re.search("CMAKE_BUILD_TYPE:STRING=(Release)?\n", (newest_build() / "CMakeCache.txt").read_text()):
        pytest.skip("not a release build")
    oldest = {"GLIBC": (2, 34), "GLIBCXX": (3, 4, 29), "CXXABI": (1, 3, 13), "GCC": (11,)}
    for file in (prefix / "bin" / "tenscope", lib / "libtenscope.so"):
        needed = re.findall(r"Name: ([A-Z]+)_([0-9.]+)", run("readelf", "--version-info", file))
        needed = [(library, tuple(map(int, version.split(".")))) for library, version in needed if library in oldest]
        assert {library for library, _ in needed} == set(oldest)
        assert not [(library, version) for library, version in needed if version > oldest[library]]


IN_C = r"""
#include <stdio.h>
#include <tenscope/tenscope.h>
int main(int argc, char** argv) {
  tenscope_run* run;
  if (argc != 2 || tenscope_open(argv[1], NULL, &run) != TENSCOPE_OK) return 1;
  tenscope_event event = tenscope_named("x");
  if (tenscope_record_double(run, &event, 0.25) != TENSCOPE_OK) return 2;
  puts(tenscope_version());
  return tenscope_close(run) == TENSCOPE_OK ? 0 : 3;
}
"""
IN_CPP = r"""
#include <cstdio>
#include <tenscope/tenscope.h>
#include <tenscope/tenscope.hpp>
int main(int, char** argv) {
  tenscope::Run run(argv[1]);
  run.record("x", 0.25);
  std::puts(tenscope_version());
}
"""


@needs_pkg_config
@pytest.mark.parametrize(
    ("compiler", "standard", "source"), [("cc", "c99", IN_C), ("c++", "c++17", IN_CPP)], ids=["c", "c++"]
)
def test_a_program_is_built_with_what_pkg_config_says(lib, tmp_path, compiler, standard, source):
    file = tmp_path / f"program.{'c' if compiler == 'cc' else 'cpp'}"
    file.write_text(source)
    words = said_by_pkg_config(lib / "pkgconfig", "--cflags", "--libs").split()
    words += ["-Wall", "-Wextra", "-Werror", f"-Wl,-rpath,{lib}"]
    run(compiler, f"-std={standard}", file, *words, "-o", tmp_path / "program")
    assert run(tmp_path / "program", tmp_path / "runs").strip() == tenscope.__version__
    assert tenscope.open(tmp_path / "runs")["x", 0] == 0.25


def test_what_is_missing_is_told_with_the_package_that_has_it(tmp_path):
    """All of it at once; without the command line program less is needed."""
    absent = [f"-DCMAKE_DISABLE_FIND_PACKAGE_{name}=ON" for name in ("fmt", "CLI11")]

    def told(*words):
        words = [CMAKE, "-S", ROOT, "-B", tmp_path, "-G", "Ninja", *absent, *words]
        result = subprocess.run(words, capture_output=True, text=True, check=False)
        assert result.returncode != 0
        return " ".join(result.stderr.split())

    assert "it needs fmt, CLI11. Debian 12 has what is missing: apt-get install libfmt-dev libcli11-dev" in told()
    assert "it needs fmt. " in told("-DTENSCOPE_CLI=OFF")
