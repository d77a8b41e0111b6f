# opencode-shim. `make serve` and `make test` need only Python 3.11+, git and make: what else they need is set up here.
PORT = 4096
DIRECTORY = .
EXAMPLES = 20000
SPOILED = 5000
FUZZ_S = 60
REQUESTS = 20000
BIN = .venv/bin/
.DEFAULT_GOAL = help
# Some images set it. Then every worker of pytest, and every server that a test starts, compiles its modules anew.
unexport PYTHONDONTWRITEBYTECODE
.PHONY: audit outdated bench drift micro laws fuzz load soak help setup serve cluster test test-process check gen docs fmt e2e slow-all e2e-all nightly record ci clean
.PHONY: outlive cluster-chaos adopt adopt-client check-style check-types check-layers

help:  ## this list
	@sed -n 's/^\([a-z0-9 -]*\):.*## /  make \1\t/p' Makefile | expand -t 16

setup: .venv/.dev  ## all that development needs, into .venv

serve: .venv/.run  ## the server: make serve [PORT=4096] [DIRECTORY=.]
	@exec $(BIN)opencode-shim serve --port $(PORT) --directory "$(DIRECTORY)"

cluster: .venv/.dev  ## NATS, servers with agents and a front on this machine: make cluster [NODES=3] [DIRECTORY=.]
	@exec $(BIN)python -m tools.cluster --nodes $(or $(NODES),3) --directory "$(DIRECTORY)"

cluster-chaos: .venv/.dev  ## faults on a cluster at work, its promises checked: make cluster-chaos [NODES=4] [SESSIONS=200] [SECONDS=180] [SEED=1] [SEEDS=1]
	$(BIN)python -m tools.chaos --nodes $(or $(NODES),4) --sessions $(or $(SESSIONS),200) --seconds $(or $(SECONDS),180) --seed $(or $(SEED),1) --seeds $(or $(SEEDS),1)

outlive: .venv/.dev  ## turns over kill -9 at each place and at random, restarts and aborts: make outlive [SEED=1] [SEEDS=5]
	$(BIN)pytest -v tests/process/test_outlive.py tests/process/test_control.py tests/http/test_pty.py -m "" $(ARGS)
	SEED=$(or $(SEED),1) SEEDS=$(or $(SEEDS),5) $(BIN)pytest -v -n 0 tests/e2e/test_outlive.py -m "e2e" $(ARGS)

test: .venv/.dev  ## all tests but the slow, those with servers as processes, the end-to-end ones, and those that measure (`make micro`)
	$(BIN)pytest -q -n auto --dist worksteal --ignore=tests/micro --ignore=tests/process $(ARGS)

test-process: .venv/.dev  ## the server and its commands as processes: starts, stops, kill -9, restarts, services, packages
	$(BIN)pytest -q -n auto --dist worksteal tests/process $(ARGS)

test-slow: .venv/.dev  ## faults of agents and of the machine, clusters of processes, spoiled recordings, planted bugs: some minutes
	$(BIN)pytest -q -n auto --dist worksteal -m "slow and not nightly and not e2e" $(ARGS)

slow-all: .venv/.dev  ## what `make test-slow` leaves out: a request of each kind in the document, reconnects, more planted bugs
	$(BIN)pytest -q -n auto --dist worksteal -m nightly --ignore=tests/e2e --timeout=300 $(ARGS)

check: check-style check-types check-layers  ## lint, format, names, types, walls between the layers, and that generated files are current

check-style: .venv/.dev
	$(BIN)ruff check . && $(BIN)ruff format --check . && $(BIN)python -m tools.naming

check-types: .venv/.dev
	$(BIN)pyright

check-layers: .venv/.dev
	$(BIN)lint-imports --no-logo && scripts/gen --check

gen docs: .venv/.dev  ## write the generated files anew: tables of operations, settings, turns
	scripts/gen

fmt: .venv/.dev  ## format, and mend what lint can mend
	$(BIN)ruff check --fix . ; $(BIN)ruff format .

e2e: .venv/.dev  ## real agents and real clients, in a terminal and in Chromium: the newest of each, and what guards the promise
	scripts/e2e-setup
	$(BIN)pytest -q -m "e2e and not nightly" tests/e2e $(ARGS)

