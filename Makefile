# Everything sets itself up: `make demo` and `make test` work in a fresh clone.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest

.DEFAULT_GOAL := help
.PHONY: help setup demo check static unit test older skypilot skypilot-oldest skypilot-newest bench chaos docs format clean

help: ## Show what can be made
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 10

setup: $(VENV)/.installed $(VENV)/.system ## Install the package and its tools into a virtual environment of its own

$(VENV)/.installed: pyproject.toml constraints.txt scripts/make-venv.sh
	scripts/make-venv.sh "$(PYTHON)" "$(VENV)" '.[test,docs,lepton,kubeflow]' leptonai==0.47.1
	touch $@

$(VENV)/.system: scripts/system-packages.sh | $(VENV)/.installed
	scripts/system-packages.sh
	touch $@

demo: .venv-demo/.installed ## Train a small model several times, pick the best, all as one experiment
	.venv-demo/bin/python examples/quickstart.py

.venv-demo/.installed: pyproject.toml constraints.txt scripts/make-venv.sh
	scripts/make-venv.sh "$(PYTHON)" .venv-demo '.'
	touch $@

check: setup ## Format, lint, types, docs and the fast tests
	$(MAKE) --no-print-directory -j2 --output-sync=target static unit

static: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/sphinx-build -q -W --keep-going -b html docs docs/_build/html

# On a busy machine anything may take longer than any test waits. What fails is tried once more, alone,
# and must pass then; both are printed.
ONCE_MORE := -q --last-failed --last-failed-no-failures none

unit: setup
	$(PYTEST) -q -n 3 --dist worksteal -m "not slow" tests || $(PYTEST) $(ONCE_MORE) -m "not slow" tests

test: check .venv-torch/.installed ## Everything: `make check`, then the slow suites against real engines
	$(PYTEST) -q -n 4 --dist worksteal --durations 8 -m "slow and not skypilot" tests || $(PYTEST) $(ONCE_MORE) tests
	$(MAKE) --no-print-directory older
	$(MAKE) --no-print-directory skypilot SKYPILOT_JOBS="$(SOME_JOBS)"

older: .venv-lepton-0.26/.installed .venv-torch/.installed ## The Lepton suites with the older generation of the vendor's client
	.venv-lepton-0.26/bin/python -m pytest -q -n 4 --dist worksteal -k lepton tests/contract tests/emulators/test_lepton.py tests/integration/lepton tests/unit/test_lepton_pieces.py || .venv-lepton-0.26/bin/python -m pytest $(ONCE_MORE) tests

# Real torch, for tests of distributed training; it is large, so nothing else has it.
.venv-torch/.installed: pyproject.toml constraints.txt scripts/make-venv.sh
	scripts/make-venv.sh "$(PYTHON)" .venv-torch '.' torch==2.13.0 numpy
	touch $@

.venv-lepton-0.26/.installed: pyproject.toml constraints.txt scripts/make-venv.sh
	scripts/make-venv.sh "$(PYTHON)" .venv-lepton-0.26 '.[test]' leptonai==0.26.6
	touch $@

# SkyPilot has half a gigabyte of dependencies, and its suites a real Slurm and an API server of their own.
SKYPILOT_BED := tests/integration/skypilot/bed.sh
# Each managed job makes a cluster of its own. Of those in the contract suite, what `make test` has time for.
SOME_JOBS := TestPlanning or dry_run_shows or never_submitted or not_known or cancel_returns or started_again_as_often or arguments_arrive
# What starts no job, also with the oldest release.
SKYPILOT_CHEAP := python -m pytest -q -p no:cacheprovider -m "skypilot or not slow" -k "test_skypilot_sdk or test_skypilot_dryrun or (skypilot and (test_executors or TestPlanning or test_listings))" tests/contract tests/integration/skypilot tests/compat/test_listings.py

skypilot: .venv-skypilot/.installed .venv-skypilot-oldest/.installed .venv-torch/.installed $(VENV)/.system ## The SkyPilot suites, on a cluster that a real SkyPilot makes
	$(MAKE) --no-print-directory -j2 --output-sync=target skypilot-oldest skypilot-newest

skypilot-oldest:
	$(SKYPILOT_BED) .skypilot-bed/oldest .venv-skypilot-oldest $(SKYPILOT_CHEAP)

skypilot-newest:
	$(SKYPILOT_BED) .skypilot-bed/newest .venv-skypilot tests/integration/skypilot/suite.sh

SKYPILOT_PINS := tests/integration/skypilot/constraints.txt

.venv-skypilot/.installed: pyproject.toml constraints.txt $(SKYPILOT_PINS) scripts/make-venv.sh
	scripts/make-venv.sh "$(PYTHON)" .venv-skypilot '.[test]'
	.venv-skypilot/bin/pip install --quiet -c $(SKYPILOT_PINS) 'skypilot[slurm,remote]==0.14.1' fastapi==0.162.4
	touch $@

.venv-skypilot-oldest/.installed: pyproject.toml constraints.txt $(SKYPILOT_PINS) scripts/make-venv.sh
	scripts/make-venv.sh "$(PYTHON)" .venv-skypilot-oldest '.[test]'
	.venv-skypilot-oldest/bin/pip install --quiet -c $(SKYPILOT_PINS) 'skypilot[slurm,remote]==0.12.3' fastapi==0.128.8
	touch $@

chaos: setup ## Kill everything involved at 200 random moments; nothing may be lost
	NEMO_RUN_CHAOS_KILLS=200 $(PYTEST) -q --timeout 3600 -k chaos tests

docs: setup ## Build the documentation; a warning is an error
	$(BIN)/sphinx-build -q -W --keep-going -b html docs docs/_build/html

bench: setup ## Measure against other launchers, side by side
	$(BIN)/python -m benchmarks

format: setup ## Rewrite the sources the way `make check` wants them
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean: ## Remove what was built
	rm -rf $(VENV) .venv-* .skypilot-bed .bench build dist docs/_build docs/apidocs .mypy_cache .ruff_cache .pytest_cache
