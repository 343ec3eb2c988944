# `make test` is the quick suite, `make test-all` the rest; CI runs both. `make demo` trains on this machine.
SHELL := /bin/bash
.DEFAULT_GOAL := help
PYTHON ?= python3
# Another Python than the machine's own gets a virtualenv of its own: make test-unit PYTHON=python3.13
VENV := $(if $(filter python3,$(PYTHON)),.venv,.venv-$(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])'))
BIN := $(VENV)/bin
# One seed for hashes, so that a simulated history is the same in every process. Bytecode is kept even if the
# environment says otherwise: without it, every process of the tests compiles them again, which takes 14 s.
# LOOP=uvloop runs the tests that need a real event loop on uvloop.
PYTEST := PYTHONHASHSEED=0 PYTHONDONTWRITEBYTECODE= PADDLEJOB_TEST_LOOP=$(LOOP) $(BIN)/python -m pytest
UNIT := not apiserver and not tools and not paddle and not node and not gang and not browser
QUICK := $(UNIT) and not slow
# Unit tests wait about as long as they compute: 4 processes keep two cores busy.
JOBS ?= 4
CORE_COVERAGE := 100
KUBE_COVERAGE := 98
OPERATOR_COVERAGE := 96
STAMP := $(VENV)/.installed
# The demos need no tools of developers; who has them already keeps them.
RUNTIME := $(if $(wildcard $(STAMP)),$(STAMP),$(VENV)/.runtime)
GET_PYTHON := apt-get install python3.11 python3.11-venv (or conda create -n py311 python=3.11, or uv python install 3.11), then make demo PYTHON=python3.11
define MAKE_VENV
command -v $(PYTHON) > /dev/null || { echo "Python 3.11 or later is needed, and there is no $(PYTHON): $(GET_PYTHON)"; exit 1; }; \
$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or later is needed, and $(PYTHON) is $$($(PYTHON) --version): $(GET_PYTHON)"; exit 1; }; \
$(SHOW); show $(PYTHON) -m venv $(VENV)
endef
# Shows the command before it runs.
SHOW = show() { echo "\$$ $$*" >&2; "$$@"; }
# Shows progress where somebody watches.
INSTALL = $(SHOW); show $(BIN)/python -m pip install $$([ -t 2 ] || echo --quiet) --disable-pip-version-check -c constraints.txt -e

help: ## Show the commands
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

$(STAMP): pyproject.toml constraints.txt
	@$(MAKE_VENV)
	@$(INSTALL) '.[dev]'
	@touch $@

$(VENV)/.runtime: pyproject.toml constraints.txt
	@$(MAKE_VENV)
	@$(INSTALL) .
	@touch $@

venv: $(STAMP) ## Create the virtualenv

demo: $(RUNTIME) ## Train Wide & Deep on parameter servers, here and now: make demo DEMO_ARGS='--logs all'
	@$(SHOW); python="$$($(BIN)/python scripts/paddle_env.py 2.6.2)" && \
	$(BIN)/python scripts/example_data.py wide_and_deep > /dev/null && \
	show $(BIN)/paddlejob run deploy/examples/wide_and_deep.yaml --python "$$python" -e MODEL_DIR="$(CURDIR)/build/wide_and_deep" $(DEMO_ARGS) && \
	if [ -e build/wide_and_deep/wide_and_deep.pdmodel ]; then \
		echo "trained model: $(CURDIR)/build/wide_and_deep" >&2; \
		echo "predict with it: $$python examples/wide_and_deep/predict.py build/wide_and_deep" >&2; \
	fi

demo-resnet: $(RUNTIME) ## Train ResNet collectively, here and now
	@$(SHOW); python="$$($(BIN)/python scripts/paddle_env.py 3.3.1)" && \
	$(BIN)/python scripts/example_data.py resnet > /dev/null && \
	show $(BIN)/paddlejob run deploy/examples/resnet.yaml --python "$$python" -e CHECKPOINT_DIR=checkpoints $(DEMO_ARGS)

test: lint test-unit test-training ## Lint, unit tests, simulated histories, and two real trainings: run it before every commit

test-all: test-slow test-apiserver test-paddle test-browser test-tools test-gang e2e-where-possible chaos-where-possible test-pythons coverage test-fuzz test-seeds fresh-where-possible ## The rest: slow tests, a real API server, all trainings, Chromium, kubectl and helm, gangs, a node, chaos on it, other Pythons, coverage, fuzzing, all seeds, a bare Debian

test-fast: lint test-unit ## `make test` without the trainings

lint: $(STAMP) ## Style, types, layers, and that generated files are current
	$(BIN)/ruff check .
	$(BIN)/ruff format --check -q .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/python scripts/generate.py --check

