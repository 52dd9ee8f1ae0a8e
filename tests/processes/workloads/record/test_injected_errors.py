"""Errors injected into librdkafka's mock cluster: what producers, transactors and members record of each. Never more certain
than it is, nothing left open, and who can go on does."""

import numpy as np
import pytest
from confluent_kafka import KafkaError

from prozess.harness.schema import MISSING, NONE, Outcome
from tests.processes.workloads.group.test_member import group_plan, members
from tests.processes.workloads.transactions.test_transactor import (
    END_TXN_API,
    instances_of,
    run_until,
    transactions_of,
    transactor,
)
from tests.processes.workloads.transactions.test_transactor import plan_of as transactions_plan
from tests.support.log_workload import LIMIT_S, RESUME, ClientBench, bench, plan_of
from tests.support.mock_kafka import PRODUCE_API

OFFSET_COMMIT_API, ADD_PARTITIONS_TO_TXN_API = 8, 24
IDEMPOTENT = {"acks": ["all"], "enable_idempotence": [True]}


def until_ok(b: ClientBench, more: int) -> None:
    wanted = b.total("ok") + more
    b.until(lambda: b.total("ok") >= wanted, f"{more} more acknowledgements")


# --- producers ------------------------------------------------------------------------------------------------------


def test_a_duplicate_sequence_is_a_success_that_does_not_know_its_offset(tmp_path):
    with bench(plan_of(partitions=1, **IDEMPOTENT), tmp_path) as b:
        b.workload.command(RESUME)
        until_ok(b, 20)
        b.kafka.refuse(PRODUCE_API, [KafkaError.DUPLICATE_SEQUENCE_NUMBER])
        until_ok(b, 40)
        b.workload.finish_sends(timeout_s=LIMIT_S)
        sends = b.rows("sends", b.producer)
        assert b.workload.dead_clients() == {}
    assert (sends["outcome"] == Outcome.OK).all()
    unreported = sends["log_offset"] == NONE
    assert 0 < np.count_nonzero(unreported) < len(sends)
    assert (sends["code"][unreported] == 0).all()


@pytest.mark.parametrize(
    ("code", "idempotent"),
    [
        (KafkaError.NOT_LEADER_FOR_PARTITION, True),
        (KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND, True),
        (KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND, False),
    ],
)
def test_what_may_be_tried_again_is_and_ends_acknowledged(code, idempotent, tmp_path):
    with bench(plan_of(partitions=1, acks=["all"], enable_idempotence=[idempotent]), tmp_path) as b:
        b.workload.command(RESUME)
        until_ok(b, 20)
        b.kafka.refuse(PRODUCE_API, [code] * 3)
        until_ok(b, 100)
        b.workload.finish_sends(timeout_s=LIMIT_S)
        sends = b.rows("sends", b.producer)
    assert (sends["outcome"] == Outcome.OK).all()
    if idempotent:
        assert (np.diff(sends["log_offset"]) > 0).all()


@pytest.mark.parametrize("code", [KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, KafkaError.INVALID_PRODUCER_EPOCH])
def test_what_is_wrong_with_the_producer_itself_fails_no_record_for_certain(code, tmp_path):
    with bench(plan_of(partitions=1, **IDEMPOTENT), tmp_path) as b:
        b.workload.command(RESUME)
        until_ok(b, 20)
        b.kafka.refuse(PRODUCE_API, [code])
        name = next(iter(b.producers))
        b.until(lambda: b.total("ok") >= 200 or name in b.workload.dead_clients(), "it to go on, or to die")
        b.workload.finish_sends(timeout_s=LIMIT_S)
        sends, dead = b.rows("sends", b.producer), b.workload.dead_clients()
    sent = sends["code"] != KafkaError._FATAL  # produce() of a dead instance raises that: never sent
    assert set(sends["outcome"][sent].tolist()) <= {Outcome.OK, Outcome.INFO}
    if name in dead:
        assert "the Kafka client died" in dead[name]
    else:
        assert (sends["completed_ns"] != MISSING).all()


@pytest.mark.parametrize("idempotent", [False, True])
def test_connections_that_drop_leave_nothing_open_and_nothing_certain(idempotent, tmp_path):
    with bench(plan_of(partitions=1, acks=["all"], enable_idempotence=[idempotent]), tmp_path) as b:
        b.workload.command(RESUME)
        until_ok(b, 50)
        b.kafka.down()
        b.until(lambda: b.total("issued") >= b.total("ok") + 50, "sends while nobody is there")
        b.kafka.up()
        until_ok(b, 100)
        b.workload.finish_sends(timeout_s=LIMIT_S)
        sends = b.rows("sends", b.producer)
        assert b.workload.dead_clients() == {}
    assert (sends["completed_ns"] != MISSING).all()
    assert (sends["outcome"] == Outcome.OK).all()


