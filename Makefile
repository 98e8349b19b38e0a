# One command per need. A fresh Debian with python3 (3.11 or newer), make and git is enough:
# scripts/setup fetches the rest into .venv, and installs what apt must when run as root.

PYTHON ?= python3
# The longest first: those that wait run beside those that compute, and no process idles at the end.
TESTS ?= tests/system tests/browser tests/interop tests/simulation tests/conformance tests/unit tests/tidy
# More than there are cores in a small machine: many tests wait for processes, not for a core.
PROCESSES ?= 3
HOURS ?= 8
BIN := .venv/bin

export PYTHON

.DEFAULT_GOAL := help
.PHONY: help demo test check format docs reference bench bench-full soak clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo:  ## see Longshore run jobs, and survive what dies
	@scripts/setup runtime
	@echo "demo: examples/demo.py"
	@$(BIN)/python examples/demo.py

test: check  ## check, then run every test on real servers (TESTS=tests/unit for a part, PROCESSES=4 for more at once)
	@scripts/setup servers patroni browser engine compiler docs
	@$(BIN)/python -m compileall -q src  # processes start faster, also where Python writes no bytecode itself
	@echo "test: pytest $(TESTS)"
	@$(BIN)/python -m pytest -n $(PROCESSES) --dist worksteal --durations=10 --session-timeout=4800 $(TESTS)

check:  ## formatting, lint, types, import layers
	@scripts/setup dev
	@echo "check: ruff format"
	@$(BIN)/ruff format --check --quiet --output-format concise . || { echo "check: run 'make format'" >&2; exit 1; }
	@echo "check: ruff"
	@$(BIN)/ruff check --quiet .
	@echo "check: mypy"
	@$(BIN)/mypy --no-error-summary
	@echo "check: import layers"
	@report=$$($(BIN)/lint-imports --no-logo 2>&1) || { echo "$$report" >&2; exit 1; }

format:  ## rewrite the code in the one format
	@scripts/setup dev
	@$(BIN)/ruff format --quiet .
	@$(BIN)/ruff check --quiet --fix .

docs:  ## build the docs as a site, in site/
	@scripts/setup docs
	@report=$$(NO_MKDOCS_2_WARNING=1 .venvs/docs/bin/mkdocs build --strict 2>&1) || { echo "$$report" >&2; exit 1; }
	@echo "docs: open site/index.html"

reference:  ## write the parts of the reference that follow from the code
	@scripts/setup dev
	@$(BIN)/python scripts/reference.py

bench:  ## measure speed, beside the limit and beside others (BENCH=--docs puts the report into the docs)
	@scripts/setup dev servers engine bench
	@$(BIN)/python bench/run.py $(BENCH)

bench-full:  ## the same with more of everything
	@scripts/setup dev servers engine bench
	@$(BIN)/python bench/run.py --full $(BENCH)

soak:  ## break simulated clusters, then real processes, for hours, until a promise is broken (HOURS=8)
	@scripts/setup dev servers patroni
	@$(BIN)/python scripts/soak.py $(HOURS)

clean:  ## remove what these targets made
	@rm -rf .venv .venvs site bench/.venv bench/.venvs .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find src tests bench examples scripts -name __pycache__ -type d -prune -exec rm -rf {} +
	@echo "clean: done"
