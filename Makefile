# Everything a developer runs. `make help` lists it.

PYTHON  ?= python3
VENV    := .venv
BIN     := $(VENV)/bin
# One profile for tests and the demo: most dependencies are built once. Wheels and benches from Python use `dist`.
CARGO_FLAGS := --release --locked
# Stamps: a second `make test` with nothing changed neither installs nor builds anything.
DEPS    := $(VENV)/.deps
NATIVE  := $(VENV)/.native
FAST    := $(VENV)/.native-dist
LOOM_DIR := target/loom
ACTIONLINT := v1.7.12

RUST_SOURCES := Cargo.toml Cargo.lock $(shell find crates -name '*.rs' -o -name '*.proto' -o -name 'Cargo.toml')

.DEFAULT_GOAL := help
.PHONY: help demo test test-rust test-python loom soak verify lint fix bench bench-streams bench-peers bench-spark coverage doc wheel clean

help: ## Print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(NATIVE) ## Tell the story of a zombie that is refused
	@$(BIN)/laminar demo

test: test-rust test-python ## Build everything and run all tests

# The benches have no tests, and lint compiles them.
test-rust: $(DEPS) loom
	cargo test $(CARGO_FLAGS) --workspace --exclude laminar-py --exclude laminar-benches

test-python: $(NATIVE)
	$(BIN)/python -m pytest
	$(BIN)/python -m mypy.stubtest laminar._native --concise --mypy-config-file pyproject.toml

# Loom replaces the atomics of the whole build, so it has a folder of its own.
loom: ## Explore every order of the guard's atomic operations
	RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=$(LOOM_DIR) cargo test $(CARGO_FLAGS) -p laminar-core --lib loom_tests

# The cases a property is tried with; the seed of a failure is kept by proptest and hypothesis and tried first again.
soak: $(NATIVE) ## The property tests with a hundred times the cases, ten minutes of chaos, and a Spark query under faults
	PROPTEST_CASES=25600 cargo test $(CARGO_FLAGS) -p laminar-core -p laminar-aof -p laminar-log --test it -- prop_ _prop::
	LAMINAR_SIM_SEEDS=2000 cargo test $(CARGO_FLAGS) -p laminar-raft
	LAMINAR_CRASH_ROUNDS=5000 cargo test $(CARGO_FLAGS) -p laminar-aof --test it crash::
	LAMINAR_CRASH_ROUNDS=1000 cargo test $(CARGO_FLAGS) -p laminar-raft --test it replica_crash::
	HYPOTHESIS_PROFILE=soak $(BIN)/python -m pytest tests/test_properties.py --timeout 3600
	LAMINAR_SPARK_SOAK_ROUNDS=20 $(BIN)/python -m pytest tests/spark/test_soak.py --timeout 3600
	$(BIN)/laminar chaos --seconds 600

verify: lint test doc ## All checks, changing nothing: format, lints, types, tests, docs

lint: $(DEPS) $(NATIVE)
	cargo fmt --all --check
	PYO3_PYTHON=$(abspath $(BIN)/python) cargo clippy $(CARGO_FLAGS) --workspace --all-targets -- -D warnings
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	@command -v go >/dev/null || { echo "actionlint needs Go: install it to check .github/workflows" >&2; exit 1; }
	go run github.com/rhysd/actionlint/cmd/actionlint@$(ACTIONLINT)

fix: $(DEPS) ## Format, and mend what the linters can
	cargo fmt --all
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

doc: ## Build the Rust documentation; warnings are errors
	RUSTDOCFLAGS="-D warnings" cargo doc $(CARGO_FLAGS) --no-deps -p laminar-core -p laminar-crew -p laminar-aof -p laminar-log -p laminar-raft -p laminar-rows -p laminar-store -p laminar-rpc -p laminar-client -p laminar-node

bench: $(FAST) ## Run the benches and print them beside their budgets
	cargo bench --locked -p laminar-benches
	$(BIN)/python benches/python_bench.py target/python_bench.json
	$(BIN)/python benches/table.py target/criterion target/python_bench.json

bench-streams: $(FAST) ## Measure streams from Python beside the bare disk and SQLite
	$(BIN)/python benches/streams_bench.py --json target/streams_bench.json

# Kafka's jars come by Maven into the user's cache folder; without Java it is left out, and the rest still runs.
bench-peers: $(FAST) ## Measure beside raft-engine, Kafka, SQLite and the bare disk, in one run
	cargo run $(CARGO_FLAGS) -p laminar-benches --features peers --bin aof-peers
	cargo run $(CARGO_FLAGS) -p laminar-benches --features peers --bin log-bench
	$(BIN)/python benches/streams_bench.py --kafka --json target/streams_peers.json

# Delta's PySpark and the jars of Delta and Kafka come into the user's cache folder; what cannot be had is left out.
bench-spark: $(FAST) ## Measure Spark beside Parquet, Delta and Kafka, in one run; draws target/spark_bench.png
	$(BIN)/pip install --quiet 'pyspark>=4.2' 'pandas<3' matplotlib
	$(BIN)/python benches/spark_bench.py --json target/spark_bench.json --plot target/spark_bench.png

coverage: $(DEPS) ## Lines covered, at least 80 % in each crate and in Python
	$(BIN)/python scripts/coverage.py

wheel: $(DEPS) ## Build the wheel into dist/
	$(BIN)/maturin build --profile dist --out dist

clean: ## Remove everything that was built
	rm -rf target dist $(VENV)

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { echo "laminar needs Python 3.10 or newer; set PYTHON=" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(DEPS): pyproject.toml $(VENV)/bin/python
	@command -v cargo >/dev/null || { echo "laminar needs Rust: install it with rustup" >&2; exit 1; }
	$(BIN)/python scripts/requirements.py > $(VENV)/requirements.txt
	$(BIN)/pip install --quiet -r $(VENV)/requirements.txt
	@touch $@

# Python sources are used in place; only Rust needs a build.
$(NATIVE): $(DEPS) $(RUST_SOURCES)
	PIP_QUIET=1 $(BIN)/maturin develop --release --quiet
	@rm -f $(FAST) && touch $@

# The same as in a wheel, in the same place: what was there before is built again when it is wanted.
$(FAST): $(DEPS) $(RUST_SOURCES)
	PIP_QUIET=1 $(BIN)/maturin develop --profile dist --quiet
	@rm -f $(NATIVE) && touch $@
