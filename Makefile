# Everything sets itself up. `make demo` and `make test` need Python, git, make and OpenSSH's client, and
# work for any user in a fresh clone; only what depends on `system` installs anything outside of it.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest

.DEFAULT_GOAL := help
.PHONY: help setup system demo check static unit test local engines clients older ray skypilot skypilot-oldest skypilot-newest bench chaos fuzz mutants pythons lowest docs format clean

help: ## Show what can be made
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 10

setup: $(VENV)/.installed ## Install the package and its tools into a virtual environment of its own

$(VENV)/.installed: pyproject.toml constraints.txt scripts/make-venv.sh
	scripts/make-venv.sh "$(PYTHON)" "$(VENV)" '.[test,docs,lepton,kubeflow]' leptonai==0.47.1
	touch $@

system:
	scripts/system-packages.sh

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
	$(BIN)/lint-imports --no-logo --no-cache
	$(BIN)/sphinx-build -q -W --keep-going -b html docs docs/_build/html

unit: setup
	$(PYTEST) -q -n 3 --dist worksteal -m "not slow and not engine" tests

test: setup ## `make check` and all else that runs on this machine and on emulated services
	$(MAKE) --no-print-directory -j2 --output-sync=line static local

local: setup
	$(PYTEST) -q -n 4 --dist worksteal --durations 8 -m "not engine" tests

# With the packages that `system` has installed these also use a real busybox.
SMALL_IMAGES := tests/integration/dgxcloud/test_files.py tests/integration/kubeflow/test_files.py

# Each job of Ray's takes a second or two of a processor. What every scheduler has from one class, and other backends
# prove in `make test`, is for `make ray` alone.
RAY_LEFT_OUT := any_name_will_do or fits_into_a_handle or two_jobs_of_one_name or TestQuiet or two_may_cancel \
  or cancelling_twice or ended_stays_as_it_ended or succeeds_is_not_started_again or cancelled_job_is_not_started_again \
  or both_streams or lack_its_newline or says_nothing or regular_expression or time_chooses \
  or a_job_that_has_ended_ends_too or token_of_the_script or states_only_move_forward or jobs_are_listed \
  or role_or_replica or without_following or does_not_listen or cancelled_by_another_process or eight_processes

engines: system setup .venv-torch/.installed .venv-ray/.installed .venv-jupyter/.installed ## Real Slurm, Docker, SkyPilot, torch, older clients; as root, asks before it installs
	$(PYTEST) -q -n 4 --dist worksteal --durations 8 -m "engine and not skypilot" -k "not (ray and ($(RAY_LEFT_OUT)))" tests
	$(PYTEST) -q -n 4 --dist worksteal -m "not engine" $(SMALL_IMAGES)
	$(MAKE) --no-print-directory older
	$(MAKE) --no-print-directory skypilot SKYPILOT_JOBS="$(SOME_JOBS)" SKYPILOT_LEFT_OUT="$(SOME_LEFT_OUT)"

clients: system setup ## Programs built on the API, run end to end here and on a real Slurm
	$(PYTEST) -q -n 2 --dist worksteal tests/clients

older: .venv-lepton-0.26/.installed .venv-torch/.installed .venv-ray/.installed ## The Lepton suites with the older generation of the vendor's client
	.venv-lepton-0.26/bin/python -m pytest -q -n 4 --dist worksteal -k lepton tests/contract tests/emulators/test_lepton.py tests/integration/lepton tests/unit/test_lepton_pieces.py

# Real torch, for tests of distributed training; it is large, so nothing else has it.
.venv-torch/.installed: pyproject.toml constraints.txt scripts/make-venv.sh
	scripts/make-venv.sh "$(PYTHON)" .venv-torch '.' torch==2.13.0 numpy
	touch $@

ray: setup .venv-ray/.installed ## Tasks on a real Ray: the whole contract suite, and what only Ray has
	$(PYTEST) -q -n 4 --dist worksteal -k "ray and not (skypilot or slurm)" tests/contract tests/integration/ray tests/unit/test_ray_executor.py

# A real Ray, for clusters of its own and on a real Slurm; it is large, too.
.venv-ray/.installed: pyproject.toml constraints.txt scripts/make-venv.sh
	scripts/make-venv.sh "$(PYTHON)" .venv-ray '.' 'ray[default]==2.60.0'
	touch $@

# A real Jupyter, for devspaces. JupyterLab would be three times as large, and is started the same way.
.venv-jupyter/.installed: constraints.txt
	$(PYTHON) -m venv .venv-jupyter
	.venv-jupyter/bin/pip install --quiet --disable-pip-version-check -c constraints.txt jupyter-server==2.21.1
	touch $@

.venv-lepton-0.26/.installed: pyproject.toml constraints.txt scripts/make-venv.sh
	scripts/make-venv.sh "$(PYTHON)" .venv-lepton-0.26 '.[test]' leptonai==0.26.6
	touch $@

