"""Transactional producers against librdkafka's mock cluster: what they record of transactions, and that they replace what
dies. (The mock fences nobody: zombies are tried on a real cluster.)"""

import os
import signal
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from confluent_kafka import KafkaError

from prozess.harness.plan.plan import Plan
from prozess.harness.plan.planning import make_plan
from prozess.harness.plan.trial_files import parse_trial
from prozess.harness.recording.rows import read_rows
from prozess.harness.schema import METRICS, MISSING, NONE, READS, TRANSACTIONS, Isolation, Outcome
from prozess.workloads.record.sends import ABORT, COMMIT
from tests.support.log_workload import PAUSE, RESUME, TAKE_OVER, ClientBench, bench, send

END_TXN_API = 26
RECORDS = 6
DWELL_NS = 150_000_000


def plan_of(**transaction: Any) -> Plan:
    base = {"records": RECORDS, "transactional_ids": 1, "rate_hz": 200, "abort_share": 0.3} | transaction
    document = {
        "name": "test",
        "title": "test",
        "workload": "transactions",
        "base": {f"transaction.{key}": value for key, value in base.items()},
    }
    return make_plan(parse_trial(document, source="test"), seed=1)


def transactor(made: ClientBench) -> int:
    return next(c.client for c in made.plan.clients if c.role == "transactor")


def rows_now(made: ClientBench, client: int) -> np.ndarray:
    """While they are being written: one that is just being appended seems torn, and is left out."""
    return read_rows(made.run.rows, TRANSACTIONS, client)[0]


def transactions_of(made: ClientBench, client: int) -> np.ndarray:
    rows = rows_now(made, client)
    return rows[rows["transaction"] != NONE]


def instances_of(made: ClientBench, client: int) -> np.ndarray:
    rows = rows_now(made, client)
    return rows[rows["transaction"] == NONE]


def run_until(made: ClientBench, transactions: int) -> None:
    made.workload.command(RESUME)
    made.until(lambda: len(transactions_of(made, transactor(made))) >= transactions, f"{transactions} transactions")


def finish(made: ClientBench) -> tuple[np.ndarray, np.ndarray]:
    made.workload.finish_sends(timeout_s=60)
    assert made.workload.dead_clients() == {}
    return transactions_of(made, transactor(made)), made.rows("sends", transactor(made))


def test_records_have_the_outcome_and_the_end_of_their_transaction(tmp_path):
    with bench(plan_of(), tmp_path) as made:
        run_until(made, 40)
        transactions, sends = finish(made)
    assert (transactions["transaction"] == np.arange(len(transactions))).all()
    committed, aborted = transactions["ended_by"] == COMMIT, transactions["ended_by"] == ABORT
    assert committed.any()
    assert aborted.any()
    assert (transactions["outcome"][committed] == Outcome.OK).all()
    assert (transactions["outcome"][aborted] == Outcome.FAIL).all()
    assert len(sends) == RECORDS * len(transactions)
    mine = transactions[sends["transaction"]]
    assert (sends["outcome"] == mine["outcome"]).all()
    assert (sends["completed_ns"] == mine["completed_ns"]).all()
    assert (sends["log_offset"] >= 0).all()  # appended before the end was asked for, aborted ones too
    order = [mine[name] for name in ("initialised_ns", "begun_ns", "end_invoked_ns", "completed_ns")]
    assert all((a <= b).all() for a, b in pairwise(order))
    assert (sends["invoked_ns"] >= mine["begun_ns"]).all()


def test_both_partitions_are_written_in_every_transaction(tmp_path):
    with bench(plan_of(), tmp_path) as made:
        run_until(made, 5)
        transactions, sends = finish(made)
    for number in transactions["transaction"]:
        assert set(sends["partition"][sends["transaction"] == number].tolist()) == {0, 1}


