# `make run` and `make test` are all a newcomer needs. Everything lands in .venv and in the cache of environments
# ($HARNESS_CACHE, else ~/.cache/harness), which later runs reuse.

PYTHON  ?= $(shell command -v python3.11 || command -v python3)
VENV    := .venv
HARNESS := $(VENV)/bin/harness
RUNS    ?= runs/demo
NODES   ?= 4
TESTERS ?= 3
RATE    ?= 200mbit
GPU_PYTHON ?= python3

# Small enough for a laptop: the point is the comparison, not the figures. On a machine that does other things too, compute
# threads that wait by spinning (OpenMP's default, right for a cluster's nodes) lose most of their time; passive ones do not.
SMALL := --device cpu --nodes 1,2 --model resnet50 --batch-size 4 --image-size 64 --warmup 3 --steps 20 --repeats 3
QUICK := --backend parameter_server,pytorch
FULL  := --backend parameter_server,distributed_replicated,multi_worker_mirrored,horovod:tensorflow:mpi,horovod:torch:mpi,horovod:torch:gloo,pytorch:mpi,pytorch:gloo,jax,caffe2:mpi,caffe2:gloo

# A machine with two cores is half idle while one test runs: most wait for processes that start, for Slurm or for a time limit.
# Tests that are about time on the clock have the machine to themselves afterwards.
SIDE_BY_SIDE := $(VENV)/bin/python -m pytest -n $(TESTERS)
ONE_BY_ONE   := $(VENV)/bin/python -m pytest

# Where it is set every process compiles all that it imports anew: seven seconds of each that runs tests.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help run compare test test-slow test-clock test-all lint format docs environments quick-environments environment-caffe2 python3.9 cluster cluster-packages mpi-packages cluster-down browser-packages gpu-check gpu-wheels clean
.DEFAULT_GOAL := help

help:  ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-17s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: quick-environments  ## install what is missing, compare parameter_server and pytorch on 1 and 2 nodes, print the table, write a report
	OMP_WAIT_POLICY=PASSIVE $(HARNESS) run $(QUICK) $(SMALL) --output $(RUNS)/quick
	@$(HARNESS) report $(RUNS)/quick --output $(RUNS)/report.html

compare: environments  ## the same with seven backends (compiles Horovod the first time: minutes)
	OMP_WAIT_POLICY=PASSIVE $(HARNESS) run $(FULL) $(SMALL) --output $(RUNS)/full
	@$(HARNESS) report $(RUNS)/full --output $(RUNS)/report.html

TEST_NEEDS := environments mpi-packages browser-packages
CHOICE     := not clock and not exhaustive

test: $(TEST_NEEDS)  ## install what tests need and run the quick ones (7 minutes on two cores)
	$(SIDE_BY_SIDE) -m "not slow and not alone and $(CHOICE)"
	$(ONE_BY_ONE) -m "not slow and alone and $(CHOICE)"

test-slow: $(TEST_NEEDS)  ## the tests that take minutes each, with a choice of backends and faults that covers every pair
	$(ONE_BY_ONE) -m "slow and alone and $(CHOICE)"
	$(SIDE_BY_SIDE) -m "slow and not alone and $(CHOICE)"

test-clock: $(TEST_NEEDS)  ## how long things take, beside their limits in seconds, which fail nothing
	$(ONE_BY_ONE) -m "clock and not exhaustive"

test-all: test test-slow test-clock  ## these and every combination of backend, launcher and fault (hours)
	$(SIDE_BY_SIDE) -m exhaustive

lint: $(VENV)/installed  ## ruff, mypy, and the directions of imports
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/mypy cluster/*.py
	for study in studies/*/; do $(VENV)/bin/mypy $$study*.py || exit; done
	$(VENV)/bin/lint-imports

format: $(VENV)/installed  ## let ruff lay out the code
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

docs: $(VENV)/installed  ## build the documentation as a site that can be searched, in build/site; links are checked
	@mkdir -p build/pages
	@for each in README.md CONTRIBUTING.md docs harness results benchmarks cluster examples studies; do ln -sfn ../../$$each build/pages/$$each; done
	@NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --strict --quiet
	@echo "wrote build/site/index.html"

environments: quick-environments environment-mpi4py environment-jax  ## build the backends' environments
	@$(MAKE) --no-print-directory environment-horovod
	@$(MAKE) --no-print-directory environment-caffe2

quick-environments: $(VENV)/installed
	@$(MAKE) --no-print-directory -j2 environment-pytorch environment-parameter_server

environment-%: $(VENV)/installed
	@$(HARNESS) env build $*

environment-caffe2: $(VENV)/installed
	@$(HARNESS) env path caffe2 >/dev/null 2>&1 || $(MAKE) --no-print-directory python3.9
	@$(HARNESS) env build caffe2

# A Python 3.9 is taken where there is one; else uv downloads its own into its usual place, where harness looks.
python3.9: $(VENV)/installed
	@$(VENV)/bin/python -c 'from harness.environments.pythons import find_python; find_python("3.9")' 2>/dev/null || { \
	  echo "no Python 3.9 found: getting one with uv …" && \
	  $(VENV)/bin/python -m pip install --quiet --disable-pip-version-check uv && \
	  $(VENV)/bin/uv python install --no-bin 3.9; } || { \
	  echo "caffe2 needs Python 3.9, and uv could not download it. Install it (your system's package), or put one that you have on PATH," \
	    "or set UV_PYTHON_INSTALL_MIRROR to a mirror of uv's Pythons, and start again" >&2; exit 2; }

$(VENV)/installed: pyproject.toml
	@test -n "$(PYTHON)" || { echo "harness needs Python 3.11 or later; none was found (set PYTHON=...)"; exit 2; }
	@test -x $(VENV)/bin/python || $(PYTHON) -m venv $(VENV) || \
	  { echo "cannot make a virtual environment with $(PYTHON); on Debian: apt-get install python3-venv"; exit 2; }
	@echo "installing harness into $(VENV) …"
	@$(VENV)/bin/python -m pip install --quiet --no-compile --disable-pip-version-check --editable '.[dev]'
	@touch $@

cluster: cluster-packages  ## start a real Slurm on this machine: NODES (4) virtual nodes with links of RATE (200mbit); as root
	@$(PYTHON) cluster/cluster.py up --nodes $(NODES) --rate $(RATE)

cluster-packages:  ## install the Debian packages of the virtual cluster that are missing
	@cluster/packages.sh

mpi-packages:  ## these, Debian's MPICH and Open MPI, and Bubblewrap, which opens images
	@cluster/packages.sh mpich openmpi-bin bubblewrap

browser-packages:  ## install Debian's Chromium, if there is no browser to test the report in
	@tests/browser/packages.sh

cluster-down:  ## end the virtual cluster
	@$(PYTHON) cluster/cluster.py down

gpu-check:  ## all that a GPU settles, with the PyTorch of GPU_PYTHON (python3); needs no network after gpu-wheels
	@$(GPU_PYTHON) benchmarks/gpu_check.py --env $(GPU_PYTHON)

gpu-wheels: $(VENV)/installed  ## download into build/wheels what gpu-check needs on a machine without a network
	@$(VENV)/bin/python benchmarks/gpu_check.py --fill

clean:  ## remove .venv and caches of tools (not the environments, not the runs)
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .import_linter_cache build dist
