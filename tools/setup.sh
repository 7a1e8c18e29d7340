#!/usr/bin/env bash
# Installs what tenscope needs to build and test: Debian packages where they are missing, Python packages into .venv.
# Safe to repeat: what is there already is left alone.
#   tools/setup.sh            the next two
#   tools/setup.sh tools      what compiling needs: Debian packages, and .venv with a few Python packages
#   tools/setup.sh packages   what demo and tests need besides; both at once is quicker (make build)
#   tools/setup.sh docs       what the documentation site is built with, .venv-docs; only `make docs` needs it
#   tools/setup.sh 3.12       an environment for that Python, .venv-3.12 (without torch); does nothing if the machine lacks it
set -euo pipefail
cd "$(dirname "$0")/.."

PACKAGES=(g++ cmake ninja-build ccache pkg-config git
  libfmt-dev libsimdjson-dev libhwy-dev libxxhash-dev libcli11-dev libdeflate-dev zlib1g-dev libhdf5-dev
  libboost1.81-dev libgtest-dev libbenchmark-dev)
TEST_PACKAGES=(graphviz esbuild chromium zsh)
BUILD_REQUIREMENTS=("scikit-build-core>=1.0" "nanobind>=3.1" "cmake>=3.24" ninja)
TEST_REQUIREMENTS=(numpy safetensors pytest pytest-timeout pytest-xdist hypothesis coverage pysnooper ml_dtypes)
REMOTE_REQUIREMENTS=(gguf distributed s3fs "moto[s3]" flask flask-cors)
TABLE_REQUIREMENTS=(pyarrow==26.0.1 polars==2.1.0 duckdb==2.0.0 tensorboard==2.21.0)
TORCH_REQUIREMENTS=(torch==2.13.0 h5py pandas transformers accelerate pytorch-lightning graphviz)
WEB_REQUIREMENTS=(deno==2.9.8 playwright==1.65.2 ipykernel==7.4.0 nbclient==0.11.0 nbconvert==7.17.2)
ENGINE_REQUIREMENTS=(onnx==1.23.2 onnxruntime==1.31.1 onnxscript==0.7.2 jax==0.10.2 flax==0.12.8)
DOCS_REQUIREMENTS=(mkdocs==1.6.1 mkdocs-material==9.8.1)

say() { printf '\033[1m==> %s\033[0m\n' "$*"; }

find_python() {  # a Python of that version: on PATH, or one that pyenv keeps
  local version=$1 candidate
  for candidate in "python$version" "$HOME"/.pyenv/versions/"$version".*/bin/python; do
    if "$candidate" -c "import sys, venv; sys.exit('%d.%d' % sys.version_info[:2] != '$version')" 2>/dev/null; then
      "$candidate" -c 'import sys; print(sys.executable)'
      return
    fi
  done
}

make_venv() {  # folder, interpreter, packages...: skipped when the same was installed before
  local folder=$1 interpreter=$2
  shift 2
  if [ ! -x "$folder/bin/python" ]; then
    say "making $folder with $("$interpreter" --version)"
    "$interpreter" -m venv "$folder"
    "$folder/bin/python" -m pip install -q --disable-pip-version-check --upgrade pip
  fi
  add_packages "$folder" installed "$@"
}

add_packages() {  # folder, the name of the mark that says what is there, packages...
  local folder=$1 mark=$1/$2
  shift 2
  [ "$(cat "$mark" 2>/dev/null)" != "$*" ] || return 0
  say "installing into $folder: $*"
  # What is imported is compiled to byte code then; most of it never is.
  "$folder/bin/python" -m pip install -q --disable-pip-version-check --no-compile "$@"
  echo "$*" > "$mark"
}

case ${1:-all} in
  all)
    tools/setup.sh tools
    tools/setup.sh packages
    ;;
  tools)
    tools/install.sh "${PACKAGES[@]}"
    python=$(find_python 3.11)
    if [ -z "$python" ]; then
      tools/install.sh python3-dev python3-venv
      python=$(find_python 3.11)
    fi
    [ "$python" != /usr/bin/python3.11 ] || tools/install.sh python3-dev python3-venv
    make_venv .venv "${python:?needs Python 3.11 with its venv module}" "${BUILD_REQUIREMENTS[@]}"
    ;;
  packages)
    tools/install.sh "${TEST_PACKAGES[@]}"
    add_packages .venv installed-for-tests "${TEST_REQUIREMENTS[@]}" "${REMOTE_REQUIREMENTS[@]}" \
      "${TORCH_REQUIREMENTS[@]}" "${TABLE_REQUIREMENTS[@]}" "${ENGINE_REQUIREMENTS[@]}" "${WEB_REQUIREMENTS[@]}"
    ;;
  docs)
    make_venv .venv-docs "$PWD/.venv/bin/python" "${DOCS_REQUIREMENTS[@]}"
    ;;
  *)
    python=$(find_python "$1")
    if [ -z "$python" ]; then
      say "this machine has no Python $1: left out"
      exit 0
    fi
    make_venv ".venv-$1" "$python" "${BUILD_REQUIREMENTS[@]}" "${TEST_REQUIREMENTS[@]}"
    ;;
esac
