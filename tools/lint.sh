#!/usr/bin/env bash
# Formatting and static analysis. `tools/lint.sh --fix` formats in place.
set -euo pipefail
cd "$(dirname "$0")/.."

for tool in clang-format-19 clang-tidy-19; do
  if ! command -v $tool >/dev/null; then
    echo "==> installing $tool"
    sudo=""; [ "$(id -u)" = 0 ] || sudo=sudo
    $sudo apt-get update -qq && $sudo apt-get install -y -qq --no-install-recommends $tool >/dev/null
  fi
done
.venv/bin/python -m ruff --version >/dev/null 2>&1 || .venv/bin/python -m pip install -q ruff

mapfile -t sources < <(git ls-files '*.cpp' '*.hpp' '*.c' '*.h')
if [ "${1:-}" = --fix ]; then
  clang-format-19 -i "${sources[@]}"
  .venv/bin/python -m ruff check --fix .
  exit
fi
echo "==> clang-format"
clang-format-19 --dry-run --Werror "${sources[@]}"
echo "==> ruff"
.venv/bin/python -m ruff check .
echo "==> clang-tidy"
[ -f build/debug/compile_commands.json ] || cmake --preset debug >/dev/null
git ls-files 'src/*.cpp' | grep -Ev '_(test|fuzz)\.cpp$' | xargs -P 2 -n 4 clang-tidy-19 -p build/debug --quiet --warnings-as-errors='*'
