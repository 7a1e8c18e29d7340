#!/usr/bin/env bash
# Formatting and static analysis of everything.
#   tools/lint.sh            all of it
#   tools/lint.sh style      the quick part: clang-format, ruff and deno
#   tools/lint.sh web        deno alone: the types, style and tests of the viewer's page
#   tools/lint.sh tidy       clang-tidy
#   tools/lint.sh tidy-quick the same without its static analyser
#   tools/lint.sh --fix      formats in place
set -euo pipefail
cd "$(dirname "$0")/.."
what=${1:-all}
RUFF=ruff==0.17.4

export DENO_NO_UPDATE_CHECK=1

check_web() (  # types and style of the viewer's page
  echo "==> deno"
  cd web
  ../.venv/bin/deno fmt --check
  ../.venv/bin/deno lint
  ../.venv/bin/deno check --quiet --no-remote src/main.tsx test/*_test.ts
)

if [ "$what" = web ]; then
  check_web
  cd web
  ../.venv/bin/deno test --quiet --no-remote --cached-only --no-check
  exit
fi

if [ "$what" != tidy ] && [ "$what" != tidy-quick ]; then
  tools/install.sh clang-format-19
  [ "$(.venv/bin/python -m ruff --version 2>/dev/null)" = "${RUFF/==/ }" ] ||
    .venv/bin/python -m pip install -q --disable-pip-version-check "$RUFF"
  mapfile -t sources < <(git ls-files '*.cpp' '*.hpp' '*.c' '*.h')
  if [ "$what" = --fix ]; then
    clang-format-19 -i "${sources[@]}"
    .venv/bin/python -m ruff check --fix .
    (cd web && ../.venv/bin/deno fmt --quiet)
    exit
  fi
  echo "==> clang-format"
  clang-format-19 --dry-run --Werror "${sources[@]}"
  echo "==> ruff"
  .venv/bin/python -m ruff check .
  check_web
fi

if [ "$what" != style ]; then
  tools/install.sh clang-tidy-19
  # Without precompiled headers: every file would be looked at with all of them.
  cmake --preset debug -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON -DTENSCOPE_PYTHON=ON -DPython_EXECUTABLE="$PWD/.venv/bin/python" >/dev/null
  mapfile -t sources < <(git ls-files 'src/*.cpp' 'python/*.cpp' | grep -Ev '_(test|fuzz)\.cpp$')
  echo "==> clang-tidy: ${#sources[@]} files, at first a quarter of an hour on two cores, with the analyser three"
  quick=()
  [ "$what" != tidy-quick ] || quick=(--quick)
  .venv/bin/python tools/tidy.py "${quick[@]}" build/debug "${sources[@]}"
fi
