#!/usr/bin/env bash
# Tests adapters against the real engines: `make engines`. Everything is made below build/engines and kept there.
#   LLAMA=prefix tests/engines/run.sh [words for pytest]      uses a llama.cpp that is installed, instead of building one
set -euo pipefail
cd "$(dirname "$0")/../.."
work=$PWD/build/engines
mkdir -p "$work"

# A virtual environment of its own, which sees what .venv has.
python=$work/venv/bin/python
if ! "$python" -c 'import gguf' 2>/dev/null; then
  echo "==> making $work/venv"
  .venv/bin/python -m venv "$work/venv"
  packages=$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  echo "import site; site.addsitedir('$packages')" > "$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/main.pth"
  "$python" -m pip install -q --disable-pip-version-check gguf
fi

# llama.cpp, from the sources that PyPI's llama-cpp-python brings along; four minutes on two cores.
if [ -z "${LLAMA:-}" ]; then
  LLAMA=$work/llama
  if [ ! -e "$LLAMA/lib/libllama.so" ]; then
    echo "==> building llama.cpp ($LLAMA)"
    rm -rf "$work/sources"
    "$python" -m pip download -q --disable-pip-version-check --no-binary :all: --no-deps --no-build-isolation \
      llama-cpp-python -d "$work/sources"
    tar -xzf "$work"/sources/llama_cpp_python-*.tar.gz -C "$work/sources"
    cmake -S "$work"/sources/llama_cpp_python-*/vendor/llama.cpp -B "$work/sources/build" -G Ninja -DCMAKE_BUILD_TYPE=Release \
      -DCMAKE_INSTALL_PREFIX="$LLAMA" -DCMAKE_INSTALL_LIBDIR=lib -DGGML_OPENMP=OFF -DGGML_RPC=ON -DLLAMA_BUILD_COMMON=OFF \
      -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_TOOLS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_SERVER=OFF -DLLAMA_BUILD_APP=OFF \
      > "$work/llama.log" 2>&1 || { cat "$work/llama.log"; exit 1; }
    cmake --build "$work/sources/build" -j2 >> "$work/llama.log" 2>&1 || { tail -50 "$work/llama.log"; exit 1; }
    cmake --install "$work/sources/build" >> "$work/llama.log"
    rm -rf "$work/sources"
  fi
fi

echo "==> building the programs ($work/programs)"
rm -rf "$work/tenscope"
cmake --install build/release --component development --prefix "$work/tenscope" > /dev/null
cmake --fresh -S tests/engines -B "$work/programs" -DCMAKE_BUILD_TYPE=Release -DCMAKE_PREFIX_PATH="$work/tenscope;$LLAMA" > "$work/programs.log" ||
  { cat "$work/programs.log"; exit 1; }
cmake --build "$work/programs"

ENGINE_PROGRAMS=$work/programs PATH=$PWD/.venv/bin:$PATH "$python" -m pytest tests/engines "$@"
