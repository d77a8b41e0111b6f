# opencode-shim. `make serve` and `make test` need only Python 3.11+, git and make: what else they need is set up here.
PORT = 4096
DIRECTORY = .
BIN = .venv/bin/
.DEFAULT_GOAL = help
.PHONY: help setup serve test check gen docs fmt e2e ci clean

help:  ## this list
	@sed -n 's/^\([a-z0-9 ]*\):.*## /  make \1\t/p' Makefile | expand -t 16

setup: .venv/.dev  ## all that development needs, into .venv

serve: .venv/.run  ## the server: make serve [PORT=4096] [DIRECTORY=.]
	@exec $(BIN)opencode-shim serve --port $(PORT) --directory "$(DIRECTORY)"

test: .venv/.dev  ## all tests but the end-to-end ones
	$(BIN)pytest -q -n auto $(ARGS)

check: .venv/.dev  ## lint, format, types, walls between the layers, and that generated files are current
	$(BIN)ruff check . && $(BIN)ruff format --check .
	$(BIN)pyright
	$(BIN)lint-imports --no-logo && scripts/gen --check

gen docs: .venv/.dev  ## write the generated files anew: tables of operations, settings, turns
	scripts/gen

fmt: .venv/.dev  ## format, and mend what lint can mend
	$(BIN)ruff check --fix . ; $(BIN)ruff format .

e2e: .venv/.dev  ## real clients and real agents, in a terminal and in Chromium
	scripts/e2e-setup
	$(BIN)pytest -q -m e2e tests/e2e $(ARGS)

ci: ; .ci/run  ## what CI runs

clean:  ## remove all that these targets installed
	rm -rf .venv .uv .e2e .ruff_cache .hypothesis .import_linter_cache

.venv/.run: uv.lock pyproject.toml scripts/setup ; @scripts/setup run
.venv/.dev: uv.lock pyproject.toml scripts/setup ; @scripts/setup dev
