# Every target makes .venv on first use and keeps it; nothing has to be installed by hand.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export PATH := $(CURDIR)/$(BIN):$(PATH)

.DEFAULT_GOAL := help
.PHONY: help demo test test-torch lint types page links slow bench bench-torch bench-links clean

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 13

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit("stragglar needs Python 3.11 or newer: set PYTHON=..." if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)

# One stamp for each set of extras, renewed when the list of dependencies changes.
$(VENV)/.run: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[mpi]'
	@touch $@

$(VENV)/.test: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[mpi,test]'
	@touch $@ $(VENV)/.run

demo: $(VENV)/.run ## the whole job for 8 ranks: synthesize, check, lower, replay, run on MPI, draw
	@bash examples/demo.sh

test: lint types page ## lint, types and the whole test suite (the slow sweeps are in `make slow`)
	$(BIN)/python -m pytest -n 2 -m 'not slow'

lint: $(VENV)/.test ## ruff: style and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# mypy sees the folders under the names they are installed by.
links:
	@mkdir -p build/typecheck/stragglar
	@for d in schedules synth backends cli; do ln -sfn ../../../$$d build/typecheck/stragglar/$$d; done
	@ln -sfn ../../../benchmarks/testbed build/typecheck/stragglar/testbed

types: $(VENV)/.test links ## mypy, strict
	$(BIN)/mypy -p stragglar

# Not on PyPI. Without npm, or without a registry, the tests that need it say so and are skipped.
page: ## TypeScript, which checks the types of the inspector's scripts (through npm)
	@test -d build/page/node_modules/typescript || ! command -v npm >/dev/null \
		|| npm install --prefix build/page --no-save --no-audit --no-fund --silent typescript@5.9.3 \
		|| echo "no TypeScript: the types of the page's scripts are not checked"

slow: $(VENV)/.test ## the sweeps over every n, late rank and refinement
	$(BIN)/python -m pytest -n 2 -m slow

$(VENV)/.torch: pyproject.toml $(VENV)/.test
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[mpi,test,torch]'
	@touch $@

test-torch: $(VENV)/.torch ## the tests of the PyTorch backend, with torch installed
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/backends/torch

bench: $(VENV)/.test ## measurements: see docs/benchmarks.md
	$(BIN)/python benchmarks/synthesis.py -o benchmarks/results/synthesis.json
	$(BIN)/python benchmarks/pipeline.py -o benchmarks/results/pipeline.json
	$(BIN)/python benchmarks/rounds.py -o docs/rounds.md
	$(BIN)/python benchmarks/evaluation.py -o docs
	$(BIN)/python benchmarks/several.py -o docs/several.md
	$(BIN)/python benchmarks/pages.py

bench-torch: $(VENV)/.torch ## what a decision and a call of the PyTorch backend cost
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/torch_overhead.py -o benchmarks/results/torch_overhead.json

bench-links: $(VENV)/.test ## measurements on shaped links between network namespaces: docs/measured.md
	$(BIN)/python benchmarks/links.py

clean: ## remove .venv, caches and build output
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
