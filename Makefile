# Nightmill. `make demo` is the two-minute look; `make test` is everything CI runs.
PYTHON ?= python3
VENV ?= .venv
# cpu: vLLM on this machine. fake: made-up answers, where vLLM has no build.
ENGINE ?= cpu
CHAOS_RUNS ?= 200
# Seeds of `make chaos-cluster`, small and large ones; SEED=17: only that one, again.
CHAOS_SEEDS ?= 50
CHAOS_LARGE ?= 3
CHAOS_ROWS ?= 20000
SEED ?=
# Settings of the cluster on this machine: which services there are and on which ports.
CLUSTER ?= infra/deploy/local.toml
# Which benchmarks (those of `make bench`: against_vllm, commits, embeddings, million; of `make bench-cluster`: cluster,
# urgent, cluster_vllm; all of them if empty), and how many rounds.
BENCH ?=
ROUNDS ?= 5

BIN := $(VENV)/bin
INSTALL = @$(PYTHON) infra/deploy/install.py --venv $(VENV) --engine $(ENGINE)

.DEFAULT_GOAL := help
.PHONY: help setup setup-dev demo lint check test cluster cluster-down chaos chaos-cluster bench bench-api bench-interactive bench-cluster docs lock clean

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
	$(BIN)/pytest -n 2 || { echo; echo "== once more, only what failed =="; \
		$(BIN)/pytest --last-failed --last-failed-no-failures none; }

cluster: setup-dev ## Kafka, PostgreSQL, an S3 server and Ray on this machine (CLUSTER=FILE: other ports)
	@$(BIN)/python examples/make_cars.py > /dev/null
	@$(BIN)/python -m infra.deploy.cluster up --config $(CLUSTER)
	@$(BIN)/nightmill --config $(CLUSTER) models prepare smollm2 || echo "Without it there is the model fake."

cluster-down: ## end them
	@$(BIN)/python -m infra.deploy.cluster down --config $(CLUSTER)

chaos: setup-dev ## kill -9 at every durable step, CHAOS_RUNS times; the protocol's model with two faults
	CHAOS_RUNS=$(CHAOS_RUNS) NIGHTMILL_MODEL_FAULTS=2 $(BIN)/pytest tests/property/test_protocol_model.py tests/chaos --timeout 3600

chaos-cluster: setup-dev ## a cluster of real services under seeded faults, CHAOS_SEEDS times (SEED=17: that one again)
	REQUIRE_SERVICES=1 CHAOS_SEED=$(SEED) CHAOS_SEEDS=$(CHAOS_SEEDS) CHAOS_LARGE=$(CHAOS_LARGE) CHAOS_ROWS=$(CHAOS_ROWS) \
		$(BIN)/pytest tests/chaos_cluster -s $(if $(SEED),-k whatever_dies)

bench: setup-dev ## rows per second beside raw vLLM, and of a million rows (BENCH=million: only those)
	ROUNDS=$(ROUNDS) $(BIN)/python -m tests.benchmarks $(BENCH)

bench-api: setup-dev ## the REST API by uvicorn and by Ray Serve: creates, reads, inline rows, small batches, large files
	$(BIN)/python -m tests.benchmarks api

bench-interactive: setup-dev ## streamed chats and embeddings beside vLLM's own server; chats beside full pools
	ROUNDS=$(ROUNDS) $(BIN)/python -m tests.benchmarks interactive beside

bench-cluster: setup-dev ## the cluster beside the embedded run, raw vLLM and Ray Data LLM; how long urgent rows wait
	ROUNDS=$(ROUNDS) $(BIN)/python -m tests.benchmarks $(or $(BENCH),cluster urgent cluster_vllm)

docs: setup-dev ## write the CLI reference and the settings page
	$(BIN)/python -m api.cli.docs
	$(BIN)/python -m infra.settings

lock: setup-dev ## resolve the versions anew
	$(BIN)/python -m pip install --quiet --no-deps --require-hashes -r infra/deploy/locks/uv.txt
	$(BIN)/python infra/deploy/lock.py

clean: ## remove what was made here, except .venv and .nightmill
	rm -rf out build dist ./*.egg-info examples/cars.parquet .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
