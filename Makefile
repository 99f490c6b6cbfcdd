# Nightmill. `make demo` is the two-minute look; `make test` is everything CI runs.
PYTHON ?= python3
VENV ?= .venv
# cpu: vLLM on this machine. fake: made-up answers, where vLLM has no build.
ENGINE ?= cpu
CHAOS_RUNS ?= 200
# Which benchmarks (against_vllm, commits, million; all if empty), and how many rounds of the first two.
BENCH ?=
ROUNDS ?= 5

BIN := $(VENV)/bin
INSTALL = @$(PYTHON) infra/deploy/install.py --venv $(VENV) --engine $(ENGINE)

.DEFAULT_GOAL := help
.PHONY: help setup setup-dev demo lint check test cluster cluster-down chaos bench docs lock clean

help: ## what there is
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

setup: ## .venv with Nightmill and the CPU engine (ENGINE=fake: without)
	$(INSTALL)

setup-dev:
	$(INSTALL) --dev --goal test

demo: ## 48 catalog texts by a real model: Parquet in, Parquet out, priced
	$(INSTALL) --goal demo
	@$(BIN)/python examples/demo.py --engine $(ENGINE)

lint: setup-dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

check: lint ## ruff, mypy, direction of imports, docs
	$(BIN)/pytest tests/architecture

# Real brokers, databases and engines start on machines that may be busy: what failed is run once more, alone, and must
# pass then. Both runs are shown.
test: lint ## check, then every test
	$(BIN)/pytest || { echo; echo "== once more, only what failed =="; \
		$(BIN)/pytest --last-failed --last-failed-no-failures none; }

cluster: setup-dev ## Kafka, PostgreSQL, an S3 server and Ray on this machine, for `nightmill up --cluster`
	$(BIN)/python -m infra.deploy.cluster up

cluster-down: ## end them
	$(BIN)/python -m infra.deploy.cluster down

chaos: setup-dev ## kill -9 at every durable step, CHAOS_RUNS times; the protocol's model with two faults
	CHAOS_RUNS=$(CHAOS_RUNS) NIGHTMILL_MODEL_FAULTS=2 $(BIN)/pytest tests/property/test_protocol_model.py tests/chaos --timeout 3600

bench: setup-dev ## rows per second beside raw vLLM, and of a million rows (BENCH=million: only those)
	ROUNDS=$(ROUNDS) $(BIN)/python -m tests.benchmarks $(BENCH)

docs: setup-dev ## write the CLI reference and the settings page
	$(BIN)/python -m api.cli.docs
	$(BIN)/python -m infra.settings

lock: setup-dev ## resolve the versions anew
	$(BIN)/python -m pip install --quiet --no-deps --require-hashes -r infra/deploy/locks/uv.txt
	$(BIN)/python infra/deploy/lock.py

clean: ## remove what was made here, except .venv and .nightmill
	rm -rf out build dist ./*.egg-info examples/cars.parquet .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
