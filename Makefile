# make demo   sets up .venv, fetches the embedded model, runs an agent on it   make test    the test suite
# make check  ruff, mypy, import contracts                                     make serve   OpenAI-compatible server
# make bench  speed and bookkeeping tables                                     make clean   removes .venv and caches
#
# PYTHON=python3.12       the interpreter that .venv is made with (3.11 or newer)
# PIP_FLAGS='...'         further flags for pip, e.g. an index with CPU builds of torch
# ARGS='...'              further arguments for demo, serve, bench and pytest

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

MODEL ?= smollm2-135m
ARGS ?=
PIP_FLAGS ?=
BIN := .venv/bin
STAMP := .venv/.agentkv-stamp
# Errors only. Nothing is compiled ahead: most of the files are never imported, and Python compiles the rest.
PIP := $(BIN)/pip --quiet --quiet install --no-compile -c constraints.txt $(PIP_FLAGS)

export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help env model demo test test-slow check format serve bench clean

help:
	@sed -n 's/^# //p' Makefile

env: $(STAMP)

# The stamp is newer than both files once everything is installed, so set-up happens once. The build
# backend comes from constraints.txt too: nothing is fetched into a throw-away build environment.
$(STAMP): pyproject.toml constraints.txt
	@python="$(PYTHON)"; \
	if [ -z "$$python" ] && [ ! -x $(BIN)/python ]; then \
	  for name in python3 python3.13 python3.12 python3.11; do \
	    if "$$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then python="$$name"; break; fi; \
	  done; \
	  if [ -z "$$python" ]; then \
	    echo 'error: no Python 3.11 or newer on the PATH. Install one, then: make PYTHON=/path/to/python3' >&2; exit 3; \
	  fi; \
	fi; \
	if [ ! -x $(BIN)/python ] || ! $(BIN)/python -c 'import pip' 2>/dev/null; then \
	  "$${python:-python3}" -m venv .venv; \
	fi
	@echo 'setting up .venv (once) ...' >&2
	@$(PIP) setuptools
	@$(PIP) --no-build-isolation -e '.[engine,dev]'
	@touch $@

model: $(STAMP)
	@$(BIN)/agentkv models pull $(MODEL) >/dev/null

demo: model
	@$(BIN)/agentkv demo $(ARGS)

# The script, not `python -m pytest`: that would put the root, and so ./kernels, on sys.path. One worker a
# core, with one thread each; a file stays on one worker, so that its engine is made once.
test: model
	@OMP_NUM_THREADS=1 $(BIN)/pytest -n auto --maxprocesses 8 --dist loadfile $(ARGS)

test-slow: model
	@$(BIN)/pytest -m slow $(ARGS)

check: $(STAMP)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache

format: $(STAMP)
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

serve: model
	@$(BIN)/agentkv serve $(MODEL) $(ARGS)

bench: model
	@$(BIN)/agentkv bench $(ARGS)

clean:
	@rm -rf .venv build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -not -path './.git/*' -prune -exec rm -rf {} +