def test_a_transaction_that_dwells_waits_after_half_of_its_records_and_before_its_end(tmp_path):
    with bench(plan_of(dwell_ms=150), tmp_path) as made:
        run_until(made, 4)
        transactions, sends = finish(made)
    whole = transactions[transactions["completed_ns"] != MISSING][:3]
    for row in whole:
        invoked_ns = sends["invoked_ns"][sends["transaction"] == row["transaction"]]
        assert invoked_ns[RECORDS // 2] - invoked_ns[RECORDS // 2 - 1] >= DWELL_NS
        assert row["end_invoked_ns"] - invoked_ns[-1] >= DWELL_NS


def test_a_commit_that_is_refused_for_good_is_in_doubt_and_another_instance_goes_on(tmp_path):
    with bench(plan_of(abort_share=0), tmp_path) as made:
        run_until(made, 5)
        made.kafka.refuse(END_TXN_API, [KafkaError.INVALID_TXN_STATE])
        client = transactor(made)
        made.until(lambda: len(instances_of(made, client)) == 2, "a second instance")
        before = len(transactions_of(made, client))
        made.until(lambda: len(transactions_of(made, client)) >= before + 5, "transactions of the second instance")
        transactions, sends = finish(made)
        instances = instances_of(made, client)
    doubtful = transactions[transactions["outcome"] == Outcome.INFO]
    assert len(doubtful) == 1
    assert doubtful["ended_by"][0] == COMMIT
    assert doubtful["code"][0] == KafkaError.INVALID_TXN_STATE
    assert (sends["outcome"][sends["transaction"] == doubtful["transaction"][0]] == Outcome.INFO).all()
    assert (instances["outcome"] == Outcome.OK).all()
    later = transactions["transaction"] > doubtful["transaction"][0]
    assert (transactions["initialised_ns"][later] == instances["initialised_ns"][1]).all()
    assert (transactions["outcome"][later] == Outcome.OK).all()


def test_a_commit_that_may_be_tried_again_is(tmp_path):
    with bench(plan_of(abort_share=0), tmp_path) as made:
        run_until(made, 3)
        made.kafka.refuse(END_TXN_API, [KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_LOAD_IN_PROGRESS])
        run_until(made, 20)
        transactions, _ = finish(made)
        assert len(instances_of(made, transactor(made))) == 1
    assert (transactions["outcome"] == Outcome.OK).all()


def test_a_transaction_is_left_open_past_its_timeout_and_pausing_lets_it_end(tmp_path):
    with bench(plan_of(timeout_share=1.0, abort_share=0, transaction_timeout_ms=1000), tmp_path) as made:
        run_until(made, 1)
        made.workload.command(PAUSE)
        made.until(lambda: made.total("issued") == made.total("ok") + made.total("info"), "the open one to end")
        transactions, _ = finish(made)
    assert len(transactions) == 1
    assert transactions["end_invoked_ns"][0] - transactions["begun_ns"][0] >= 1_000_000_000


def test_what_is_asked_for_is_one_committed_transaction(tmp_path):
    with bench(plan_of(abort_share=1.0), tmp_path) as made:
        made.workload.command(send(7, made.plan.cells[0]))
        made.until(lambda: made.total("ok") == 14, "14 acknowledgements")
        transactions, sends = finish(made)
    assert transactions["outcome"].tolist() == [Outcome.OK]
    assert np.bincount(sends["partition"]).tolist() == [7, 7]


def test_a_killed_transactor_leaves_its_transaction_in_doubt(tmp_path):
    with bench(plan_of(timeout_share=1.0, abort_share=0, transaction_timeout_ms=60_000), tmp_path) as made:
        run_until(made, 1)
        client = transactor(made)
        made.until(lambda: made.total("issued") == RECORDS, "its records")
        os.kill(made.pid(client), signal.SIGKILL)
        made.until_dead(next(c.name for c in made.plan.clients if c.client == client))
        transactions, sends = transactions_of(made, client), made.rows("sends", client)
        assert made.total("info") == RECORDS
    assert transactions["end_invoked_ns"].tolist() == [MISSING]
    assert (sends["completed_ns"] == MISSING).all()


def test_a_standby_takes_over_with_an_instance_of_its_own_while_the_first_holds_a_transaction(tmp_path):
    with bench(plan_of(standby=True, abort_share=0), tmp_path) as made:
        first, second = (c.client for c in made.plan.clients if c.role == "transactor")
        run_until(made, 3)
        assert len(made.rows("transactions", second)) == 0
        made.workload.command(TAKE_OVER)
        made.until(lambda: len(transactions_of(made, second)) >= 3, "transactions of the successor")
        finish(made)
        (instance,) = instances_of(made, second)
        before, held = transactions_of(made, first), made.rows("sends", first)
    overlapping = before[
        (before["begun_ns"] < instance["begun_ns"]) & (before["end_invoked_ns"] > instance["initialised_ns"])
    ]
    assert len(overlapping) == 1
    rows = held[held["transaction"] == overlapping["transaction"][0]]
    assert len(rows) == RECORDS
    assert (rows["invoked_ns"] < instance["begun_ns"]).sum() == RECORDS // 2


def test_before_the_audit_every_id_is_initialised_once_more(tmp_path):
    with bench(plan_of(transactional_ids=3), tmp_path) as made:
        run_until(made, 3)
        made.workload.finish_sends(timeout_s=60)
        assert made.workload.fence(timeout_s=60) == {}
        fencer = next(c.client for c in made.plan.clients if c.role == "fencer")
        rows = made.rows("transactions", fencer)
        owners = [c.client for c in made.plan.clients if c.role == "transactor"]
        assert made.workload.dead_clients() == {}
    assert rows["transactional_id"].tolist() == owners
    assert (rows["initialised_ns"] >= rows["begun_ns"]).all()


def test_an_id_that_cannot_be_initialised_is_told(tmp_path):
    with bench(plan_of(), tmp_path) as made:
        run_until(made, 3)
        made.workload.finish_sends(timeout_s=60)
        made.kafka.down()
        problems = made.workload.fence(timeout_s=1)
    assert list(problems) == ["cell-000-0"]
    assert "TIMED_OUT" in problems["cell-000-0"]


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ({"producer.acks": "1"}, "acks=all"),
        ({"producer.retries": "0"}, "retries > 0"),
        ({"producer.enable_idempotence": False}, "implies enable.idempotence"),
        ({"producer.delivery_timeout_ms": 20_000}, "delivery.timeout.ms=20000 exceeds"),
        ({"transaction.transaction_timeout_ms": 1_000_000}, "transaction.max.timeout.ms"),
        ({"transaction.abort_share": 0.6, "transaction.timeout_share": 0.6}, "exceeds 1"),
    ],
)
def test_combinations_that_no_transactional_producer_can_have_are_left_out_with_the_reason(setting, reason):
    key, value = next(iter(setting.items()))
    document = {
        "name": "test",
        "title": "test",
        "workload": "transactions",
        "base": dict(list(setting.items())[1:]),
        "axes": {key: [value, {"producer.acks": "all", "producer.retries": "max"}.get(key, _fine(key))]},
    }
    plan = make_plan(parse_trial(document, source="test"), seed=1)
    assert len(plan.cells) == 1
    assert plan.cells[0].producer.enable_idempotence
    (left_out,) = plan.excluded
    assert reason in left_out.reason


