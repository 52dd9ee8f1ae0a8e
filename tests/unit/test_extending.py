"""docs/extending.md is true: what it adds to prozess is added to a copy as the page says, and used there."""

import os
import re
import shutil
import subprocess
import sys

import pytest

from tests.support.added_package import extend, install
from tests.support.paths import ROOT

LIMIT_S = 240


@pytest.fixture(scope="module")
def extended(tmp_path_factory):
    """A copy of prozess with everything that the page adds to it."""
    return extend(tmp_path_factory.mktemp("extended"))


def run_in(place, script, *arguments):
    """What a script prints that imports prozess from the copy."""
    paths = os.pathsep.join((str(place), str(ROOT)))
    command = [sys.executable, "-P", "-c", script, *map(str, arguments)]
    environment = os.environ | {"PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert not done.returncode, done.stderr
    return done.stdout


FAULT = """
import sys
from pathlib import Path
from prozess.app.explain import explain
from tests.support.nemesis_bench import NemesisBench

bench = NemesisBench(Path(sys.argv[1]))
print(bench.strike("goodbye", "leave", "node:broker-1").effective.name, bench.cluster["broker-1"].state())
bench.nemesis.heal("goodbye")
print(bench.cluster["broker-1"].state())
explain("leave")
"""


def test_the_fault_of_the_page_strikes_is_healed_and_is_explained(extended, tmp_path):
    struck, healed, *explained = run_in(extended, FAULT, tmp_path / "run").splitlines()
    assert (struck, healed) == ("YES stopped", "running")
    assert "timeout_s (default 30.0)" in "\n".join(explained)


CHECKER = """
import sys
from pathlib import Path
from prozess.harness.checking.kernels import check_locally
from prozess.harness.history.reader import History
from prozess.checkers.registry import select
from prozess.harness.schema import Outcome
from tests.support.small_runs import START_NS, make_small

made = make_small(Path(sys.argv[1]))
outcomes = (Outcome.OK, Outcome.INFO, Outcome.FAIL, Outcome.INFO)
sends = [{"sequence": n, "outcome": outcome, "partition": 0} for n, outcome in enumerate(outcomes)]
made.send(1, [row | {"invoked_ns": START_NS, "completed_ns": START_NS + 5} for row in sends])
made.history()
found = [f.result for f in check_locally(History.open(made.run), select(), workers=1) if f.anomaly == "undecided"]
print([int(sequence) for result in found for sequence in result.witnesses["sequence"]])
"""


def test_the_checker_of_the_page_is_counted(extended, tmp_path):
    assert run_in(extended, CHECKER, tmp_path) == "[1, 3]\n"


WORKLOAD = """
from prozess.harness.plan.planning import make_plan
from prozess.harness.plan.trial_files import parse_trial

trial = parse_trial({"name": "two", "title": "", "workload": "two-readers"}, source="a test")
print(sorted(client.name for client in make_plan(trial, seed=1).clients if client.role == "reader"))
"""


def test_the_workload_of_the_page_has_its_clients_in_a_plan(extended):
    readers = sorted(
        f"reader-{n}-{level}" for n in ("first", "second") for level in ("read_committed", "read_uncommitted")
    )
    assert run_in(extended, WORKLOAD) == f"{readers}\n"


BACKEND = """
import sys
from pathlib import Path
from prozess.clusters.local.cluster import LocalCluster
from prozess.harness.plan import catalogue
from prozess.harness.clock import SystemClock
from prozess.harness.plan.planning import make_plan
from prozess.harness.plan.trial_files import parse_trial
from prozess.harness.run_directory import RunDirectory

LocalCluster.wait_ready = lambda self, *, timeout_s: print(timeout_s)
plan = make_plan(parse_trial({"name": "slow", "title": "", "backend": "slow"}, source="a test"), seed=1)
cluster = catalogue.BACKENDS.named(plan.backend).make(
    plan, RunDirectory(Path(sys.argv[1])), clock=SystemClock(), isolation="signals"
)
print(type(cluster).__name__)
cluster.wait_ready(timeout_s=1.5)
"""


def test_the_backend_of_the_page_is_made_for_a_trial_that_names_it(extended, tmp_path):
    assert run_in(extended, BACKEND, tmp_path / "run") == "SlowCluster\n3.0\n"


FORMAT = """
import json
import sys
from pathlib import Path
from prozess.validation.sources import read_file

path = Path(sys.argv[1])
path.write_text(json.dumps({"acme": {"out.acks": "1", "log-level": "info", "colour": "red"}}))
reading = read_file(path, ["producer"])
print({name: setting.value for name, setting in reading.scopes["producer"].items()})
print([unclear.name for unclear in reading.unclear])
"""


def test_the_format_of_the_page_is_read_and_what_it_does_not_know_is_unclear(extended, tmp_path):
    assert run_in(extended, FORMAT, tmp_path / "settings.json") == "{'acks': '1'}\n['acme.colour']\n"


# A package of its own.


@pytest.fixture(scope="module")
def acme(tmp_path_factory):
    """A place where the package of the page is installed."""
    return install(tmp_path_factory.mktemp("acme"), tmp_path_factory.mktemp("installed"))


OF_PACKAGE = """
import sys
from pathlib import Path
from prozess.harness import plugins
from prozess.app.explain import explain
from prozess.harness.checking.kernels import check_locally
from prozess.harness.history.reader import History
from prozess.harness.plan.planning import make_plan
from prozess.harness.plan.trial_files import parse_trial
from prozess.checkers.registry import select
from prozess.harness.schema import Outcome
from tests.support.nemesis_bench import NemesisBench
from tests.support.small_runs import START_NS, make_small

bench = NemesisBench(Path(sys.argv[1]))
print(bench.strike("goodbye", "stop-slowly", "node:broker-1").effective.name, bench.cluster["broker-1"].state())
bench.nemesis.heal("goodbye")
print(bench.cluster["broker-1"].state())

made = make_small(Path(sys.argv[2]))
sends = [{"sequence": n, "outcome": outcome, "partition": 0} for n, outcome in enumerate((Outcome.OK, Outcome.INFO))]
made.send(1, [row | {"invoked_ns": START_NS, "completed_ns": START_NS + 5} for row in sends])
made.history()
found = check_locally(History.open(made.run), select(), workers=1)
print(sum(one.result.count for one in found if one.anomaly == "open-ended"))

step = {"name": "a", "do": {"kind": "fault", "fault": "stop-slowly", "targets": ["leader(0)"]}}
trial = parse_trial({"name": "two", "title": "", "workload": "more-readers", "steps": [step]}, source="a test")
plan = make_plan(trial, seed=1)
print(sum(client.role == "reader" for client in plan.clients), plan.steps[0].do.fault)
print(plugins.packages())
explain("stop-slowly")
"""


def test_an_installed_package_adds_a_fault_an_undo_a_checker_and_a_workload(acme, tmp_path):
    said, struck, healed, counted, planned, packages, *explained = in_order(
        run_in(acme, OF_PACKAGE, tmp_path / "bench", tmp_path / "small").splitlines(), first="broker-1 is back"
    )
    assert (said, struck, healed) == ("broker-1 is back", "YES stopped", "running")
    assert (counted, planned, packages) == ("1", "4 stop-slowly", "{'acme-trials': '1.0'}")
    assert "timeout_s (default 60.0)" in "\n".join(explained)
    assert "may        stop a process, whose files stay" in explained


JUDGED = """
from acme_trials import StopSlowly
from prozess.harness.guarantees.verdict.judge import judge
from prozess.nemesis.registry import FAULTS
from tests.support.cells.evidence import (
    DICTIONARIES, KILL, evidence, fault, findings, lost_in, of, plan, state,
)

made = plan({"topic.replication_factor": [1]}, steps=KILL)
rows = [state(-10, 0, 1, 0, (1,)), state(5.5, 0, -1, 1, (1,)), state(8, 0, 1, 2, (1,))]
renamed = {"fault": tuple("stop-slowly" if name == "kill" else name for name in DICTIONARIES["fault"])}

def outcome():
    seen = evidence(
        made, metadata=rows, faults=fault(0, "kill", [1], 5, 7), dictionaries={**DICTIONARIES, **renamed}
    )
    (record,) = seen.fault_records
    return record.kind, of(judge(made, findings(made, lost_in(0)), seen), 0).outcome.name

print(*outcome())
FAULTS["stop-slowly"] = type("StopEvenSlower", (StopSlowly,), {})
print(*outcome())
"""


def test_a_fault_of_a_package_is_judged_by_the_nature_that_it_declares(acme):
    declared, undeclared = run_in(acme, JUDGED).splitlines()
    assert declared == "stop-slowly VIOLATED", "a broker that stops loses nothing that it has acknowledged"
    assert undeclared == "stop-slowly UNKNOWN", "a class that declares no nature itself may have done anything"


def in_order(lines, *, first):
    """The lines with one of them in front, wherever it was printed."""
    return [first, *(line for line in lines if line != first)] if first in lines else lines


def test_a_package_that_is_broken_is_named_and_nothing_runs(acme, tmp_path):
    broken = tmp_path / "broken"
    shutil.copytree(acme, broken)
    (broken / "acme_trials.py").write_text("StopSlowly = 1\n", encoding="utf-8")
    script = "from prozess.command import main; main()"
    paths = os.pathsep.join((str(broken), str(ROOT)))
    done = subprocess.run(
        [sys.executable, "-P", "-c", script, "plan", "smoke", "--isolation", "signals"],
        env=os.environ | {"PYTHONPATH": paths}, capture_output=True, text=True, timeout=LIMIT_S, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (255, "")
    assert re.match(r"prozess: acme-trials 1\.0 adds acme_trials:\w+ to prozess\.\w+, which ", done.stderr)
    assert "Traceback" not in done.stderr
