#!/usr/bin/env bash
# Runs every libFuzzer target for SECONDS (default 60) each, from a corpus that the real libraries made.
#   tests/fuzz.sh [SECONDS [TARGET...]]
# A finding is left in build/fuzz/findings/; make it a regression test: tests/data/fuzz/<target>/.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-60}
shift || true
targets=("$@")
((${#targets[@]})) || targets=(npy npz zip safetensors gguf pickle pt journal)

tools/install.sh clang-19 libclang-rt-19-dev
build=build/fuzz
cmake --preset fuzz >/dev/null
nice ninja -C $build "${targets[@]/%/_fuzz}" >/dev/null
[ -d $build/corpus/gguf ] || .venv/bin/python tests/make_corpus.py $build/corpus
mkdir -p $build/findings
for target in "${targets[@]}"; do
  echo "==> fuzzing $target for $seconds s"
  room=$([ "$target" = journal ] && echo store || echo format)
  nice -n 19 $build/src/$room/${target}_fuzz -max_total_time="$seconds" -timeout=10 -rss_limit_mb=1024 -max_len=65536 \
    -artifact_prefix=$build/findings/$target- -print_final_stats=1 $build/corpus/$target \
    2>$build/$target.log || { tail -40 $build/$target.log; exit 1; }
  grep -E "^stat::number_of_executed_units|DONE" $build/$target.log
done