test-unit: $(STAMP) ## Unit, property and simulation tests
	PADDLEJOB_SEEDS=240 PADDLEJOB_EXAMPLES=$(or $(EXAMPLES),25) $(PYTEST) -n $(JOBS) --dist worksteal -m '$(QUICK)'

test-training: $(STAMP) ## Train once on parameter servers and once collectively, with real PaddlePaddle
	$(PYTEST) -n 2 -m training

test-slow: $(STAMP) ## The unit tests that start processes or terminals or play long histories, and 100 inputs for each parser
	$(PYTEST) -n $(JOBS) --dist worksteal -m '$(UNIT) and (slow or hypothesis)'

test-pythons: $(STAMP) ## Unit tests on every other supported Python of this machine
	@set -e; for python in $$($(BIN)/python scripts/pythons.py); do \
		echo "unit tests on $$python"; $(MAKE) --no-print-directory test-unit PYTHON="$$python"; \
	done

test-fuzz: $(STAMP) ## Feed parsers more made-up inputs: make test-fuzz EXAMPLES=20000 FUZZ=random, where `make test` has 25, always the same
	PADDLEJOB_EXAMPLES=$(or $(EXAMPLES),1000) $(PYTEST) -n 2 --timeout=1800 --hypothesis-profile=$(or $(FUZZ),repeatable) -m 'hypothesis and not apiserver'

test-seeds: $(STAMP) ## Every history of the simulation and more generated objects, of which `make test` plays the first
	PADDLEJOB_SEEDS=2000 $(PYTEST) -n 2 tests/sim tests/operator/test_hostile.py tests/api/test_any_template.py

coverage: $(STAMP) ## Branch coverage of core, kube and operator, with a gate
	$(PYTEST) -n 2 -q -m '$(UNIT)' --cov --cov-report= tests/core tests/kube tests/operator tests/behaviour
	$(PYTEST) -n 2 --dist loadgroup -q --cov --cov-append --cov-report= tests/apiserver/test_reports.py tests/apiserver/test_history.py
	$(BIN)/coverage report --include='src/paddlejob/core/*' --fail-under=$(CORE_COVERAGE)
	$(BIN)/coverage report --include='src/paddlejob/kube/*' --fail-under=$(KUBE_COVERAGE)
	$(BIN)/coverage report --include='src/paddlejob/operator/*' --fail-under=$(OPERATOR_COVERAGE)

test-apiserver: $(STAMP) ## The suite on a real kube-apiserver
	$(PYTEST) -n 2 --dist loadgroup -m 'apiserver and not tools and not thorough and not browser'

test-tools: $(STAMP) ## The suite that runs kubectl, helm and an API server of Kubernetes 1.21, and long tests
	$(PYTEST) -n 2 --dist loadgroup -m '(tools or thorough) and not node and not paddle'

