# make demo    set up, then the main job on this machine (at most 20 minutes on 2 cores)
# make test    set up, then all tests
# make bench   set up, then the benchmarks (their numbers are printed, never asserted by the tests)

.DEFAULT_GOAL := help
.PHONY: help setup demo test bench lint clean
SHELL := /bin/bash
PYTHON ?= $(firstword $(foreach v,3.12 3.11 3.10,$(shell command -v python$(v))) $(shell command -v python3))
BIN := .venv/bin
STAMP := .venv/.set-up

help:
	@sed -n 's/^# //p' $(firstword $(MAKEFILE_LIST))

setup: $(STAMP)

# radlabels holds public labels that measure the lexicon; its own pins exclude current torch, so its data come without them
$(STAMP): pyproject.toml constraints-cpu.txt
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 12))' \
	  || { echo "verl-cxr needs Python 3.10, 3.11 or 3.12; $(PYTHON) is another. Set PYTHON=..."; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints-cpu.txt -e '.[dev]'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps radlabels==0.2.0
	$(BIN)/verl-cxr doctor
	touch $@

demo: setup
	$(BIN)/verl-cxr demo --out outputs/demo

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
