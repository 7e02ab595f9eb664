# make demo, make test: all that a new user needs. Python ≥ 3.11, make and git suffice.
PYTHON ?= python3
VENV ?= .venv
# Flags for pip; on Linux without a GPU see docs/install.md for a much smaller PyTorch.
PIP_FLAGS ?=
BIN := $(VENV)/bin
INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt $(PIP_FLAGS)
INSTALLED := $(VENV)/.installed
# Modules and tests are compiled once, not again in each process that runs them.
export PYTHONDONTWRITEBYTECODE :=
# Tests run side by side, on a core each.
OMP_NUM_THREADS ?= 1
SIDE_BY_SIDE := $(BIN)/pytest -n auto --maxprocesses 8
PYTEST := OMP_NUM_THREADS=$(OMP_NUM_THREADS) $(SIDE_BY_SIDE)
# Those whose numbers depend on how a machine adds.
NUMERICAL := $(addprefix tests/,attention data decoding evaluation explorer huggingface metrics models positions text training)
BENCH := $(VENV)/.bench
SUITE ?= mechanisms
BENCHMARKS ?= computer choices attention recurrences decoding_step decoding_mechanisms hybrids training processes decoding decoding_package decoding_families gpu_attention world look effects

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-slow test-ray test-machines bench figures reference docs findings prose exercises exercise-trainings live-model suite format clean

help: ## Show this help
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-13s %s\n", $$1, $$2}'

# The pip of Python 3.11 takes three times as long to resolve packages. pip compiles modules on one
# core, compileall on all; modules for a newer Python fail to compile, which is ignored. Left to the
# first import, each process of the tests would compile them again.
setup: $(INSTALLED) ## Make .venv with everything pinned

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Regard needs Python 3.11 or newer")'
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) pip
	$(INSTALL) --no-compile --editable '.[dev]'
	$(BIN)/python -m compileall -qq -j 0 $(VENV) || true
	touch $@

demo: setup ## Run the main job on a fictional world
	$(BIN)/regard demo $(ARGS)

test: setup ## Lint, types and the fast tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --num-workers auto
	$(PYTEST)

test-slow: setup ## Tests that train long, kill processes or need a browser
	$(PYTEST) -m "slow and not findings" --dist loadfile --no-loadscope-reorder

test-ray: setup ## Tests with a Ray cluster on this machine
	$(INSTALL) --editable '.[ray]'
	OMP_NUM_THREADS=$(OMP_NUM_THREADS) $(BIN)/pytest -m ray tests/slow/test_compare_ray.py

# Instruction sets of torch, oneDNN and MKL on x86.
FEWEST := ATEN_CPU_CAPABILITY=default DNNL_MAX_CPU_ISA=AVX2 MKL_ENABLE_INSTRUCTIONS=SSE4_2
FEWER := ATEN_CPU_CAPABILITY=avx2 MKL_ENABLE_INSTRUCTIONS=AVX2

# Threads wait without spinning.
test-machines: export OMP_WAIT_POLICY := passive
test-machines: setup ## The numerical tests with fewer instructions, more threads, in any order
	$(FEWEST) OMP_NUM_THREADS=4 $(SIDE_BY_SIDE) --random-order $(NUMERICAL)
	$(FEWER) OMP_NUM_THREADS=2 $(SIDE_BY_SIDE) --random-order $(NUMERICAL)
	OMP_NUM_THREADS=1 $(SIDE_BY_SIDE) --random-order $(NUMERICAL)

bench: setup $(BENCH) ## Measure beside the peers, an hour and a half (BENCHMARKS="attention decoding_step …")
	for name in $(BENCHMARKS); do $(BIN)/python benchmarks/$$name.py || exit 1; done

$(BENCH): pyproject.toml constraints.txt
	$(INSTALL) --editable '.[bench]'
	$(INSTALL) --no-deps bertviz
	touch $@

figures: setup ## Draw the docs' figures again
	$(BIN)/python docs/answer_figure.py
	$(BIN)/python docs/architecture_figure.py
	$(BIN)/python docs/attention_figures.py
	$(BIN)/python docs/birthplaces_figures.py
	$(BIN)/python docs/book_figure.py
	$(BIN)/python docs/family_figures.py
	$(BIN)/python docs/make_figures.py

reference: setup ## Write the docs' reference of commands and configuration
	$(BIN)/python docs/make_reference.py

# Pages show sets, in the order of their hashes.
docs: setup build/book/index.html ## Build the documentation site, build/site/index.html
	PYTHONHASHSEED=0 $(BIN)/python docs/site/build.py build/book build/work build/site

build/book/index.html: $(shell find src/regard docs -type f -not -name '*.pyc') | $(INSTALLED)
	$(BIN)/regard book --out build/book --slides

findings: setup ## Measure all studies again, for the package and the docs; trained ones over 5 seeds (hours)
	$(BIN)/python docs/make_findings.py
	$(BIN)/python docs/study_pages.py
	$(BIN)/pytest -m findings -o faulthandler_timeout=0

prose: setup ## Check the prose of all pages with proselint
	$(BIN)/pip install --quiet --disable-pip-version-check 'proselint>=0.16'
	$(BIN)/python docs/prose.py

exercises: setup ## Train two small models and write the page of exercises (5 minutes)
	$(BIN)/python docs/exercises.py $(ARGS)

RECORD := $(BIN)/python docs/exercises.py --record --runs "$$(mktemp -d)" --seed
exercise-trainings: setup ## Train the exercises' models eight times, for the page's spread (25 minutes)
	for seed in 0 1 2 3; do $(RECORD) $$seed || exit 1; done
	for seed in 0 1; do $(FEWEST) $(RECORD) $$seed && $(FEWER) $(RECORD) $$seed || exit 1; done

live-model: setup ## Train the model whose weights are in the book (5 minutes)
	$(BIN)/python docs/live_model.py

suite: setup ## Train a suite and write its page in docs; resumable (SUITE=mechanisms, 80 minutes)
	$(BIN)/regard compare --suite $(SUITE) --out runs/$(SUITE)
	$(BIN)/python docs/suite_page.py $(SUITE) runs/$(SUITE)

format: setup ## Put the code into shape
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## Remove what the other targets made, except runs
	rm -rf $(VENV) build .mypy_cache .pytest_cache .ruff_cache .hypothesis dist
