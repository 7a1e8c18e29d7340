#!/usr/bin/env bash
# Tries a wheel as its user would, in an empty environment and without this tree.
#   tools/try_wheel.sh PYTHON WHEEL [TORCH]      TORCH, as torch==2.13.0, is installed after the trial without it
set -euo pipefail
python=$1 wheel=$(realpath "$2") torch=${3:-}
tree=$(realpath "$(dirname "$0")/..")
trial=$(mktemp -d)
trap 'rm -rf "$trial"' EXIT
cd "$trial"
unset VIRTUAL_ENV PYTHONPATH
PATH=$(echo "$PATH" | tr : '\n' | grep -v "^$tree/" | paste -sd:)
pip() { venv/bin/python -m pip "$@" -q --disable-pip-version-check; }
installed() { find venv -not -name '*.pyc' -not -name __pycache__ | sort; }

"$python" -m venv venv
pip install numpy
installed > before
pip install "$wheel"

venv/bin/python - <<'PY'
import numpy, tenscope
with tenscope.Run("runs/x") as run:
    run.record("x", numpy.arange(12.0).reshape(3, 4))
assert (tenscope.open("runs/x")["x", 0] == numpy.arange(12.0).reshape(3, 4)).all()
PY
venv/bin/tenscope ls runs/x
venv/bin/python -m tenscope verify runs/x
echo 'import tenscope; tenscope.init().record("version", tenscope.__version__)' > script.py
venv/bin/tenscope run --name script script.py
venv/bin/tenscope show runs/script version
timeout --preserve-status -s INT 2 venv/bin/tenscope view runs --no-open

if command -v c++ >/dev/null; then
  cp -r "$tree/examples/cpp" example
  if command -v cmake >/dev/null; then
    echo "==> a C++17 program by its CMake package"
    cmake -S example -B built -Dtenscope_DIR="$(venv/bin/tenscope --cmake-dir)" -DCMAKE_CXX_STANDARD=17 >/dev/null
    cmake --build built >/dev/null
    built/mlp runs-of-cpp 3
    venv/bin/tenscope verify runs-of-cpp
  fi
  if command -v pkg-config >/dev/null; then
    echo "==> the same by pkg-config"
    PKG_CONFIG_PATH=$(venv/bin/tenscope --pkgconfig-dir)
    export PKG_CONFIG_PATH
    # shellcheck disable=SC2046
    c++ -std=c++17 example/mlp.cpp $(pkg-config --cflags --libs tenscope) \
      "-Wl,-rpath,$(pkg-config --variable=libdir tenscope)" -o mlp
    ./mlp runs-of-pkg-config 3
  fi
fi

pip uninstall -y tenscope
installed | diff before - || { echo "the wheel left these behind"; exit 1; }

if [ -n "$torch" ]; then
  echo "==> with $torch"
  pip install "$wheel[torch]" "$torch"
  venv/bin/python - <<'PY'
import torch, tenscope
model = torch.nn.Linear(8, 4)
x = torch.randn(2, 8)
with tenscope.Run("runs/model"), tenscope.trace(model, grads=True):
    y = model(x)
    y.sum().backward()
kept = tenscope.open("runs/model")
print(kept)
(name,) = [name for name in kept.names() if name.endswith("output")]
assert torch.equal(kept[name, 0].torch(), y.detach()), name
PY
fi
