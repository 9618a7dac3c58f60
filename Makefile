# The project's commands. `make` tests and lints; `make help` lists the rest.
# Every target makes what it needs: .venv is created on first use and refreshed when pyproject.toml changes.

BIN := .venv/bin
DEMO := .demo
ARGS ?=
JOBS ?= 3
# A crashed test process fails the run: it is not replaced, and its test is not run again.
SPREAD = -n $(JOBS) --dist loadfile --no-loadscope-reorder --max-worker-restart=0 --durations=10
PYTEST = $(BIN)/python -m pytest $(SPREAD)
# Tests start many processes. Each would compile all of Foliot again if the first one did not store the bytecode.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: all help run test test-full test-under-load torture coverage check fmt bench bench-peers screenshots venv clean

all: test check  ## test and lint (the default)

help:  ## list the targets
	@sed -n 's/^\([a-z-]*\):.*##  *\(.*\)/\1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{ printf "  make %-16s %s\n", $$1, $$2 }'

run:  ## start scheduler, worker and dashboard (port 8300; ARGS="--port 8400" for another) on a fresh store, with the example app
	@scripts/bootstrap_venv
	@rm -rf $(DEMO) && mkdir -p $(DEMO)
	$(BIN)/foliot up --app examples/learning_platform.py --store sqlite:///$(DEMO)/foliot.db $(ARGS)

test: venv  ## run the tests (some minutes); ARGS="-k lease -x" goes to pytest, JOBS=0 runs them in one process
	$(PYTEST) $(ARGS)

test-full: venv  ## run whole matrices and long properties too, and the store contract on a second PostgreSQL
	FOLIOT_TESTS=full $(PYTEST) $(ARGS)
	FOLIOT_TESTS=full FOLIOT_TEST_POSTGRES=wheel FOLIOT_REQUIRE=postgres $(PYTEST) tests/contract -k postgres

test-under-load: venv  ## run the tests three times in random order, beside busy loops and a disk writer
	$(BIN)/python scripts/test_under_load --rounds 3 -- $(SPREAD) $(ARGS)

torture: venv  ## run hours of faults and of random inputs
	FOLIOT_TESTS=torture $(PYTEST) -v $(ARGS)

coverage: venv  ## run the tests and report covered lines and branches of src/foliot, child processes included
	rm -f .coverage .coverage.*
	$(BIN)/coverage run -m pytest $(SPREAD) $(ARGS)
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report --skip-covered --sort=cover

check: venv  ## lint, formatting, types, who imports whom
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

fmt: venv  ## format, and fix what can be fixed safely
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench:  ## measure, and plot
	@scripts/bootstrap_venv dev bench
	$(BIN)/python -m bench $(ARGS)

bench-peers:  ## measure other schedulers and ours on one PostgreSQL server, and plot
	@scripts/bootstrap_venv dev bench
	$(BIN)/python -m bench.peers $(ARGS)

screenshots:  ## take the pictures of the dashboard that the documentation shows
	@scripts/bootstrap_venv dev bench
	$(BIN)/python scripts/screenshots $(ARGS)

venv:  ## make or refresh .venv
	@scripts/bootstrap_venv dev

clean:  ## remove everything that these targets made
	rm -rf .venv $(DEMO) build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .coverage .coverage.*
	find src tests bench examples -name __pycache__ -type d -prune -exec rm -rf {} +