# --- transactors ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("api", "code"),
    [
        (END_TXN_API, KafkaError.PRODUCER_FENCED),
        (END_TXN_API, KafkaError.INVALID_PRODUCER_EPOCH),
        (ADD_PARTITIONS_TO_TXN_API, KafkaError.PRODUCER_FENCED),
        (PRODUCE_API, KafkaError.INVALID_PRODUCER_EPOCH),
    ],
    ids=["fenced at the commit", "old epoch at the commit", "fenced at the first record", "old epoch at a record"],
)
def test_a_fenced_transactor_confirms_nothing_and_another_instance_or_transaction_goes_on(api, code, tmp_path):
    with bench(transactions_plan(abort_share=0), tmp_path) as b:
        run_until(b, 5)
        client = transactor(b)
        b.kafka.refuse(api, [code])
        b.until(lambda: (transactions_of(b, client)["outcome"] != Outcome.OK)[:-1].any(), "one that was not confirmed")
        (first, *_) = np.flatnonzero(transactions_of(b, client)["outcome"] != Outcome.OK)
        b.until(lambda: len(transactions_of(b, client)) > first + 10, "others after it")
        b.workload.finish_sends(timeout_s=60)
        transactions, sends = transactions_of(b, client), b.rows("sends", client)
        instances = instances_of(b, client)
        assert b.workload.dead_clients() == {}
    hit = transactions[first]
    assert hit["outcome"] in (Outcome.INFO, Outcome.FAIL)
    of_hit = sends["transaction"] == hit["transaction"]
    assert (sends["outcome"][of_hit] != Outcome.OK).all()
    if hit["outcome"] == Outcome.FAIL:
        assert hit["ended_by"] == 2, "only a confirmed abort is a certain failure"
    assert (transactions["outcome"][transactions["transaction"] > hit["transaction"]] == Outcome.OK).any()
    assert (instances["outcome"] == Outcome.OK).all()


def test_a_transactor_whose_connections_drop_goes_on(tmp_path):
    with bench(transactions_plan(abort_share=0.2), tmp_path) as b:
        run_until(b, 5)
        client = transactor(b)
        b.kafka.down()
        before = len(transactions_of(b, client))
        b.kafka.up()
        b.until(lambda: len(transactions_of(b, client)) >= before + 10, "transactions afterwards")
        b.workload.finish_sends(timeout_s=60)
        transactions, sends = transactions_of(b, client), b.rows("sends", client)
        assert b.workload.dead_clients() == {}
    assert (transactions["completed_ns"] != MISSING).all()
    assert (sends["outcome"] == transactions[sends["transaction"]]["outcome"]).all()
    assert (transactions["outcome"][-5:] != Outcome.INFO).all()


# --- members --------------------------------------------------------------------------------------------------------


def committed_to_the_end(b: ClientBench) -> np.ndarray:
    """Commits of all members, once everything is processed and looked up."""
    b.workload.finish_sends(timeout_s=LIMIT_S)
    b.workload.drain(timeout_s=LIMIT_S)
    b.workload.fence(timeout_s=LIMIT_S)
    b.workload.close()
    sent = b.rows("sends", b.producer)
    (observer,) = [c.client for c in b.plan.clients if c.role == "observer"]
    told = b.rows("observations", observer)
    ends = {p: int((sent["partition"] == p).sum()) for p in (0, 1)}
    assert dict(zip(told["partition"].tolist(), told["value"].tolist(), strict=True)) == ends
    return np.concatenate([b.rows("commits", client) for client in members(b)])


def accepted(b: ClientBench) -> int:
    """Commits of all members."""
    return sum(int((b.rows("commits", client)["outcome"] == Outcome.OK).sum()) for client in members(b))


@pytest.mark.parametrize("code", [KafkaError.NOT_COORDINATOR, KafkaError.OFFSET_METADATA_TOO_LARGE])
def test_a_refused_commit_is_no_certain_failure_and_the_next_one_counts(code, tmp_path):
    with bench(group_plan(members=1, commit="sync-after"), tmp_path) as b:
        b.workload.command(RESUME)
        until_ok(b, 50)
        (member,) = members(b)
        b.until(lambda: (b.rows("commits", member)["outcome"] == Outcome.OK).any(), "a commit")
        b.kafka.refuse(OFFSET_COMMIT_API, [code] * 2)
        until_ok(b, 100)
        commits = committed_to_the_end(b)
    refused = commits[(commits["outcome"] != Outcome.OK) & (commits["completed_ns"] != MISSING)]
    assert (refused["outcome"] == Outcome.INFO).all()
    assert set(refused["code"].tolist()) <= {code, KafkaError.REBALANCE_IN_PROGRESS, KafkaError.ILLEGAL_GENERATION}


def test_a_group_whose_connections_drop_ends_at_the_end(tmp_path):
    # Members that wait 10 s (the default) before they connect again look as if they never would.
    soon = {"properties.reconnect.backoff.max.ms": 500}
    with bench(group_plan(members=2, commit="sync-after", **soon), tmp_path) as b:
        b.workload.command(RESUME)
        until_ok(b, 50)
        b.kafka.down()
        b.until(lambda: b.total("issued") >= b.total("ok") + 20, "sends while nobody is there")
        b.kafka.up()
        until_ok(b, 100)
        before = accepted(b)
        b.until(lambda: accepted(b) > before, "commits afterwards")
        commits = committed_to_the_end(b)
        assert b.workload.dead_clients() == {}
    assert (commits["outcome"] != Outcome.FAIL).all()
