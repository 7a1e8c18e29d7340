#!/usr/bin/env bash
# The Python tests on an extension built with AddressSanitizer, UndefinedBehaviorSanitizer and LeakSanitizer.
#   tools/asan_python.sh [FILE ...]      default: the tests of recording, watching, files and comparing
#
# The extension is built into build/asan-python and put, with links to the Python package, into a venv there that sees
# the packages of .venv: the editable installation in .venv is not touched. Python's own allocator is switched off, so
# that every object is a block that the sanitizers know.
#
# Leaks. CPython, torch and NumPy leave thousands of blocks behind when a process ends, and a suppression of theirs
# would match every stack, since all of our code is called by Python. So LeakSanitizer writes its reports to files, and
# tools/own_leaks.py picks out the leaks that our own code made: those where a frame of _core stands on the stack nearer
# to the allocation than the interpreter's loop. tools/own_leaks.supp lists what is left out of those, and why.
set -euo pipefail
cd "$(dirname "$0")/.."
build=$PWD/build/asan-python
python=$PWD/.venv/bin/python
files=("$@")
if [ ${#files[@]} = 0 ]; then
  files=(tests/test_lifetimes.py tests/test_borrowing.py tests/test_trouble.py tests/test_record.py
    tests/test_record_calls.py tests/test_register.py tests/test_processes.py tests/test_watch.py
    tests/test_watch_frames.py tests/test_watch_reference.py tests/test_watch_run.py tests/test_watch_safety.py
    tests/test_tree.py tests/test_spy_and_locals.py tests/test_compare.py tests/test_formats.py
    tests/test_reader_py.py)
fi

echo "==> the extension under asan, ubsan and lsan (build/asan-python)"
cmake --preset asan-python -DPython_EXECUTABLE="$python" >/dev/null
cmake --build "$build" --target _core

venv=$build/venv
[ -x "$venv/bin/python" ] || "$(readlink -f "$python")" -m venv --without-pip "$venv"
site=$("$venv/bin/python" -c 'import site; print(site.getsitepackages()[0])')
"$python" -c 'import sys; print("\n".join(p for p in sys.path if p.endswith("site-packages")))' > "$site/packages.pth"
rm -rf "$site/tenscope" "$site/tenscope_pytest"
mkdir "$site/tenscope"
ln -s "$PWD/python/tenscope_pytest" "$site/"
ln -s "$PWD"/python/tenscope/* "$build"/python/_core.*.so "$site/tenscope/"
[ ! -e .venv/bin/tenscope ] || ln -sf "$PWD/.venv/bin/tenscope" "$venv/bin/tenscope"  # the program itself is tested in C++

rm -rf "$build/leaks"
mkdir "$build/leaks"
# Python itself is not sanitized: the libraries must be loaded first.
export LD_PRELOAD="$(g++ -print-file-name=libasan.so):$(g++ -print-file-name=libubsan.so)"
export ASAN_OPTIONS=detect_leaks=1:malloc_context_size=40:allocator_may_return_null=1
export LSAN_OPTIONS="exitcode=0:max_leaks=0:print_suppressions=0:log_path=$build/leaks/leaks"
export UBSAN_OPTIONS=print_stacktrace=1
export PYTHONMALLOC=malloc TENSCOPE_SANITIZED=1
"$venv/bin/python" -m pytest -p no:xdist -p no:cacheprovider "${files[@]}"
unset LD_PRELOAD
"$python" tools/own_leaks.py "$build/leaks" tools/own_leaks.supp
