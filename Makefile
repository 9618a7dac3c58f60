# The house's commands. `make` tests and lints; `make help` lists the rest.
# Every target makes what it needs: .venv is created on first use and refreshed when pyproject.toml changes.

BIN := .venv/bin
DEMO := .demo
ARGS ?=
JOBS ?= 3
# Tests start hundreds of processes: each would compile the whole house anew if nobody kept what the first one compiled.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: all help run test check fmt torture bench bench-peers screenshots venv clean

all: test check  ## test and lint (the default)

help:  ## list the targets
	@sed -n 's/^\([a-z-]*\):.*##  *\(.*\)/\1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{ printf "  make %-11s %s\n", $$1, $$2 }'

run:  ## start scheduler, worker and dashboard (http://127.0.0.1:8300) on a fresh store, with the example app
	@scripts/bootstrap_venv
	@rm -rf $(DEMO) && mkdir -p $(DEMO)
	@echo "the dashboard: http://127.0.0.1:8300 (make run ARGS=\"--port 8400\" serves it elsewhere)"
	$(BIN)/foliot up --app examples/learning_platform.py --store sqlite:///$(DEMO)/foliot.db $(ARGS)

test: venv  ## run the tests; ARGS="-k lease -x" goes to pytest, JOBS=0 runs them in one process
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder $(ARGS)

check: venv  ## lint, formatting, types, who imports whom
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

fmt: venv  ## format, and fix what can be fixed safely
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

torture: venv  ## the long forms of what `make test` does briefly: faults, comparisons, whatever is random
	FOLIOT_TORTURE=1 $(BIN)/python -m pytest -v tests/faults tests/examples tests/timing tests/dispatch tests/contract tests/policies tests/web/test_fuzz.py tests/app/test_breaker.py tests/store/test_postgres_walk.py $(ARGS)

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
	rm -rf .venv $(DEMO) build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .coverage
	find src tests bench examples -name __pycache__ -type d -prune -exec rm -rf {} +