test-browser: $(STAMP) ## The dashboard in Chromium, which is installed if missing; PADDLEJOB_SCREENSHOTS=1 takes its screenshots
	@command -v chromium > /dev/null || \
		if [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null; then \
			apt-get update -q && apt-get install -q -y --no-install-recommends chromium; \
		else echo "Chromium is needed: apt-get install chromium"; exit 1; fi
	$(PYTEST) -n 2 --dist loadgroup -m browser

test-gang: $(STAMP) ## The suite on the scheduler of Kubernetes 1.36, which supports gangs
	$(PYTEST) -m gang

test-paddle: $(STAMP) ## The suite that trains with real PaddlePaddle, without the two trainings of `make test`
	$(PYTEST) -m 'paddle and not training and not thorough'

e2e: $(STAMP) ## Train in containers on a real node, with the operator installed; needs root
	@$(BIN)/python -m devcluster check
	$(PYTEST) -m 'node and not thorough' tests/e2e

e2e-thorough: $(STAMP) ## The same for what takes long: ranks that hang, are cut off or slow; images with paddlepaddle-gpu
	@$(BIN)/python -m devcluster check
	$(PYTEST) -m 'thorough and (node or paddle)' tests/e2e tests/examples

e2e-where-possible: $(STAMP)
	@if $(BIN)/python -m devcluster check; then timeout --kill-after=60 2400 $(MAKE) --no-print-directory e2e; fi

fresh: $(STAMP) ## Run what the README shows in a Debian with nothing but Python and make; needs root
	@$(BIN)/python -m devcluster fresh

fresh-where-possible: $(STAMP)
	@if [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null; then $(MAKE) --no-print-directory fresh; fi

bench: $(STAMP) ## Measure the operator beside a bare create loop
	PYTHONPATH=. $(BIN)/python bench/bench_operator.py
	PYTHONPATH=. $(BIN)/python bench/bench_operator.py --memory 10000
	PYTHONPATH=. $(BIN)/python bench/bench_requests.py
	PYTHONPATH=. $(BIN)/python bench/bench_schema.py
	PYTHONPATH=. $(BIN)/python bench/bench_transport.py
	PYTHONPATH=. $(BIN)/python bench/bench_reports.py

bench-scale: $(STAMP) ## Measure the operator with 1,000 jobs and 10,000 pods, five tenants, and 10,000 jobs that come and go
	for part in size fairness churn; do PYTHONPATH=. $(BIN)/python bench/scale.py $$part || exit 1; done

bench-recovery: $(STAMP) ## Measure the time from the death of a rank to the next step on a real node, and write docs/proof.md; needs root
	@$(BIN)/python -m devcluster check
	PYTHONPATH=.:tests $(BIN)/python bench/recovery.py --rounds $(or $(ROUNDS),5) --write

bench-local: $(STAMP) ## Measure `paddlejob run`: start, logs, CPU time
	$(BIN)/python bench/local/start.py
	$(BIN)/python bench/local/logs.py
	$(BIN)/python bench/local/cpu.py

bench-dashboard: $(STAMP) ## Measure the dashboard in Chromium: first paint, delay of a change, 1,000 jobs, 10,000 pods
	$(BIN)/python bench/dashboard.py

release: $(STAMP) ## Build all artifacts of a release from the last commit in dist/: make release IMAGE=mirror/paddlejob-operator KEY=key
	$(BIN)/python scripts/release/make.py --out dist/release $(if $(IMAGE),--image $(IMAGE)) $(if $(KEY),--key $(KEY)) $(RELEASE_ARGS)

soak: $(STAMP) ## Simulate many more histories: make soak SEEDS=100000
	$(BIN)/python tests/sim/soak.py 2000 $$((1999 + $(or $(SEEDS),10000))) --jobs 0

chaos: $(STAMP) ## Train on a real node while everything around is killed: make chaos SEED=1 MINUTES=3 SEEDS=1; needs root
	@$(BIN)/python -m devcluster check
	PYTHONPATH=.:tests $(BIN)/python tests/chaos/run.py --seed $(or $(SEED),1) --seeds $(or $(SEEDS),1) --minutes $(or $(MINUTES),3) $(CHAOS_ARGS)

chaos-where-possible: $(STAMP)
	@if $(BIN)/python -m devcluster check; then $(MAKE) --no-print-directory chaos MINUTES=1 CHAOS_ARGS='--undisturbed 2'; fi

proof: $(STAMP) ## Inject a fault into every call of the operator, change every field of a job, and write docs/proof.md
	PYTHONHASHSEED=0 $(BIN)/python tests/sim/proof.py --jobs 0

generate: $(STAMP) ## Write the generated files: CRDs, manifests, references
	$(BIN)/python scripts/generate.py

format: $(STAMP) ## Format the code
	$(BIN)/ruff check --fix -q .
	$(BIN)/ruff format -q .

# The hashes of all files of each package, for every Python and machine; no download addresses.
HASHES := .constraints-venv/bin/uv pip compile --quiet --generate-hashes --universal --python-version 3.11 --no-header --no-annotate
constraints: ## Pin the latest versions of all dependencies, and the hashes of those in the image
	rm -rf .constraints-venv && $(PYTHON) -m venv .constraints-venv
	.constraints-venv/bin/pip install --quiet --disable-pip-version-check -e '.[dev]'
	{ sed -n '/^#/p' constraints.txt; .constraints-venv/bin/pip freeze --exclude-editable; } > constraints.new
	mv constraints.new constraints.txt
	.constraints-venv/bin/pip install --quiet --disable-pip-version-check uv
	$(HASHES) pyproject.toml --extra operator -c constraints.txt -o deploy/docker/requirements.txt
	echo setuptools | $(HASHES) - -c constraints.txt -o deploy/docker/build-requirements.txt
	rm -rf .constraints-venv

clean: ## Remove generated files in this folder; caches elsewhere are kept
	rm -rf .venv .venv-* build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache

.PHONY: help venv demo demo-resnet test test-all test-browser test-fast lint test-unit test-training test-slow coverage test-pythons test-fuzz test-seeds test-apiserver test-tools test-gang test-paddle e2e e2e-thorough e2e-where-possible fresh fresh-where-possible bench bench-scale bench-recovery bench-local bench-dashboard release soak chaos chaos-where-possible proof generate format constraints clean
