"""Schedules of transactions: the role `transaction-coordinator(c)`, and the step that takes transactional.ids over."""

import pytest

from prozess.harness.errors import BadInput
from prozess.harness.interfaces import PartitionView
from prozess.harness.plan.planning import make_plan
from prozess.harness.plan.schedule import TakeOver
from prozess.harness.plan.trial_files import parse_trial
from prozess.nemesis.roles import TRANSACTION_STATE, Roles, TargetMissing
from tests.support.clock import FakeClock
from tests.unit.nemesis.test_targets import FakeCluster, FakeNode
from tests.unit.prozess.app.run.test_schedule_runner import Scripted, plan_with, run

LEADERS = {0: 2, 1: 3, 2: 1}


class Admin:
    """Every broker knows three partitions of __transaction_state."""

    def __init__(self, leaders):
        self._views = {
            (TRANSACTION_STATE, number): PartitionView(leader=leader, leader_epoch=1, replicas=(1, 2, 3), isr=(1, 2, 3))
            for number, leader in leaders.items()
        }

    def view(self, node_id, topics, *, timeout_s=2.0):
        return self._views

    def views(self, topics, *, timeout_s=2.0):
        return {1: self._views, 2: self._views, 3: self._views}


def resolve(transactional_id, leaders=LEADERS):
    nodes = [FakeNode(f"broker-{b}", b, frozenset({"broker"})) for b in (1, 2, 3)]
    roles = Roles(
        FakeCluster(nodes), Admin(leaders), dict, FakeClock(), transactional_ids=lambda: {4: transactional_id}
    )
    return [node.name for node in roles.resolve("transaction-coordinator(4)")]


@pytest.mark.parametrize(
    ("transactional_id", "partition"),
    # As Java's String.hashCode: "a" = 97, "b" = 98, "c" = 99; "hello" = 99162322; the last one is negative.
    [("a", 1), ("b", 2), ("c", 0), ("hello", 99162322 % 3), ("prozess transactions", None)],
)
def test_the_coordinator_leads_the_partition_that_the_ids_hash_falls_to(transactional_id, partition):
    if partition is None:
        value = 0
        for character in transactional_id:
            value = (31 * value + ord(character)) % 2**32
        assert value >= 2**31, "not negative in Java"
        partition = (2**32 - value) % 3
    assert resolve(transactional_id) == [f"broker-{LEADERS[partition]}"]


def test_without_a_leader_there_is_no_coordinator():
    with pytest.raises(TargetMissing, match="__transaction_state-1 has no leader"):
        resolve("a", {0: 1, 1: -1, 2: 3})
    with pytest.raises(TargetMissing, match="no living broker knows __transaction_state"):
        resolve("a", {})


def test_a_cell_without_transactions_has_no_coordinator():
    step = {"name": "s", "do": {"kind": "fault", "fault": "kill", "targets": ["transaction-coordinator(0)"]}}
    with pytest.raises(BadInput, match="cell 0 has no transactional producers"):
        make_plan(parse_trial({"name": "t", "title": "", "steps": [step]}, source="t"), seed=1)
    make_plan(parse_trial({"name": "t", "title": "", "workload": "transactions", "steps": [step]}, source="t"), seed=1)


def with_standby(standby):
    step = {"name": "s", "do": {"kind": "take_over", "hold": False}}
    return plan_with(step, workload="transactions", base={"transaction.standby": standby})


def test_a_take_over_goes_to_the_clients_as_the_schedule_has_it():
    scripted = Scripted()
    assert run(with_standby(True), scripted, clock=FakeClock())[0]
    assert scripted.done == [TakeOver(kind="take_over", hold=False)]


def test_where_nobody_stands_by_nothing_can_be_taken_over():
    with pytest.raises(BadInput, match=r"none of its 1 cells .* \"transaction.standby\" = true"):
        with_standby(False)
