"""Copiers and applications as real processes against librdkafka's mock cluster: what they record, and how they end."""

import sys
from pathlib import Path

import numpy as np
import pytest

from prozess.checkers.registry import select
from prozess.harness.checking.kernels import check_cell
from prozess.harness.history.convert import write_history
from prozess.harness.history.reader import History
from prozess.harness.plan.planning import make_plan
from prozess.harness.plan.trial_files import parse_trial
from prozess.harness.run_directory import write_json
from prozess.harness.schema import MISSING, NONE, Outcome
from prozess.workloads import settings
from tests.support.log_workload import LIMIT_S, RESUME, bench

FOR_EVER = [sys.executable, "-c", "import time; print('at work', flush=True); time.sleep(600)"]


def plan_of(kind, rate_hz=100, **base):
    document = {
        "name": "test",
        "title": "test",
        "workload": kind,
        "topics": {"partitions": 2},
        "traffic": {"rate_hz": rate_hz},
        "isolation_levels": [],
        "base": base,
    }
    return make_plan(parse_trial(document, source="test"), seed=1)


@pytest.fixture
def _unchecked(monkeypatch):
    """The mock writes markers of transactions with checksum 0; a reader that checks stops there."""
    original = settings.reader_properties
    monkeypatch.setattr(settings, "reader_properties", lambda *a, **more: original(*a, **more) | {"check.crcs": False})


@pytest.mark.usefixtures("_unchecked")
@pytest.mark.parametrize("delivery", ["at-least-once", "at-most-once"])  # the mock forgets offsets of transactions
def test_copiers_that_nobody_disturbs_copy_every_record_once(tmp_path, delivery):
    plan = plan_of("exactly-once", **{"copier.delivery": delivery, "copier.abort_share": 0.0})
    with bench(plan, tmp_path) as b:
        b.run.plan.write_text(plan.model_dump_json())
        write_json(b.run.clock, {"start_monotonic_ns": 0})
        b.workload.command(RESUME)
        copiers = [c.client for c in plan.clients if c.role == "copier"]
        b.until(lambda: sum(len(b.rows("sends", c)) for c in copiers) > 100, "copies")
        b.workload.finish_sends(timeout_s=LIMIT_S)
        b.workload.drain(timeout_s=LIMIT_S)
        assert b.workload.fence(timeout_s=LIMIT_S) == {}
        assert b.workload.audit(timeout_s=LIMIT_S).incomplete == {}
        sent = sum(len(b.rows("sends", c.client)) for c in plan.clients if c.role == "producer")
        copies = np.concatenate([b.rows("sends", c) for c in copiers])
        processed = np.concatenate([b.rows("processed", c) for c in copiers])
    write_history(b.run)
    (finding,) = check_cell(History.open(b.run).cell_history(0), select(["not-exactly-once"]).cell)
    assert (finding.result.count, finding.result.judged, finding.result.incomplete) == (0, 2 * sent, None)
    assert len(copies) == sent
    assert (copies["outcome"] == Outcome.OK).all()
    assert (copies["transaction"] == NONE).all()
    assert (processed["done_ns"] != MISSING).all()


@pytest.mark.usefixtures("_unchecked")
def test_after_an_abort_a_copier_goes_back_and_copies_again(tmp_path):
    with bench(plan_of("exactly-once", **{"copier.members": 1, "copier.abort_share": 0.5}), tmp_path) as b:
        b.workload.command(RESUME)
        (copier,) = [c.client for c in b.plan.clients if c.role == "copier"]
        b.until(lambda: (b.rows("transactions", copier)["outcome"] == Outcome.FAIL).sum() > 3, "aborts")
        sought = b.rows("positions", copier)
        copies, reads = b.rows("sends", copier), b.rows("reads", copier)
        assert (sought["event"] == 2).sum() >= 3
        # What was given again begins at what was committed, in a span of its own.
        for row in sought[sought["event"] == 2][:-1]:
            mine = reads[(reads["span"] == row["span"]) & (reads["partition"] == row["partition"])]
            assert not len(mine) or mine["log_offset"][0] == max(0, row["log_offset"])
        assert {Outcome.OK, Outcome.FAIL} <= set(copies["outcome"].tolist())


def application(*command, **more):
    return plan_of("application", **{"application.command": list(command)}, **more)


def logs_of(b, suffix):
    return (b.run.logs / f"application-test-0.{suffix}").read_text(encoding="utf-8")


def test_an_application_runs_until_it_is_told_to_stop_and_its_output_is_kept(tmp_path):
    with bench(application(*FOR_EVER), tmp_path) as b:
        b.until(lambda: "at work" in logs_of(b, "stdout"), "the application's output")
        assert b.workload.dead_clients() == {}
        b.workload.close()
        assert b.workload.dead_clients() == {}


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["/no/such/program"], "it could not be started"),
        (
            ["sh", "-c", "echo '{{garbage'; echo no such option >&2; exit 3"],
            "exit code 3; its last words: no such option",
        ),
        (["sh", "-c", "exit 0"], "ended by itself with exit code 0"),
        (["sh", "-c", "kill -9 $$"], "was killed by signal 9"),
    ],
)
def test_an_application_that_fails_is_a_dead_client_with_its_last_words(tmp_path, command, words):
    with bench(application(*command), tmp_path) as b:
        b.until(lambda: bool(b.workload.dead_clients()), "its end")
        ((name, told),) = b.workload.dead_clients().items()
        assert name == "application-test-0"
        assert words in told
        assert "the application failed" in told


def test_what_an_application_started_is_frozen_killed_and_ended_with_it(tmp_path):
    with bench(application("sh", "-c", "sleep 600 & echo $!; wait"), tmp_path) as b:
        b.until(lambda: bool(logs_of(b, "stdout").strip()), "the pid of its child")
        (node,) = [n for n in b.workload.nodes() if n.client_role == "application"]
        child = int(logs_of(b, "stdout"))
        node.pause()
        b.until(lambda: state_of(child) == "T", "the child to stand still: a signal arrives when it is scheduled")
        node.resume()
        b.until(lambda: state_of(child) == "S", "the child to go on")
        node.kill()
        b.until(lambda: state_of(child) is None, "the child to be gone")


def state_of(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except OSError:
        return None
    return None if state in "ZX" else state
