# A fresh machine needs Python 3.11 to 3.13, make and git; all else comes from the package registry.
#
#   make quickstart   pre-trains a small BERT on text that came with Python; shows what it learned
#   make test         runs the tests, but for those marked slow
#   make test-all     runs all tests that need no network
#   make check        linter, formatter, types and tests with oneDNN, as users have it: what CI
#                     runs; with CI_ALL=1 all tests
#   make tpu-check    compiles the training steps for a TPU, without one
#   make docs         writes the pages of docs/ as a site into build/site
#   make clean        removes what these made: environment, runs and caches
#
# A second call of any of them installs nothing again. PYTHON=... chooses the interpreter,
# TEST=tests/text the tests, WORKERS=4 the processes they run in.

PYTHON ?= $(shell for python in python3.11 python3.12 python3.13 python3; do \
	$$python -c 'import ensurepip, sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' 2> /dev/null \
	&& echo $$python && break; done)
TEST ?= tests
WORKERS ?= 2

VENV := .venv
TPU_VENV := .venv-tpu
BIN := $(VENV)/bin
# --no-compile: only what is imported is ever compiled, when it is.
INSTALL := $(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check

# worksteal: a worker that is done takes over tests of the other, be it of the same file.
# What is compiled is kept, whatever the shell says: without that each process that tests start takes
# 10 s more to load TensorFlow.
PYTEST := PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest --quiet --numprocesses=$(WORKERS) --dist=worksteal

.PHONY: quickstart test test-all check tpu-check docs clean install
.DELETE_ON_ERROR:

quickstart: install
	$(BIN)/python -m bert_tf.run_pretraining --flagfile=configs/quickstart.flags

test: install
	$(PYTEST) $(TEST)

test-all: install
	$(PYTEST) -m "not network" $(TEST)

check: install
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .
	$(BIN)/python -m mypy
	TF_ENABLE_ONEDNN_OPTS=1 $(MAKE) $(if $(filter 1,$(CI_ALL)),test-all,test)

# libtpu's name of connected chips, of which one is used.
TOPOLOGY ?= v5e:2x2

tpu-check: install $(TPU_VENV)/installed
	$(BIN)/python -m benchmarks.tpu_check --tpu_python=$(TPU_VENV)/bin/python --topology=$(TOPOLOGY)

$(TPU_VENV)/installed: requirements_tpu_check.txt
	$(PYTHON) -m venv $(TPU_VENV)
	$(TPU_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --requirement $<
	@touch $@

docs: install
	$(INSTALL) "mkdocs-material>=9.6" "mkdocstrings[python]>=0.29"
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet
	@echo "Open build/site/index.html, or: $(BIN)/python -m mkdocs serve"

install: $(VENV)/installed

$(VENV)/bin/python:
	@test -n "$(PYTHON)" || { echo "No Python 3.11 to 3.13 with ensurepip found; set PYTHON=..."; exit 1; }
	$(PYTHON) -m venv $(VENV)

# The lock has all packages with their hashes: what was changed on the way is not installed.
$(VENV)/installed: requirements_lock.txt | $(VENV)/bin/python
	@echo "Installing the packages of $< into $(VENV), once: 2.8 GB, a minute or two."
	$(INSTALL) --require-hashes --requirement $<
	@touch $@

clean:
	rm -rf $(VENV) $(TPU_VENV) runs build/site build/golden .pytest_cache .ruff_cache .mypy_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
