# One Makefile. `make test` is what CI runs; `make demo` trains for real on this machine.
SHELL := /bin/bash
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# One seed for hashes, so that a simulated history is the same in every process.
# LOOP=uvloop runs the tests that need a real event loop on uvloop.
PYTEST := PYTHONHASHSEED=0 PADDLEJOB_TEST_LOOP=$(LOOP) $(BIN)/python -m pytest
STAMP := $(VENV)/.installed

help: ## Show the commands
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

$(STAMP): pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null || { echo "python3 >= 3.11 is needed: apt-get install python3 python3-venv"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "python3 >= 3.11 is needed, this is $$($(PYTHON) --version)"; exit 1; }
	@echo "making the virtualenv in $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

venv: $(STAMP) ## Make the virtualenv

demo: $(STAMP) ## Train Wide & Deep on parameter servers, here and now: make demo DEMO_ARGS='--logs all'
	@python="$$($(BIN)/python scripts/paddle_env.py 2.6.2)" && \
	$(BIN)/python scripts/example_data.py wide_and_deep > /dev/null && \
	$(BIN)/paddlejob run deploy/examples/wide_and_deep.yaml --python "$$python" $(DEMO_ARGS)

demo-resnet: $(STAMP) ## Train ResNet collectively, here and now
	@python="$$($(BIN)/python scripts/paddle_env.py 3.3.1)" && \
	$(BIN)/python scripts/example_data.py resnet > /dev/null && \
	$(BIN)/paddlejob run deploy/examples/resnet.yaml --python "$$python" $(DEMO_ARGS)

test: lint test-unit test-apiserver test-paddle ## Everything that must pass; builds a Kubernetes on first use

test-fast: lint test-unit ## The same without the real API server and without real Paddle

lint: $(STAMP) ## Style, types, layers, and that generated files are current
	$(BIN)/ruff check .
	$(BIN)/ruff format --check -q .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/python scripts/generate.py --check

test-unit: $(STAMP) ## Unit, property and simulation tests
	$(PYTEST) -n 2 -m 'not apiserver and not paddle and not node and not gang'

test-apiserver: $(STAMP) ## The suite on a real kube-apiserver
	$(BIN)/python -m devcluster build
	$(PYTEST) -m apiserver

test-gang: $(STAMP) ## The suite on the scheduler of Kubernetes 1.36, which knows gangs
	$(PYTEST) -m gang

test-paddle: $(STAMP) ## The suite that trains with real PaddlePaddle
	$(PYTEST) -m paddle

e2e: $(STAMP) ## Train in containers on a real node, with the operator installed; needs root
	@$(BIN)/python -m devcluster check
	$(PYTEST) -m node tests/e2e

bench: $(STAMP) ## Measure the operator beside a bare create loop
	PYTHONPATH=. $(BIN)/python bench/bench_operator.py
	PYTHONPATH=. $(BIN)/python bench/bench_operator.py --memory 10000
	PYTHONPATH=. $(BIN)/python bench/bench_requests.py
	PYTHONPATH=. $(BIN)/python bench/bench_transport.py

bench-local: $(STAMP) ## Measure `paddlejob run`: start, logs, processor time
	$(BIN)/python bench/local_start.py
	$(BIN)/python bench/local_logs.py
	$(BIN)/python bench/local_cpu.py

soak: $(STAMP) ## Simulate many more histories: make soak SEEDS=100000
	$(BIN)/python tests/sim/soak.py 2000 $$((1999 + $(or $(SEEDS),10000)))

generate: $(STAMP) ## Write the generated files: CRDs, manifests, references
	$(BIN)/python scripts/generate.py

format: $(STAMP) ## Put the code into shape
	$(BIN)/ruff check --fix -q .
	$(BIN)/ruff format -q .

constraints: ## Pin the newest versions of what the project needs
	rm -rf .constraints-venv && $(PYTHON) -m venv .constraints-venv
	.constraints-venv/bin/pip install --quiet --disable-pip-version-check -e '.[dev]'
	{ sed -n '/^#/p' constraints.txt; .constraints-venv/bin/pip freeze --exclude-editable; } > constraints.new
	mv constraints.new constraints.txt && rm -rf .constraints-venv

clean: ## Remove what was made in this folder; caches outside it stay
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache

.PHONY: help venv demo demo-resnet test test-fast lint test-unit test-apiserver test-gang test-paddle e2e bench bench-local soak generate format constraints clean
