# Every target works from a fresh clone: it makes the virtual environment where that is missing and is quick the second time.
VENV ?= .venv
PYTHON ?= python3
PYTEST_WORKERS ?= 2

ifeq ($(OS),Windows_NT)
BIN := $(VENV)/Scripts
else
BIN := $(VENV)/bin
endif

# Small networks are slower with two threads than with one; tests run in several processes instead.
export OMP_NUM_THREADS := 1

.PHONY: help demo test slow check docs benchmark clean

help:
	@echo "make demo       sparsify a real network and show what came of it"
	@echo "make test       the tests that take seconds"
	@echo "make slow       the tests that take minutes"
	@echo "make check      formatting, lint, types, import layers"
	@echo "make docs       the documentation site, in site/"
	@echo "make benchmark  the cost of a training step beside the plain one"

$(VENV)/.installed-test: pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[test]"
	@touch $@

$(VENV)/.installed-check: $(VENV)/.installed-test
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[test,check]"
	@touch $@

demo: $(VENV)/.installed-test
	$(BIN)/ellzero demo

test: $(VENV)/.installed-test
	$(BIN)/python -m pytest -n $(PYTEST_WORKERS)

slow: $(VENV)/.installed-test
	$(BIN)/python -m pytest -n $(PYTEST_WORKERS) -m slow

check: $(VENV)/.installed-check
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports

docs: $(VENV)/.installed-check
	$(BIN)/mkdocs build --strict --quiet --site-dir site

benchmark: $(VENV)/.installed-test
	$(BIN)/python benchmarks/step.py

clean:
	rm -rf $(VENV) site dist .pytest_cache .ruff_cache .hypothesis .import_linter_cache
