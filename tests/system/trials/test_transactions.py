"""The transactions trial on real Kafka: held at read_committed, shown at read_uncommitted, and every zombie fenced."""

import numpy as np
import pytest

from prozess.checkers.transactions.index import NEVER, Transactions
from prozess.harness.history.convert import History
from prozess.harness.schema import Outcome
from prozess.harness.verdict import AnomalyOutcome, Verdict

pytestmark = [pytest.mark.cluster, pytest.mark.long]  # its cheaper neighbour is test_every_workload.py


@pytest.fixture(scope="module")
def finished(run_trial, need):
    """(run directory, verdict, what was stated)"""
    need("java")
    need("namespaces")
    done = run_trial("transactions", "--engine", "local")
    return done.run, done.verdict, done.errors


def test_at_read_committed_every_promise_is_held(finished):
    _, verdict, errors = finished
    assert verdict.verdict is Verdict.HELD, (verdict.sentence, errors)
    for cell in verdict.cells:
        for anomaly in ("torn", "lost-transaction", "zombie-write", "lost", "duplicate", "reordered"):
            assert cell.anomalies[anomaly].verdict is Verdict.HELD, (cell.name, anomaly)
            assert cell.anomalies[anomaly].count == 0, (cell.name, anomaly)


def test_at_read_uncommitted_what_was_aborted_or_open_is_shown(finished):
    for cell in finished[1].cells:
        for anomaly in ("aborted-read", "early-read"):
            assert cell.anomalies[anomaly].outcome is AnomalyOutcome.PERMITTED, (cell.name, anomaly)
            assert cell.anomalies[anomaly].forbidden == 0
    assert all(control.fired_in for control in finished[1].controls)


def test_what_transactions_read_themselves_is_hidden_at_read_committed_only(finished):
    for cell in finished[1].cells:
        hides = cell.axes["transaction.reads"] == "read_committed"
        for anomaly in ("own-read", "information-cycle"):
            found = cell.anomalies[anomaly]
            assert found.outcome is (AnomalyOutcome.HELD if hides else AnomalyOutcome.PERMITTED), (cell.name, anomaly)
            assert found.proven or not hides


def test_zombies_tried_and_were_fenced(finished):
    history = History.open(finished[0])
    transactions = Transactions(history.table("transactions"))
    superseded_ns, _ = transactions.superseded
    columns = transactions.columns
    # Every id was taken over twice, once from a producer that held a transaction: those went on and ended as zombies.
    tried = columns["completed_ns"] > superseded_ns
    ids = len({c.transactional_id for c in history.plan.clients if c.transactional_id})
    assert len(np.unique(columns["transactional_id"][tried])) == ids
    # One that had asked for its commit before may learn afterwards that it was made.
    late = columns["begun_ns"] < superseded_ns
    late &= transactions.commit_invoked_ns > superseded_ns
    assert (columns["outcome"][tried & late] != Outcome.OK).all()
    assert (tried & (transactions.commit_invoked_ns != NEVER)).any()  # some had nothing left to do but to commit
