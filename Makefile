# make demo, make test: all that a new user needs. Python ≥ 3.11, make and git suffice.
PYTHON ?= python3
VENV ?= .venv
# Flags for pip; on Linux without a GPU see docs/install.md for a much smaller PyTorch.
PIP_FLAGS ?=
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
BENCH := $(VENV)/.bench
BENCHMARKS ?= short_rows attention decoding_step training decoding decoding_families gpu_attention world look

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-slow bench figures findings format clean

help: ## Show this help
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-10s %s\n", $$1, $$2}'

setup: $(INSTALLED) ## Make .venv with everything pinned

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Regard needs Python 3.11 or newer")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt $(PIP_FLAGS) --editable '.[dev]'
	touch $@

demo: setup ## Run the main job on a fictional world
	$(BIN)/regard demo $(ARGS)

test: setup ## Lint, types and the fast tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest

test-slow: setup ## Tests that train long, kill processes or need a browser
	$(BIN)/pytest -m slow

bench: setup $(BENCH) ## Measure beside the peers, an hour and a half (BENCHMARKS="attention decoding_step …")
	for name in $(BENCHMARKS); do $(BIN)/python benchmarks/$$name.py || exit 1; done

$(BENCH): pyproject.toml constraints.txt
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt $(PIP_FLAGS) --editable '.[bench]'
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --no-deps bertviz
	touch $@

figures: setup ## Draw the docs' figures anew
	$(BIN)/python docs/attention_figures.py
	$(BIN)/python docs/birthplaces_figures.py
	$(BIN)/python docs/family_figures.py
	$(BIN)/python docs/make_figures.py

findings: setup ## Measure all studies anew, for the package and the docs (20 minutes)
	$(BIN)/regard study book --train --out build/book
	rm -f src/regard/studies/findings/*
	cp build/book/findings/*.json build/book/findings/*.svg build/book/findings/*.png src/regard/studies/findings/
	$(BIN)/python docs/study_pages.py
	$(BIN)/pytest -m findings

format: setup ## Put the code into shape
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## Remove what the other targets made, except runs
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis dist
