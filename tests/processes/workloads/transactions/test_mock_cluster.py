"""From producers to findings on a broker that is known to be bad: librdkafka's mock cluster fences nobody and hides nothing.
What it does wrong must be found in what was really recorded."""

import numpy as np
import pytest

from prozess.checkers.registry import CHECKERS, select
from prozess.harness.checking.kernels import check_cell
from prozess.harness.history.convert import write_history
from prozess.harness.history.reader import History
from prozess.harness.interfaces.witnesses import EarlyCase
from prozess.harness.run_directory import write_json
from prozess.harness.schema import Outcome
from prozess.workloads import settings
from tests.processes.workloads.transactions.test_transactor import (
    RECORDS,
    plan_of,
    run_until,
    transactions_of,
    transactor,
)
from tests.support.anomalies import OF_CELLS
from tests.support.log_workload import TAKE_OVER, bench


@pytest.fixture(scope="module")
def checked(tmp_path_factory):
    """The run's bench and its findings by anomaly."""
    original = settings.reader_properties

    def without_checks(*arguments, **more):
        # The mock writes markers of transactions with checksum 0; a reader that checks stops there.
        return original(*arguments, **more) | {"check.crcs": False}

    patch = pytest.MonkeyPatch()
    patch.setattr(settings, "reader_properties", without_checks)
    try:
        return _checked(tmp_path_factory.mktemp("run"))
    finally:
        patch.undo()


def _checked(path):
    with bench(plan_of(standby=True), path) as made:
        made.run.plan.write_text(made.plan.model_dump_json())
        write_json(made.run.clock, {"start_monotonic_ns": 0})
        run_until(made, 30)
        made.workload.command(TAKE_OVER)
        second = next(c.client for c in made.plan.clients if c.instance)
        made.until(lambda: len(transactions_of(made, second)) >= 10, "transactions of the successor")
        made.workload.finish_sends(timeout_s=60)
        assert made.workload.fence(timeout_s=60) == {}
        assert made.workload.audit(timeout_s=20).incomplete == {}
    write_history(made.run)
    checkers = select([name for name in OF_CELLS if CHECKERS[name].applies(["transactions"])]).cell
    findings = check_cell(History.open(made.run).cell_history(0), checkers)
    return made, {finding.anomaly: finding.result for finding in findings}


def test_nothing_is_left_in_doubt(checked):
    doubts = {anomaly: result.incomplete for anomaly, result in checked[1].items() if result.incomplete}
    without = {"leaderless", "illegal-transition", "illegal-transaction-state"}
    assert doubts.keys() == without, "the mock has no controllers, whose log names leaders, and no files"
    # These transactions do not read, and the mock has no controllers.
    nothing = {"own-read", "information-cycle", "two-controllers", "stale-controller", "leaderless", "unanswered"}
    nothing |= {"not-linearizable", "illegal-transition", "illegal-transaction-state"}
    assert {anomaly for anomaly, result in checked[1].items() if not result.judged} == nothing


def test_the_zombies_commit_is_found(checked):
    made, results = checked
    result = results["zombie-write"]
    # The first goes on as long as nobody fences it: every later transaction of it is a zombie's, the held one at least.
    assert result.count >= RECORDS
    assert set(result.witnesses["client"].tolist()) == {transactor(made)}
    assert (result.witnesses["begin_ns"] < result.witnesses["end_ns"]).all()


def test_every_aborted_record_is_found_at_read_committed(checked):
    made, results = checked
    clients = [c.client for c in made.plan.clients if c.role == "transactor"]
    sends = [made.rows("sends", client) for client in clients]
    aborted = {
        (client, int(n))
        for client, rows in zip(clients, sends, strict=True)
        for n in rows["sequence"][rows["outcome"] == Outcome.FAIL]
    }
    result = results["aborted-read"]
    at_committed = result.witnesses[result.witnesses["case"] == 0]
    assert {(int(w["client"]), int(w["sequence"])) for w in at_committed} == aborted
    assert len(aborted) > RECORDS


def test_what_was_committed_is_whole(checked):
    assert checked[1]["torn"].count == 0
    assert checked[1]["lost-transaction"].count == 0
    # Nothing is hidden: readers get records of open transactions, and what stands behind them.
    assert np.isin(checked[1]["early-read"].witnesses["case"], [case.value for case in EarlyCase]).all()