e2e-all: .venv/.dev  ## what `make e2e` leaves out: every version, every permission of every agent and mode: an hour
	scripts/e2e-setup
	$(BIN)pytest -q -m nightly tests/e2e $(ARGS)

adopt: .venv/.dev  ## a newer version of an agent: install, record, test, write: make adopt AGENT=x [VERSION=y] [ARGS=--dry]
	@$(BIN)python -m tools.adopt.agent $(AGENT) $(VERSION) $(ARGS)

adopt-client: .venv/.dev  ## OpenCode's document and clients of a newer version against ours: make adopt-client VERSION=y
	@$(BIN)python -m tools.adopt.client $(VERSION) $(ARGS)

outdated: .venv/.dev  ## newer versions of agents, clients and SDKs than the tested ones; exit 1 when there are
	@$(BIN)python -m tools.outdated $(ARGS)

nightly: ; .ci/nightly  ## what takes too long for CI: laws, fuzz, slow-all, e2e-all, cluster-chaos, load, soak, bench, drift, outdated, audit: hours

record: .venv/.dev  ## a real agent through our scenes into compat_fixtures: make record AGENT=x [VERSION=y] [SCENES="a b"]
	@$(BIN)python -m tools.adopt.agent $(AGENT) $(or $(VERSION),latest) $(SCENES) --record

bench: .venv/.dev  ## beside native OpenCode, its peer and the floor; writes docs/BENCHMARKS.md  [ROUNDS=5]
	scripts/e2e-setup
	$(BIN)python -m tests.bench --rounds $(or $(ROUNDS),5)

micro: .venv/.dev  ## what each step of the straight line costs for a piece of text, held against its budget: seconds
	$(BIN)pytest -q -n 0 tests/micro --benchmark-columns=min,median,rounds $(ARGS)

laws: .venv/.dev  ## properties with many examples: make laws [EXAMPLES=20000]
	SHIM_LAW_EXAMPLES=$(EXAMPLES) $(BIN)pytest -q -n auto --dist worksteal --timeout=0 -k "properties or hypothesis" $(ARGS)

fuzz: .venv/.dev  ## codecs and HTTP under spoiled input, many times: make fuzz [SPOILED=5000] [REQUESTS=20000] [FUZZ_S=60]
	SHIM_FUZZ_EXAMPLES=$(SPOILED) SHIM_API_REQUESTS=$(REQUESTS) $(BIN)pytest -q -n auto --dist worksteal -m "not e2e" --timeout=0 tests/fuzz $(ARGS)
	@$$(command -v uv || echo .uv/bin/uv) pip install -q --python $(BIN)python --target .fuzz --only-binary :all: atheris \
	  || { echo "atheris has no wheel here: only hypothesis has fuzzed"; exit 0; }; \
	for agent in claude codex pi amp opencode mock claude-agent-acp; do \
	  PYTHONPATH=.fuzz:. $(BIN)python scripts/fuzz-codecs $$agent -max_total_time=$(FUZZ_S) -verbosity=0 || exit 1; done

load: .venv/.dev  ## much at once, less than 8 minutes; writes docs/LOAD.md  [ROWS="long lines": only these, nothing is written]
	$(BIN)python -m tests.bench.load --rows "$(ROWS)"

soak: .venv/.dev  ## mixed work for minutes, and whether anything grows: make soak [MINUTES=5]; writes docs/SOAK.md
	$(BIN)python -m tests.bench.soak --minutes $(or $(MINUTES),5)

drift: .venv/.dev  ## what an SDK of OpenCode 2 has otherwise than our document, or a newer SDK than ours: make drift [VERSION=0.3.0]
	$(BIN)python -m tools.contract2 $(VERSION)

audit: .venv/.dev  ## known holes of the packages in uv.lock, by the database of OSV
	$(BIN)python scripts/audit

ci: ; .ci/run  ## what CI runs

clean:  ## remove all that these targets installed
	rm -rf .venv .uv .e2e .fuzz .ruff_cache .hypothesis .import_linter_cache

.venv/.run: uv.lock pyproject.toml scripts/setup ; @scripts/setup run
.venv/.dev: uv.lock pyproject.toml scripts/setup ; @scripts/setup dev
