# A fresh machine needs CPython >= 3.11 with pip, and make: `make demo` and `make test` set up the rest.
#
# PYTHON=python3.13 chooses the interpreter; each version has an environment of its own under .venv/.
# DEVICE=cpu or gpu chooses the build of ONNX Runtime (default: gpu where nvidia-smi works); one environment never has both.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.SECONDARY:
.DEFAULT_GOAL := help

ifndef PYTHON
PYTHON := $(firstword $(foreach each,python3 python3.13 python3.12 python3.11 python, \
  $(shell $(each) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $(each))))
endif
DEVICE ?= $(shell nvidia-smi >/dev/null 2>&1 && echo gpu || echo cpu)
VERSION := $(shell $(or $(PYTHON),false) -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)
VENV ?= .venv/$(VERSION)-$(DEVICE)
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
INSTALL := $(PIP) install --editable
COMPILER := $(shell find compiler templates schema -name '*.py' -o -name '*.j2' -o -name '*.json')
MODEL := build/smollm2
# Processes that share the fast tests, a file to each at a time; JOBS=0 runs them in this one, as a debugger needs it.
JOBS ?= auto
ARGS ?=

.PHONY: help demo test test-heavy test-long fuzz lint types golden golden-update bench bench-peers bench-packages packages setup venv clean FORCE

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1|/p' Makefile | awk -F'|' '{ printf "  make %-16s %s\n", $$1, $$2 }'

demo: $(MODEL)/v1.compiled/manifest.json ## build a small real model package, compile it, generate text with it
	@echo; echo '$$ genai-run $(MODEL)/v1.compiled --chat "What is the capital of France?" --stats'
	@$(BIN)/genai-run $(MODEL)/v1.compiled --chat "What is the capital of France?" --stats </dev/null
	@echo; echo '$$ genai-run $(MODEL)/v1.compiled --chat "What should I pack for a day at the beach?" -n 100 --temperature 0.5 --seed 7 --stats'
	@$(BIN)/genai-run $(MODEL)/v1.compiled --chat "What should I pack for a day at the beach?" -n 100 --temperature 0.5 --seed 7 --stats </dev/null
	@echo; echo 'Your turn: $(BIN)/genai-run $(MODEL)/v1.compiled --chat'

test: $(VENV)/dev.stamp ## every test but the heavy ones (ARGS="-k name" goes to pytest)
	$(BIN)/python -m pytest -n $(JOBS) --maxprocesses 8 --dist loadfile -m "not heavy and not long" $(ARGS)

test-heavy: $(VENV)/dev.stamp packages ## the tests on the real model, and the networked ones
	$(BIN)/python -m pytest -m heavy $(ARGS)

fuzz: $(VENV)/dev.stamp ## damage packages for ten minutes (ARGS="--seconds 60 --seed 7"); findings go to build/fuzz
	$(BIN)/python -m tests.property.fuzz $(ARGS)

test-long: $(VENV)/dev.stamp ## property tests and fuzzing with thousands of examples (a quarter of an hour)
	$(BIN)/python -m pytest -m long --hypothesis-profile random $(ARGS)

lint: $(VENV)/dev.stamp ## ruff: rules and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/dev.stamp ## mypy on the sources, for each system; pyright on the generated executors
	$(BIN)/mypy
	for each in win32 darwin; do $(BIN)/mypy --platform $$each --cache-dir .mypy_cache/$$each; done
	$(BIN)/pyright --project pyproject.toml --pythonpath $(BIN)/python

golden: $(VENV)/dev.stamp ## hold what every stage makes of the fixtures against golden/
	$(BIN)/python -m pytest tests/test_golden.py $(ARGS)

golden-update: $(VENV)/dev.stamp ## write golden/ anew; read the difference before you commit it
	$(BIN)/python -m pytest tests/test_golden.py --snapshot-update $(ARGS)

bench: $(VENV)/bench.stamp packages ## time compiled packages beside their peers (ARGS="--plan" says what and how long)
	$(BIN)/python -m tools.bench $(ARGS)

bench-peers: $(VENV)/bench.stamp ## environments of the peers that bench compares with (networked; llama.cpp is built)
	$(BIN)/python -m tools.peers environments $(ARGS)

bench-packages: $(VENV)/bench.stamp ## the packages that bench compares on, by onnxruntime-genai's builder (networked)
	$(BIN)/python -m tools.peers environments builder
	$(BIN)/python -m tools.peers packages $(ARGS)

packages: $(VENV)/demo.stamp ## build every form of the real model (v1, workflow, float)
	$(BIN)/python -m tools.smollm2 --forms v1 workflow float

setup: $(VENV)/dev.stamp ## only the environment, for everything
venv: setup

clean: ## remove the environments and everything built, the downloaded checkpoint included
	rm -rf .venv build dist

# The builder decides by itself whether a package is current, and leaves its stamp alone when it is.
$(MODEL)/%.stamp: $(VENV)/demo.stamp FORCE
	@$(BIN)/python -m tools.smollm2 --forms $*

# The compiled folder appears whole or not at all, so make has nothing to delete when it is interrupted.
.PRECIOUS: $(MODEL)/%.compiled/manifest.json
$(MODEL)/%.compiled/manifest.json: $(MODEL)/%.stamp $(COMPILER)
	$(BIN)/genai-compile $(MODEL)/$* -o $(MODEL)/$*.compiled

# An environment is whole when its stamp is there. An interrupted one starts anew; pip keeps what it has downloaded.
$(VENV)/demo.stamp: pyproject.toml
	@test -n "$(VERSION)" || { $(or $(PYTHON),false) --version >&2 || true; echo "$(or $(PYTHON),CPython >= 3.11) is not to be found or does not run. Name one: make $(MAKECMDGOALS) PYTHON=/path/to/python3" >&2; exit 2; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "$(PYTHON) is $(VERSION); 3.11 is the oldest that works" >&2; exit 2; }
	@echo "environment: $(VENV) (Python $(VERSION), ONNX Runtime for $(DEVICE))"
	@$(PYTHON) -m venv --clear $(VENV) || { $(PYTHON) -m venv --clear --without-pip $(VENV) && $(PYTHON) -m pip --python $(BIN)/python install pip; }
	$(INSTALL) '.[compile,demo,$(DEVICE)]'
	@touch $@

# onnxruntime-genai brings onnxruntime along, so it has no place beside onnxruntime-gpu: there the bench goes without.
$(VENV)/bench.stamp: $(VENV)/dev.stamp
	if [ "$(DEVICE)" = cpu ]; then $(INSTALL) '.[dev,bench,cpu]'; fi
	@touch $@

$(VENV)/dev.stamp: $(VENV)/demo.stamp
	$(INSTALL) '.[dev,$(DEVICE)]'
	@touch $@