def _fine(key: str) -> Any:
    return {
        "producer.enable_idempotence": True,
        "producer.delivery_timeout_ms": 9_000,
        "transaction.transaction_timeout_ms": 10_000,
        "transaction.abort_share": 0.1,
    }.get(key)


def test_statistics_are_recorded_of_a_transactor_and_of_one_that_stands_by(tmp_path):
    plan = plan_of(standby=True).model_copy(update={"metrics": True})
    with bench(plan, tmp_path) as made:
        mine = [c.client for c in made.plan.clients if c.role == "transactor"]
        assert len(mine) == 2
        made.until(lambda: all(len(read_rows(made.run.rows, METRICS, c)[0]) for c in mine), "a report of each")


def test_whatever_a_transactor_reads_it_reads_inside_its_transactions(tmp_path):
    with bench(plan_of(reads="read_uncommitted"), tmp_path) as made:

        def reads() -> np.ndarray:
            return read_rows(made.run.rows, READS, transactor(made))[0]

        made.workload.command(RESUME)
        made.until(lambda: len(reads()) > 0, "reads inside transactions")
        finish(made)
        rows = transactions_of(made, transactor(made))
        place = np.searchsorted(rows["begun_ns"], reads()["read_ns"], side="right") - 1
        assert (place >= 0).all()
        assert (reads()["read_ns"] <= rows["end_invoked_ns"][place]).all()
        assert (reads()["sender"] == transactor(made)).all()
    assert made.rows("clients", transactor(made))["isolation"].tolist() == [Isolation.READ_UNCOMMITTED]


def test_a_transaction_that_is_not_to_read_does_not(tmp_path):
    with bench(plan_of(), tmp_path) as made:
        run_until(made, 3)
        finish(made)
        assert not len(made.rows("reads", transactor(made)))