# SkyPilot has half a gigabyte of dependencies, and its suites a real Slurm and an API server of their own.
SKYPILOT_BED := tests/integration/skypilot/bed.sh
# Each managed job makes a cluster of its own. What `make engines` has time for; `make skypilot` runs all.
SOME_JOBS := TestPlanning or dry_run_shows or never_submitted or not_known or cancel_returns or started_again_as_often or arguments_arrive or torchrun_runs_across or never_heard_of or server_was_restarted
# What every scheduler has from one class, and other backends prove in `make test`, one managed job for a fault that
# clusters have too, and what takes minutes: for `make skypilot` alone.
SOME_LEFT_OUT := classes_of_the_launching_script or any_name_will_do or fits_into_a_handle or TestQuiet \
  or two_may_cancel or cancelling_twice or ended_stays_as_it_ended or does_not_listen or kill_does_not_ask \
  or between_two_tries or succeeds_is_not_started_again or cancelled_job_is_not_started_again or eight_processes \
  or both_streams or ends_at_its_newline or lack_its_newline or long_line or no_text_do_no_harm or says_nothing \
  or regular_expression or time_chooses or a_job_that_has_ended_ends_too or line_in_the_making or token_of_the_script \
  or states_only_move_forward or may_be_elsewhere or (server_was_restarted and SkypilotJobs) \
  or managed_job_whose_cluster_is_lost or managed_job_is_found_whose_launcher_was_killed
# What starts no job, also with the oldest release.
SKYPILOT_CHEAP := python -m pytest -q -p no:cacheprovider -m "skypilot or not slow" -k "test_skypilot_sdk or test_skypilot_dryrun or (skypilot and (test_executors or TestPlanning or test_listings))" tests/contract tests/integration/skypilot tests/compat/test_listings.py

skypilot: system .venv-skypilot/.installed .venv-skypilot-oldest/.installed .venv-torch/.installed ## The SkyPilot suites, on a cluster that a real SkyPilot makes
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

KILLS ?= 2000
FAULTS ?= 2000
STRIKES ?= 500
chaos: system setup ## Kill everything involved at random moments, have calls fail; run every three choices together
	NEMO_RUN_CHAOS_KILLS=$(KILLS) NEMO_RUN_CHAOS_FAULTS=$(FAULTS) NEMO_RUN_CHAOS_STRIKES=$(STRIKES) NEMO_RUN_CHAOS_JOBS=30 $(PYTEST) -q -rP -k chaos tests/faults
	NEMO_RUN_CHAOS_KILLS=200 $(PYTEST) -q -rP --timeout 7200 -k chaos tests/integration
	NEMO_RUN_PAIRS=all $(PYTEST) -q -n 4 --dist worksteal tests/pairs

# Seconds for each parser. Inputs that follow the lines they reach need atheris, which has wheels for some releases of
# Python and machines; elsewhere hypothesis alone makes them.
FUZZ_S ?= 600
fuzz: setup ## Give every parser of what others wrote odd input: ten thousand each, then ten minutes each
	FUZZ_EXAMPLES=10000 $(PYTEST) --timeout 3600 tests/hostile/test_files_fuzz.py tests/hostile/test_files_archives.py
	@$(MAKE) --no-print-directory .venv-fuzz/.installed || { echo "There is no atheris for this Python: that was all."; exit 0; }; \
	.venv-fuzz/bin/python -m tests.hostile.fuzz all $(FUZZ_S)

.venv-fuzz/.installed: pyproject.toml constraints.txt scripts/make-venv.sh
	PIP_ONLY_BINARY=atheris scripts/make-venv.sh "$(PYTHON)" .venv-fuzz '.[test,lepton,kubeflow]' leptonai==0.47.1 atheris==3.0.0
	touch $@

mutants: setup ## Change the code that decides, piece by piece, and count what no test notices
	$(BIN)/python scripts/mutants.py

# Nightly: they install an environment for each Python, and one with old packages.
PYTHONS ?= 3.10 3.12 3.13
pythons: ## The fast tests with each other Python that is installed, on PATH or among those of pyenv
	scripts/pythons.sh $(PYTHONS)

# Without the tools that want newer packages themselves.
lowest: setup ## The fast tests with the lowest version of each dependency that is allowed
	[ -x .venv-lowest/bin/python ] || $(PYTHON) -m venv .venv-lowest
	$(BIN)/python scripts/lowest.py >.venv-lowest/constraints.txt
	.venv-lowest/bin/python -m pip install --quiet -c .venv-lowest/constraints.txt -e . hypothesis pytest pytest-timeout pytest-xdist runapy==1.224.0
	.venv-lowest/bin/python -m pytest -q -n 3 --dist worksteal -m "not slow and not engine" tests

docs: setup ## Build the documentation; a warning is an error
	$(BIN)/sphinx-build -q -W --keep-going -b html docs docs/_build/html

bench: system setup ## Measure against other launchers, side by side
	$(BIN)/python -m benchmarks

format: setup ## Rewrite the sources the way `make check` wants them
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean: ## Remove what was built
	rm -rf $(VENV) .venv-* .skypilot-bed .bench build dist docs/_build docs/apidocs .mypy_cache .ruff_cache .pytest_cache
