# `make` alone says what there is. Every target works in a fresh clone.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

BIN := .venv/bin
STAMP := .venv/.setup-done
CODE := src tests $(wildcard benchmarks examples) scripts
NOJIT := $(wildcard tests/stages tests/expr)
# Test files run side by side, each whole in one process: most of a Spark test is waiting for a JVM to warm up. They run
# in the order of `tests/conftest.py`, the longest first, and not by the number of tests in them.
JOBS ?= 2
PYTEST := $(BIN)/pytest -q -n $(JOBS) --dist loadfile --no-loadscope-reorder

# Spark's classes, for JVMs that start again and again; they do without where it is missing.
CLASSES := .cache/spark.jsa

# Numba keeps compiled kernels in __pycache__, next to the bytecode.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup java demo test test-slow test-recordings test-fast test-newest test-nojit check fmt bench clean clean-cache

help: ## Say what each target does
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' Makefile

setup: $(STAMP) ## Make .venv with the versions of uv.lock; does nothing when up to date

$(STAMP): pyproject.toml uv.lock scripts/setup.sh
	@scripts/setup.sh
	@touch $@

$(CLASSES): $(STAMP) scripts/share_classes.py
	@JAVA_HOME="$$(scripts/java.sh)"; export JAVA_HOME; mkdir -p $(@D); $(BIN)/python scripts/share_classes.py $@

java: ## Find Java 17 or newer; as root on Debian, install it if there is none
	@home="$$(scripts/java.sh)"; echo "java: using $$home"

demo: setup ## Run a small example on this machine
	@JAVA_HOME="$$(scripts/java.sh)"; export JAVA_HOME; $(BIN)/python -m tocsin demo

test: setup $(CLASSES) ## Run all tests except slow ones; tests on Spark included
	@JAVA_HOME="$$(scripts/java.sh)"; export JAVA_HOME; $(PYTEST) -m "not slow" --durations=15

test-slow: setup $(CLASSES) ## Run the slow tests: they kill and restart brokers, clusters and whole runs
	@JAVA_HOME="$$(scripts/java.sh)"; export JAVA_HOME; $(PYTEST) -m slow --durations=15

test-recordings: setup $(CLASSES) ## Run the tests that read recordings; TOCSIN_RECORDINGS names the folder
	@JAVA_HOME="$$(scripts/java.sh)"; export JAVA_HOME; $(PYTEST) -m "recordings and not slow"

test-fast: setup ## Run the tests that need no JVM and are quick
	@$(PYTEST) -m "not spark and not cluster and not slow"

test-newest: setup ## Run the tests of the Spark engine on the newest PySpark that is supported, in an environment of its own
	@JAVA_HOME="$$(scripts/java.sh)"; export JAVA_HOME; scripts/newest.sh tests/spark/test_alerts.py tests/spark/test_stateful.py

test-nojit: setup ## Run the tests of kernels and expressions on plain Python, uncompiled
	@test -n "$(NOJIT)" || { echo "no tests of kernels or expressions found"; exit 1; }
	@NUMBA_DISABLE_JIT=1 $(BIN)/pytest -q --hypothesis-profile=small -m "not spark and not cluster" $(NOJIT)

check: setup ## Check style, format, types, import contracts and file lengths
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python scripts/file_length.py

fmt: setup ## Format the code and repair what can be repaired
	$(BIN)/ruff format $(CODE)
	$(BIN)/ruff check --fix $(CODE)
	$(BIN)/ruff format $(CODE)

bench: setup ## Run all benchmarks; one alone: make bench ONLY=threshold-kernel
	@JAVA_HOME="$$(scripts/java.sh)"; export JAVA_HOME; \
	for name in $(or $(ONLY),threshold-kernel threshold-spark); do \
		echo "== $$name"; $(BIN)/python -m benchmarks $$name; \
	done

clean-cache: ## Remove compiled kernels; needed after a change to a kernel that other files call
	@find src tests $(wildcard benchmarks) \( -name '*.nbi' -o -name '*.nbc' \) -delete

clean: clean-cache ## Remove all that was built, the environment too
	@find src tests scripts $(wildcard benchmarks examples) -name __pycache__ -type d -prune -exec rm -rf {} +
	@rm -rf .venv .cache .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis build dist artifacts \
		spark-warehouse metastore_db derby.log
