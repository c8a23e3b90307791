# `make` without a target lists the targets. Every target works in a new clone.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

BIN := .venv/bin
STAMP := .venv/.setup-done
CODE := src tests $(wildcard benchmarks examples) scripts
NOJIT := $(wildcard tests/stages tests/operators tests/expr)
JOBS ?= 2
PYTEST := $(BIN)/pytest -q -n $(JOBS)
# One worker runs all tests of the shared Spark session, and starts with them (`tests/conftest.py`).
SHARED_SESSION := --dist loadgroup --no-loadscope-reorder
# Each worker runs whole files, because these tests share the processes of a file.
WHOLE_FILES := --dist loadfile
IN_CI := not slow and not process and not recordings
# Seed of the Hypothesis examples of `make test-properties`; set it to repeat a run.
SEED ?= $(shell od -An -N4 -tu4 /dev/urandom | tr -d ' ')

# Archive of Spark's classes, which shortens the start of a JVM. Tests also run without it.
CLASSES := .cache/classes.stamp

# Without bytecode, each process would compile a thousand modules.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup kernels java demo test test-processes test-slow test-recordings test-fast test-properties test-newest test-nojit test-papers test-nightly check docs fmt bench clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-15s %s\n", $$1, $$2 }' Makefile

setup: $(STAMP) ## Create .venv with the versions of uv.lock, if it is missing or out of date

$(STAMP): pyproject.toml uv.lock scripts/setup.sh
	@scripts/setup.sh
	@touch $@

$(CLASSES): $(STAMP) scripts/share_classes.py
	@JAVA_HOME="$$(scripts/java.sh)"; export JAVA_HOME; mkdir -p $(@D); $(BIN)/python scripts/share_classes.py $(@D) $@

kernels: setup ## Compile the kernels that are not in the cache; other targets compile the kernels that they need
	@$(BIN)/python scripts/compile_kernels.py

java: ## Find Java 17 or newer; as root on Debian, install it if there is none
	@home="$$(scripts/java.sh)"; echo "java: using $$home"

demo: setup ## Run a small example on this machine
	@JAVA_HOME="$$(scripts/java.sh)"; export JAVA_HOME; $(BIN)/python -m tocsin demo

test: setup $(CLASSES) ## Run the tests of one Python process and one shared Spark session
	@JAVA_HOME="$$(scripts/java.sh)"; export JAVA_HOME; $(PYTEST) $(SHARED_SESSION) -m "$(IN_CI)" --durations=15

test-processes: setup $(CLASSES) ## Run the tests that start, kill and restart runs and clusters as processes of their own
	@JAVA_HOME="$$(scripts/java.sh)"; export JAVA_HOME; $(PYTEST) $(WHOLE_FILES) -m "process and not slow" --durations=15

test-slow: setup $(CLASSES) ## Run the tests outside CI: kills at random moments, real servers, browser pages, benchmarks
	@JAVA_HOME="$$(scripts/java.sh)"; export JAVA_HOME; $(PYTEST) $(WHOLE_FILES) -m slow --durations=15

test-recordings: setup $(CLASSES) ## Run the tests that read recordings; TOCSIN_RECORDINGS names the folder
	@JAVA_HOME="$$(scripts/java.sh)"; export JAVA_HOME; $(PYTEST) $(SHARED_SESSION) -m "recordings and not slow"

test-fast: setup ## Run the tests that need no JVM
	@$(PYTEST) $(SHARED_SESSION) -m "not spark and $(IN_CI)"

test-properties: setup ## Run the tests without JVM on many Hypothesis examples, drawn from SEED
	@echo "test-properties: SEED=$(SEED)"
	@$(PYTEST) $(SHARED_SESSION) -m "not spark and $(IN_CI)" --hypothesis-profile=nightly --hypothesis-seed=$(SEED) --timeout=3600

test-newest: setup ## Run the tests of the Spark engine on the newest supported PySpark, in a separate environment
	@JAVA_HOME="$$(scripts/java.sh)"; export JAVA_HOME; scripts/newest.sh tests/spark/test_alerts.py tests/spark/test_stateful.py

test-nojit: setup ## Run the tests of kernels and expressions without compilation
	@test -n "$(NOJIT)" || { echo "no tests of kernels or expressions found"; exit 1; }
	@NUMBA_DISABLE_JIT=1 $(BIN)/pytest -q --hypothesis-profile=small -m "not spark and $(IN_CI)" $(NOJIT)

test-nightly: setup ## Run CI's tests and everything that CI omits; print the result and duration of each part
	@scripts/nightly.sh "$(SEED)"

test-papers: setup ## Run the tests of the paper algorithms in benchmarks/papers
	@$(PYTEST) benchmarks/papers

check: setup ## Check style, format, language, types and import contracts
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff check --config 'lint.ignore=[]' --select D401 $$(grep -v '\.md$$' scripts/converted_files.txt)
	$(BIN)/python scripts/check_language.py
	$(BIN)/python scripts/generate_reference.py --check
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: setup ## Build the documentation site into build/site; check its links and that it loads nothing from other hosts
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build
	@$(BIN)/python scripts/check_site.py build/site

fmt: setup ## Format the code, and apply the automatic fixes of ruff
	$(BIN)/ruff format $(CODE)
	$(BIN)/ruff check --fix $(CODE)
	$(BIN)/ruff format $(CODE)

bench: setup ## Run the benchmarks; make bench ONLY=threshold-kernel runs one of them
	@JAVA_HOME="$$(scripts/java.sh)"; export JAVA_HOME; \
	for name in $(or $(ONLY),threshold-kernel threshold-spark); do \
		echo "== $$name"; $(BIN)/python -m benchmarks $$name; \
	done

clean: ## Remove build results and the environment
	@find src tests scripts $(wildcard benchmarks examples) -name __pycache__ -type d -prune -exec rm -rf {} +
	@rm -rf .venv .cache .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis build dist artifacts \
		spark-warehouse metastore_db derby.log
