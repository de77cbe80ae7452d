# make demo    set up, then the main job on this machine (at most 20 minutes on 2 cores)
# make demo-agent  set up, then the evidence agent on this machine (at most 20 minutes on 2 cores)
# make test    set up, then all tests
# make bench   set up, then the benchmarks (their numbers are printed, never asserted by the tests)

.DEFAULT_GOAL := help
.PHONY: help setup demo demo-agent test bench lint clean
SHELL := /bin/bash
# the first interpreter that runs and is of a version we support; a name on the path may be a stub that does not
SUPPORTED := import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 12))
PYTHON ?= $(shell for p in python3 python3.11 python3.12 python3.10; do $$p -c '$(SUPPORTED)' 2>/dev/null && echo $$p && break; done)
BIN := .venv/bin
STAMP := .venv/.set-up

help:
	@sed -n 's/^# //p' $(firstword $(MAKEFILE_LIST))

setup: $(STAMP)

# radlabels holds public labels that measure the lexicon; its own pins exclude current torch, so its data come without them
$(STAMP): pyproject.toml constraints-cpu.txt
	@test -n "$(PYTHON)" && $(PYTHON) -c '$(SUPPORTED)' || { echo "No Python 3.10, 3.11 or 3.12 found. Set PYTHON=..."; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints-cpu.txt -e '.[dev]'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps radlabels==0.2.0
	$(BIN)/verl-cxr doctor
	touch $@

demo: setup
	$(BIN)/verl-cxr demo --out outputs/demo

demo-agent: setup
	$(BIN)/verl-cxr demo-agent --out outputs/demo-agent

test: setup
	$(BIN)/python -m pytest

bench: setup
	$(BIN)/python -m tests.benchmarks

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

clean:
	rm -rf .venv .bench build dist outputs
