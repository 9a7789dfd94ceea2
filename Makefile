# Every target works from a fresh clone: it makes the virtual environment where that is missing and is quick the second time.
VENV ?= .venv
PYTHON ?= python3
PYTEST_WORKERS ?= 2

ifeq ($(OS),Windows_NT)
BIN := $(VENV)/Scripts
DOCS_BIN := $(VENV)-docs/Scripts
else
BIN := $(VENV)/bin
DOCS_BIN := $(VENV)-docs/bin
endif

# Small networks are slower with two threads than with one; tests run in several processes instead.
export OMP_NUM_THREADS := 1

.PHONY: help demo test slow mutants check docs test-browser house benchmark clean

help:
	@echo "make demo       sparsify a real network and show what came of it"
	@echo "make test       the tests that take seconds"
	@echo "make slow       the tests that take minutes, and properties on examples never seen before"
	@echo "make mutants    changes one thing in the sources at a time and asks whether a test fails; an hour, and resumes"
	@echo "make check      formatting, lint, types, import layers"
	@echo "make docs       the documentation site, in site/"
	@echo "make test-browser  the site in a browser: nothing wider than its window, no errors"
	@echo "make test-frameworks  Lightning, transformers, accelerate and Fabric against the plain loop"
	@echo "make house      the picture of the rooms, from the imports"
	@echo "make benchmark  the cost of a training step beside the plain one"

$(VENV)/.installed-test: pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[test]"
	@touch $@

$(VENV)/.installed-check: $(VENV)/.installed-test
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[test,check,lightning,transformers]"
	@touch $@

demo: $(VENV)/.installed-test
	$(BIN)/ellzero demo

test: $(VENV)/.installed-test
	$(BIN)/python -m pytest -n $(PYTEST_WORKERS)

slow: $(VENV)/.installed-test
	$(BIN)/python -m pytest -n $(PYTEST_WORKERS) -m "slow or hypothesis" --hypothesis-profile=random

mutants: $(VENV)/.installed-test
	$(BIN)/python -m tools.mutants

check: $(VENV)/.installed-check
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports

# The site needs no torch, so it has an environment of its own.
$(VENV)-docs/.installed: pyproject.toml constraints.txt
	@test -x $(DOCS_BIN)/python || $(PYTHON) -m venv $(VENV)-docs
	$(PYTHON) -c "import tomllib; print(*tomllib.load(open('pyproject.toml', 'rb'))['project']['optional-dependencies']['docs'], sep='\n')" \
		> $(VENV)-docs/requirements.txt
	$(DOCS_BIN)/python -m pip install --quiet -c constraints.txt -r $(VENV)-docs/requirements.txt
	@touch $@

docs: $(VENV)-docs/.installed
	$(DOCS_BIN)/python tools/site.py

test-browser: $(VENV)/.installed-test docs
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[test,browser]"
	$(BIN)/python -m pytest -rs -m slow tests/docs/test_browser.py

test-frameworks: $(VENV)/.installed-check
	$(BIN)/python -m pytest -rs tests/unit/integrations

house:
	$(PYTHON) tools/house.py

benchmark: $(VENV)/.installed-test
	$(BIN)/python benchmarks/step.py

clean:
	rm -rf $(VENV) $(VENV)-docs site .site dist .pytest_cache .ruff_cache .hypothesis .import_linter_cache
