# tenscope: everything a developer types. `make help` lists it.
SHELL := bash
PYTHON := .venv/bin/python
PIP_INSTALL := -m pip install -q --disable-pip-version-check --no-build-isolation --no-deps -e .
OTHER_PYTHONS := 3.10 3.12 3.13
SECONDS_EACH = $(or $(SECONDS),60)
N ?= 10000
# In order, so that what a file prepares is prepared once; who is done first takes of the rest. Three on two cores, since
# many tests wait for a program or a browser.
THREE_AT_A_TIME := -n 3 --dist worksteal
# By one name everywhere, so that ccache knows what the preset compiled when pip builds it again: left alone, pip takes
# the compiler by the name that Python was built with.
ifeq ($(origin CC) $(origin CXX),default default)
export CC := cc
export CXX := c++
endif

# What one checkout has compiled serves another: paths below this folder count as relative ones.
export CCACHE_BASEDIR := $(CURDIR)
export CCACHE_NOHASHDIR := 1
# Headers that were read before (TENSCOPE_PRECOMPILE) need the first; the second saves a pass of the preprocessor.
export CCACHE_SLOPPINESS := pch_defines,time_macros
export CCACHE_DEPEND := 1

.PHONY: help
help:  ## what can be made
	@grep -hE '^[a-z][a-z-]*:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 16

.PHONY: setup
setup: tools packages  ## install what is needed: Debian packages where missing, Python packages into .venv

.PHONY: tools packages
tools:
	@tools/setup.sh tools
packages: tools
	@tools/setup.sh packages

.PHONY: compile
compile: tools
	@echo "==> building (build/release)"
	@cmake --preset release -DPython_EXECUTABLE=$(CURDIR)/$(PYTHON) > build-configure.log 2>&1 || { cat build-configure.log; exit 1; }
	@rm -f build-configure.log
	@MAKEFLAGS= cmake --build build/release  # ninja has jobs of its own

.PHONY: build
build: tools  ## build the core, the command line and the Python package (editable, in .venv)
	@$(MAKE) --no-print-directory -j2 compile packages
	@$(PYTHON) $(PIP_INSTALL) -C build-dir=build/release -C cmake.build-type=Release \
	  -C cmake.define.TENSCOPE_TESTS=ON -C cmake.define.TENSCOPE_BENCH=ON

.PHONY: demo
demo: build  ## set up, build, and show the main job on a small GPT
	@$(PYTHON) examples/demo.py

.PHONY: test
test: build test-cpp test-python test-pythons  ## set up, build, and run every test

.PHONY: test-cpp
test-cpp: tools  ## the C++ tests under AddressSanitizer and UndefinedBehaviorSanitizer
	@echo "==> C++ tests under asan and ubsan (build/asan)"
	@cmake --preset asan > /dev/null
	@cmake --build build/asan --target unit_tests
	@ctest --test-dir build/asan --output-on-failure -j2

.PHONY: test-python
test-python: build  ## the Python tests on the main Python
	@echo "==> Python tests"
	@$(PYTHON) -m pytest $(THREE_AT_A_TIME)

.PHONY: test-pythons
test-pythons: $(OTHER_PYTHONS:%=test-python-%)  ## what depends on the Python and needs no torch, on the other Pythons

.PHONY: test-python-%
test-python-%: setup
	@tools/setup.sh $*
	@if [ -d .venv-$* ]; then \
	  echo "==> Python tests on Python $*"; \
	  .venv-$*/bin/python $(PIP_INSTALL) -C build-dir=build/py$* && .venv-$*/bin/python -m pytest $(THREE_AT_A_TIME) --other-python; fi

.PHONY: tsan
tsan: tools  ## the C++ tests under ThreadSanitizer
	@cmake --preset tsan > /dev/null
	@cmake --build build/tsan --target unit_tests
	@ctest --test-dir build/tsan --output-on-failure -j2

.PHONY: asan-python
asan-python: build  ## the Python tests on a sanitized extension (asan, ubsan, leaks): before a release
	@tools/asan_python.sh

.PHONY: torture
torture: build  ## kill a recording process N times (default 10000) and check that nothing acknowledged is lost
	@TENSCOPE_KILLS=$(N) $(PYTHON) -m pytest tests/test_crash.py -s -p no:xdist --timeout 36000

.PHONY: fuzz
fuzz: setup  ## run every libFuzzer target for SECONDS (default 60) each
	@tests/fuzz.sh $(SECONDS_EACH)

.PHONY: bench
bench: build  ## the benchmarks: each prints a ratio against a peer in the same run
	@cmake --build build/release --target benchmarks
	@for program in build/release/bench/*_bench; do echo "==> $$program"; $$program || exit 1; done
	@for script in bench/bench_*.py; do echo "==> $$script"; $(PYTHON) $$script || exit 1; done

.PHONY: bugs
bugs: build  ## record and diff programs with known bugs (BUGS=folder): is the right place named?
	@$(PYTHON) bench/bugs.py $(BUGS)

.PHONY: upgrades
upgrades: build  ## record and diff upgrades, with a bug or harmless: right answers? (ONLY=--local: no downloads)
	@$(PYTHON) bench/upgrades/run.py $(ONLY)

.PHONY: layouts
layouts: build  ## record and diff one GPT in many parallel layouts, with and without mistakes: right answers?
	@$(PYTHON) bench/layouts/run.py --jobs 2 $(if $(ONLY),--only '$(ONLY)')

.PHONY: engines
engines: build  ## the adapters against the real engines (LLAMA=prefix: an installed llama.cpp, else it is built)
	@LLAMA=$(LLAMA) tests/engines/run.sh

.PHONY: lint
lint: style tidy  ## clang-format, ruff, deno and clang-tidy

.PHONY: style
style: setup  ## the quick part of lint: clang-format, ruff and deno
	@tools/lint.sh style

.PHONY: tidy
tidy: setup  ## the slow part of lint: clang-tidy
	@tools/lint.sh tidy

.PHONY: tidy-quick
tidy-quick: setup  ## clang-tidy without its static analyser, as continuous integration runs it
	@tools/lint.sh tidy-quick

.PHONY: stubs
stubs: build  ## write the extension's type stubs, python/tenscope/_core.pyi, anew
	@$(PYTHON) -m nanobind.stubgen -q -i build/release/python -m _core -p python/bindings/stubs.pat -o python/tenscope/_core.pyi

.PHONY: web
web: setup  ## check and test the viewer's page, and build it anew into web/dist
	@tools/lint.sh web
	@web/build.sh

.PHONY: docs
docs: build  ## the documentation site in build/site; a link that leads nowhere is an error (SERVE=1: look at it)
	@tools/setup.sh docs
	@$(PYTHON) tools/site/reference.py build/reference
	@NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs $(if $(SERVE),serve,build --strict)
	@$(if $(SERVE),,echo "==> build/site/index.html")

.PHONY: wheel
wheel: setup  ## a repaired wheel in wheelhouse/, tried in an empty venv
	@tools/wheel.sh

.PHONY: wheels
wheels: setup  ## wheels for all Pythons and the sources, each tried, in wheelhouse/: a release
	@tools/wheel.sh all

.PHONY: clean
clean:  ## remove what was built (not .venv)
	rm -rf build dist wheelhouse
